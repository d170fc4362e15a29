"""What is known of entities as text, and as JSON for programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from operator import not_
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, PlainSerializer

from palimpsest.core.clock import iso, shown_date, shown_time
from palimpsest.core.models import (
    DocumentPage,
    Edit,
    Entity,
    Event,
    Hit,
    Kind,
    KnownRelation,
    LinkedMemory,
    Memory,
    Message,
    Outcome,
    Predecessor,
    Relation,
    Scope,
    Step,
    StepKind,
    Version,
)
from palimpsest.core.validation import one_line
from palimpsest.server.replies.advice import (
    MAX_ECHO,
    NO_INSTRUCTIONS,
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
from palimpsest.text.display import counted, shorten, visible
from palimpsest.text.relation_updates import dated

if TYPE_CHECKING:
    from palimpsest.learn.commit import LearnedDocument, WriteResult
    from palimpsest.learn.document_pages import Document, PageWithGist
    from palimpsest.learn.entity_graph import Dossier, EntityEdited, ListedEntity
    from palimpsest.learn.summaries.summary_kinds import SummaryResult
    from palimpsest.recall.listing import Page
    from palimpsest.recall.search import SearchResult
    from palimpsest.recall.similar import SimilarMemory


# Documents as text and JSON: what was learned, the list, the pages of one with their gists, and one page whole.

DOCUMENT_SCHEME = "document://"


def uri_of(document_id: str, page: int | None = None) -> str:
    """Return the address of a document or of a page, which a client can read."""
    return f"{DOCUMENT_SCHEME}{short(document_id)}" + ("" if page is None else f"/{page}")


def learned_line(learned: LearnedDocument) -> str:
    """Return what became of a document as one line. Its first word says what was done."""
    title = one_line(learned.title) or "a document"
    whole = f"{title}, {counted(learned.pages, 'page')}, {uri_of(learned.id)}"
    if learned.is_unchanged:
        return f"unchanged: {whole}"
    if not learned.removed and learned.added == learned.pages:
        return f"added as a document: {whole}"
    changes = [
        f"{learned.added} added" if learned.added else "",
        f"{learned.removed} deleted" if learned.removed else "",
    ]
    return f"updated: {whole} ({', '.join(filter(None, changes))})"


def learned_json(learned: LearnedDocument) -> dict[str, Any]:
    """Return the same as values that `json` can write."""
    return {
        "id": learned.id,
        "title": learned.title,
        "source": learned.uri,
        "pages": learned.pages,
        "added": learned.added,
        "deleted": learned.removed,
        "uri": uri_of(learned.id),
    }


def document_json(document: Document) -> dict[str, Any]:
    """Return a document of the list as values that `json` can write."""
    return {
        "id": document.id,
        "title": document.title,
        "pages": document.pages,
        "project": document.project,
        "learned_at": iso(document.learned_at),
        "source": document.uri,
        "uri": uri_of(document.id),
    }


def pages_text(document: Document, pages: Sequence[PageWithGist], note: str = NO_INSTRUCTIONS) -> str:
    """Return a document with a line for each page: its address and its gist. `note` ends the first line."""
    head = f"{document.title}, {counted(document.pages, 'page')}, learned {shown_date(document.learned_at)} from"
    lines = [f"{uri_of(document.id, page.number)} {one_line(page.gist)}" for page in pages]
    return visible("\n".join([f"{head} {document.uri}{note}", *lines]))


def pages_json(document: Document, pages: Sequence[PageWithGist]) -> dict[str, Any]:
    """Return the same as values that `json` can write."""
    return {
        **document_json(document),
        "gists": [{"page": page.number, "id": page.message.id, "gist": page.gist} for page in pages],
    }


def page_text(document: Document, page: PageWithGist, note: str = NO_INSTRUCTIONS) -> str:
    """Return one page whole, under its title and number. `note` ends the first line."""
    return visible(f"{document.title}, page {page.number} of {document.pages}{note}\n\n{page.message.content}")


# Results as JSON: one model for each kind of reply. A key that says nothing is left out.
#
# Instants are ISO 8601 in UTC, to the second. Ids are full ids.

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


# The history of memories, and the log of edits, as JSON.


class VersionReply(Reply):
    """One row of a memory's history: the columns of Mem0, and what made the change."""

    id: str
    memory_id: str
    old_memory: str | None
    new_memory: str | None
    event: Event
    created_at: Instant
    updated_at: Instant
    is_deleted: bool
    actor_id: str
    role: str
    stage: str
    model: str
    prompt: str
    caller: str
    change: int
    sources: tuple[str, ...]
    superseded_by: str | None = LeftOutIfNone
    changed: tuple[str, ...] = LeftOutIfEmpty

    @classmethod
    def of(cls, version: Version, changes: Sequence[str] = ()) -> VersionReply:
        """Return the reply for one version. `changes` are what it changed of the labels."""
        made_by = version.provenance
        return cls(
            id=version.id,
            memory_id=version.memory_id,
            old_memory=version.old_memory,
            new_memory=version.new_memory,
            event=version.event,
            created_at=version.created_at,
            updated_at=version.updated_at,
            is_deleted=version.is_deleted,
            actor_id=version.actor_id,
            role=version.role,
            stage=made_by.stage,
            model=made_by.model,
            prompt=made_by.prompt,
            caller=made_by.caller,
            change=version.edit,
            sources=version.sources,
            superseded_by=version.superseded_by,
            changed=tuple(changes),
        )


