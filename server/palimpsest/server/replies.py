"""Results as JSON for programs, and as text for a model or a person to read: one line per hit or change.

Control characters of stored texts are visible in every text that is returned whole.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from palimpsest.core import models
from palimpsest.core.clock import iso, local_iso, shown_date, shown_time, zone_shown
from palimpsest.core.models import Event, Hit, Memory, Message, Outcome, Scope, Version
from palimpsest.core.validation import one_line
from palimpsest.server import advice
from palimpsest.server.advice import MAX_ECHO, TOOLS, Advice, scope_note, short
from palimpsest.text.dates.date_finder import date_and_sense, held_times, resolved_dates
from palimpsest.text.dates.date_spans import day_or_days
from palimpsest.text.display import counted, shorten, visible
from palimpsest.text.relation_updates import dated, until_of

if TYPE_CHECKING:
    from palimpsest.learn.browsing import MessagePage, TalkPage
    from palimpsest.learn.commit import LearnedDocument, WriteResult
    from palimpsest.learn.document_pages import Document, PageWithGist
    from palimpsest.learn.edit import ScopeContents
    from palimpsest.learn.entity_graph import Dossier, EntityEdited, ListedEntity
    from palimpsest.learn.summaries.summary_kinds import SummaryResult
    from palimpsest.memory import MemoryHistory
    from palimpsest.recall.listing import Page
    from palimpsest.recall.search import SearchResult
    from palimpsest.recall.similar import SimilarMemory

# Values as JSON. Instants are ISO 8601 in UTC, to the second. Ids are full ids.

# How many characters are quoted of a text that is replaced: its reader looks for what of it still holds.
MAX_OLD = 500

# How many memories a reply names as what a summary rests on: 50 short ids are 600 bytes.
MAX_SUMMARY_SOURCES = 50


def picked(owner: object, names: str) -> dict[str, Any]:
    """Return attributes of a value as JSON. `key=name` gives one another key; with `?` an empty one is left out."""
    reply: dict[str, Any] = {}
    for part in names.split():
        key, _, name = part.rstrip("?").partition("=")
        value: Any = attrgetter(name or key)(owner)
        if isinstance(value, datetime):
            value = iso(value)
        elif isinstance(value, tuple):
            value = list(cast("tuple[Any, ...]", value))
        elif isinstance(value, Mapping):
            value = dict(cast("Mapping[str, Any]", value))
        if not part.endswith("?") or value:
            reply[key] = value
    return reply


def given(reply: Mapping[str, Any], *optional: str) -> dict[str, Any]:
    """Return a reply without those of its optional keys that say nothing."""
    return {key: value for key, value in reply.items() if value or key not in optional}


def _whole_length(text: str) -> dict[str, Any]:
    """Return what stands beside a text of which only the beginning is given, if it is long."""
    return {"truncated": True, "length": len(text)} if len(text) > MAX_ECHO else {}


def _at(owner: Hit | Memory) -> dict[str, str]:
    return {"at": shown_time(owner.at, owner.at_precision)}


_RELATION = "source relationship destination"
_TIMES = "valid_from=since? valid_until=until?"


def learned_json(learned: LearnedDocument) -> dict[str, Any]:
    """Return what became of a document."""
    return {**picked(learned, "id title source=uri pages added deleted=removed"), "uri": uri_of(learned.id)}


def document_json(document: Document) -> dict[str, Any]:
    """Return a document of the list."""
    return {**picked(document, "id title pages project learned_at source=uri"), "uri": uri_of(document.id)}


def pages_json(document: Document, pages: Sequence[PageWithGist]) -> dict[str, Any]:
    """Return a document with the gists of its pages."""
    return {**document_json(document), "gists": [picked(page, "page=number id=message.id gist") for page in pages]}


def hit_json(hit: Hit, *, with_score: bool = True, project: str = "") -> dict[str, Any]:
    """Return a memory or message as a search or a listing gives it. A listing has no score.

    If `truncated` is true, `text` is only the beginning of a text of `length` characters. `explained` has the parts of
    the score that are not 0, if it was asked for. `project` is the hit's, if the search went beyond its scope's.
    """
    reply = picked(hit, "id kind text")
    if with_score:
        reply |= {"score": round(hit.score, 3), "why": ", ".join(hit.why)}
    reply |= _at(hit) | picked(hit, f"{_TIMES} sources role name metadata created_at updated_at tags?")
    reply |= picked(hit, "deleted=is_forgotten?")
    reply |= given({"project": project}, "project") | picked(hit, "superseded_by? later? context?")
    if hit.linked:
        reply["linked"] = [picked(link, "id=memory_id reason") for link in hit.linked]
    if hit.length is not None:
        reply |= {"truncated": True, "length": hit.length}
    if hit.score_parts:
        reply["explained"] = {name: round(part, 2) for name, part in hit.score_parts.items() if round(part, 2)}
    if hit.document is not None:
        reply["document"] = picked(hit.document, "id title page")
    return reply


ByDay: TypeAlias = Mapping[str, Sequence[Hit]]


def by_day(hits: Sequence[Hit]) -> ByDay:
    """Return hits by their date, the earliest first, and the best hit of each first."""
    return {day: [hit for hit in hits if hit.date == day] for day in sorted({hit.date for hit in hits})}


def search_json(
    result: SearchResult, scope: Scope, door: Advice = TOOLS, *, by_day: ByDay | None = None
) -> dict[str, Any]:
    """Return the result of a search. `omitted` counts the hits that did not fit, `days` has their ids by date.

    `relations` are those of the entities that the query names, and `path` says how some of them lead to what it asks
    for. `confident` is false if the query is about something else than all that is stored, and the results are not all
    that a filter leaves.
    """
    found = advice.elsewhere_notes(result.elsewhere, door)
    reply: dict[str, Any] = {
        "results": [hit_json(hit, project=advice.other_project(hit, scope)) for hit in result.hits],
        "relations": [picked(item, f"{_RELATION} valid_from? valid_until?") for item in result.relations],
        "path": result.path_line,
        "days": {day: [hit.id for hit in hits] for day, hits in (by_day or {}).items()},
        "confident": not result.is_weak,
        "omitted": result.omitted,
        "notes": [*found, *result.notes, *advice.shortened_notes(result.hits, door), *scope_note(scope)],
    }
    return given(reply, "relations", "path", "days")


def page_json(page: Page, scope: Scope, door: Advice = TOOLS) -> dict[str, Any]:
    """Return a page of memories. `cursor` leads to the next page, and is null on the last page."""
    return {
        "results": [hit_json(hit, with_score=False) for hit in page.hits],
        "cursor": page.cursor,
        "notes": [*page.notes, *advice.shortened_notes(page.hits, door), *scope_note(scope)],
    }


def similar_json(similar: SimilarMemory) -> dict[str, Any]:
    """Return a stored memory that a new text resembles. `score` is between 0 and 1."""
    memory = similar.memory
    return {
        "id": memory.id,
        "text": shorten(memory.text, MAX_ECHO),
        **_at(memory),
        "score": round(similar.likeness, 3),
        **_whole_length(memory.text),
    }


def _stated(outcome: Outcome) -> Sequence[models.Relation]:
    """Return the relations that a new or changed memory states."""
    is_told = outcome.event in (Event.ADD, Event.UPDATE) or outcome.replaced
    return dated(outcome.memory) if is_told else ()


def _relations_json(memory: Memory, stated: Sequence[models.Relation]) -> list[dict[str, Any]]:
    """Return relations that a memory states."""
    form = "source relationship=name destination valid_from=since?"
    ends = (until_of(item, memory.until) for item in stated)
    return [picked(item, form) | ({"valid_until": end} if end else {}) for item, end in zip(stated, ends, strict=True)]


def outcome_json(outcome: Outcome, similar: Sequence[SimilarMemory] = ()) -> dict[str, Any]:
    """Return what a write did to one memory, in the form of Mem0, with the memories that the text resembles or is near.

    `valid_from` and `valid_until` are there if they are known.
    """
    memory, previous = outcome.memory, None if outcome.event is Event.DELETE else outcome.previous
    reply: dict[str, Any] = {
        **picked(outcome, "id=memory.id event"),
        "revision": memory.revision if _is_pinned(memory) else None,
        "memory": shorten(memory.text, MAX_ECHO),
        "previous": previous and shorten(previous, MAX_OLD if outcome.replaced else MAX_ECHO),
        **picked(outcome, "replaced? duplicate_of?"),
        **picked(memory, _TIMES),
        "relations": _relations_json(memory, _stated(outcome)),
        "closed": [picked(item, "source relationship=name destination valid_from=since?") for item in outcome.closed],
        "unstated": [picked(item, "source relationship=name destination") for item in outcome.unstated],
        "similar": [similar_json(item) for item in similar if not item.is_only_near],
        "near": [similar_json(item) for item in similar if item.is_only_near],
        **_whole_length(memory.text),
    }
    return given(reply, "revision", "previous", "relations", "closed", "unstated", "similar", "near")


def _outcomes(result: WriteResult) -> list[dict[str, Any]]:
    return [outcome_json(outcome, result.similar.get(outcome.memory.id, ())) for outcome in result.outcomes]


def added_json(result: WriteResult, scope: Scope, door: Advice = TOOLS) -> dict[str, Any]:
    """Return what an add did. `kept_messages` counts the messages that were stored; a long text became a `document`."""
    reply: dict[str, Any] = {
        "results": _outcomes(result),
        "kept_messages": result.kept_messages,
        "document": None if result.document is None else learned_json(result.document),
        "notes": [*advice.added_notes(result, door), *scope_note(scope)],
    }
    return given(reply, "document")


def changed_json(result: WriteResult, scope: Scope, door: Advice = TOOLS) -> dict[str, Any]:
    """Return what an update, a deletion, a restoration or an undo changed."""
    return {"results": _outcomes(result), "notes": [*advice.changed_notes(result, door), *scope_note(scope)]}


def deleted_all_json(result: WriteResult) -> dict[str, Any]:
    """Return how many memories and messages a deletion of everything in a scope took."""
    return {"deleted": len(result.outcomes), "notes": list(result.notes)}


def summary_json(summary: SummaryResult, scope: Scope) -> dict[str, Any]:
    """Return a summary. `changes_since` counts the changes that it does not include.

    `lines` are what a text about an entity rests on, if a model wrote it. `sources` are the short ids of the memories
    that a summary rests on, the first of `rests_on` memories.
    """
    reply: dict[str, Any] = {
        **picked(summary, "summary=text lines? kind changes_since"),
        "sources": [short(memory_id) for memory_id in summary.sources[:MAX_SUMMARY_SOURCES]],
        "rests_on": len(summary.sources),
        "notes": [*advice.summary_notes(summary, TOOLS), *scope_note(scope)],
    }
    return given(reply, "sources", "rests_on")


def with_label_changes(versions: Sequence[Version]) -> Iterator[tuple[Version, list[str]]]:
    """Yield versions with what each changed of the labels: "+tags: home", "-source: crm".

    If the text stayed, also when it was said.
    """
    for before, version in zip((None, *versions), versions, strict=False):
        changes: list[str] = []
        if before is not None and not version.is_deleted:
            with_date = version.new_memory == version.old_memory
            now, then = (_labels(each, with_date=with_date) for each in (version, before))
            changes = [*(f"+{label}" for label in sorted(now - then)), *(f"-{label}" for label in sorted(then - now))]
        yield version, changes


def _labels(version: Version, *, with_date: bool) -> frozenset[str]:
    if not with_date or version.said_at is None:
        return version.labels
    return version.labels | {f"said: {shown_date(version.said_at)}"}


def history_json(history: MemoryHistory) -> dict[str, Any]:
    """Return the history of a memory. A long text is whole only where it first stands."""
    memory, versions, predecessors, linked, successor_deleted = history
    reply: dict[str, Any] = {
        **picked(memory, "id memory=text"),
        **_at(memory),
        "deleted": memory.deleted_at is not None,
        **picked(memory, f"superseded_by {_TIMES}"),
        "successor_deleted": successor_deleted,
        "replaced": [
            {**picked(old.memory, "id memory=text"), "valid_until": old.memory.until or None, **picked(old, "sources")}
            for old in predecessors
        ],
        "context": memory.context,
        "hints": list(memory.keywords),
        models.BECAUSE: memory.metadata.get(models.BECAUSE),
        "relations": _relations_json(memory, dated(memory)),
        "linked": [picked(link, "id=memory.id memory=memory.text reason") for link in linked],
        "history": list(_versions(memory, versions)),
    }
    return given(reply, "successor_deleted", "replaced", "context", "hints", models.BECAUSE, "relations", "linked")


def message_history_json(message: Message, around: Sequence[Message] = ()) -> dict[str, Any]:
    """Return a message in the same form, with the talk around it. It has no versions."""
    reply: dict[str, Any] = {
        "id": message.id,
        "kind": "message",
        "memory": message.content,
        "at": shown_time(message.said_at, ""),
        "deleted": message.deleted_at is not None,
        "superseded_by": None,
        "history": [],
        "around": [
            {**picked(each, "id at=said_at role name?"), "text": "" if each.id == message.id else _cut(each.content)}
            for each in around
        ],
        "conversation": f"{CONVERSATION_SCHEME}{message.session_id}" if around else "",
    }
    return given(reply, "around", "conversation")


def _versions(memory: Memory, versions: Sequence[Version]) -> Iterator[dict[str, Any]]:
    """Yield each version: the columns of Mem0, and what made it. Texts that stand in the reply before are shortened."""
    texts = {memory.text}
    fields = "id memory_id old_memory new_memory event created_at updated_at is_deleted actor_id role"
    made_by = "stage=provenance.stage model=provenance.model prompt=provenance.prompt caller=provenance.caller"
    for version, changes in with_label_changes(versions):
        reply = picked(version, f"{fields} {made_by} edit sources superseded_by?")
        for key in ("old_memory", "new_memory"):
            reply[key] = shorten(reply[key], MAX_ECHO) if reply[key] in texts else reply[key]
        yield given({**reply, "changed": changes}, "changed")
        texts |= {text for text in (version.old_memory, version.new_memory) if text is not None}


def edits_json(edits: Sequence[models.Edit]) -> dict[str, Any]:
    """Return the log of edits, newest first. `edit` is the number that `palimpsest undo --edit` takes."""
    fields = "edit=number at=made_at stage=provenance.stage model=provenance.model caller=provenance.caller"
    steps = "kind id=owner_id event before after"
    return {
        "edits": [{**picked(edit, fields), "steps": [picked(step, steps) for step in edit.steps]} for edit in edits]
    }


_ENTITY = "id name type is_user"


def entities_json(listed: Sequence[ListedEntity]) -> dict[str, Any]:
    """Return entities."""
    return {
        "entities": [
            {**picked(item.entity, _ENTITY), **picked(item, "memories=mentions mentioned_at")} for item in listed
        ]
    }


def dossier_json(dossier: Dossier) -> dict[str, Any]:
    """Return a dossier, uncut."""
    memory = "id memory=text date valid_from=since valid_until=until"
    relation = f"{_RELATION} valid_from valid_until holds=is_current memory_id"
    return {
        **picked(dossier.entity, _ENTITY),
        "aliases": list(dossier.aliases),
        "holds": [picked(item, memory) for item in dossier.holds],
        "held": [picked(item, memory) for item in dossier.held],
        **picked(dossier, "memories=all_holds former_memories=all_held"),
        "relations": [picked(item, relation) for item in dossier.relations],
        "named_together_with": [{**picked(other, _ENTITY), "memories": count} for other, count in dossier.beside],
    }


def edited_json(edited: EntityEdited) -> dict[str, Any]:
    """Return what an edit of entities did."""
    return {"changed": edited.edit is not None, **picked(edited, "text edit")}


def whole_json(owner: Memory | Message, sources: Sequence[Message]) -> dict[str, Any]:
    """Return a memory or message with everything that is stored with it. `sources` are as in a search."""
    memory = owner.as_memory if isinstance(owner, Message) else owner
    return {
        "id": memory.id,
        "kind": "message" if isinstance(owner, Message) else "memory",
        "text": memory.text,
        **_at(memory),
        "scope": picked(memory.scope, "user_id? project? agent_id? run_id?"),
        "deleted": memory.deleted_at is not None,
        **picked(memory, f"superseded_by? {_TIMES}"),
        "sources": [source.source for source in ([owner] if isinstance(owner, Message) else sources)],
        **picked(memory, "role name=actor_id tags? hints=keywords? metadata created_at updated_at"),
    }


# Documents and entities as text.

CONVERSATION_SCHEME = "conversation://"
DOCUMENT_SCHEME = "document://"

NO_ENTITIES = "no names are known yet; they come with memories"


def uri_of(document_id: str, page: int | None = None) -> str:
    """Return the address of a document or of a page, which a client can read."""
    return f"{DOCUMENT_SCHEME}{short(document_id)}" + ("" if page is None else f"/{page}")


def learned_line(learned: LearnedDocument) -> str:
    """Return what became of a document as one line. Its first word says what was done."""
    whole = f"{one_line(learned.title) or 'a document'}, {counted(learned.pages, 'page')}, {uri_of(learned.id)}"
    if learned.is_unchanged:
        return f"unchanged: {whole}"
    if not learned.removed and learned.added == learned.pages:
        return f"added as a document: {whole}"
    changes = {"added": learned.added, "deleted": learned.removed}
    return f"updated: {whole} ({', '.join(f'{count} {done}' for done, count in changes.items() if count)})"


def pages_text(document: Document, pages: Sequence[PageWithGist], note: str = advice.NO_INSTRUCTIONS) -> str:
    """Return a document with a line for each page: its address and its gist. `note` ends the first line."""
    head = f"{document.title}, {counted(document.pages, 'page')}, learned {shown_date(document.learned_at)} from"
    lines = [f"{uri_of(document.id, page.number)} {one_line(page.gist)}" for page in pages]
    return visible("\n".join([f"{head} {document.uri}{note}", *lines]))


def document_page_text(document: Document, page: PageWithGist, note: str = advice.NO_INSTRUCTIONS) -> str:
    """Return one page whole, under its title and number. `note` ends the first line."""
    return visible(f"{document.title}, page {page.number} of {document.pages}{note}\n\n{page.message.content}")


def entities_text(listed: Sequence[ListedEntity], scope: Scope) -> str:
    """Return entities, a line each: name, type, how many memories mention it, and when one last did."""
    lines = [
        f"{one_line(item.entity.name)} ({item.entity.type}), in {counted(item.mentions, 'memory')}, "
        f"last {shown_date(item.mentioned_at)}"
        for item in listed
    ]
    return with_notes(lines or [NO_ENTITIES], (), scope)


def edited_text(edited: EntityEdited) -> str:
    """Return what an edit of entities did, and how it is undone."""
    if edited.edit is None:
        return visible(f"unchanged: {edited.text}")
    return visible(f"{edited.text}\nedit {edited.edit}; palimpsest undo --edit {edited.edit} takes it back")


# A conversation as text: who said what and when, with the ids to cite.


def conversation_text(page: MessagePage, next_uri: str) -> str:
    """Return a page of a conversation: a line that says what it is, then each message with its whole text."""
    about, heading = page.about, f"conversation {page.id}"
    if about is not None:
        where = ", ".join(one_line(part) for part in (about.client, about.title) if part)
        days = dict.fromkeys((f"{about.began_at:%Y-%m-%d}", f"{about.ended_at:%Y-%m-%d}"))
        held = f"{counted(about.messages, 'message')}, {' to '.join(days)}, times in {zone_shown(about.ended_at)}"
        heading += f"{f' ({where})' if where else ''}: {held}"
    lines = [f"{heading}{advice.NO_INSTRUCTIONS}", *map(message_line, page.messages)]
    if page.cursor:
        lines.append(f"(it goes on: read {next_uri})")
    return visible("\n".join(lines))


def talk_gists(session: str, pages: Sequence[TalkPage]) -> list[str]:
    """Return the lines of the gists of a long conversation, page by page."""
    head = f'Gists; get_summary(kind="session:{short(session)}", page=1) reads a page:'
    return [head, *(f"{page.number} {one_line(page.gist)}" for page in pages)]


def talk_page_text(session: str, page: TalkPage, pages: int) -> str:
    """Return one page of a conversation whole, under its number."""
    lines = [message_line(message) for message in page.messages]
    return visible("\n".join([f"conversation {short(session)}, page {page.number} of {pages}", *lines]))


def message_line(message: Message) -> str:
    """Return a message with its whole text: short id, time and speaker before it."""
    who = f"{one_line(message.name)} ({message.role})" if message.name else message.role
    return f"[{short(message.id)}] {message.said_at:%Y-%m-%d %H:%M} {who}: {message.content}"


# How many steps of one edit are listed.
SHOWN_STEPS = 10

# The first line of a search that probably found no answer. Agents and tests look for exactly this.
WEAK, PERHAPS = "Weak matches only; nothing stored is about this:", "Weak matches:"
HERE, WEAK_HERE = "here:", "here, weak matches only:"

# Between these scores something may answer although the matches are weak. Better is only who has a name of the query.
MAY_ANSWER, NAMESAKE = 0.15, 0.5

# What follows the hits then, if the query had no other wordings.
ASK_AGAIN = "(to look further, search once more with also: two or three other wordings)"

# How many characters of where a memory is from stand in its line.
MAX_ORIGIN = 40

# How many dates of a memory that count from its day are given as days of the calendar: most texts have one.
MAX_RESOLVED = 2

# How many relations of a memory a reply names.
SHOWN_RELATIONS = 5

# How many memories are quoted before everything is deleted.
SHOWN_EXAMPLES = 3

# How many characters of each of them are quoted.
MAX_EXAMPLE = 60


# How many memories the text of a reply names as what a summary rests on; of more it says how many.
MAX_NAMED_SOURCES = 5


def explanation(hit: Hit) -> str:
    """Return the parts of a hit's score, the largest first, or "" if the search was not asked to explain itself."""
    parts = sorted(hit.score_parts.items(), key=lambda named: -abs(named[1]))
    return ", ".join(f"{name} {part:+.2f}" for name, part in parts if round(part, 2))


