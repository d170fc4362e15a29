"""Hold the ledger against itself and the index against the ledger, row by row; and mend what does not agree."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from filelock import Timeout

from palimpsest.care.doctor import Finding
from palimpsest.core.clock import Clock, now
from palimpsest.core.errors import EmbedderError, LedgerError, PalimpsestError
from palimpsest.core.files import file_lock
from palimpsest.core.protocols import Progress, Vector, VectorIndex
from palimpsest.core.settings import Settings
from palimpsest.index.backfill import embed_missing
from palimpsest.index.checkpoint import FILE_NAME, Checkpoint
from palimpsest.index.sync import Projection
from palimpsest.learn.factory import open_embedder, open_projection
from palimpsest.store.ledger import Ledger, backups_of, open_ledger
from palimpsest.store.queries import index_log as log_queries
from palimpsest.store.queries import vectors as vector_queries

BATCH = 200
NEAREST = 10
"""Among so many nearest a vector has to find itself: Chroma's graph may hold one and never give it."""

TOLERANCE = 1e-4


def examine_deeply(settings: Settings, progress: Progress, *, repair: bool, clock: Clock = now) -> list[Finding]:
    """Compare every row, and with `repair` write anew what does not agree; return a finding a part. Blocking.

    Repair takes from the ledger's own texts and vectors, never from the index, and adds to history, never takes
    from it.
    """
    try:
        ledger = open_ledger(settings.ledger_path, clock)
    except LedgerError as error:
        return [Finding("rows", f"{error} {_advice(settings)}", ok=False)]
    try:
        findings = [_rows(settings, ledger, progress, repair=repair)]
        if findings[0].ok:
            findings += _indexes(settings, ledger, progress, repair=repair)
        return findings
    finally:
        ledger.close()


def _rows(settings: Settings, ledger: Ledger, progress: Progress, *, repair: bool) -> Finding:
    try:
        faults = ledger.verify(progress)
        found = faults.texts()
        if found and repair:
            ledger.repair(faults)
            told = f"mended: {'; '.join(found)}{_embedded(settings, ledger)}"
            left = ledger.verify(progress).texts()
            return Finding("rows", f"{told}; LEFT: {'; '.join(left)}. {_advice(settings)}" if left else told, not left)
    except LedgerError as error:
        return Finding("rows", f"{error} {_advice(settings)}", ok=False)
    except ValueError as error:
        return Finding("rows", f"the ledger holds a value that cannot be read: {error}. {_advice(settings)}", ok=False)
    if found:
        advice = "palimpsest doctor --deep --repair mends what can be made anew"
        return Finding("rows", f"{'; '.join(found)}. {advice}", ok=False)
    return Finding("rows", "memories, turns, history, full text, vectors and means agree")


def _embedded(settings: Settings, ledger: Ledger) -> str:
    """Give units that were made anew their vectors; say so where that fails."""
    try:
        embed_missing(ledger, open_embedder(settings), only_failed=True)
    except EmbedderError as error:
        return f"; some are found by words only, until they can be embedded: {error}"
    return ""


def _advice(settings: Settings) -> str:
    """Name the newest copy that reads back, for a ledger that does not."""
    backups = backups_of(settings.ledger_path)
    mine = [file for file in backups.files() if file.match(f"{settings.ledger_path.stem}-*.db")]
    for file in sorted(mine, key=lambda file: -file.stat().st_mtime):
        try:
            found = backups.inspect(file)
        except LedgerError:
            continue
        return f"The newest copy that reads back is {file} ({found.memories} memories); palimpsest restore takes it."
    return "There is no copy of it in the backups. Keep the file: most of a damaged ledger can be read."