def with_label_changes(versions: Sequence[Version]) -> Iterator[tuple[Version, list[str]]]:
    """Yield versions with what each changed of the labels: "+tags: home", "-source: crm"."""
    before: frozenset[str] | None = None
    for version in versions:
        if before is None or version.is_deleted:
            yield version, []
        else:
            given, taken = sorted(version.labels - before), sorted(before - version.labels)
            yield version, [*(f"+{label}" for label in given), *(f"-{label}" for label in taken)]
        before = version.labels


class ReplacedReply(Reply):
    """A memory whose place another one took. `valid_until` is until when it held, as exactly as that is known."""

    id: str
    memory: str
    valid_until: str | None
    sources: tuple[str, ...]

    @classmethod
    def of(cls, predecessor: Predecessor) -> ReplacedReply:
        """Return the reply for one replaced memory."""
        old = predecessor.memory
        return cls(id=old.id, memory=old.text, valid_until=old.until or None, sources=predecessor.sources)


class LinkedReply(Reply):
    """A memory that another one is linked with, and why."""

    id: str
    memory: str
    reason: str

    @classmethod
    def of(cls, linked: LinkedMemory) -> LinkedReply:
        """Return the reply for one link."""
        return cls(id=linked.memory.id, memory=linked.memory.text, reason=linked.reason)


class HistoryReply(Reply):
    """The result of `get_history`: the memory as it is now, and its versions, oldest first.

    A long text is whole only where it first stands. Of a message, `memory` is its text, and there are no versions.
    """

    id: str
    kind: Kind | None = LeftOutIfNone
    memory: str
    deleted: bool
    superseded_by: str | None
    valid_from: str | None = LeftOutIfNone
    valid_until: str | None = LeftOutIfNone
    replaced: tuple[ReplacedReply, ...] = LeftOutIfEmpty
    context: str | None = LeftOutIfNone
    linked: tuple[LinkedReply, ...] = LeftOutIfEmpty
    history: tuple[VersionReply, ...]

    @classmethod
    def of(
        cls,
        memory: Memory,
        versions: Sequence[Version],
        predecessors: Sequence[Predecessor],
        linked: Sequence[LinkedMemory],
    ) -> HistoryReply:
        """Return the reply for a memory, what it replaced, what it is linked with, and its versions."""
        return cls(
            id=memory.id,
            memory=memory.text,
            deleted=memory.deleted_at is not None,
            superseded_by=memory.superseded_by,
            valid_from=memory.since or None,
            valid_until=memory.until or None,
            replaced=tuple(map(ReplacedReply.of, predecessors)),
            context=memory.context or None,
            linked=tuple(map(LinkedReply.of, linked)),
            history=tuple(_version_replies(memory, versions)),
        )

    @classmethod
    def of_message(cls, message: Message) -> HistoryReply:
        """Return the reply for a message."""
        deleted = message.deleted_at is not None
        return cls(
            id=message.id, kind="message", memory=message.content, deleted=deleted, superseded_by=None, history=()
        )


def _version_replies(memory: Memory, versions: Sequence[Version]) -> Iterator[VersionReply]:
    """Yield the reply for each version. Texts that stand in the reply before are shortened."""
    texts = {memory.text}

    def once(text: str | None) -> str | None:
        return shorten(text, MAX_ECHO) if text is not None and text in texts else text

    for version, changes in with_label_changes(versions):
        reply = VersionReply.of(version, changes)
        yield reply.model_copy(update={"old_memory": once(reply.old_memory), "new_memory": once(reply.new_memory)})
        texts |= {text for text in (version.old_memory, version.new_memory) if text is not None}


