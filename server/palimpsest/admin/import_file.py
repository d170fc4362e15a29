"""Import a file: an export of Palimpsest, or a file of another tool. Blocking.

`plan_import` reads the file, `preview_import` says what it would bring, and `run_import` stores it.
"""

import hashlib
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, TypeAlias

from sqlalchemy import Connection

from palimpsest.admin.export import is_export, read_items
from palimpsest.admin.importers import chatgpt, claude, mem0, records, server_memory
from palimpsest.core.errors import InputError
from palimpsest.core.files import open_plain_file
from palimpsest.core.models import MAX_SCOPE_CHARS, Event, Scope
from palimpsest.core.protocols import Progress
from palimpsest.core.validation import one_line
from palimpsest.learn.commit import names_in
from palimpsest.learn.engine import Engine
from palimpsest.learn.sanitize import Cleaner
from palimpsest.store import entries, transfer
from palimpsest.store.rows import batched
from palimpsest.store.writes import MAX_TITLE_CHARS, session_id_of

# The formats that can be imported, and the readers that understand them. The content of a file decides, not its
# name.
#
# To add a format, write one module in this package with one reader, and add the reader to `READERS`. A reader takes
# an opened `SourceFile` and the present instant. It returns an `ImportedFile`, or None if the file has another
# format. It raises InputError if the file has its format but is damaged. A reader reads the whole file before it
# returns anything, so a damaged file brings nothing.

Reader: TypeAlias = Callable[[records.SourceFile, datetime], records.ImportedFile | None]

# Every format. The first reader that recognizes a file reads it.
READERS: tuple[Reader, ...] = (mem0.read_history, chatgpt.read, claude.read, mem0.read_export, server_memory.read)


def read_file(file: Path, now: datetime, max_bytes: int = records.MAX_BYTES) -> records.ImportedFile:
    """Return the contents of another tool's file. Blocking.

    Times in the future and before 1970 become `now`. Raises InputError if the file is damaged, has none of the formats
    or more than `max_bytes`, unpacked. The error names the file, the line if there are lines, and the formats.
    """
    source = records.open_source(file, max_bytes)
    for read in READERS:
        if (imported := read(source, now)) is not None:
            return imported
    if source.is_database:
        raise InputError(f"{source.name} is a database without a mem0 history. {records.EXPECTED}")
    raise InputError(f"{source.name} is JSON in an unknown format, or empty. {records.EXPECTED}")


# The conversations, messages and memories of another tool's file as items of the export format.
#
# The id of an item is derived from the tool, the scope and what identifies the item, so a second import recognizes
# it.

NAMESPACE = uuid.UUID("5b1f9a34-0a52-4a0e-9d0c-6a8f0f2c9b1e")


def items_of(imported: records.ImportedFile, scope: Scope, cleaner: Cleaner, now: datetime) -> list[dict[str, Any]]:
    """Return each conversation, message and memory of a file as an item for `scope`, without secrets.

    `now` is when they are imported, which is the time of the edit. All other times are those of the content.
    """
    memories = (_memory_item(imported.format, memory, scope, cleaner) for memory in imported.memories)
    items = [*_conversation_items(imported, scope, cleaner), *memories]
    for version in (version for item in items for version in item.get("history", ())):
        version["recorded_at"] = now
    return items


# What all rows of history of an import have: they belong to one edit.
_EDIT: Mapping[str, Any] = {"stage": "import", "caller": "cli", "change": 1}


def derived_id(*parts: str) -> str:
    """Return the UUID that belongs to these texts: always the same one."""
    return str(uuid.uuid5(NAMESPACE, "\0".join(parts)))


def _conversation_items(imported: records.ImportedFile, scope: Scope, cleaner: Cleaner) -> Iterator[dict[str, Any]]:
    """Yield every conversation and, after it, its messages, which are one session however long it paused."""
    for conversation in imported.conversations:
        first = conversation.messages[0]
        external_id = one_line(cleaner.text(conversation.id))[:MAX_SCOPE_CHARS]
        session_id = session_id_of(scope, imported.format, external_id or _message_id(imported, first, scope))
        yield {
            "type": "conversation",
            "session_id": session_id,
            **_parts_of(scope),
            "client": imported.format,
            "external_id": external_id,
            "title": one_line(cleaner.text(conversation.title))[:MAX_TITLE_CHARS],
            "created_at": first.said_at,
        }
        for message in conversation.messages:
            yield {
                "type": "message",
                "id": _message_id(imported, message, scope),
                **_parts_of(scope),
                "role": message.role,
                "name": one_line(cleaner.text(message.name))[:MAX_SCOPE_CHARS],
                "content": cleaner.text(message.content),
                "external_id": one_line(cleaner.text(message.id))[:MAX_SCOPE_CHARS],
                "session_id": session_id,
                "said_at": message.said_at,
                "created_at": message.said_at,
                "learnt": False,
                "deleted_at": None,
                "history": [{"event": Event.ADD.value, "updated_at": message.said_at, **_EDIT}],
            }