def hit_line(hit: Hit, project: str = "") -> str:
    """Return a hit as one line: short id, date, speaker if it is a message, and text; of a cut text also the length.

    The date of a memory says whether it is when it happened or when it was said, if that is not plain. Behind it stands
    between which times the memory holds, if that is known.

    A page of a document has its title and number in place of a speaker.

    `project` is the hit's, if the search went beyond its scope's. What was learned from a page or a tool says so.
    """
    place = f" (project {one_line(project)})" if project else ""
    origin = hit.metadata.get(models.ORIGIN)
    place += f" (from {shorten(one_line(str(origin)), MAX_ORIGIN)})" if origin else ""
    speaker = f" {speaker_of(hit)}{':' if hit.document else ' said:'}" if hit.kind == "message" else ""
    date = date_and_sense(hit, hit.text) if hit.kind == "memory" else hit.date
    is_changed = hit.kind == "memory" and hit.is_living and not hit.superseded_by
    if is_changed and hit.updated_at.date() > hit.created_at.astimezone(hit.updated_at.tzinfo).date():
        date += f", changed {shown_date(hit.updated_at)}"
    line = f"[{short(hit.id)}] {date}{place}{speaker} {text_of(hit)}"
    is_unclear = hit.kind == "memory" and not (hit.is_event_date or hit.since or hit.until)
    told = resolved_dates(hit.text, hit.at)[:MAX_RESOLVED] if is_unclear else []
    line += "".join(f'; "{one_line(span.phrase)}" is {day_or_days(span)}' for span in told)
    replaced = "then" if hit.is_living else "replaced by"
    line += f"\n  {replaced} [{short(hit.superseded_by)}]" if hit.superseded_by else ""
    line += f"\n  deleted {shown_date(hit.updated_at)}" if hit.is_forgotten else ""
    line += f"\n  later told: [{short(hit.later)}]" if hit.later else ""
    because = str(hit.metadata.get(models.BECAUSE) or "")
    line += f"\n  because: {shorten(one_line(because), MAX_ECHO)}" if because else ""
    line += f"\n  context: {one_line(hit.context)}" if hit.context else ""
    line += "".join(f"\n  linked [{short(link.memory_id)}] ({one_line(link.reason)})" for link in hit.linked)
    return f"{line}\n  {explanation(hit)}" if hit.score_parts else line


