"""Import a file: an export of Palimpsest, or a file of another tool. Blocking.

`plan_import` reads the file, `preview_import` says what it would bring, and `run_import` stores it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from pathlib import Path

from palimpsest.care.importers.formats import read_file
from palimpsest.care.importers.items import derived_id, items_of
from palimpsest.care.importers.source import MAX_BYTES
from palimpsest.care.transfer.export_format import is_export, read_items
from palimpsest.core.errors import InputError
from palimpsest.core.files import open_plain_file
from palimpsest.core.models import Scope
from palimpsest.core.protocols import Progress
from palimpsest.core.validation import one_line
from palimpsest.learn.engine import Engine
from palimpsest.learn.sanitize import Cleaner
from palimpsest.store.graph.care.transfer import ImportedEntities, MentionsOfFile
from palimpsest.store.queries import index_log as log_queries
from palimpsest.store.queries import vectors as vector_queries
from palimpsest.store.views.pinned import notes_on_long_blocks
from palimpsest.store.writes import transfer as transfer_writes

BATCH = 200
"""Items per transaction of an import. Other clients can write between two batches."""

EXAMPLES = 5


@dataclass(frozen=True, slots=True)
class ImportPlan:
    """An import that is ready to run.

    `key` identifies the file and the scope it is imported into. `items` can be called more than once; each call walks
    the `total` items from the start. `edits` is the highest edit number in the file. `entities` are the ids of those in
    the file, and `only_purged` of those that only memories and messages mention that a person purged here. `notes` say
    what was left out.
    """

    format: str
    key: str
    items: Callable[[], Iterator[transfer_writes.Item]]
    total: int
    edits: int
    notes: tuple[str, ...] = ()
    entities: frozenset[str] = frozenset()
    only_purged: frozenset[str] = frozenset()

    def begin(self, *, brings_back: bool) -> transfer_writes.ImportState:
        """Return the state of an import that has done nothing yet."""
        known = ImportedEntities(self.entities, frozenset() if brings_back else self.only_purged)
        return transfer_writes.ImportState(self.key, self.total, brings_back, entities=known)


@dataclass(frozen=True, slots=True)
class ImportResult:
    """What an import did or would do: the number of new and known items by type, the first new texts, and notes.

    `deleted` is how many of the new items are deleted in the file: they are kept as deleted. `left_out` counts the
    known items that stay away because a person deleted or purged them here. `skipped` are the first texts of a dry run
    that are known, deleted or purged here. `waiting` is the number of texts in the ledger that wait to be embedded and
    are found by their words until then. `backup` is the copy of the ledger as it was before, and `edit` the number of
    the edit that stored everything; 0 if nothing was stored, or if the file brought several edits.
    """

    format: str
    new: dict[str, int]
    known: dict[str, int]
    examples: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    waiting: int = 0
    deleted: int = 0
    left_out: Mapping[str, int] = field(default_factory=dict[str, int])
    skipped: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])
    backup: Path | None = None
    edit: int = 0


def plan_import(engine: Engine, scope: Scope, file: Path, now: datetime, max_bytes: int = MAX_BYTES) -> ImportPlan:
    """Read a whole file and return what it would bring. Nothing is stored.

    A file of another tool has at most `max_bytes`, unpacked.

    Raises InputError that names the damaged line, or if an item belongs to another user of this ledger.
    """
    if is_export(file):
        return _plan_export(engine, scope, file)
    imported = read_file(file, now, max_bytes)
    cleaner = Cleaner(engine)
    items = items_of(imported, scope, cleaner, now)
    notes = (*imported.notes, *cleaner.notes())
    return ImportPlan(imported.format, _key(file, scope), lambda: iter(items), len(items), 1, notes)


_WRITTEN = frozenset({"text", "content", "old_memory", "new_memory", "title", "name", "context", "actor_id"})
"""The keys of an item of an export whose values somebody wrote."""


def _plan_export(engine: Engine, scope: Scope, file: Path) -> ImportPlan:
    total, edits = 0, 0
    mentioned = MentionsOfFile()
    cleaner = Cleaner(engine)
    items = (_cleaned(cleaner, item) for item in read_items(file))
    while batch := list(islice(items, BATCH)):
        total += len(batch)
        edits = max([edits, *(row["change"] for item in batch for row in item.get("history", ()))])
        with engine.ledger.read() as conn:
            if any(transfer_writes.belongs_to_other_user(conn, scope.user_id, item) for item in batch):
                raise InputError(f"{file} contains items of another user of this ledger. Nothing was imported")
            for item in batch:
                mentioned.read(item, was_purged=bool(item.get("mentions")) and transfer_writes.was_purged(conn, item))
    return ImportPlan(
        "palimpsest",
        _key(file, scope),
        lambda: (_cleaned(Cleaner(engine), item) for item in read_items(file)),
        total,
        edits,
        tuple(cleaner.notes()),
        entities=frozenset(mentioned.merged_into),
        only_purged=mentioned.only_purged(),
    )


def _cleaned(cleaner: Cleaner, item: transfer_writes.Item) -> transfer_writes.Item:
    """Return an item of an export without secrets, because somebody may have edited the file."""
    if item.get("type") in ("alias", "entity"):
        return item
    cleaned = dict(item)
    for key in _WRITTEN & cleaned.keys():
        cleaned[key] = cleaner.text(cleaned[key]) if cleaned[key] else cleaned[key]
    for key in ("tags", "keywords"):
        if key in cleaned:
            cleaned[key] = [cleaner.text(label) for label in item[key]]
    if "metadata" in cleaned:
        cleaned["metadata"] = cleaner.value(item["metadata"])
    if "history" in cleaned:
        cleaned["history"] = [_cleaned(cleaner, row) for row in item["history"]]
    for key in ("state", "gist"):
        if cleaned.get(key):
            cleaned[key] = _cleaned(cleaner, item[key])
    return cleaned


def preview_import(engine: Engine, scope: Scope, plan: ImportPlan, *, brings_back: bool = False) -> ImportResult:
    """Return what an import would bring. Nothing is stored."""
    state = plan.begin(brings_back=brings_back)
    deleted, examples = 0, list[str]()
    skipped: dict[str, list[str]] = {"known": [], **{how: [] for how in state.left_out}}
    items = plan.items()
    while batch := list(islice(items, BATCH)):
        with engine.ledger.read() as conn:
            standings = [transfer_writes.standing_of(conn, scope.user_id, item, state) for item in batch]
        for item, standing in zip(batch, standings, strict=True):
            is_left_out = standing in state.left_out and not brings_back
            if is_left_out:
                state.left_out[standing] += 1
            is_new = standing != "known" and not is_left_out
            (state.stored if is_new else state.known)[item["type"]] += 1
            deleted += is_new and _is_deleted(item)
            shown = examples if is_new else skipped[standing if is_left_out else "known"]
            if item["type"] not in ("alias", "conversation", "entity") and len(shown) < EXAMPLES:
                shown.append(_example(item))
    return ImportResult(
        plan.format,
        state.stored,
        state.known,
        tuple(examples),
        plan.notes,
        deleted=deleted,
        left_out=state.left_out,
        skipped=skipped,
    )


def _is_deleted(item: transfer_writes.Item) -> bool:
    return item.get("deleted_at") is not None


def _example(item: transfer_writes.Item) -> str:
    text = one_line(item.get("text") or item.get("content") or "")
    return f"(deleted) {text}" if _is_deleted(item) else text


def run_import(
    engine: Engine, scope: Scope, plan: ImportPlan, progress: Progress, *, brings_back: bool = False
) -> ImportResult:
    """Store each item once. The texts are embedded later, in the background. Raises LedgerError.

    A ledger that is not empty is backed up first. An import that was interrupted continues when it is run again. What
    an undo of an earlier import took back is brought back; what a person deleted or purged since, with `brings_back`.
    """
    notes = list(plan.notes)
    with engine.ledger.read() as conn:
        is_empty = log_queries.newest_log_number(conn) == 0
    copy = None if is_empty else engine.ledger.backups.keep("before-import", engine.clock())
    state = plan.begin(brings_back=brings_back)
    engine.ledger.reserve_edits(state, plan.edits)
    items, done = plan.items(), 0
    while batch := list(islice(items, BATCH)):
        engine.ledger.import_items(scope.user_id, batch, state)
        done += len(batch)
        progress(done, plan.total)
    with engine.ledger.read() as conn:
        waiting = vector_queries.count_missing_vectors(conn, engine.embedder.fingerprint, only_failed=True)
        notes += notes_on_long_blocks(conn, scope.user_id)
    is_one_edit = plan.edits == 1 and bool(state.stored["turn"] or state.stored["memory"])
    return ImportResult(
        plan.format,
        state.stored,
        state.known,
        notes=tuple(notes),
        waiting=waiting,
        deleted=state.deleted,
        left_out=state.left_out,
        backup=copy.path if copy is not None and any(state.stored.values()) else None,
        edit=state.base + 1 if is_one_edit else 0,
    )


def _key(file: Path, scope: Scope) -> str:
    """Return what identifies a file, or a folder by its path, and the scope it is imported into."""
    if file.is_dir():
        return f"import {derived_id(str(file.resolve()), str(scope))}"
    with open_plain_file(file) as stream:
        return f"import {derived_id(hashlib.file_digest(stream, 'sha256').hexdigest(), str(scope))}"
