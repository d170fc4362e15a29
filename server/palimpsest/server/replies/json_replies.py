"""What is known of entities as text, and as JSON for programs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from palimpsest.core.clock import iso, shown_date, shown_time
from palimpsest.core.models import (
    Edit,
    Entity,
    Event,
    Hit,
    KnownRelation,
    LinkedMemory,
    Memory,
    Message,
    Outcome,
    Predecessor,
    Scope,
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


# Results as JSON. A key that says nothing is left out.
#
# Instants are ISO 8601 in UTC, to the second. Ids are full ids.

MAX_SUMMARY_SOURCES = 50
"""How many memories a reply names as what a summary rests on: 50 short ids are 600 bytes."""


def given(reply: Mapping[str, Any], *optional: str) -> dict[str, Any]:
    """Return a reply without those of its optional keys that say nothing."""
    return {key: value for key, value in reply.items() if key not in optional or value not in (None, "", 0, [], ())}


def _text_json(key: str, text: str) -> dict[str, Any]:
    """Return the beginning of a text under a key. Only of a cut one there is `truncated`, and the whole `length`."""
    is_long = len(text) > MAX_ECHO
    return {key: shorten(text, MAX_ECHO), **({"truncated": True, "length": len(text)} if is_long else {})}


def hit_json(hit: Hit, *, with_score: bool = True, project: str = "") -> dict[str, Any]:
    """Return a memory or message as a search or a listing gives it. A listing has no score and no relevance.

    If `truncated` is true, `text` is only the beginning of a text of `length` characters. `explained` has the parts of
    the score that are not 0, if it was asked for. `project` is the hit's, if the search went beyond its scope's.
    """
    scores = {"score": round(hit.score, 3), "relevance": round(hit.relevance, 2)} if with_score else {}
    place = hit.document
    reply: dict[str, Any] = {
        "id": hit.id,
        "kind": hit.kind,
        "text": hit.text,
        **scores,
        "at": shown_time(hit.at, hit.at_precision),
        "sources": list(hit.sources),
        "role": hit.role,
        "name": hit.name,
        "metadata": dict(hit.metadata),
        "created_at": iso(hit.created_at),
        "updated_at": iso(hit.updated_at),
        "tags": list(hit.tags),
        "project": project,
        "superseded_by": hit.superseded_by,
        "truncated": True if hit.length is not None else None,
        "length": hit.length,
    }
    if hit.score_parts:
        reply["explained"] = {name: round(part, 2) for name, part in hit.score_parts.items() if round(part, 2)}
    if place is not None:
        reply["document"] = {"id": place.id, "title": place.title, "page": place.page}
    return given(reply, "tags", "project", "superseded_by", "truncated", "length")


def relation_json(source: str, name: str, destination: str, since: str = "", until: str = "") -> dict[str, Any]:
    """Return a relation in the form of Mem0, with since and until when it holds, if that is known."""
    reply = {"source": source, "relationship": name, "destination": destination}
    return given({**reply, "valid_from": since, "valid_until": until}, "valid_from", "valid_until")


def search_json(result: SearchResult, scope: Scope, advice: Advice = TOOLS) -> dict[str, Any]:
    """Return the result of a search. `omitted` counts the hits that did not fit.

    `relations` are those of the entities that the query names. `confident` is false if probably nothing that is stored
    answers the query, and the results are not all that a filter leaves.
    """
    reply: dict[str, Any] = {
        "results": [hit_json(hit, project=other_project(hit, scope)) for hit in result.hits],
        "relations": [
            relation_json(item.source, item.relationship, item.destination, item.valid_from, item.valid_until)
            for item in result.relations
        ],
        "confident": not result.is_weak,
        "omitted": result.omitted,
        "notes": [*result.notes, *shortened_notes(result.hits, advice), *scope_note(scope)],
    }
    return given(reply, "relations")


def page_json(page: Page, scope: Scope, advice: Advice = TOOLS) -> dict[str, Any]:
    """Return a page of memories. `cursor` leads to the next page, and is null on the last page."""
    return {
        "results": [hit_json(hit, with_score=False) for hit in page.hits],
        "cursor": page.cursor,
        "notes": [*page.notes, *shortened_notes(page.hits, advice), *scope_note(scope)],
    }


def similar_json(similar: SimilarMemory) -> dict[str, Any]:
    """Return a stored memory that a new text resembles. `score` is between 0 and 1."""
    memory = similar.memory
    text = _text_json("text", memory.text)
    at = shown_time(memory.at, memory.at_precision)
    return {"id": memory.id, "text": text.pop("text"), "at": at, "score": round(similar.likeness, 3), **text}


def outcome_json(outcome: Outcome, similar: Sequence[SimilarMemory] = ()) -> dict[str, Any]:
    """Return what a write did to one memory, in the form of Mem0, with the memories that the text resembles.

    What was added as past has `valid_until`.
    """
    memory, previous = outcome.memory, outcome.previous
    is_past = outcome.event is Event.ADD and memory.deleted_at is not None
    is_said = outcome.event in (Event.ADD, Event.UPDATE)
    text = _text_json("memory", memory.text)
    reply: dict[str, Any] = {
        "id": memory.id,
        "event": outcome.event.value,
        "memory": text.pop("memory"),
        "previous": None if previous is None or outcome.event is Event.DELETE else shorten(previous, MAX_ECHO),
        "replaced": list(outcome.replaced),
        "duplicate_of": outcome.duplicate_of,
        "valid_until": memory.until if is_past else None,
        "relations": [
            relation_json(relation.source, relation.name, relation.destination, relation.since or "")
            for relation in (dated(memory) if is_said else ())
        ],
        "similar": list(map(similar_json, similar)),
        **text,
    }
    return given(reply, "previous", "replaced", "duplicate_of", "valid_until", "relations", "similar")


def _outcomes(result: WriteResult) -> list[dict[str, Any]]:
    return [outcome_json(outcome, result.similar.get(outcome.memory.id, ())) for outcome in result.outcomes]


def added_json(result: WriteResult, scope: Scope, advice: Advice = TOOLS) -> dict[str, Any]:
    """Return what an add did. `kept_messages` counts the messages that were stored; a long text became a `document`."""
    reply: dict[str, Any] = {
        "results": _outcomes(result),
        "kept_messages": result.kept_messages,
        "document": None if result.document is None else learned_json(result.document),
        "notes": [*added_notes(result, advice), *scope_note(scope)],
    }
    return given(reply, "document")


def changed_json(result: WriteResult, scope: Scope, advice: Advice = TOOLS) -> dict[str, Any]:
    """Return what an update, a deletion, a restoration or an undo changed."""
    return {"results": _outcomes(result), "notes": [*changed_notes(result, advice), *scope_note(scope)]}


def deleted_all_json(result: WriteResult) -> dict[str, Any]:
    """Return how many memories and messages a deletion of everything in a scope took."""
    return {"deleted": len(result.outcomes), "notes": list(result.notes)}


def summary_json(summary: SummaryResult, scope: Scope) -> dict[str, Any]:
    """Return a summary. `changes_since` counts the changes that it does not include.

    `lines` are what a text about an entity rests on, if a model wrote it. `sources` are the short ids of the memories
    that a summary rests on, the first of `rests_on` memories.
    """
    reply: dict[str, Any] = {
        "summary": summary.text,
        "lines": list(summary.lines),
        "kind": summary.kind,
        "changes_since": summary.changes_since,
        "sources": [short(memory_id) for memory_id in summary.sources[:MAX_SUMMARY_SOURCES]],
        "rests_on": len(summary.sources),
        "notes": [*summary_notes(summary, TOOLS), *scope_note(scope)],
    }
    return given(reply, "lines", "sources", "rests_on")


# The history of memories, and the log of edits, as JSON.


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


def history_json(
    memory: Memory,
    versions: Sequence[Version],
    predecessors: Sequence[Predecessor],
    linked: Sequence[LinkedMemory],
) -> dict[str, Any]:
    """Return a memory as it is now, what it replaced, what it is linked with, and its versions, oldest first.

    A long text is whole only where it first stands.
    """
    reply: dict[str, Any] = {
        "id": memory.id,
        "memory": memory.text,
        "at": shown_time(memory.at, memory.at_precision),
        "deleted": memory.deleted_at is not None,
        "superseded_by": memory.superseded_by,
        "valid_from": memory.since,
        "valid_until": memory.until,
        "replaced": [
            {
                "id": old.memory.id,
                "memory": old.memory.text,
                "valid_until": old.memory.until or None,
                "sources": list(old.sources),
            }
            for old in predecessors
        ],
        "context": memory.context,
        "linked": [{"id": link.memory.id, "memory": link.memory.text, "reason": link.reason} for link in linked],
        "history": list(_versions(memory, versions)),
    }
    return given(reply, "valid_from", "valid_until", "replaced", "context", "linked")


def message_history_json(message: Message) -> dict[str, Any]:
    """Return a message in the same form. It has no versions."""
    return {
        "id": message.id,
        "kind": "message",
        "memory": message.content,
        "at": shown_time(message.said_at, ""),
        "deleted": message.deleted_at is not None,
        "superseded_by": None,
        "history": [],
    }


def _versions(memory: Memory, versions: Sequence[Version]) -> Iterator[dict[str, Any]]:
    """Yield each version: the columns of Mem0, and what made it. Texts that stand in the reply before are shortened."""
    texts = {memory.text}

    def once(text: str | None) -> str | None:
        return shorten(text, MAX_ECHO) if text is not None and text in texts else text

    for version, changes in with_label_changes(versions):
        made_by = version.provenance
        reply: dict[str, Any] = {
            "id": version.id,
            "memory_id": version.memory_id,
            "old_memory": once(version.old_memory),
            "new_memory": once(version.new_memory),
            "event": version.event.value,
            "created_at": iso(version.created_at),
            "updated_at": iso(version.updated_at),
            "is_deleted": version.is_deleted,
            "actor_id": version.actor_id,
            "role": version.role,
            "stage": made_by.stage,
            "model": made_by.model,
            "prompt": made_by.prompt,
            "caller": made_by.caller,
            "edit": version.edit,
            "sources": list(version.sources),
            "superseded_by": version.superseded_by,
            "changed": changes,
        }
        yield given(reply, "superseded_by", "changed")
        texts |= {text for text in (version.old_memory, version.new_memory) if text is not None}


def edits_json(edits: Sequence[Edit]) -> dict[str, Any]:
    """Return the log of edits, newest first. `edit` is the number that `palimpsest undo --edit` takes."""
    return {
        "edits": [
            {
                "edit": edit.number,
                "at": iso(edit.made_at),
                "stage": edit.provenance.stage,
                "model": edit.provenance.model,
                "caller": edit.provenance.caller,
                "steps": [
                    {
                        "kind": step.kind,
                        "id": step.owner_id,
                        "event": step.event.value,
                        "before": step.before,
                        "after": step.after,
                    }
                    for step in edit.steps
                ],
            }
            for edit in edits
        ]
    }


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
    return visible(f"{edited.text}\nedit {edited.edit}; palimpsest undo --edit {edited.edit} takes it back")


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