def _parts_of(scope: Scope) -> dict[str, str]:
    return {"project": scope.project, "agent_id": scope.agent_id, "run_id": scope.run_id}


def _message_id(imported: records.ImportedFile, message: records.ImportedMessage, scope: Scope) -> str:
    return derived_id(imported.format, str(scope), message.id, message.said_at.isoformat(), message.content)


def _memory_item(tool_format: str, memory: records.ImportedMemory, scope: Scope, cleaner: Cleaner) -> dict[str, Any]:
    first, last = memory.versions[0], memory.versions[-1]
    texts = [None if version.text is None else cleaner.text(version.text) for version in memory.versions]
    text = next((version_text for version_text in reversed(texts) if version_text), "")
    deleted_at = last.at if last.text is None else None
    metadata = cleaner.value(dict(memory.metadata))
    # The time is not part of the id: a memory without a time of its own gets that of the import.
    memory_id = derived_id(tool_format, str(memory.metadata.get("mem0_id") or text), str(scope))
    labels: dict[str, Any] = {"metadata": metadata, "keywords": [], "tags": [cleaner.text(tag) for tag in memory.tags]}
    labels |= {"happened_at": None, "happened_precision": ""}
    past = [
        {
            "id": derived_id(memory_id, str(index)),
            "old_memory": next((previous for previous in reversed(texts[:index]) if previous), None),
            "new_memory": text,
            "event": version.event.value,
            "created_at": first.at,
            "updated_at": version.at,
            "is_deleted": text is None,
            **dict.fromkeys(("actor_id", "role", "model", "prompt"), ""),
            "state": {**labels, "stated_at": version.at.isoformat(), "valid_from": None, "superseded_by": None},
            **_EDIT,
        }
        for index, (version, text) in enumerate(zip(memory.versions, texts, strict=True))
    ]
    return {
        "type": "memory",
        "id": memory_id,
        **_parts_of(scope),
        "text": text,
        **labels,
        **dict.fromkeys(("actor_id", "role", "valid_from_precision", "valid_until_precision"), ""),
        **dict.fromkeys(("valid_from", "valid_until", "superseded_by")),
        "stated_at": last.at,
        "created_at": first.at,
        "updated_at": last.at,
        "deleted_at": deleted_at,
        "is_forgotten": deleted_at is not None,
        "revision": len(memory.versions),
        "history": past,
        "sources": [],
    }


# Items per transaction of an import. Other clients can write between two batches.
BATCH = 200

EXAMPLES = 5


@dataclass(frozen=True, slots=True)
class ImportPlan:
    """A file that was read whole.

    `items` can be called more than once; each call walks the items from the start. `edits` is the highest edit number
    in the file. `notes` say what was left out. `state` is that of an import that has done nothing yet.
    """

    format: str
    items: Callable[[], Iterator[transfer.Item]]
    edits: int
    notes: tuple[str, ...]
    state: transfer.ImportState


@dataclass(frozen=True, slots=True)
class ImportResult:
    """What an import did or would do: the number of new and known items by type, the first new texts, and notes.

    `deleted` is how many of the new items are deleted in the file: they are kept as deleted. `left_out` counts the
    known items that stay away because a person deleted or purged them here. `waiting` is the number of texts in the
    ledger that wait to be embedded and are found by their words until then. `backup` is the copy of the ledger as it
    was before, and `edit` the number of the edit that stored everything; 0 if nothing was stored, or if the file
    brought several edits.
    """

    format: str
    new: dict[str, int]
    known: dict[str, int]
    examples: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    waiting: int = 0
    deleted: int = 0
    left_out: Mapping[str, int] = field(default_factory=dict[str, int])
    backup: Path | None = None
    edit: int = 0


def plan_import(engine: Engine, scope: Scope, file: Path, max_bytes: int) -> ImportPlan:
    """Read a whole file and return what it would bring. Nothing is stored.

    A file of another tool has at most `max_bytes`, unpacked. Raises InputError that names the damaged line, or if an
    item belongs to another user of this ledger.
    """
    if is_export(file):
        return _plan_export(engine, scope, file)
    now, cleaner = engine.clock(), Cleaner(engine)
    imported = read_file(file, now, max_bytes)
    items = items_of(imported, scope, cleaner, now)
    state = transfer.ImportState(_key(file, scope), len(items))
    return ImportPlan(imported.format, lambda: iter(items), 1, (*imported.notes, *cleaner.notes()), state)