def speaker_of(hit: Hit) -> str:
    """Return who wrote a message, on one line; for a memory, whom it is from, if known; for a page, which it is."""
    return one_line(str(hit.document) if hit.document else hit.name) or hit.role


def text_of(hit: Hit) -> str:
    """Return the text of a hit on one line. If it is cut, the whole length follows, and where a whole page is read."""
    if hit.length is None:
        return one_line(hit.text)
    address = "" if hit.document is None else f", {uri_of(hit.document.id, hit.document.page)}"
    return f"{one_line(hit.text)} ({hit.length:,} characters{address})"


def search_text(result: SearchResult, scope: Scope, *, has_wordings: bool = False, by_day: ByDay | None = None) -> str:
    """Return the result of a search, and how to ask again if it is weak and had no other wordings."""
    lines = [*advice.elsewhere_notes(result.elsewhere, TOOLS), *weak_lines(result)]
    for day, hits in (by_day or {"": result.hits}).items():
        lines += [f"{day}:"] if day else []
        lines += [hit_line(hit, advice.other_project(hit, scope)) for hit in hits]
    lines += [] if result.hits or result.omitted else ["nothing found"]
    lines += [ASK_AGAIN] if result.hits and result.is_weak and not (result.elsewhere or has_wordings) else []
    lines += result.relation_lines
    lines += [f"({omitted_text(result)}; raise max_tokens to see them)"] if result.omitted else []
    return with_notes(lines, (*result.notes, *advice.shortened_notes(result.hits, TOOLS)), scope)


