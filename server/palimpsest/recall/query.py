"""A query taken apart: its words, the people it names, its dates, and whether it asks about the past."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo

from sqlalchemy import Connection

from palimpsest.core.models import Scope
from palimpsest.store.queries import messages as message_queries
from palimpsest.text.dates.finder import dates_in
from palimpsest.text.dates.spans import DateSpan
from palimpsest.text.time_words import asks_for_the_past
from palimpsest.text.tokenizer import is_english_query, query_tokens, search_tokens


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
        first_names = {name: search_tokens(name)[:1] for name in message_queries.speakers(conn, scope.user_id)}
        speakers = {
            name
            for name, first_name in first_names.items()
            if set(first_name) & set(words) and message_queries.has_speaker(conn, scope, name)
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
