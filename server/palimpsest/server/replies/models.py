"""Results as JSON: one model for each kind of reply. A key that says nothing is left out.

Instants are ISO 8601 in UTC, to the second. Ids are full ids.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from operator import not_
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, PlainSerializer

from palimpsest.core.clock import iso, shown_time
from palimpsest.core.entities import KnownRelation, Relation
from palimpsest.core.models import Event, Kind, Outcome, Scope
from palimpsest.core.search.hits import DocumentPage, Hit
from palimpsest.server.replies.documents import learned_json
from palimpsest.server.replies.notes import (
    MAX_ECHO,
    TOOLS,
    Advice,
    added_notes,
    changed_notes,
    other_project,
    scope_note,
    short,
    shortened_notes,
    summary_notes,
)
from palimpsest.text.relations import dated
from palimpsest.text.shorten import shorten

if TYPE_CHECKING:  # slow to import, and only needed for the annotations
    from palimpsest.learn.apply import WriteResult
    from palimpsest.learn.views.kinds import SummaryResult
    from palimpsest.recall.listing import Page
    from palimpsest.recall.pipeline import SearchResult
    from palimpsest.recall.similar import SimilarMemory


MAX_SUMMARY_SOURCES = 50
"""How many memories a reply names as what a summary rests on: 50 short ids are 600 bytes. Set by hand."""


def _long_length(text: str) -> int | None:
    """Return the length of a text that is too long to be repeated, else None."""
    return len(text) if len(text) > MAX_ECHO else None


def _is_long(text: str) -> bool | None:
    return len(text) > MAX_ECHO or None


def _is_none(value: object) -> bool:
    return value is None


Instant = Annotated[datetime, PlainSerializer(iso)]
Score = Annotated[float, PlainSerializer(lambda score: round(score, 3))]
Relevance = Annotated[float, PlainSerializer(lambda relevance: round(relevance, 2))]
LeftOutIfNone = Field(default=None, exclude_if=_is_none)
LeftOutIfEmpty = Field(default=(), exclude_if=not_)
LeftOutIfBlank = Field(default="", exclude_if=not_)


class Reply(BaseModel):
    """The base of all replies. Its schema is built on first use, which keeps imports fast."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    def as_json(self) -> dict[str, Any]:
        """Return the reply as values that `json` can write."""
        return self.model_dump(mode="json")


class DocumentPageReply(Reply):
    """Which page of which document a hit is. document://{id}/{page} is the whole page."""

    id: str
    title: str
    page: int

    @classmethod
    def of(cls, place: DocumentPage) -> DocumentPageReply:
        """Return the reply for a page."""
        return cls(id=place.id, title=place.title, page=place.page)


class HitReply(Reply):
    """A memory or message, as a search or a listing returns it. A listing has no score and no relevance.

    If `truncated` is true, `text` is only the beginning of a text of `length` characters.
    """

    id: str
    kind: Kind
    text: str
    score: Score | None = LeftOutIfNone
    relevance: Relevance | None = LeftOutIfNone
    at: str
    sources: tuple[str, ...]
    role: str
    name: str
    metadata: dict[str, Any]
    created_at: Instant
    updated_at: Instant
    tags: tuple[str, ...] = LeftOutIfEmpty
    project: str = LeftOutIfBlank
    superseded_by: str | None = LeftOutIfNone
    truncated: bool | None = LeftOutIfNone
    length: int | None = LeftOutIfNone
    explained: dict[str, float] | None = LeftOutIfNone
    document: DocumentPageReply | None = LeftOutIfNone

    @classmethod
    def of(cls, hit: Hit, *, with_score: bool = True, project: str = "") -> HitReply:
        """Return the reply for a hit. `explained` holds the parts of the score that are not 0, if there are parts.

        `project` is the hit's, if the search went beyond its scope's.
        """
        parts = {name: round(part, 2) for name, part in hit.score_parts.items() if round(part, 2)}
        return cls(
            id=hit.id,
            kind=hit.kind,
            text=hit.text,
            score=hit.score if with_score else None,
            relevance=hit.relevance if with_score else None,
            at=shown_time(hit.at, hit.at_precision),
            sources=hit.sources,
            role=hit.role,
            name=hit.name,
            metadata=dict(hit.metadata),
            created_at=hit.created_at,
            updated_at=hit.updated_at,
            tags=hit.tags,
            project=project,
            superseded_by=hit.superseded_by or None,
            truncated=True if hit.length is not None else None,
            length=hit.length,
            explained=parts if hit.score_parts else None,
            document=None if hit.document is None else DocumentPageReply.of(hit.document),
        )


