"""Examine an installation: what each part is, and whether it works."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import aclosing, closing, suppress
from pathlib import Path

import anyio.to_thread
import numpy as np
from filelock import Timeout

from palimpsest.admin.backup import inspect_copy, stored_backups
from palimpsest.core.clock import Clock, now
from palimpsest.core.errors import EmbedderError, LedgerError, PalimpsestError, raised_as
from palimpsest.core.files import file_lock
from palimpsest.core.models import Finding, Scope
from palimpsest.core.protocols import Embedder, Progress, Vector, VectorIndex
from palimpsest.core.settings import Settings, unused_variables_text
from palimpsest.core.threads import Threads
from palimpsest.hooks.intake import status
from palimpsest.index.backfill import Backfill
from palimpsest.index.graph_database import GraphProjection, condition
from palimpsest.index.sync import Checkpoint, Projection, delete_outdated, index_folders
from palimpsest.learn import engine
from palimpsest.learn.job_runner import WITHOUT_MODEL, in_words
from palimpsest.store import entries, memories
from palimpsest.store import jobs as job_queries
from palimpsest.store import verify as row_checks
from palimpsest.store.ledger import Ledger, open_ledger
from palimpsest.text.display import counted

# The state of an open memory, in a word or a number for each part and without any content.


def health(of: engine.Engine, index: str, graph: str | None) -> dict[str, str]:
    """Return the state of the ledger, the vectors of the embedder, the index, and the graph database if there is one.

    The states of the last two are given. Blocking.
    """
    embedder = of.embedder.fingerprint
    try:
        with of.ledger.read() as conn:
            waiting = entries.has_missing_vectors(conn, embedder) or entries.has_partial_vectors(conn, embedder)
    except LedgerError:
        return {"status": "failed", "ledger": "unreadable"}
    degraded = waiting or index == "broken" or graph == "failing"
    states = {"ledger": "ok", "vectors": "waiting" if waiting else "complete", "index": index}
    states |= {} if graph is None else {"graph": graph}
    return {"status": "degraded" if degraded else "ok", **states}


# How much is written to find out whether there is room: more than the write of one memory takes.
PROBE_BYTES = 1_000_000


async def examine(settings: Settings) -> list[Finding]:
    """Return one finding per part. Opening the ledger may create or migrate it; nothing else is changed.

    A ledger that is gone or emptied, while backups or an index of it are there, is not opened.
    """
    findings = await anyio.to_thread.run_sync(lambda: _local_findings(settings))
    if settings.graph_store.provider != "ledger":
        findings.append(await _graph_finding(settings))
    return [*findings, await _model_finding(settings)]


def _local_findings(settings: Settings) -> list[Finding]:
    scope = Scope(settings.user_id, settings.project, settings.agent_id, settings.run_id)
    none = "no settings file, so the defaults hold; palimpsest setup writes one"
    read = none if settings.config is None else ". ".join((f"read from {settings.config}", *settings.notes))
    findings = [Finding("scope", f"the memory of {scope}"), Finding("settings", read)]
    findings.append(_or_error("prompts", lambda: _prompts_finding(settings)))
    embedder: Embedder | None = None
    try:
        embedder = engine.open_embedder(settings)
        findings.append(_embedder_finding(settings, embedder))
    except PalimpsestError as error:
        findings.append(Finding("embedder", f"{error} Until this is fixed, searches match words only.", ok=False))
    if settings.reranker.provider != "none":
        findings.append(_or_error("reranker", lambda: _reranker_finding(settings)))
    if (lost := _lost_ledger_text(settings)) is not None:
        return [*findings, Finding("ledger", lost, ok=False)]
    try:
        ledger = open_ledger(settings.ledger_place, now, data_dir=settings.data_dir)
    except PalimpsestError as error:
        return [*findings, Finding("ledger", str(error), ok=False)]
    with closing(ledger):
        findings.append(_or_error("ledger", lambda: _ledger_finding(ledger, scope)))
        findings.append(_or_error("disk", lambda: _disk_finding(settings, ledger)))
        findings.append(_or_error("capture", lambda: status(settings)))
        if embedder is not None:
            fingerprint = embedder.fingerprint
            findings.append(_or_error("jobs", lambda: _jobs_finding(settings, ledger)))
            findings.append(_or_error("vectors", lambda: _vectors_finding(ledger, fingerprint)))
            findings.append(_or_error("index", lambda: _index_finding(settings, ledger, fingerprint)))
    return findings


def _or_error(part: str, finding: Callable[[], Finding]) -> Finding:
    """Return a finding, or the error that prevented it."""
    try:
        return finding()
    except PalimpsestError as error:
        return Finding(part, str(error), ok=False)


def _prompts_finding(settings: Settings) -> Finding:
    prompts = engine.open_prompts(settings)
    folder = settings.prompts_dir
    own = ", ".join(name for name in prompts.needed if folder and prompts.path(name).parent == folder)
    state = f", all valid; your own: {own}" if own else " as they were shipped, all valid"
    return Finding("prompts", f"{len(prompts.needed)} prompts{state}")


def _embedder_finding(settings: Settings, embedder: Embedder) -> Finding:
    embedder.embed_queries(["a text to try the embedder with"])
    is_fallback = settings.embedder.provider == "local" and embedder.fingerprint.startswith("local:")
    reason = engine.why_not_e5() if is_fallback else None
    best = f", and knows English best, because {reason}" if reason is not None else ""
    return Finding("embedder", f"{embedder.fingerprint} works{best}")


def _reranker_finding(settings: Settings) -> Finding:
    if (reranker := engine.open_reranker(settings)) is not None:
        reranker.scores("a question to try it with", ["a text", "another text"])
    return Finding("reranker", f"{settings.reranker.provider} works")


def _ledger_finding(ledger: Ledger, scope: Scope) -> Finding:
    verdict = ledger.database.check()
    counts = ledger.read_with(memories.counts, scope)
    here = f"{counted(counts['memories'], 'memory')} and {counted(counts['messages'], 'message')} here"
    text = f"{ledger.location}: {here}, {counted(counts['users'], 'user')}, {ledger.database.size() / 1e6:.1f} MB"
    if verdict == "ok":
        return Finding("ledger", text)
    return Finding("ledger", f"{text}; DAMAGED: {verdict}. Run palimpsest doctor --deep", ok=False)


def _lost_ledger_text(settings: Settings) -> str | None:
    """Return what is wrong if there is no ledger, or one of 0 bytes, and something is left of an earlier one."""
    path = settings.ledger_path
    if settings.ledger_url is not None or (path.exists() and (not path.is_file() or path.stat().st_size)):
        return None
    if not (backups := stored_backups(settings)) and not index_folders(settings.index_dir):
        return None
    state = f"the ledger {path} has 0 bytes" if path.exists() else f"there is no ledger at {path}"
    left = f"the newest backup: palimpsest restore {backups[0].path}" if backups else "there is an index of one"
    return f"{state}, but {left}. Nothing was changed. To begin with an empty memory, delete an empty file and go on"


def _disk_finding(settings: Settings, ledger: Ledger) -> Finding:
    """Write to the ledger and to the data directory, as a disk that is full or read-only cannot otherwise be told.

    Raises LedgerError.
    """
    ledger.try_to_write()
    folder = settings.data_dir
    fault, advice = f"{folder} cannot be written to", ". What is stored can still be read"
    with raised_as(LedgerError, fault, advice, OSError), tempfile.TemporaryFile(dir=folder) as probe:
        probe.write(bytes(PROBE_BYTES))
        probe.flush()
        os.fsync(probe.fileno())
    return Finding("disk", f"the ledger and {folder} can be written to")


def _jobs_finding(settings: Settings, ledger: Ledger) -> Finding:
    with ledger.read() as conn:
        states = job_queries.count_unfinished(conn, now() + job_queries.MAX_DELAY)
        use = job_queries.model_use(conn, now())
    waiting = sum(number for (_, state), number in states.items() if state == "waiting")
    failed = sum(number for (_, state), number in states.items() if state == "failed")
    needing = waiting - sum(states[kind, "waiting"] for kind in WITHOUT_MODEL)
    asked = f". Of the model, {in_words(use, settings)}" if use.today else ""
    if failed:
        text = f"failed: {counted(failed, 'job')}; palimpsest jobs says why, and palimpsest jobs --retry tries again"
    elif needing and settings.llm_provider in ("sampling", "none"):
        text = f"waiting for a server with llm.provider = 'openai' or 'anthropic': {counted(needing, 'job')}"
    else:
        text = f"waiting: {counted(waiting, 'job')}" if waiting else "nothing waits to be done"
        return Finding("jobs", text + asked)
    return Finding("jobs", text + asked, ok=False)


def _vectors_finding(ledger: Ledger, embedder: str) -> Finding:
    with ledger.read() as conn:
        waiting = entries.count_missing_vectors(conn, embedder)
        stored = entries.count_indexed(conn, embedder)
    lacking = f"{counted(waiting, 'text')} to be embedded, which palimpsest rebuild does now"
    return Finding("vectors", f"{stored} stored; {lacking if waiting else 'every text has one'}", ok=not waiting)


def _index_finding(settings: Settings, ledger: Ledger, embedder: str) -> Finding:
    if settings.vector_store.provider == "exact":
        return Finding("index", "exact: searches scan the vectors in the ledger")
    if settings.vector_store.config.host is not None:
        return engine.open_shared_projection(settings, ledger, embedder).condition()
    if not (folders := index_folders(settings.index_dir)):
        return Finding("index", f"{settings.index_dir}: no index yet; a server builds it when it starts")
    projection = engine.open_projection(settings, ledger, embedder)
    states = [(folder.name, _changes_behind(ledger, projection, folder)) for folder in folders]
    lost = "cannot follow the ledger; the next server that uses it rebuilds it"
    texts = (f"folder {name} {lost if behind is None else f'is {behind} changes behind'}" for name, behind in states)
    return Finding("index", f"{settings.index_dir}: {'; '.join(texts)}")


def _changes_behind(ledger: Ledger, projection: Projection, folder: Path) -> int | None:
    """Return how many changes an index folder is behind the ledger, or None if its index cannot follow the ledger."""
    checkpoint = Checkpoint.read(folder)
    with ledger.read() as conn:
        if checkpoint is None or not checkpoint.is_valid(projection.initial_checkpoint, conn):
            return None
        return entries.newest_log_number(conn) - checkpoint.log_number


async def _graph_finding(settings: Settings) -> Finding:
    """Return the state of the graph database that the settings name, or the error that prevented it."""
    threads = Threads((anyio.CapacityLimiter(1),), (anyio.CapacityLimiter(1),))
    try:
        ledger = await threads.run(lambda: open_ledger(settings.ledger_place, now, data_dir=settings.data_dir))
        with closing(ledger):
            return await condition(GraphProjection(ledger, settings.graph_store, threads))
    except PalimpsestError as error:
        return Finding("graph", f"{settings.graph_store.provider}: {error}", ok=False)


async def _model_finding(settings: Settings) -> Finding:
    if settings.llm_provider == "none":
        return Finding("model", "none: the connected agent writes the facts and resolves conflicts itself")
    if settings.llm_provider == "sampling":
        text = "the client's own, if the client offers sampling; otherwise the agent writes the facts itself"
        unused = settings.unused_openai_variables
        return Finding("model", f"{text}. {unused_variables_text(unused)}" if unused else text)
    try:
        if (model := await anyio.to_thread.run_sync(lambda: engine.open_model(settings))) is None:
            return Finding("model", "none")
        async with aclosing(model):
            await model.check()
    except PalimpsestError as error:
        text = f"{error} Until this is fixed, conversations are stored, but no facts are extracted from them."
        return Finding("model", text, ok=False)
    return Finding("model", f"{model.name} answers")


# Compare the ledger with itself and the index with the ledger, row by row, and repair the differences.

BATCH = 200

# A vector has to be among this many nearest vectors of itself. Chroma's graph may hold a vector it never returns.
NEAREST = 10

# Largest difference between two components that count as equal.
TOLERANCE = 1e-4


def verify(settings: Settings, progress: Progress, *, repair: bool, clock: Clock = now) -> list[Finding]:
    """Compare every row and return one finding per part. With `repair`, rewrite what differs. Blocking.

    A repair uses the ledger's own texts and vectors, never the index. It adds rows to history and removes none. The
    index is compared only with a ledger that agrees with itself.
    """
    try:
        with closing(open_ledger(settings.ledger_place, clock, data_dir=settings.data_dir)) as ledger:
            findings = [_rows_finding(settings, ledger, progress, repair=repair)]
            if findings[0].ok:
                findings += _index_findings(settings, ledger, progress, repair=repair)
            return findings
    except (LedgerError, ValueError) as error:  # ValueError: a value in the ledger that cannot be read
        return [Finding("rows", f"{error}. {_restore_advice(settings)}", ok=False)]


def _rows_finding(settings: Settings, ledger: Ledger, progress: Progress, *, repair: bool) -> Finding:
    """Return what differs, and what a repair did. Raises LedgerError and ValueError."""
    faults = ledger.read_with(row_checks.verify, ledger.database, progress)
    if not (differences := faults.texts()):
        return Finding("rows", "memories, messages, entities, full text, vectors and means agree")
    if not repair:
        advice = "palimpsest doctor --deep --repair repairs what can be rebuilt"
        return Finding("rows", f"{'; '.join(differences)}. {advice}", ok=False)
    ledger.run(row_checks.repair, ledger.database, faults, ledger.clock())
    with suppress(EmbedderError):  # the next server does it; until then it is found by words
        Backfill(ledger, engine.open_embedder(settings), only_failed=True).run()
    text = f"repaired: {'; '.join(differences)}"
    if remaining := ledger.read_with(row_checks.verify, ledger.database, progress).texts():
        text = f"{text}; NOT REPAIRED: {'; '.join(remaining)}. {_restore_advice(settings)}"
    return Finding("rows", text, ok=not remaining)


def _restore_advice(settings: Settings) -> str:
    """Return how to go back to the newest backup of this ledger that can be read."""
    for backup in stored_backups(settings):
        with suppress(LedgerError):
            inspect_copy(settings, backup.path)
            return f"To go back to the newest readable backup: palimpsest restore {backup.path}"
    return "There is no readable backup. Keep the file: most of a damaged ledger can still be read."


def _index_findings(settings: Settings, ledger: Ledger, progress: Progress, *, repair: bool) -> Iterator[Finding]:
    """Yield a finding for each index folder of this ledger."""
    if settings.vector_store.provider == "exact":
        return
    try:
        projection = engine.open_projection(settings, ledger, engine.open_embedder(settings).fingerprint)
    except PalimpsestError as error:
        yield Finding("index", str(error), ok=False)
        return
    if projection.shared:
        yield Finding("index", "not compared, because it is on a server; palimpsest rebuild builds it anew")
        return
    if repair:
        for folder in delete_outdated(settings.index_dir, ledger):
            yield Finding(f"index {folder.name}", "of an earlier state of the ledger, and in use by nobody: deleted")
    for folder in index_folders(settings.index_dir):
        try:
            with file_lock(folder.with_suffix(".lock")).acquire(timeout=0):
                yield _verified_folder(ledger, projection, folder, progress, repair=repair)
        except Timeout:
            text = "not compared, because a client is using it; close the client to compare it"
            yield Finding(f"index {folder.name}", text)


def _verified_folder(
    ledger: Ledger, projection: Projection, folder: Path, progress: Progress, *, repair: bool
) -> Finding:
    part = f"index {folder.name}"
    if (behind := _changes_behind(ledger, projection, folder)) is None:
        state = "unfinished, or of another ledger, embedder or state"
        return Finding(part, f"{state}; the next client that uses it rebuilds it")
    if behind:
        return Finding(part, f"{behind} changes behind; the next client that uses it catches up")
    try:
        with closing(projection.open_index(folder)) as index:
            fault = _differences(ledger, projection.embedder, index, progress)
    except PalimpsestError as error:
        fault = str(error)
    if fault and repair:
        shutil.rmtree(folder)
        return Finding(part, f"{fault}: deleted, and the next client rebuilds it")
    if fault:
        return Finding(part, f"{fault}; palimpsest doctor --deep --repair rebuilds it", ok=False)
    return Finding(part, "every vector is present, equals the ledger's and is found by a query for itself")


def _differences(ledger: Ledger, embedder: str, index: VectorIndex, progress: Progress) -> str:
    """Return how an index differs from the ledger, or "" if it does not. The index is queried without a connection."""
    total = ledger.read_with(entries.count_indexed, embedder)
    wrong = not_found = done = last_seq = 0
    while batch := ledger.read_with(entries.indexed_keys, embedder, last_seq, BATCH):
        for user_id in {user for _, user, _ in batch}:
            keys = {seq: key for seq, user, key in batch if user == user_id}
            stored = index.fetch(user_id, list(keys))
            wrong += sum(not _is_same(stored.get(seq), key) for seq, key in keys.items())
            not_found += sum(not _finds_itself(index, user_id, seq, key) for seq, key in keys.items())
        last_seq = batch[-1][0]
        done += len(batch)
        progress(done, max(done, total))
    surplus = index.count() - done
    faults = {
        "are missing or wrong": wrong,
        "are not found by a query for themselves": not_found,
        f"too {'many' if surplus > 0 else 'few'}": abs(surplus),
    }
    return ", ".join(f"{number} vectors {fault}" for fault, number in faults.items() if number)


def _is_same(stored: Vector | None, key: Vector) -> bool:
    return stored is not None and stored.shape == key.shape and bool(np.allclose(stored, key, atol=TOLERANCE))


def _finds_itself(index: VectorIndex, user_id: str, seq: int, key: Vector) -> bool:
    """Return whether a query for a vector finds it. Equal vectors of other entries may crowd it out."""
    if seq in (nearest := index.query(user_id, key, NEAREST)) or not nearest:
        return bool(nearest)
    neighbours = index.fetch(user_id, nearest)
    return len(neighbours) == NEAREST and all(_is_same(neighbour, key) for neighbour in neighbours.values())
