"""Parse a query: its words, people and dates, and whether it asks about the past."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Container, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Literal, TypeAlias

from sqlalchemy import Connection

from palimpsest.core.clock import TimeSpan, parse_span
from palimpsest.core.models import Scope
from palimpsest.store import messages
from palimpsest.text.dates.date_finder import dates_in
from palimpsest.text.dates.date_spans import DateSpan
from palimpsest.text.stopwords import asks_for_the_past
from palimpsest.text.time_questions import TimeQuestion
from palimpsest.text.tokenizer import query_tokens, search_tokens

# The time that a question asks about.

Sense: TypeAlias = Literal["", "now", "unsaid", "at", "changed", "before", "planned"]


@dataclass(frozen=True, slots=True)
class Moment:
    """The time that a question asks about.

    `sense`: what holds now, said or unsaid, what held at a time, what changed in it, what was before something, or what
    is planned for a time.
    """

    sense: Sense
    span: TimeSpan

    def has(self, instant: datetime) -> bool:
        """Return whether an instant lies in the stretch."""
        return self.span.first <= instant <= self.span.last


def moment_of(
    asked: TimeQuestion, text: str, dates: Sequence[DateSpan], now: datetime, held_at: TimeSpan | None
) -> Moment:
    """Return the time that a question with some dates asks about."""
    present = TimeSpan(now, now)
    if held_at is not None:
        return Moment("changed" if asked.sense == "changed" else "at", held_at)
    if asked.sense in ("length", "before"):
        return Moment("" if asked.sense == "length" or dates else "before", present)
    span = _said_time(text, dates)
    if span is not None:
        return Moment("changed" if asked.sense == "changed" else "at", span)
    if asked.sense == "now":
        return Moment("now", present)
    coming = next((date for date in dates if date.end > now), None)
    if coming is not None and (asked.is_plan or coming.is_relative):
        return Moment("planned", TimeSpan(max(coming.start.astimezone(UTC), now), coming.end.astimezone(UTC)))
    if asked.is_plan and not dates:
        return Moment("planned", TimeSpan(now, datetime.max.replace(tzinfo=UTC)))
    return Moment("" if dates or asked.sense or asks_for_the_past(text) else "unsaid", present)


_YEAR_IN_TEXT = re.compile(r"(?<![\d.,:-])((?:19|20)\d\d)(?![\d:-]|[.,]\d)")


def _said_time(text: str, dates: Sequence[DateSpan]) -> TimeSpan | None:
    """Return the time that a question says with its year. A day or a month without one is seldom about a state."""
    said = next((span for span in dates if not (span.is_year_guessed or span.is_relative)), None)
    if said is not None:
        return TimeSpan(said.start.astimezone(UTC), said.end.astimezone(UTC))
    years = _YEAR_IN_TEXT.findall(text)
    if not years:
        return None
    return TimeSpan(parse_span(years[0], "year").first, parse_span(years[-1], "year").last)


@dataclass(frozen=True, slots=True)
class ParsedQuery:
    """A query and what the ranking needs to know of it.

    A speaker's name is on each of their messages, so it says who and not what: `words` are the search tokens to look
    for, without the `names` of speakers unless there are no other words. `also` are those of each other wording.
    `speakers` are the people named. `dates` are read at the time of the query, whose zone is `zone`. Only words and
    meaning count of the other wordings, for a wording may guess a date or a name. `exact_parts` are in the form of
    `exact_form`, and `look_alikes` are as that function returns them. `asked` is what the question asks of time, and
    `moment` which time it asks about.
    """

    text: str
    words: tuple[str, ...]
    names: frozenset[str]
    speakers: frozenset[str]
    dates: tuple[DateSpan, ...]
    is_about_the_past: bool
    zone: tzinfo = UTC
    also: tuple[tuple[str, ...], ...] = ()
    exact_parts: tuple[str, ...] = ()
    look_alikes: tuple[tuple[str, re.Pattern[str]], ...] = ()
    asked: TimeQuestion = field(default_factory=TimeQuestion)
    moment: Moment | None = None

    @classmethod
    def of(
        cls,
        conn: Connection,
        scope: Scope,
        text: str,
        now: datetime,
        *,
        also: Sequence[str] = (),
        people: Sequence[str] = (),
        held_at: TimeSpan | None = None,
    ) -> ParsedQuery:
        """Take a query apart. The speakers are those whose messages the scope sees, `people` others that it names."""
        words = query_tokens(text)
        first_names = {name: search_tokens(name)[:1] for name in messages.speakers(conn, scope.user_id)}
        speakers = {
            name
            for name, first_name in first_names.items()
            if set(first_name) & set(words) and messages.has_speaker(conn, scope, name)
        }
        names = frozenset(word for speaker in speakers for word in first_names[speaker])
        dates, asked = dates_in(text, now, guesses=True), TimeQuestion.of(text, people)
        return cls(
            text,
            tuple(dict.fromkeys([word for word in words if word not in names] or words)),
            names,
            frozenset(speakers),
            dates,
            asks_for_the_past(text),
            now.tzinfo or UTC,
            tuple(tuple(dict.fromkeys(query_tokens(wording))) for wording in also),
            exact_parts(text),
            look_alikes(text),
            asked,
            moment_of(asked, text, dates, now, held_at),
        )

    @property
    def asks_of_the_past(self) -> bool:
        """Return whether what was replaced or has ended may answer."""
        is_past = self.moment is not None and self.moment.sense in ("at", "changed", "before")
        return is_past or self.is_about_the_past or self.asked.sense == "length" or bool(self.asked.clause)

    def part(self, text: str, known: Container[str]) -> ParsedQuery:
        """Return a part of the query as a query of its own, of the words that are known."""
        words = tuple(dict.fromkeys(word for word in query_tokens(text) if word in known))
        return replace(self, text=text, words=words, dates=(), exact_parts=(), asked=TimeQuestion(), moment=None)

    @property
    def all_words(self) -> tuple[str, ...]:
        """Return the words of all wordings, each once."""
        return tuple(dict.fromkeys((*self.words, *(word for words in self.also for word in words))))


# Parts of a query that are asked for as they are written: numbers, codes, paths, quoted phrases.

_EXACT_WORD = re.compile(r"\w+[+#]*")
"""Words and numbers; C++ and C# keep their signs."""