def _indexes(settings: Settings, ledger: Ledger, progress: Progress, *, repair: bool) -> Iterator[Finding]:
    """Yield a finding for every index folder of this ledger that no client has open."""
    if settings.vector_store.provider == "exact":
        return
    try:
        projection = open_projection(settings, ledger, open_embedder(settings).fingerprint)
    except PalimpsestError as error:
        yield Finding("index", str(error), ok=False)
        return
    if projection.shared:
        yield _server(ledger, projection, progress, repair=repair)
        return
    for folder in sorted(path for path in settings.index_dir.glob("*") if path.is_dir() and path.name.isdecimal()):
        part = f"index {folder.name}"
        try:
            with file_lock(folder.with_suffix(".lock")).acquire(timeout=0):
                yield _folder(ledger, projection, folder, progress, repair=repair)
        except Timeout:
            yield Finding(part, "in use by a client, not compared; close the client to compare it")


def _server(ledger: Ledger, projection: Projection, progress: Progress, *, repair: bool) -> Finding:
    try:
        projection.open()
        fault = projection.inspect(lambda index: _differences(ledger, projection.embedder, index, progress))
        if fault and repair:
            projection.rebuild(progress)
    except PalimpsestError as error:
        return Finding("index", str(error), ok=False)
    finally:
        projection.close()
    return _told("index", fault, repair=repair, mended="made anew")


def _folder(ledger: Ledger, projection: Projection, folder: Path, progress: Progress, *, repair: bool) -> Finding:
    part = f"index {folder.name}"
    checkpoint = Checkpoint.read(folder)
    with ledger.read() as conn:
        if checkpoint is None or not checkpoint.is_valid(projection.initial_checkpoint, conn):
            left = "unfinished" if not (folder / FILE_NAME).exists() else "of another ledger, embedder or time"
            return Finding(part, f"{left}; the next client to use it makes it anew")
        behind = log_queries.newest_log_number(conn) - checkpoint.log_number
        if behind > 0:
            return Finding(part, f"{behind} changes behind; its next client catches up")
    try:
        index = projection.open_index(folder)
        try:
            fault = _differences(ledger, projection.embedder, index, progress)
        finally:
            index.close()
    except PalimpsestError as error:
        fault = str(error)
    if fault and repair:
        shutil.rmtree(folder)
    return _told(part, fault, repair=repair, mended="deleted; the next client makes it anew")


def _told(part: str, fault: str, *, repair: bool, mended: str) -> Finding:
    if not fault:
        return Finding(part, "every vector is there, is the ledger's, and finds itself")
    if repair:
        return Finding(part, f"{fault}: {mended}")
    return Finding(part, f"{fault}; palimpsest doctor --deep --repair has it made anew", ok=False)


def _differences(ledger: Ledger, embedder: str, index: VectorIndex, progress: Progress) -> str:
    """Return what an index has otherwise than the ledger; "" where they agree."""
    with ledger.read() as conn:
        total = vector_queries.count_indexed(conn, embedder)
    wrong = lost = done = last = 0
    while True:
        with ledger.read() as conn:
            batch = vector_queries.indexed_keys(conn, embedder, last, BATCH)
        if not batch:
            break
        for user_id in {user for _, user, _ in batch}:
            mine = {seq: key for seq, user, key in batch if user == user_id}
            there = index.fetch(user_id, list(mine))
            wrong += sum(not _same(there.get(seq), key) for seq, key in mine.items())
            lost += sum(not _finds_itself(index, user_id, seq, key) for seq, key in mine.items())
        last = batch[-1][0]
        done += len(batch)
        progress(done, max(done, total))
    extra = index.count() - done
    found = [
        f"{wrong} vectors are missing or another's" if wrong else "",
        f"{lost} are never found" if lost else "",
        f"{abs(extra)} {'too many' if extra > 0 else 'too few'}" if extra else "",
    ]
    return ", ".join(each for each in found if each)


def _same(stored: Vector | None, key: Vector) -> bool:
    return stored is not None and stored.shape == key.shape and bool(np.allclose(stored, key, atol=TOLERANCE))


def _finds_itself(index: VectorIndex, user_id: str, seq: int, key: Vector) -> bool:
    """Say whether a query for a vector gives it; many equal ones may stand before it."""
    nearest = index.query(user_id, key, NEAREST)
    if seq in nearest or not nearest:
        return bool(nearest)
    equal = index.fetch(user_id, nearest)
    return len(equal) == NEAREST and all(_same(other, key) for other in equal.values())
