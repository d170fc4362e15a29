"""Import a file: an export of Palimpsest, or a file of another tool. Blocking.

`plan_import` reads the file, `preview_import` says what it would bring, and `run_import` stores it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from pathlib import Path

from palimpsest.care.export_format import is_export, read_items
from palimpsest.care.importers.formats import read_file
from palimpsest.care.importers.items import derived_id, items_of
from palimpsest.core.errors import InputError
from palimpsest.core.models import Scope
from palimpsest.core.protocols import Progress
from palimpsest.core.validation import one_line
from palimpsest.learn.engine import Engine
from palimpsest.learn.sanitize import Cleaner
from palimpsest.store.queries import index_log as log_queries
from palimpsest.store.queries import vectors as vector_queries
from palimpsest.store.writes import transfer as transfer_writes

BATCH = 200
"""Items per transaction of an import. Other clients can write between two batches."""

EXAMPLES = 5


@dataclass(frozen=True, slots=True)
class ImportPlan:
    """An import that is ready to run.

    `key` identifies the file and the scope it is imported into. `items` can be called more than once; each call walks
    the `total` items from the start. `edits` is the highest edit number in the file. `notes` say what was left out.
    """

    format: str
    key: str
    items: Callable[[], Iterator[transfer_writes.Item]]
    total: int
    edits: int
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ImportResult:
    """What an import did or would do: the number of new and known items by type, the first new texts, and notes.

    `waiting` is the number of texts in the ledger that wait to be embedded and are found by their words until then.
    """

    format: str
    new: dict[str, int]
    known: dict[str, int]
    examples: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    waiting: int = 0


def plan_import(engine: Engine, scope: Scope, file: Path, now: datetime) -> ImportPlan:
    """Read a whole file and return what it would bring. Nothing is stored.

    Raises InputError that names the damaged line, or if an item belongs to another user of this ledger.
    """
    if is_export(file):
        return _plan_export(engine, scope, file)
    imported = read_file(file, now)
    cleaner = Cleaner(engine)
    items = items_of(imported, scope, cleaner)
    notes = (*imported.notes, *cleaner.notes())
    return ImportPlan(imported.format, _key(file, scope), lambda: iter(items), len(items), 1, notes)


def _plan_export(engine: Engine, scope: Scope, file: Path) -> ImportPlan:
    total, edits = 0, 0
    items = read_items(file)
    while batch := list(islice(items, BATCH)):
        total += len(batch)
        edits = max([edits, *(row["change"] for item in batch for row in item.get("history", ()))])
        with engine.ledger.read() as conn:
            if any(transfer_writes.belongs_to_other_user(conn, scope.user_id, item) for item in batch):
                raise InputError(f"{file} contains items of another user of this ledger. Nothing was imported")
    return ImportPlan("palimpsest", _key(file, scope), lambda: read_items(file), total, edits)


def preview_import(engine: Engine, scope: Scope, plan: ImportPlan) -> ImportResult:
    """Return what an import would bring. Nothing is stored."""
    new: dict[str, int] = {"turn": 0, "memory": 0, "summary": 0}
    known = dict(new)
    examples: list[str] = []
    items = plan.items()
    while batch := list(islice(items, BATCH)):
        with engine.ledger.read() as conn:
            batch_known = [transfer_writes.is_known(conn, scope.user_id, item) for item in batch]
        for item, is_known in zip(batch, batch_known, strict=True):
            (known if is_known else new)[item["type"]] += 1
            if not is_known and len(examples) < EXAMPLES:
                examples.append(one_line(item.get("text") or item.get("content") or ""))
    return ImportResult(plan.format, new, known, tuple(examples), plan.notes)


def run_import(engine: Engine, scope: Scope, plan: ImportPlan, progress: Progress) -> ImportResult:
    """Store each item once. The texts are embedded later, in the background. Raises LedgerError.

    A ledger that is not empty is backed up first. An import that was interrupted continues when it is run again.
    """
    notes = list(plan.notes)
    with engine.ledger.read() as conn:
        is_empty = log_queries.newest_log_number(conn) == 0
    if not is_empty:
        copy = engine.ledger.backups.keep("before-import", engine.clock())
        notes.append(f"palimpsest restore {copy.path} undoes this import")
    state = transfer_writes.ImportState(plan.key, plan.total)
    engine.ledger.reserve_edits(state, plan.edits)
    items, done = plan.items(), 0
    while batch := list(islice(items, BATCH)):
        engine.ledger.import_items(scope.user_id, batch, state)
        done += len(batch)
        progress(done, plan.total)
    with engine.ledger.read() as conn:
        waiting = vector_queries.count_missing_vectors(conn, engine.embedder.fingerprint, only_failed=True)
    return ImportResult(plan.format, state.stored, state.known, notes=tuple(notes), waiting=waiting)


def _key(file: Path, scope: Scope) -> str:
    with file.open("rb") as stream:
        return f"import {derived_id(hashlib.file_digest(stream, 'sha256').hexdigest(), str(scope))}"