def _plan_export(engine: Engine, scope: Scope, file: Path) -> ImportPlan:
    total, edits = 0, 0
    mentioned = transfer.MentionsOfFile()
    cleaner = Cleaner(engine)

    def cleaned_items() -> Iterator[transfer.Item]:
        return (_cleaned(cleaner, item) for item in read_items(file))

    for batch in batched(cleaned_items(), BATCH):
        total += len(batch)
        edits = max([edits, *(row["change"] for item in batch for row in item.get("history", ()))])
        with engine.ledger.read() as conn:
            if any(transfer.belongs_to_other_user(conn, scope.user_id, item) for item in batch):
                raise InputError(f"{file} contains items of another user of this ledger. Nothing was imported")
            for item in batch:
                mentioned.read(item, was_purged=bool(item.get("mentions")) and transfer.was_purged(conn, item))
    entities = transfer.ImportedEntities(frozenset(mentioned.merged_into), mentioned.only_purged())
    state = transfer.ImportState(_key(file, scope), total, entities=entities)
    return ImportPlan("palimpsest", cleaned_items, edits, tuple(cleaner.notes()), state)


def _cleaned(cleaner: Cleaner, item: transfer.Item) -> transfer.Item:
    """Return an item of an export without secrets, because somebody may have edited the file."""
    if item.get("type") in ("alias", "entity"):
        return item
    return {key: _CLEANERS[key](cleaner, value) if value and key in _CLEANERS else value for key, value in item.items()}


# How the values of an item of an export that somebody wrote are cleaned, by their keys.
_CLEANERS: Mapping[str, Callable[[Cleaner, Any], Any]] = {
    **dict.fromkeys(
        ("text", "content", "old_memory", "new_memory", "title", "name", "context", "actor_id"), Cleaner.text
    ),
    **dict.fromkeys(("tags", "keywords"), lambda cleaner, labels: list(map(cleaner.text, labels))),
    **dict.fromkeys(("state", "gist"), _cleaned),
    "metadata": Cleaner.value,
    "history": lambda cleaner, rows: [_cleaned(cleaner, row) for row in rows],
}


def preview_import(engine: Engine, scope: Scope, plan: ImportPlan) -> ImportResult:
    """Return what an import would bring. Nothing is stored."""
    state = plan.state
    examples: list[str] = []
    for batch in batched(plan.items(), BATCH):
        with engine.ledger.read() as conn:
            standings = [transfer.standing_of(conn, scope.user_id, item, state) for item in batch]
        for item, standing in zip(batch, standings, strict=True):
            if standing in state.left_out:
                state.left_out[standing] += 1
            is_new = standing not in ("known", *state.left_out)
            (state.stored if is_new else state.known)[item["type"]] += 1
            is_deleted = item.get("deleted_at") is not None
            state.deleted += is_new and is_deleted
            if is_new and item["type"] not in ("alias", "conversation", "entity") and len(examples) < EXAMPLES:
                text = one_line(item.get("text") or item.get("content") or "")
                examples.append(f"(deleted) {text}" if is_deleted else text)
    return replace(_result(plan), examples=tuple(examples))


def run_import(engine: Engine, scope: Scope, plan: ImportPlan, progress: Progress) -> ImportResult:
    """Store each item once. The texts are embedded later, in the background. Raises LedgerError.

    A ledger that is not empty is backed up first. An import that was interrupted continues when it is run again. What
    an undo of an earlier import took back is brought back.
    """
    state = plan.state
    is_empty = engine.ledger.read_with(entries.newest_log_number) == 0
    copy = None if is_empty else engine.ledger.backups.keep("before-import", engine.clock())
    engine.ledger.run(transfer.reserve_edits, state, plan.edits)
    done = 0
    for batch in batched(plan.items(), BATCH):
        ledger, user_id = engine.ledger, scope.user_id
        named = ledger.read_with(_named, user_id, batch)
        ledger.run_for(user_id, transfer.import_items, ledger.full_text, user_id, named, state, ledger.clock())
        done += len(batch)
        progress(done, state.total)
    waiting = engine.ledger.read_with(entries.count_missing_vectors, engine.embedder.fingerprint, only_failed=True)
    is_one_edit = plan.edits == 1 and bool(state.stored["message"] or state.stored["memory"])
    backup = copy.path if copy is not None and any(state.stored.values()) else None
    return replace(_result(plan), waiting=waiting, backup=backup, edit=state.base + 1 if is_one_edit else 0)


def _named(conn: Connection, user_id: str, items: Sequence[transfer.Item]) -> list[transfer.Item]:
    """Return items in which the memories of other tools, which look for no names, have what their texts name."""

    def named(item: transfer.Item) -> transfer.Item:
        if item["type"] != "memory" or item.get("entities") is not None:
            return item
        found = names_in(conn, Scope(user_id, item["project"]), item["text"])
        return {**item, "entities": [[entity.name, entity.type] for entity in found], "relations": []}

    return [*map(named, items)]


def _result(plan: ImportPlan) -> ImportResult:
    done = plan.state
    return ImportResult(
        plan.format, done.stored, done.known, notes=plan.notes, deleted=done.deleted, left_out=done.left_out
    )


def _key(file: Path, scope: Scope) -> str:
    """Return what identifies a file, or a folder by its path, and the scope it is imported into."""
    if file.is_dir():
        return f"import {derived_id(str(file.resolve()), str(scope))}"
    with open_plain_file(file) as stream:
        return f"import {derived_id(hashlib.file_digest(stream, 'sha256').hexdigest(), str(scope))}"
