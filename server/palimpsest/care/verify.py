"""Compare the ledger with itself and the index with the ledger, row by row, and repair the differences."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
from filelock import Timeout

from palimpsest.care.doctor import Finding, open_graph_database
from palimpsest.core.clock import Clock, now
from palimpsest.core.errors import EmbedderError, LedgerError, PalimpsestError
from palimpsest.core.files import file_lock
from palimpsest.core.protocols import Progress, Vector, VectorIndex
from palimpsest.core.settings import Settings
from palimpsest.index.backfill import embed_missing
from palimpsest.index.checkpoint import FILE_NAME, Checkpoint
from palimpsest.index.graph.compare import differences
from palimpsest.index.outdated import delete_outdated, index_folders
from palimpsest.index.sync import Projection
from palimpsest.learn.factory import open_embedder, open_projection
from palimpsest.store.ledger import Ledger, backups_of, open_ledger
from palimpsest.store.queries import index_log as log_queries
from palimpsest.store.queries import vectors as vector_queries

BATCH = 200
NEAREST = 10
"""A vector has to be among this many nearest vectors of itself. Chroma's graph may hold a vector it never returns."""

TOLERANCE = 1e-4
"""Largest difference between two components that count as equal."""


def verify(settings: Settings, progress: Progress, *, repair: bool, clock: Clock = now) -> list[Finding]:
    """Compare every row and return one finding per part. With `repair`, rewrite what differs. Blocking.

    A repair uses the ledger's own texts and vectors, never the index. It adds rows to history and removes none. The
    index is compared only with a ledger that agrees with itself.
    """
    try:
        ledger = open_ledger(settings.ledger_place, clock, data_dir=settings.data_dir)
    except LedgerError as error:
        return [Finding("rows", f"{error} {_restore_advice(settings)}", ok=False)]
    with closing(ledger):
        findings = [_rows_finding(settings, ledger, progress, repair=repair)]
        if findings[0].ok:
            findings += _index_findings(settings, ledger, progress, repair=repair)
        return findings


async def verify_graph(settings: Settings, progress: Progress, *, repair: bool, clock: Clock = now) -> list[Finding]:
    """Compare every row of a graph database with the ledger, if the settings name one. With `repair`, rebuild it."""
    if settings.graph_store.provider == "ledger":
        return []
    try:
        async with open_graph_database(settings, clock) as projection:
            fault = await differences(projection, progress)
            if fault and repair:
                await projection.rebuild(progress)
    except PalimpsestError as error:
        return [Finding("graph rows", str(error), ok=False)]
    if not fault:
        return [Finding("graph rows", "every entity and relation is present and equals the ledger's")]
    advice = "rebuilt" if repair else "palimpsest rebuild --graph replaces it"
    return [Finding("graph rows", f"{fault}: {advice}", ok=repair)]


def _rows_finding(settings: Settings, ledger: Ledger, progress: Progress, *, repair: bool) -> Finding:
    try:
        faults = ledger.verify(progress)
        differences = faults.texts()
        if differences and repair:
            ledger.repair(faults)
            text = f"repaired: {'; '.join(differences)}{_embed_repaired(settings, ledger)}"
            remaining = ledger.verify(progress).texts()
            if remaining:
                text = f"{text}; NOT REPAIRED: {'; '.join(remaining)}. {_restore_advice(settings)}"
            return Finding("rows", text, ok=not remaining)
    except LedgerError as error:
        return Finding("rows", f"{error} {_restore_advice(settings)}", ok=False)
    except ValueError as error:
        text = f"the ledger contains a value that cannot be read: {error}. {_restore_advice(settings)}"
        return Finding("rows", text, ok=False)
    if differences:
        advice = "palimpsest doctor --deep --repair repairs what can be rebuilt"
        return Finding("rows", f"{'; '.join(differences)}. {advice}", ok=False)
    return Finding("rows", "memories, messages, history, entities, full text, vectors and means agree")


def _embed_repaired(settings: Settings, ledger: Ledger) -> str:
    """Embed the entries that a repair has rewritten. Return a note if that fails, else ""."""
    try:
        embed_missing(ledger, open_embedder(settings), only_failed=True)
    except EmbedderError as error:
        return f"; some entries are found by words only until they can be embedded: {error}"
    return ""


def _restore_advice(settings: Settings) -> str:
    """Return how to go back to the newest backup of this ledger that can be read."""
    backups = backups_of(settings.ledger_place, settings.data_dir)
    copies = [file for file in backups.files() if file.match(f"{backups.name}-*.db")]
    for file in sorted(copies, key=lambda file: -file.stat().st_mtime):
        try:
            copy = backups.inspect(file)
        except LedgerError:
            continue
        return f"The newest readable backup has {copy.memories} memories; to go back to it: palimpsest restore {file}"
    return "It has no readable backup. Keep the file: most of a damaged ledger can still be read."