class StepReply(Reply):
    """What an edit did to one memory, message or entity."""

    kind: StepKind
    id: str
    event: Event
    before: str | None
    after: str | None

    @classmethod
    def of(cls, step: Step) -> StepReply:
        """Return the reply for one step."""
        return cls(kind=step.kind, id=step.owner_id, event=step.event, before=step.before, after=step.after)


class EditReply(Reply):
    """What one write changed. `change` is the number that `palimpsest undo --change` takes."""

    change: int
    at: Instant
    stage: str
    model: str
    caller: str
    steps: tuple[StepReply, ...]

    @classmethod
    def of(cls, edit: Edit) -> EditReply:
        """Return the reply for one edit."""
        return cls(
            change=edit.number,
            at=edit.made_at,
            stage=edit.provenance.stage,
            model=edit.provenance.model,
            caller=edit.provenance.caller,
            steps=tuple(map(StepReply.of, edit.steps)),
        )


class EditsReply(Reply):
    """The log of edits, newest first."""

    changes: tuple[EditReply, ...]

    @classmethod
    def of(cls, edits: Sequence[Edit]) -> EditsReply:
        """Return the reply for a list of edits."""
        return cls(changes=tuple(map(EditReply.of, edits)))


NO_ENTITIES = "no names are known yet; they come with memories"


def entities_text(listed: Sequence[ListedEntity], scope: Scope, limit: int) -> str:
    """Return up to `limit` entities, a line each: name, type, how many memories mention it, and when one last did."""
    lines = [
        f"{_one_line(item.entity.name)} ({item.entity.type}), in {counted(item.mentions, 'memory')}, "
        f"last {shown_date(item.mentioned_at)}"
        for item in listed[:limit]
    ]
    if len(listed) > limit:
        lines.append("(there are more; palimpsest entities lists them)")
    return lines_text(lines or [NO_ENTITIES], scope)


def lines_text(lines: Sequence[str], scope: Scope) -> str:
    """Return lines with the scope below them."""
    return visible("\n".join([*lines, *scope_note(scope)]))


def edited_text(edited: EntityEdited) -> str:
    """Return what an edit of entities did, and how it is undone."""
    if edited.edit is None:
        return visible(f"unchanged: {edited.text}")
    return visible(f"{edited.text}\nedit {edited.edit}; palimpsest undo --change {edited.edit} takes it back")


def entities_json(listed: Sequence[ListedEntity]) -> dict[str, Any]:
    """Return entities as JSON values."""
    return {
        "entities": [
            {**_entity(item.entity), "memories": item.mentions, "mentioned_at": iso(item.mentioned_at)}
            for item in listed
        ]
    }


def dossier_json(dossier: Dossier) -> dict[str, Any]:
    """Return a dossier as JSON values, uncut."""
    return {
        **_entity(dossier.entity),
        "aliases": list(dossier.aliases),
        "holds": [_memory(memory) for memory in dossier.holds],
        "held": [_memory(memory) for memory in dossier.held],
        "memories": dossier.all_holds,
        "former_memories": dossier.all_held,
        "relations": [_relation(item) for item in dossier.relations],
        "two_steps_away": [_relation(item) for item in dossier.further],
        "named_together_with": [{**_entity(other), "memories": count} for other, count in dossier.beside],
    }


def edited_json(edited: EntityEdited) -> dict[str, Any]:
    """Return what an edit of entities did as JSON values."""
    return {"changed": edited.edit is not None, "text": edited.text, "edit": edited.edit}


def _entity(entity: Entity) -> dict[str, Any]:
    return {"id": entity.id, "name": entity.name, "type": entity.type, "is_user": entity.is_user}


def _memory(memory: Memory) -> dict[str, Any]:
    return {
        "id": memory.id,
        "memory": memory.text,
        "date": memory.date,
        "valid_from": memory.since,
        "valid_until": memory.until,
    }


def _relation(item: KnownRelation) -> dict[str, Any]:
    return {
        "source": item.source,
        "relationship": item.relationship,
        "destination": item.destination,
        "valid_from": item.valid_from,
        "valid_until": item.valid_until,
        "holds": item.is_current,
        "memory_id": item.memory_id,
    }


def _one_line(text: str) -> str:
    return " ".join(text.split())