class RelationReply(Reply):
    """What is known between two entities, in the form of Mem0, and since and until when it holds, if that is known."""

    source: str
    relationship: str
    destination: str
    valid_from: str = LeftOutIfBlank
    valid_until: str = LeftOutIfBlank

    @classmethod
    def of(cls, relation: KnownRelation) -> RelationReply:
        """Return the reply for a relation."""
        return cls(
            source=relation.source,
            relationship=relation.relationship,
            destination=relation.destination,
            valid_from=relation.valid_from,
            valid_until=relation.valid_until,
        )

    @classmethod
    def stated(cls, relation: Relation) -> RelationReply:
        """Return the reply for a relation as a memory states it."""
        return cls(
            source=relation.source,
            relationship=relation.name,
            destination=relation.destination,
            valid_from=relation.since or "",
        )


class SearchReply(Reply):
    """The result of `search_memories`. `omitted` counts the hits that did not fit.

    `relations` are those of the entities that the query names. `confident` is false if probably nothing that is stored
    answers the query, and the results are not all that a filter leaves.
    """

    results: tuple[HitReply, ...]
    relations: tuple[RelationReply, ...] = LeftOutIfEmpty
    confident: bool
    omitted: int
    notes: tuple[str, ...]

    @classmethod
    def of(cls, result: SearchResult, scope: Scope, advice: Advice = TOOLS) -> SearchReply:
        """Return the reply for the result of a search."""
        hits = tuple(HitReply.of(hit, project=other_project(hit, scope)) for hit in result.hits)
        notes = (*result.notes, *shortened_notes(result.hits, advice), *scope_note(scope))
        return cls(
            results=hits,
            relations=tuple(map(RelationReply.of, result.relations)),
            confident=not result.is_weak,
            omitted=result.omitted,
            notes=notes,
        )


class PageReply(Reply):
    """The result of `list_memories`. `cursor` leads to the next page, and is null on the last page."""

    results: tuple[HitReply, ...]
    cursor: str | None
    notes: tuple[str, ...]

    @classmethod
    def of(cls, page: Page, scope: Scope, advice: Advice = TOOLS) -> PageReply:
        """Return the reply for a page of memories."""
        hits = tuple(HitReply.of(hit, with_score=False) for hit in page.hits)
        notes = (*page.notes, *shortened_notes(page.hits, advice), *scope_note(scope))
        return cls(results=hits, cursor=page.cursor, notes=notes)


class SimilarReply(Reply):
    """A stored memory that a new text resembles. `score` is between 0 and 1. A long text is cut, as in `HitReply`."""

    id: str
    text: str
    at: str
    score: Score
    truncated: bool | None = LeftOutIfNone
    length: int | None = LeftOutIfNone

    @classmethod
    def of(cls, similar: SimilarMemory) -> SimilarReply:
        """Return the reply for a similar memory."""
        memory = similar.memory
        return cls(
            id=memory.id,
            text=shorten(memory.text, MAX_ECHO),
            at=shown_time(memory.at, memory.at_precision),
            score=similar.likeness,
            truncated=_is_long(memory.text),
            length=_long_length(memory.text),
        )