def _index_findings(settings: Settings, ledger: Ledger, progress: Progress, *, repair: bool) -> Iterator[Finding]:
    """Yield a finding for the shared index, or for each index folder of this ledger."""
    if settings.vector_store.provider == "exact":
        return
    try:
        projection = open_projection(settings, ledger, open_embedder(settings).fingerprint)
    except PalimpsestError as error:
        yield Finding("index", str(error), ok=False)
        return
    if projection.shared:
        yield _shared_index_finding(ledger, projection, progress, repair=repair)
        return
    if repair:
        for folder in delete_outdated(settings.index_dir, ledger):
            yield Finding(f"index {folder.name}", "of an earlier state of the ledger, and in use by nobody: deleted")
    for folder in index_folders(settings.index_dir):
        try:
            with file_lock(folder.with_suffix(".lock")).acquire(timeout=0):
                yield _folder_finding(ledger, projection, folder, progress, repair=repair)
        except Timeout:
            text = "not compared, because a client is using it; close the client to compare it"
            yield Finding(f"index {folder.name}", text)


def _shared_index_finding(ledger: Ledger, projection: Projection, progress: Progress, *, repair: bool) -> Finding:
    try:
        with closing(projection):
            projection.open()
            fault = projection.inspect(lambda index: _differences(ledger, projection.embedder, index, progress))
            if fault and repair:
                projection.rebuild(progress)
    except PalimpsestError as error:
        return Finding("index", str(error), ok=False)
    return _comparison_finding("index", fault, repair=repair, repaired="rebuilt")


def _folder_finding(
    ledger: Ledger, projection: Projection, folder: Path, progress: Progress, *, repair: bool
) -> Finding:
    part = f"index {folder.name}"
    checkpoint = Checkpoint.read(folder)
    with ledger.read() as conn:
        head = log_queries.newest_log_number(conn)
        is_valid = checkpoint is not None and checkpoint.is_valid(projection.initial_checkpoint, conn)
    if checkpoint is None or not is_valid:
        finished = (folder / FILE_NAME).exists()
        state = "belongs to another ledger or embedder, or to an earlier state" if finished else "unfinished"
        return Finding(part, f"{state}; the next client that uses it rebuilds it")
    if checkpoint.log_number < head:
        return Finding(part, f"{head - checkpoint.log_number} changes behind; the next client that uses it catches up")
    try:
        with closing(projection.open_index(folder)) as index:
            fault = _differences(ledger, projection.embedder, index, progress)
    except PalimpsestError as error:
        fault = str(error)
    if fault and repair:
        shutil.rmtree(folder)
    return _comparison_finding(part, fault, repair=repair, repaired="deleted, and the next client rebuilds it")


def _comparison_finding(part: str, fault: str, *, repair: bool, repaired: str) -> Finding:
    if not fault:
        return Finding(part, "every vector is present, equals the ledger's and is found by a query for itself")
    if repair:
        return Finding(part, f"{fault}: {repaired}")
    return Finding(part, f"{fault}; palimpsest doctor --deep --repair rebuilds it", ok=False)


def _differences(ledger: Ledger, embedder: str, index: VectorIndex, progress: Progress) -> str:
    """Return how an index differs from the ledger, or "" if it does not. The index is queried without a connection."""
    with ledger.read() as conn:
        total = vector_queries.count_indexed(conn, embedder)
    wrong = not_found = done = last_seq = 0
    while True:
        with ledger.read() as conn:
            batch = vector_queries.indexed_keys(conn, embedder, last_seq, BATCH)
        if not batch:
            break
        for user_id in {user for _, user, _ in batch}:
            keys = {seq: key for seq, user, key in batch if user == user_id}
            stored = index.fetch(user_id, list(keys))
            wrong += sum(not _is_same(stored.get(seq), key) for seq, key in keys.items())
            not_found += sum(not _finds_itself(index, user_id, seq, key) for seq, key in keys.items())
        last_seq = batch[-1][0]
        done += len(batch)
        progress(done, max(done, total))
    surplus = index.count() - done
    differences = [
        f"{wrong} vectors are missing or wrong" if wrong else "",
        f"{not_found} vectors are not found by a query for themselves" if not_found else "",
        f"{abs(surplus)} vectors too {'many' if surplus > 0 else 'few'}" if surplus else "",
    ]
    return ", ".join(difference for difference in differences if difference)


def _is_same(stored: Vector | None, key: Vector) -> bool:
    return stored is not None and stored.shape == key.shape and bool(np.allclose(stored, key, atol=TOLERANCE))


def _finds_itself(index: VectorIndex, user_id: str, seq: int, key: Vector) -> bool:
    """Return whether a query for a vector finds it. Equal vectors of other entries may crowd it out."""
    nearest = index.query(user_id, key, NEAREST)
    if seq in nearest or not nearest:
        return bool(nearest)
    neighbours = index.fetch(user_id, nearest)
    return len(neighbours) == NEAREST and all(_is_same(neighbour, key) for neighbour in neighbours.values())