def weak_lines(result: SearchResult) -> list[str]:
    """Return the line above hits that are about something else, or behind the name of a project that has the answer."""
    if not result.hits or not (result.is_weak or result.elsewhere):
        return []
    if result.elsewhere:
        return [WEAK_HERE if result.is_weak else HERE]
    return [PERHAPS if MAY_ANSWER <= max(hit.score for hit in result.hits) < NAMESAKE else WEAK]


def omitted_text(result: SearchResult) -> str:
    """Return how many hits had no room in the reply."""
    return f"{result.omitted} more did not fit" if result.hits else f"{counted(result.omitted, 'hit')} did not fit"


def page_text(page: Page, scope: Scope) -> str:
    """Return a page of memories."""
    lines = [hit_line(hit) for hit in page.hits] or ["no memories"]
    if page.cursor:
        lines.append(f"(there are more: call list_memories with cursor='{page.cursor}')")
    return with_notes(lines, (*page.notes, *advice.shortened_notes(page.hits, TOOLS)), scope)


def added_text(result: WriteResult, scope: Scope, door: Advice = TOOLS) -> str:
    """Return what an add did. The number of stored messages is named if nothing else was done."""
    lines = _outcome_lines(result) if result.document is None else [learned_line(result.document)]
    if not lines and result.kept_messages:
        lines = [f"kept {counted(result.kept_messages, 'message')}{'; learning' if result.is_learning else ''}"]
    return with_notes(lines or ["unchanged"], advice.added_notes(result, door), scope)