_QUOTED = re.compile(
    r"[\"\u201c\u201d\u201e\u00ab](.{2,80}?)[\"\u201c\u201d\u00bb]|`(.{2,80}?)`|\u300c(.{2,80}?)\u300d"
)
_CODE = re.compile(
    r"\d{3}"  # a port, a page, a part of a longer number
    r"|[^\W\d_]\d|\d[^\W\d_]|\d[.:/_-]\d"  # v2, 3b, 1.2
    r"|\w_\w|\w@\w|\w[+#]"  # slot_auction, an address, C#
    r"|\w\w\.\w|[^\W\d_]\w*/\w+/|[a-z][A-Z]"  # app.py, src/app/, camelCase
)
_COMPOUND = re.compile(r"[^\W_]+(?:-[^\W_]+)+")
_INITIALS = re.compile(r"\b[^\W\d_]\.(?: ?[^\W\d_]\b\.?)+")
"""Names that are easily taken for others: invoice-sync and invoice-sink, M.C. and M.G."""


def look_alikes(question: str) -> tuple[tuple[str, re.Pattern[str]], ...]:
    """Return the names of a question that have others like them, as in an `exact_form`, and the pattern of the others.

    Another compound begins or ends like it; other initials are any.
    """
    found: dict[str, re.Pattern[str]] = {}
    for match in _COMPOUND.finditer(question):
        first, *_, last = match[0].casefold().split("-")
        pattern = rf"\b(?:{re.escape(first)}-[^\W_]|[^\W_]+-{re.escape(last)}\b)"
        found[f" {' '.join(_exact_words(match[0]))} "] = re.compile(pattern, re.IGNORECASE)
    found |= {f" {' '.join(_exact_words(match[0]))} ": _INITIALS for match in _INITIALS.finditer(question)}
    return tuple(found.items())


_YEAR = re.compile(r"(?:19|20)\d\d|\d{1,2}(?:st|nd|rd|th)")
_SPLIT_NUMBER = re.compile(r"\d(?:[ ./()-]{0,2}\d){6,19}")
"""The digits of a telephone number or an account, however they are grouped."""


def exact_form(text: str) -> str:
    """Return the words of a text in lower case between spaces, and behind them its split numbers in one piece."""
    return f" {' '.join((*_exact_words(text), *_split_numbers(text)))} "


def exact_parts(question: str) -> tuple[str, ...]:
    """Return the parts of a question that are asked for as they are written, each as it stands in an `exact_form`."""
    quoted = [next(filter(None, match.groups())) for match in _QUOTED.finditer(question)]
    words = [word.strip("?!.,;:()[]{}<>'\"\u201c\u201d\u201e") for word in _SPLIT_NUMBER.sub(" ", question).split()]
    codes = [word for word in words if _CODE.search(word) and not _YEAR.fullmatch(word)]
    parts = [" ".join(_exact_words(part)) for part in (*quoted, *codes)]
    return tuple(dict.fromkeys(f" {part} " for part in (*parts, *_split_numbers(question)) if part))


def _exact_words(text: str) -> list[str]:
    return _EXACT_WORD.findall(unicodedata.normalize("NFKC", text).casefold())


def _split_numbers(text: str) -> list[str]:
    return ["".join(filter(str.isdigit, match.group())) for match in _SPLIT_NUMBER.finditer(text)]


# How well the dates of a query agree with an entry: with when it was said, and with the dates in its text.

EXACT = timedelta(days=10)
"""A date up to this long is exact: a week and a third of a month are, a month is not."""

SAME_FROM, SAME_TO = timedelta(days=-1), timedelta(hours=12)
"""How long before an exact date and after its end an entry fully agrees with it.

Chosen by trials on LoCoMo: people mean the day of their own time zone, and what is said at night is of the day before.
"""

NEAR_FROM, NEAR_TO = timedelta(days=-2), timedelta(days=7)
"""How long before an exact date and after its end an entry half agrees.

Chosen by trials on LoCoMo: what happened is told within the week."""

NEAR = 0.5

AFTER_TO = timedelta(days=10)
AFTER = 0.4
"""How well an entry agrees that follows a long date, such as a month, within ten days."""

COARSE_TO = timedelta(days=92)
COARSE = 0.5
"""How well a text that names a month or a quarter agrees with a day in it. A year says little."""

OTHER_YEAR = 0.5
"""How well "in the summer" agrees with a summer of another year than the one that was guessed."""

DAYS_OF_A_YEAR = 365.2425


def said_match(dates: Sequence[DateSpan], at: datetime) -> float:
    """Return how well the best of some dates agrees with the time at which something was said, from 0 to 1.

    The year of a date may only be guessed.
    """
    return max(_said(span, at) for span in dates)


def text_match(dates: Sequence[DateSpan], in_text: Sequence[DateSpan]) -> float:
    """Return how well the best of some dates agrees with the dates in a text, from 0 to 1."""
    return max((_match_of_dates(span, other) for span in dates for other in in_text), default=0.0)


def _said(span: DateSpan, at: datetime) -> float:
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


def _match_of_dates(span: DateSpan, other: DateSpan) -> float:
    """Return how well a date in a text agrees with a date of a query."""
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
