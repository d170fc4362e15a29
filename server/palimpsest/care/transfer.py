"""Memories out to a file and in from one: our own lines without loss, Markdown for reading, and others' exports."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any, Literal, TextIO

from palimpsest.care.export_format import header_of, is_export, line_of, read_items
from palimpsest.care.importers.read import Foreign, ForeignMemory, ForeignTurn, read_foreign
from palimpsest.core.clock import iso
from palimpsest.core.errors import EmbedderError, InputError
from palimpsest.core.files import replace_file
from palimpsest.core.models import MAX_SCOPE_CHARS, Event, Scope
from palimpsest.core.protocols import Progress, Vector
from palimpsest.core.validation import one_line
from palimpsest.index.backfill import embed_missing
from palimpsest.learn.engine import Engine
from palimpsest.learn.sanitize import Cleaner
from palimpsest.store.queries import memories as memory_queries
from palimpsest.store.sqlite import backup
from palimpsest.store.writes import transfer as transfer_writes
from palimpsest.store.writes.messages import SESSION_GAP

BATCH = 200
"""Items in one transaction of an import: other clients write in between."""

EXAMPLES = 5
NAMESPACE = uuid.UUID("5b1f9a34-0a52-4a0e-9d0c-6a8f0f2c9b1e")
"""Ids of what comes from elsewhere are made of what it is, so that a second import knows it."""


@dataclass(frozen=True, slots=True)
class ImportFile:
    """Hold what a file brings: its form, its items (which can be walked more than once), and what was left out.

    `key` names the file and for whom it is read.
    """

    format: str
    key: str
    items: Callable[[], Iterator[transfer_writes.Item]]
    total: int
    edits: int
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Imported:
    """Hold what an import did, or would do: new and known items by type, the first new texts, and notes."""

    format: str
    came: dict[str, int]
    known: dict[str, int]
    examples: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def export(
    engine: Engine, scope: Scope, out: Path | TextIO, form: Literal["jsonl", "markdown"], progress: Progress
) -> int:
    """Write a user's memory to a new file (0600) or a stream, and return how much that was. Blocking.

    "jsonl" is everything, all projects and all that was deleted; "markdown" what is believed now, for reading. Raises
    InputError where the file is there already or cannot be written; a half-written one is taken away.
    """
    write = _write_lines if form == "jsonl" else _write_markdown
    if not isinstance(out, Path):
        return write(engine, scope, out, progress)
    if out.exists():
        raise InputError(f"{out} is there already; name a new file, or - for standard output")
    try:
        with replace_file(out) as file:
            return write(engine, scope, file, progress)
    except OSError as error:
        raise InputError(f"{out} cannot be written: {error}") from error


def _write_lines(engine: Engine, scope: Scope, out: TextIO, progress: Progress) -> int:
    with engine.ledger.read() as conn:
        total = transfer_writes.count(conn, scope.user_id)
        out.write(line_of(header_of(scope.user_id)))
        for number, item in enumerate(transfer_writes.export_items(conn, scope.user_id), 1):
            out.write(line_of(item))
            progress(number, total)
    return total


def _write_markdown(engine: Engine, scope: Scope, out: TextIO, progress: Progress) -> int:
    with engine.ledger.read() as conn:
        projects = memory_queries.projects_of(conn, scope.user_id)
        out.write(f"# What is remembered of {scope.user_id}\n")
        total = 0
        for number, project in enumerate(projects, 1):
            memories, _ = memory_queries.stored_in(conn, Scope(scope.user_id, project))
            summary = memory_queries.latest_summary(conn, Scope(scope.user_id, project), "overall")
            out.write(f"\n## {f'Project {project}' if project else 'Everywhere'}\n\n")
            if summary is not None:
                out.write(f"{summary.text}\n\n")
            out.writelines(f"- {iso(each.at)[:10]} {one_line(each.text)} `{each.id[:8]}`\n" for each in memories)
            total += len(memories)
            progress(number, len(projects))
    return total


def open_import(engine: Engine, scope: Scope, file: Path, now: datetime) -> ImportFile:
    """Read a file through and return what it brings. Blocking. Raises InputError naming the line at fault."""
    if is_export(file):
        total, edits = 0, 0
        with engine.ledger.read() as conn:
            for item in read_items(file):
                total += 1
                edits = max([edits, *(past["change"] for past in item.get("history", ()))])
                if transfer_writes.is_anothers(conn, scope.user_id, item):
                    raise InputError(f"{file} holds what another user of this ledger has; nothing was stored")
        return ImportFile("palimpsest", _key(file, scope), lambda: read_items(file), total, edits)
    foreign = read_foreign(file, now)
    cleaner = Cleaner(engine)
    items = [
        *_turn_items(foreign, scope, cleaner),
        *(_memory_item(foreign, scope, each, cleaner) for each in foreign.memories),
    ]
    notes = (*foreign.notes, *cleaner.notes())
    return ImportFile(foreign.format, _key(file, scope), lambda: iter(items), len(items), 1, notes)


def preview(engine: Engine, scope: Scope, import_file: ImportFile) -> Imported:
    """Return what an import would bring, without bringing it. Blocking."""
    came: dict[str, int] = {"turn": 0, "memory": 0, "summary": 0}
    known = dict(came)
    examples: list[str] = []
    with engine.ledger.read() as conn:
        for item in import_file.items():
            is_known = transfer_writes.is_known(conn, scope.user_id, item)
            (known if is_known else came)[item["type"]] += 1
            if not is_known and len(examples) < EXAMPLES:
                examples.append(one_line(item.get("text") or item.get("content") or ""))
    return Imported(import_file.format, came, known, tuple(examples), import_file.notes)


def take_in(engine: Engine, scope: Scope, import_file: ImportFile, progress: Progress) -> Imported:
    """Store what a file brings, each item once, then embed it. Blocking. Raises LedgerError.

    A ledger that holds something is backed up first. An import that was cut off goes on when it is run again.
    """
    notes = list(import_file.notes)
    with engine.ledger.read() as conn:
        empty = memory_queries.head(conn) == 0
    if not empty:
        before = backup.keep_copy(engine.ledger.path, "before-import", engine.clock())
        notes.append(f"palimpsest restore {before.path} takes it all back")
    state = transfer_writes.ImportState(import_file.key, import_file.total)
    engine.ledger.reserve_edits(state, import_file.edits)
    items, done = import_file.items(), 0
    state.embedder = engine.embedder.fingerprint
    while batch := list(islice(items, BATCH)):
        state.vectors = _vectors(engine, batch)
        engine.ledger.import_items(scope.user_id, batch, state)
        done += len(batch)
        progress(done, import_file.total)
    try:
        embed_missing(engine.ledger, engine.embedder, only_failed=True, progress=progress)
    except EmbedderError as error:
        notes.append(f"found by words only, until it can be embedded: {error}")
    return Imported(import_file.format, state.came, state.known, notes=tuple(notes))


def _vectors(engine: Engine, batch: Sequence[transfer_writes.Item]) -> dict[str, Vector]:
    """Return the vectors of the living texts of a batch; none where the embedder fails, which is tried again later."""
    named = (item.get("text") or item.get("content") for item in batch if item["type"] != "summary")
    texts = [text for text in dict.fromkeys(named) if text]
    try:
        return dict(zip(texts, engine.embedder.embed(texts), strict=True))
    except EmbedderError:
        return {}  # said once, at the end


def _turn_items(foreign: Foreign, scope: Scope, cleaner: Cleaner) -> Iterator[dict[str, Any]]:
    session, last = "", None
    for turn in foreign.turns:
        turn_id = _id(foreign.format, str(scope), turn.id, turn.said_at.isoformat(), turn.content)
        if last is None or abs(turn.said_at - last) > SESSION_GAP:
            session = turn_id
        last = turn.said_at
        yield _turn_item(turn, scope, turn_id, session, cleaner)


def _turn_item(turn: ForeignTurn, scope: Scope, turn_id: str, session: str, cleaner: Cleaner) -> dict[str, Any]:
    past = {"event": Event.ADD.value, "updated_at": turn.said_at, "stage": "import", "caller": "cli", "change": 1}
    return {
        "type": "turn",
        "id": turn_id,
        "project": scope.project,
        "agent_id": scope.agent_id,
        "run_id": scope.run_id,
        "role": turn.role,
        "name": one_line(turn.name)[:MAX_SCOPE_CHARS],
        "content": cleaner.text(turn.content),
        "external_id": one_line(turn.id)[:MAX_SCOPE_CHARS],
        "session_id": session,
        "said_at": turn.said_at,
        "created_at": turn.said_at,
        "learnt": False,
        "deleted_at": None,
        "history": [past],
    }


def _memory_item(foreign: Foreign, scope: Scope, memory: ForeignMemory, cleaner: Cleaner) -> dict[str, Any]:
    first, last = memory.versions[0], memory.versions[-1]
    texts = [None if version.text is None else cleaner.text(version.text) for version in memory.versions]
    text = next((each for each in reversed(texts) if each), "")
    gone = last.at if last.text is None else None
    metadata = cleaner.value(dict(memory.metadata))
    # Not the time: what has none of its own is dated by the import, and has to be known at the next one.
    memory_id = _id(foreign.format, str(memory.metadata.get("mem0_id") or text), str(scope))
    labels: dict[str, Any] = {"metadata": metadata, "keywords": [], "tags": list(memory.tags), "happened_at": None}
    return {
        "type": "memory",
        "id": memory_id,
        "project": scope.project,
        "agent_id": scope.agent_id,
        "run_id": scope.run_id,
        "text": text,
        **labels,
        "actor_id": "",
        "role": "",
        "valid_from": last.at,
        "valid_until": gone,
        "created_at": first.at,
        "updated_at": last.at,
        "deleted_at": gone,
        "superseded_by": None,
        "revision": len(memory.versions),
        "history": _past(memory, memory_id, texts, labels),
        "sources": [],
    }


def _past(
    memory: ForeignMemory, memory_id: str, texts: Sequence[str | None], labels: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Return the rows of history that a memory's versions make; all of one import are one edit."""
    return [
        {
            "id": _id(memory_id, str(number)),
            "old_memory": next((each for each in reversed(texts[:number]) if each), None),
            "new_memory": now,
            "event": version.event.value,
            "created_at": memory.versions[0].at,
            "updated_at": version.at,
            "is_deleted": now is None,
            "actor_id": "",
            "role": "",
            "state": {**labels, "valid_from": version.at.isoformat(), "superseded_by": None},
            "stage": "import",
            "model": "",
            "prompt": "",
            "caller": "cli",
            "change": 1,
        }
        for number, (version, now) in enumerate(zip(memory.versions, texts, strict=True))
    ]


def _key(file: Path, scope: Scope) -> str:
    with file.open("rb") as opened:
        return f"import {_id(hashlib.file_digest(opened, 'sha256').hexdigest(), str(scope))}"


def _id(*parts: str) -> str:
    return str(uuid.uuid5(NAMESPACE, "\0".join(parts)))