def changed_text(result: WriteResult, scope: Scope, door: Advice = TOOLS) -> str:
    """Return what an update, a deletion or an undo did."""
    lines = [*_outcome_lines(result), *result.entity_edits] or ["unchanged: there was nothing to do"]
    notes = [note for note in advice.changed_notes(result, door) if note not in result.entity_edits]
    return with_notes(lines, notes, scope)


def restored_text(result: WriteResult, scope: Scope) -> str:
    """Return what a restoration did."""
    lines: list[str] = []
    by_event = {Event.ADD: "restored", Event.UPDATE: "restored (no plan ends it now)"}
    for outcome in result.outcomes:
        done = by_event.get(outcome.event, "unchanged (not deleted)")
        lines += [f"{done}: {_quote(outcome.memory)}{held_times(outcome.memory)}", *_relation_lines(outcome)]
    return with_notes(lines, result.notes, scope)


def all_deleted_text(result: WriteResult, scope: Scope, door: Advice = TOOLS) -> str:
    """Return what the deletion of a whole scope did."""
    if not result.outcomes:
        return with_notes(["unchanged: nothing is stored in this scope"], result.notes, scope)
    messages = sum(outcome.kind == "message" for outcome in result.outcomes)
    line = f"deleted: {counted(len(result.outcomes) - messages, 'memory')} and {counted(messages, 'message')}"
    return with_notes([line], [*result.notes, door.all_deleted], scope)