class OutcomeReply(Reply):
    """What a write did to one memory, in the form of Mem0. What was added as past has `valid_until`.

    Of long texts only the beginning is repeated. If `truncated` is true, `memory` is cut and has `length` characters.
    """

    id: str
    event: Event
    memory: str
    previous: str | None = LeftOutIfNone
    replaced: tuple[str, ...] = LeftOutIfEmpty
    duplicate_of: str | None = LeftOutIfNone
    valid_until: str | None = LeftOutIfNone
    relations: tuple[RelationReply, ...] = LeftOutIfEmpty
    similar: tuple[SimilarReply, ...] = LeftOutIfEmpty
    truncated: bool | None = LeftOutIfNone
    length: int | None = LeftOutIfNone

    @classmethod
    def of(cls, outcome: Outcome, similar: Sequence[SimilarMemory] = ()) -> OutcomeReply:
        """Return the reply for one outcome, with the memories that the text resembles."""
        previous = outcome.previous
        is_past = outcome.event is Event.ADD and outcome.memory.deleted_at is not None
        is_said = outcome.event in (Event.ADD, Event.UPDATE)
        return cls(
            id=outcome.memory.id,
            event=outcome.event,
            memory=shorten(outcome.memory.text, MAX_ECHO),
            previous=None if outcome.event is Event.DELETE or previous is None else shorten(previous, MAX_ECHO),
            replaced=outcome.replaced,
            duplicate_of=outcome.duplicate_of,
            valid_until=outcome.memory.until if is_past else None,
            relations=tuple(map(RelationReply.stated, dated(outcome.memory) if is_said else ())),
            similar=tuple(map(SimilarReply.of, similar)),
            truncated=_is_long(outcome.memory.text),
            length=_long_length(outcome.memory.text),
        )


def _outcomes(result: WriteResult) -> tuple[OutcomeReply, ...]:
    return tuple(OutcomeReply.of(outcome, result.similar.get(outcome.memory.id, ())) for outcome in result.outcomes)


class AddReply(Reply):
    """The result of `add_memory`. `kept_messages` counts the messages that were stored.

    `document` is what a long text was kept as.
    """

    results: tuple[OutcomeReply, ...]
    kept_messages: int
    document: dict[str, Any] | None = LeftOutIfNone
    notes: tuple[str, ...]

    @classmethod
    def of(cls, result: WriteResult, scope: Scope, advice: Advice = TOOLS) -> AddReply:
        """Return the reply for what an add did."""
        notes = (*added_notes(result, advice), *scope_note(scope))
        document = None if result.document is None else learned_json(result.document)
        return cls(results=_outcomes(result), kept_messages=result.kept_messages, document=document, notes=notes)


class ChangeReply(Reply):
    """The result of an update, a deletion, a restoration or an undo."""

    results: tuple[OutcomeReply, ...]
    notes: tuple[str, ...]

    @classmethod
    def of(cls, result: WriteResult, scope: Scope, advice: Advice = TOOLS) -> ChangeReply:
        """Return the reply for what a write changed."""
        return cls(results=_outcomes(result), notes=(*changed_notes(result, advice), *scope_note(scope)))


class DeleteAllReply(Reply):
    """The result of deleting everything in a scope. `deleted` counts memories and messages."""

    deleted: int
    notes: tuple[str, ...]

    @classmethod
    def of(cls, result: WriteResult) -> DeleteAllReply:
        """Return the reply for what was deleted."""
        return cls(deleted=len(result.outcomes), notes=result.notes)


class SummaryReply(Reply):
    """The result of `get_summary`. `changes_since` counts the changes that the summary does not include.

    `lines` are what a text about an entity rests on, if a model wrote it. `sources` are the short ids of the memories
    that a summary rests on, the first of `rests_on` memories.
    """

    summary: str
    lines: tuple[str, ...] = LeftOutIfEmpty
    kind: str
    changes_since: int
    sources: tuple[str, ...] = LeftOutIfEmpty
    rests_on: int = Field(default=0, exclude_if=not_)
    notes: tuple[str, ...]

    @classmethod
    def of(cls, summary: SummaryResult, scope: Scope) -> SummaryReply:
        """Return the reply for a summary."""
        notes = (*summary_notes(summary, TOOLS), *scope_note(scope))
        return cls(
            summary=summary.text,
            lines=summary.lines,
            kind=summary.kind,
            changes_since=summary.changes_since,
            sources=tuple(short(memory_id) for memory_id in summary.sources[:MAX_SUMMARY_SOURCES]),
            rests_on=len(summary.sources),
            notes=notes,
        )
