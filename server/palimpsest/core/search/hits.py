"""What a search finds: candidates, hits, and the rows that vector indexes follow. All are immutable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, tzinfo
from typing import Any, Literal, NamedTuple

from palimpsest.core.clock import Precision, in_zone, shown_date
from palimpsest.core.models import Kind


class Candidate(NamedTuple):
    """An entry that may become a hit, with what ranking needs besides its similarity to the query.

    An entry is a memory or message as search sees it. `seq` is its number in the vector index and the full text.
    `speaker` is who wrote the message or whom the memory is about. `chars` is the length of a message and 0 for a
    memory. `is_question` is whether the text ends in a question mark, `is_page` whether it is a page. `text` is the
    beginning of the text. This is a tuple because one search creates hundreds of them.
    """

    seq: int
    kind: Kind
    owner_id: str
    at: datetime
    speaker: str = ""
    session: str = ""
    chars: int = 0
    is_question: bool = False
    text: str = ""
    is_page: bool = False


@dataclass(frozen=True, slots=True)
class IndexLogRow:
    """One row of the index log: a vector index must upsert or delete entry `entry_seq` of a user."""

    seq: int
    entry_seq: int
    user_id: str
    op: Literal["upsert", "delete"]


@dataclass(frozen=True, slots=True)
class DocumentPage:
    """Which page of which document a message is. `id` is that of the document, and pages are counted from 1."""

    id: str
    title: str
    page: int

    def __str__(self) -> str:
        """Return the title and the page, for the line of a hit."""
        return f"{self.title or 'a document'}, page {self.page}"


@dataclass(frozen=True, slots=True)
class Hit:
    """One result of a search. `score` is between 0 and 1; scores of different searches are not comparable.

    `relevance` is the calibrated probability that the hit answers the query. It never rises from one hit to the next.
    `at` is when it happened if `is_event_date`, else when it was said.
    If `text` is only the beginning of a long text, `length` is the number of characters of the whole text.

    `sources` are the ids by which the caller knows the messages behind the hit, `message_ids` their ids in the ledger.
    `score_parts` are the named parts of the score if the search was to explain itself, else empty. `project` is the
    project it belongs to, or "". `session` is the id of the conversation of a message, and "" for a memory. `document`
    says which page it is, if it is one. `superseded_by` is the id of the memory that took the place of a deleted one.
    """

    id: str
    kind: Kind
    text: str
    score: float
    at: datetime
    created_at: datetime
    updated_at: datetime
    sources: tuple[str, ...] = ()
    role: str = ""
    name: str = ""
    tags: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    message_ids: tuple[str, ...] = ()
    score_parts: Mapping[str, float] = field(default_factory=dict[str, float])
    relevance: float = 0.0
    length: int | None = None
    at_precision: Precision = ""
    project: str = ""
    session: str = ""
    document: DocumentPage | None = None
    superseded_by: str = ""
    is_event_date: bool = False

    def in_zone(self, zone: tzinfo | None) -> Hit:
        """Return this hit with its time as one of a zone. A day, a month or a year has none."""
        return self if self.at_precision else replace(self, at=in_zone(self.at, zone))

    @property
    def date(self) -> str:
        """Return the date of `at` as ISO 8601, as exactly as it is known: a day, a month or a year."""
        return shown_date(self.at, self.at_precision)


PROBABLE = 0.5
"""From this relevance on, a hit probably answers the query."""


def probable(hits: Sequence[Hit]) -> list[Hit]:
    """Return the hits that probably answer the query."""
    return [hit for hit in hits if hit.relevance >= PROBABLE]


@dataclass(frozen=True, slots=True)
class ChangedMemory:
    """A memory that a row of the index log names: its id and revision, whose it is, and in which project."""

    log_number: int
    id: str
    revision: int
    user_id: str
    project: str