def confirm_delete_all_text(stored: ScopeContents, scope: Scope, confirmation: str) -> str:
    """Return what the deletion of a whole scope would do, and how to confirm it."""
    examples = "; ".join(shorten(one_line(memory.text), MAX_EXAMPLE) for memory in stored.memories[-SHOWN_EXAMPLES:])
    kept = "what is outside the project stays" if scope.project else "what belongs to projects stays; scope names one"
    return (
        f"this would {confirmation} of {scope} ({kept}){f', such as: {examples}' if examples else ''}. Nothing was "
        f"deleted. Ask the user. If they agree, call again with all=true and confirm='{confirmation}'."
    )


def outcome_line(outcome: Outcome) -> str:
    """Return one outcome as one line, or more if it replaced several. Its first word says what was done."""
    memory, previous = outcome.memory, _cut(outcome.previous or "")
    text = _quote(memory) + held_times(memory)
    if outcome.replaced:
        olds = zip(outcome.replaced, outcome.replaced_texts or (outcome.previous or "",), strict=True)
        was = [f"was: [{short(old_id)}] {_cut(old, MAX_OLD)}" for old_id, old in olds]
        return f"replaced: {text} ({was[0]})" if len(was) == 1 else "\n  ".join([f"replaced: {text}", *was])
    match outcome.event:
        case Event.ADD:
            return f"added{' as past' if memory.deleted_at else ''}: {text}"
        case Event.UPDATE if outcome.previous == memory.text:
            return f"updated: {text} (same text; {', '.join(map(one_line, outcome.changed)) or 'dates'} changed)"
        case Event.UPDATE:
            return f"updated: {text} (was: {previous})"
        case Event.DELETE if outcome.duplicate_of is not None:
            return f"deleted: {text} (another memory, {short(outcome.duplicate_of)}, already says the new text)"
        case Event.DELETE:
            return f"deleted: {text}"
        case Event.NONE if outcome.duplicate_of is not None:
            return f"unchanged (duplicate of {short(outcome.duplicate_of)}): {_cut(memory.text)}"
        case Event.NONE:
            return f"unchanged{' (already deleted)' if memory.deleted_at else ''}: {text}"


