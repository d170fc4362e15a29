"""A query taken apart: words, people, dates, and whether it asks about the past."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta, tzinfo
from typing import NamedTuple

from sqlalchemy import Connection

from palimpsest.core.models import Scope
from palimpsest.store import messages
from palimpsest.text.dates.date_finder import dates_in
from palimpsest.text.dates.date_spans import DateSpan
from palimpsest.text.stopwords import asks_for_the_past
from palimpsest.text.tokenizer import is_english_query, query_tokens, search_tokens

# A query taken apart: its words, the people it names, its dates, and whether it asks about the past.


@dataclass(frozen=True, slots=True)
class ParsedQuery:
    """A query and what the ranking needs to know of it.

    A speaker's name is on each of their messages, so it says who and not what: `words` are the search tokens to look
    for, without the `names` of speakers unless there are no other words. `speakers` are the people named. `dates` are
    read at the time of the query, whose zone is `zone`.
    """

    text: str
    words: tuple[str, ...]
    names: frozenset[str]
    speakers: frozenset[str]
    dates: tuple[DateSpan, ...]
    is_english: bool
    is_about_the_past: bool
    zone: tzinfo = UTC

    @classmethod
    def of(cls, conn: Connection, scope: Scope, text: str, now: datetime) -> ParsedQuery:
        """Take a query apart. The speakers are those whose messages the scope sees."""
        words = query_tokens(text)
        first_names = {name: search_tokens(name)[:1] for name in messages.speakers(conn, scope.user_id)}
        speakers = {
            name
            for name, first_name in first_names.items()
            if set(first_name) & set(words) and messages.has_speaker(conn, scope, name)
        }
        names = frozenset(word for speaker in speakers for word in first_names[speaker])
        return cls(
            text,
            tuple(dict.fromkeys([word for word in words if word not in names] or words)),
            names,
            frozenset(speakers),
            dates_in(text, now, guesses=True),
            is_english_query(text),
            asks_for_the_past(text),
            now.tzinfo or UTC,
        )

    @property
    def tokens(self) -> frozenset[str]:
        """Return the words and the names."""
        return frozenset(self.words) | self.names

    @property
    def numbers(self) -> Sequence[str]:
        """Return the words that hold a digit: versions, ports, codes, years."""
        return [word for word in self.words if any(char.isdigit() for char in word)]


# How well the dates of a question agree with an entry: with when it was said, what it tells of, and when it holds.

EXACT = timedelta(days=10)
"""A date up to this long is exact. Set by hand: a week and a third of a month are, a month is not."""

SAME_FROM, SAME_TO = timedelta(days=-1), timedelta(hours=12)
"""How long before an exact date and after its end an entry fully agrees with it.

Set by hand after trials on LoCoMo: people mean the day of their own time zone, and what is said at night is of the day
before.
"""

NEAR_FROM, NEAR_TO = timedelta(days=-2), timedelta(days=7)
"""How long before an exact date and after its end an entry half agrees.

Set by hand after trials on LoCoMo: what happened is told within the week.
"""

NEAR = 0.5

AFTER_TO = timedelta(days=10)
AFTER = 0.4
"""How well an entry agrees that follows a long date, such as a month, within ten days. Set by hand, as NEAR."""

COARSE_TO = timedelta(days=92)
COARSE = 0.5
"""How well a text that names a month or a quarter agrees with a day in it. Set by hand, as NEAR. A year says little."""

OTHER_YEAR = 0.5
"""How well "in the summer" agrees with a summer of another year than the one that was guessed. Set by hand, as NEAR."""

DAYS_OF_A_YEAR = 365.2425


class DateMatch(NamedTuple):
    """How well an entry agrees with the dates of a question, each from 0 to 1; all are 0 for a question without dates.

    `said` compares them with when the entry was said, `told` with the dates in its text and with when it happened,
    `holds` with the time in which it holds.
    """

    said: float = 0.0
    told: float = 0.0
    holds: float = 0.0


def date_match(
    question: Sequence[DateSpan],
    said_at: datetime,
    text: Sequence[DateSpan] = (),
    *,
    happened_at: datetime | None = None,
    valid_from: datetime | None = None,
    valid_until: datetime | None = None,
) -> DateMatch:
    """Compare the dates of a question with an entry; of several dates the best agreement counts.

    `text` are the dates in the entry's text, read at `said_at`. Without `valid_from` the entry holds from `said_at` on.
    """
    if not question:
        return DateMatch()
    told = [_told(span, other) for span in question for other in text]
    if happened_at is not None:
        told += [_agreement(span, happened_at) for span in question]
    return DateMatch(
        said=max(_said(span, said_at) for span in question),
        told=max(told, default=0.0),
        holds=float(any(_holds(span, valid_from or said_at, valid_until) for span in question)),
    )


def _said(span: DateSpan, at: datetime) -> float:
    """Return how well the time at which something was said agrees with a date, whose year may only be guessed."""
    years = span.start.year - at.year
    if not years or not span.is_year_guessed or span.relation != "in":
        return _agreement(span, at)
    in_same_year = at + timedelta(days=round(DAYS_OF_A_YEAR * years))
    return max(_agreement(span, at), OTHER_YEAR * _agreement(span, in_same_year))


def _agreement(span: DateSpan, at: datetime) -> float:
    """Return how well a time agrees with a date."""
    if span.relation == "before":
        return float(at < span.start)
    if span.relation == "since":
        return float(at >= span.start)
    if span.end - span.start > EXACT:
        return 1.0 if span.start <= at < span.end else AFTER if span.end <= at < span.end + AFTER_TO else 0.0
    if span.start + SAME_FROM <= at <= span.end + SAME_TO:
        return 1.0
    return NEAR if span.start + NEAR_FROM <= at <= span.end + NEAR_TO else 0.0


def _told(span: DateSpan, other: DateSpan) -> float:
    """Return how well a date in a text agrees with a date of a question."""
    years = span.start.year - other.start.year
    if not years or not (span.is_year_guessed or other.is_year_guessed):
        return _overlap(span, other)
    shift = timedelta(days=round(DAYS_OF_A_YEAR * years))
    in_same_year = replace(other, start=other.start + shift, end=other.end + shift)
    certainty = 1.0 if other.is_year_guessed else OTHER_YEAR
    return max(_overlap(span, other), certainty * _overlap(span, in_same_year))


def _overlap(span: DateSpan, other: DateSpan) -> float:
    length = other.end - other.start
    if span.relation != "in" or other.end <= span.start or span.end <= other.start:
        return _agreement(span, other.start)
    if length <= max(span.end - span.start, EXACT):
        return 1.0
    return COARSE if length <= COARSE_TO else 0.0


def _holds(span: DateSpan, start: datetime, end: datetime | None) -> bool:
    """Return whether something that holds from `start` to `end` does so at a date, before it, or since."""
    if span.relation == "before":
        return start < span.start
    has_not_ended = end is None or end > span.start
    return has_not_ended and (span.relation == "since" or start < span.end)
