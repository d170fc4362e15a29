"""Examine an installation: what each part is, and whether it does its work."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio
import anyio.to_thread
from filelock import Timeout

from palimpsest.core.clock import Clock, now
from palimpsest.core.errors import PalimpsestError
from palimpsest.core.files import file_lock
from palimpsest.core.models import Scope
from palimpsest.core.protocols import Embedder
from palimpsest.core.settings import Settings
from palimpsest.index.checkpoint import FILE_NAME, Checkpoint
from palimpsest.index.sync import Projection
from palimpsest.learn.factory import open_embedder, open_model, open_projection, open_prompts
from palimpsest.store.ledger import Ledger, open_ledger
from palimpsest.store.queries import index_log as log_queries
from palimpsest.store.queries import memories as memory_queries
from palimpsest.store.queries import vectors as vector_queries


@dataclass(frozen=True, slots=True)
class Finding:
    """Hold what was found of one part; `ok` is False where something is degraded."""

    part: str
    text: str
    ok: bool = True


async def examine(settings: Settings, clock: Clock = now) -> list[Finding]:
    """Return one finding a part. Changes nothing but what opening the ledger does."""
    findings = await anyio.to_thread.run_sync(lambda: _stores(settings, clock))
    return [*findings, await _model(settings)]


def _stores(settings: Settings, clock: Clock) -> list[Finding]:
    scope = Scope(settings.user_id, settings.project, settings.agent_id, settings.run_id)
    findings = [Finding("scope", str(scope)), _tried("prompts", lambda: _prompts(settings))]
    embedder: Embedder | None = None
    try:
        embedder = open_embedder(settings)
        embedder.embed(["a text to try it on"])
        findings.append(Finding("embedder", embedder.fingerprint))
    except PalimpsestError as error:
        findings.append(Finding("embedder", f"{error} Searching by words only.", ok=False))
    try:
        ledger = open_ledger(settings.ledger_path, clock)
    except PalimpsestError as error:
        return [*findings, Finding("ledger", str(error), ok=False)]
    try:
        findings.append(_tried("ledger", lambda: _ledger(ledger, scope)))
        if embedder is not None:
            fingerprint = embedder.fingerprint
            findings.append(_tried("vectors", lambda: _vectors(ledger, fingerprint)))
            findings.append(_tried("index", lambda: _index(settings, ledger, fingerprint)))
    finally:
        ledger.close()
    return findings


def _tried(part: str, look: Callable[[], Finding]) -> Finding:
    try:
        return look()
    except PalimpsestError as error:
        return Finding(part, str(error), ok=False)


def _prompts(settings: Settings) -> Finding:
    prompts = open_prompts(settings)
    own = [
        name for name in prompts.needed if settings.prompts_dir and prompts.path(name).parent == settings.prompts_dir
    ]
    return Finding("prompts", f"{len(prompts.needed)} in order" + (f"; your own: {', '.join(own)}" if own else ""))


def _ledger(ledger: Ledger, scope: Scope) -> Finding:
    verdict = ledger.check()
    with ledger.read() as conn:
        found = memory_queries.counts(conn, scope)
    size = ledger.size()
    text = (
        f"{ledger.location}: {found['memories']} memories, {found['deleted']} deleted, {found['messages']} messages in "
        f"this scope; {found['users']} users, {size / 1e6:.1f} MB"
    )
    return Finding("ledger", text if verdict == "ok" else f"{text}; DAMAGED: {verdict}", ok=verdict == "ok")


def _vectors(ledger: Ledger, embedder: str) -> Finding:
    with ledger.read() as conn:
        waiting = vector_queries.count_missing_vectors(conn, embedder)
        there = vector_queries.count_indexed(conn, embedder)
    if waiting:
        return Finding(
            "vectors", f"{there} there, {waiting} waiting for this embedder; run palimpsest rebuild", ok=False
        )
    return Finding("vectors", f"{there} there, none waiting")


def _index(settings: Settings, ledger: Ledger, embedder: str) -> Finding:
    if settings.vector_store.provider == "exact":
        return Finding("index", "exact: the ledger's vectors are scanned")
    if settings.vector_store.config.host is not None:
        projection = open_projection(settings, ledger, embedder)
        with _closing(projection):
            projection.open()
            return Finding("index", f"Chroma server: {projection.count()} vectors")
    folders = sorted(path for path in settings.index_dir.glob("*") if path.is_dir() and path.name.isdecimal())
    if not folders:
        return Finding("index", f"{settings.index_dir}: none yet; a server builds it when it starts")
    found = [_folder(settings, ledger, embedder, folder) for folder in folders]
    return Finding("index", f"{settings.index_dir}: {'; '.join(each.text for each in found)}", all(f.ok for f in found))


def _folder(settings: Settings, ledger: Ledger, embedder: str, folder: Path) -> Finding:
    """Say how one index folder stands to the ledger; one that no process has open is opened and counted."""
    name = f"folder {folder.name}"
    checkpoint = Checkpoint.read(folder)
    if checkpoint is None and not (folder / FILE_NAME).exists():
        return Finding(name, f"{name} is unfinished; the next server to use it builds it")
    projection = open_projection(settings, ledger, embedder)
    with ledger.read() as conn:
        if checkpoint is None or not checkpoint.is_valid(projection.initial_checkpoint, conn):
            return Finding(name, f"{name} is of another ledger or embedder, or damaged, and will be rebuilt", ok=False)
        behind = log_queries.newest_log_number(conn) - checkpoint.log_number
        wanted = vector_queries.count_indexed(conn, embedder)
    lease = file_lock(folder.with_suffix(".lock"))
    try:
        lease.acquire(timeout=0)
    except Timeout:
        return Finding(name, f"{name} is in use by a server, {behind} changes behind")
    try:
        index = projection.open_index(folder)
        try:
            count = index.count()
        finally:
            index.close()
    finally:
        lease.release()
    if not behind and count != wanted:
        return Finding(
            name, f"{name} holds {count} vectors where the ledger has {wanted}; it will be rebuilt", ok=False
        )
    return Finding(name, f"{name} is free, {count} vectors, {behind} changes behind")


async def _model(settings: Settings) -> Finding:
    if settings.llm_provider == "none":
        return Finding("model", "none: the connected agent words and reconciles its facts itself")
    if settings.llm_provider == "sampling":
        return Finding("model", "the client's own, where it lends it (sampling); else the agent words its facts itself")
    try:
        model = await anyio.to_thread.run_sync(lambda: open_model(settings))
        if model is None:
            return Finding("model", "none")
        try:
            await model.check()
        finally:
            await model.aclose()
    except PalimpsestError as error:
        return Finding("model", f"{error} Conversations are kept; nothing is learnt from them.", ok=False)
    return Finding("model", f"{model.name} answers")


@contextmanager
def _closing(projection: Projection) -> Generator[None]:
    try:
        yield
    finally:
        projection.close()