def _outcome_lines(result: WriteResult) -> list[str]:
    pages = Counter(outcome.event for outcome in result.outcomes if outcome.memory.role == models.PAGE)
    done = {Event.ADD: "restored", Event.DELETE: "deleted", Event.NONE: "unchanged"}
    lines = [f"{done[event]}: {counted(count, 'page')} of documents" for event, count in pages.items()]
    for outcome in result.outcomes:
        if outcome.memory.role == models.PAGE:
            continue
        lines.append(outcome_line(outcome))
        lines += _relation_lines(outcome)
        keys = ", ".join(one_line(key) for key in outcome.handed_on)
        lines += [f"  keeps the metadata of what it replaced: {keys}"] if keys else []
        for similar in result.similar.get(outcome.memory.id, ()):
            memory = similar.memory
            how = "near" if similar.is_only_near else "resembles"
            lines.append(f"  {how} [{short(memory.id)}] {date_and_sense(memory, memory.text)} {_cut(memory.text)}")
    return lines


def _relation_lines(outcome: Outcome) -> Iterator[str]:
    """Yield what a memory states, what closes with it, and what it states no more."""
    stated = _stated(outcome)
    yield from _lines_of("states", [each for each in stated if each.key not in outcome.carried], outcome.memory.until)
    yield from _lines_of("still states", [each for each in stated if each.key in outcome.carried], outcome.memory.until)
    yield from _lines_of("closes", outcome.closed)
    yield from _lines_of("no longer states", outcome.unstated)


def _lines_of(how: str, told: Sequence[models.Relation], until: str = "") -> Iterator[str]:
    for item in told[:SHOWN_RELATIONS]:
        times = item.since or "", until_of(item, until)
        yield f"  {how} {models.relation_line(item.source, item.name, item.destination, *times)}"
    if len(told) > SHOWN_RELATIONS:
        yield f"  {how} {len(told) - SHOWN_RELATIONS} more"


def edits_text(edits: Sequence[models.Edit]) -> str:
    """Return the log of edits, newest first."""
    lines: list[str] = []
    for edit in edits:
        caller = f" for {edit.provenance.caller}" if edit.provenance.caller else ""
        lines.append(f"#{edit.number} {local_iso(edit.made_at)} {_made_by(edit.provenance)}{caller}")
        lines += [f"  {_step_line(step)}" for step in edit.steps[:SHOWN_STEPS]]
        if len(edit.steps) > SHOWN_STEPS:
            lines.append(f"  … and {len(edit.steps) - SHOWN_STEPS} more")
    return visible("\n".join(lines or ["nothing has been changed yet"]))


def _step_line(step: models.Step) -> str:
    done = {Event.ADD: "added", Event.UPDATE: "updated", Event.DELETE: "deleted", Event.NONE: "unchanged"}[step.event]
    what = "message " if step.kind == "message" else ""
    before, after = _cut(step.before or ""), _cut(step.after or "")
    was_reworded = step.event is Event.UPDATE and step.before is not None and step.before != step.after
    text = before if step.after is None else after
    if step.kind == "entity":
        return text
    return f"{done} {what}[{short(step.owner_id)}] {text}" + (f" (was: {before})" if was_reworded else "")


def summary_text(summary: SummaryResult, scope: Scope, door: Advice = TOOLS) -> str:
    """Return a summary, and how far it is out of date."""
    notes = list(advice.summary_notes(summary, door))
    if summary.changes_since:
        is_or_are = "is" if summary.changes_since == 1 else "are"
        notes.append(f"{counted(summary.changes_since, 'later change')} {is_or_are} not included; {door.outdated}")
    sources = () if summary.is_plain else summary.sources  # a plain text names its memories itself
    if 0 < len(sources) <= MAX_NAMED_SOURCES:
        notes.append(f"rests on {', '.join(map(short, sources))}")
    elif sources:
        notes.append(f"rests on {len(sources)} memories")
    return with_notes([summary.text], notes, scope)


def days_text(days: Sequence[SummaryResult], scope: Scope) -> str:
    """Return the summaries of days below their dates, and each note on them once."""
    lines = [line for day in days for line in (day.kind.partition(":")[2], day.text, "")][:-1]
    notes = list(dict.fromkeys(note for day in days for note in day.notes))
    return with_notes(lines or ["Nothing is known yet."], notes, scope)


def history_text(history: MemoryHistory) -> str:
    """Return the state of a memory, then what it replaced and is linked with, then its versions, oldest first.

    A long text is whole only where it first stands.
    """
    memory, versions, predecessors, linked, successor_deleted = history
    date = date_and_sense(memory, memory.text)
    deleted = " (deleted)" if successor_deleted else ""
    lines = [f"[{short(memory.id)}] {date}, {_state(memory)}{deleted}: {one_line(memory.text)}"]
    lines += [f"  context: {one_line(memory.context)}"] if memory.context else []
    lines += [f"  hints: {one_line('; '.join(memory.keywords))}"] if memory.keywords else []
    because = memory.metadata.get(models.BECAUSE)
    lines += [f"  because: {one_line(str(because))}"] if because else []
    lines += _lines_of("states", dated(memory), memory.until)
    for old in predecessors:
        said = f", from {', '.join(map(one_line, old.sources))}" if old.sources else ""
        date = date_and_sense(old.memory, old.memory.text)
        lines.append(f"  replaced [{short(old.memory.id)}] {date}{said}: {one_line(old.memory.text)}")
    lines += [f"  linked {_quote(link.memory)} ({one_line(link.reason)})" for link in linked]
    texts = {memory.text}
    for version, changes in with_label_changes(versions):
        sources = f", from {', '.join(map(one_line, version.sources))}" if version.sources else ""
        text = version.new_memory if version.new_memory is not None else version.old_memory or ""
        shown = _cut(text) if text in texts else one_line(text)
        texts.add(text)
        event = f"REPLACED by [{short(version.superseded_by)}]," if version.superseded_by else version.event
        made_by = f"{local_iso(version.updated_at)} {event} by {_made_by(version.provenance)}{sources}"
        changed = f" ({', '.join(map(one_line, changes))})" if changes else ""
        lines.append(f"{made_by}: {shown}{changed}")
    return visible("\n".join(lines))


def whole_text(owner: Memory | Message) -> str:
    """Return a memory or message with its whole text, as it is stored, and its state or its speaker."""
    if isinstance(owner, Memory):
        return visible(f"[{short(owner.id)}] {_state(owner)}{held_times(owner)}: {owner.text}")
    said = "page of a document:" if owner.role == models.PAGE else f"{one_line(owner.name) or owner.role} said:"
    deleted = "deleted, " if owner.deleted_at else ""
    return visible(f"[{short(owner.id)}] {deleted}{shown_date(owner.said_at)} {said} {owner.content}")


def message_text(message: Message, around: Sequence[Message]) -> str:
    """Return a message with its whole text, and a line for each message around it."""
    lines = [whole_text(message)]
    if around:
        lines.append(f"around it, in {CONVERSATION_SCHEME}{short(message.session_id)}:")
    for each in around:
        said = "(this message)" if each.id == message.id else _cut(each.content)
        lines.append(visible(f"  [{short(each.id)}] {one_line(each.name) or each.role} said: {said}"))
    return "\n".join(lines)


def _state(memory: Memory) -> str:
    if memory.superseded_by and memory.deleted_at is not None:
        return f"superseded by [{short(memory.superseded_by)}]"
    return "deleted" if memory.deleted_at else "current"


def _made_by(provenance: models.Provenance) -> str:
    return " ".join(part for part in (provenance.stage, provenance.model) if part)


def with_notes(lines: Iterable[str], notes: Iterable[str], scope: Scope) -> str:
    """Return lines with notes and the scope below them."""
    return visible("\n".join([*lines, *(f"note: {note}" for note in notes), *scope_note(scope)]))


def _quote(memory: Memory) -> str:
    read_at = f"@{memory.revision}" if _is_pinned(memory) else ""  # what the next edit is made on
    return f"[{short(memory.id)}{read_at}] {_cut(memory.text)}"


def _is_pinned(memory: Memory) -> bool:
    return bool(memory.metadata.get(models.PINNED)) and memory.deleted_at is None


def _cut(text: str, most: int = MAX_ECHO) -> str:
    """Return a text on one line; of a long one only the beginning and the length."""
    line = one_line(text)
    return line if len(line) <= most else f"{shorten(line, most)} ({len(text):,} characters)"


# A memory or message whole: its text as it is stored, and everything that is stored with it.

# How many of the messages behind a memory are printed.
SHOWN_SOURCES = 10


def whole_reply_text(owner: Memory | Message, sources: Sequence[Message]) -> str:
    """Return the same for a person: the text, then a line for each thing that is known."""
    memory = owner.as_memory if isinstance(owner, Message) else owner
    metadata = [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in memory.metadata.items()]
    said = [whole_text(source) for source in sources[:SHOWN_SOURCES]]
    if len(sources) > SHOWN_SOURCES:
        said.append(f"and {counted(len(sources) - SHOWN_SOURCES, 'message')} more; --json names all")
    known = {
        "id": [memory.id],
        "date": [memory.date if memory.at_precision else local_iso(memory.at)],
        "scope": [str(memory.scope)],
        "from": [owner.source] if isinstance(owner, Message) and owner.external_id else [],
        "tags": [", ".join(memory.tags)] if memory.tags else [],
        "hints": ["; ".join(memory.keywords)] if memory.keywords else [],
        "metadata": metadata,
        "sources": said,
        "created": [local_iso(memory.created_at)],
        "updated": [local_iso(memory.updated_at)] if memory.updated_at != memory.created_at else [],
    }
    lines = [
        f"{name if place == 0 else '':<9} {line}" for name, values in known.items() for place, line in enumerate(values)
    ]
    return "\n".join([whole_text(owner), "", *map(visible, lines)])
