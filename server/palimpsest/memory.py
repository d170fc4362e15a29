"""The facade and composition root: `async with open_memory(settings) as memory`.

The MCP tools and the command line are thin doors onto this; nothing else opens a store.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, TextIO

import anyio
import anyio.to_thread

from palimpsest.care.export import export
from palimpsest.care.import_file import ImportResult, plan_import, preview_import, run_import
from palimpsest.care.purge import Purged, purge
from palimpsest.core import models
from palimpsest.core.clock import Clock, now
from palimpsest.core.errors import LedgerError
from palimpsest.core.models import Edit, Fact, Message, Scope, Undo, Version
from palimpsest.core.protocols import LanguageModel, Progress, ReportProgress
from palimpsest.core.settings import Settings
from palimpsest.index.backfill import embed_missing
from palimpsest.index.sync import Projection
from palimpsest.learn import add, edit, summaries
from palimpsest.learn.apply import WriteResult
from palimpsest.learn.background import BackgroundWork
from palimpsest.learn.engine import Engine
from palimpsest.learn.factory import open_embedder, open_model, open_projection, open_prompts
from palimpsest.recall import listing
from palimpsest.recall.listing import Page
from palimpsest.recall.pipeline import SearchQuery, SearchResult, search
from palimpsest.store.ledger import open_ledger
from palimpsest.store.queries import edits as edit_queries
from palimpsest.store.queries import history as history_queries
from palimpsest.store.queries import id_lookup
from palimpsest.store.queries import vectors as vector_queries
from palimpsest.store.writes import purge as purge_writes
from palimpsest.store.writes.purge import PurgeSelection

THREADS = 8
"""Worker threads for blocking work; the MCP transport has its own."""


class Memory:
    """Remember, recall, correct and forget. Open it with `open_memory`.

    Every method works in one scope and raises PalimpsestError. `caller` names who asked, for the history.
    """

    def __init__(
        self, settings: Settings, engine: Engine, projection: Projection, background_work: BackgroundWork | None
    ) -> None:
        self.settings = settings
        self.engine = engine
        self.projection = projection
        self._background = background_work

    @property
    def scope(self) -> Scope:
        """Return the scope that the settings name."""
        chosen = self.settings
        return Scope(chosen.user_id, chosen.project, chosen.agent_id, chosen.run_id)

    def for_call(self, report_progress: ReportProgress | None = None, model: LanguageModel | None = None) -> Memory:
        """Return this memory for one call: `report_progress` is told how far it is; `model` is lent to it."""
        engine = replace(self.engine, report_progress=report_progress or self.engine.report_progress)
        if model is not None:
            engine = replace(engine, model=model, lent=True)
        return Memory(self.settings, engine, self.projection, self._background)

    async def add_messages(
        self,
        messages: Sequence[Message],
        *,
        context: Sequence[str] = (),
        infer: bool | None = None,
        caller: str = "",
    ) -> WriteResult:
        """Keep messages of one scope and learn from them, unless `infer` is False.

        `context` is shown to the model and never learnt from.
        """
        scope = messages[0].scope
        done = add.remember_messages(self.engine, scope, messages, context, infer=infer, caller=caller)
        return await self._written(scope, done)

    async def add_text(
        self,
        scope: Scope,
        text: str,
        *,
        replaces: Sequence[str] = (),
        metadata: Mapping[str, Any] | None = None,
        infer: bool | None = None,
        caller: str = "",
    ) -> WriteResult:
        """Store one fact in the caller's words; `replaces` are ids of memories it supersedes."""
        fact = Fact(text, metadata=metadata or {})
        done = add.remember_text(self.engine, scope, fact, replaces=replaces, infer=infer, caller=caller)
        return await self._written(scope, done)

    async def search(
        self,
        scope: Scope,
        query: str,
        *,
        limit: int = 10,
        max_tokens: int = 800,
        filters: Mapping[str, Any] | None = None,
        as_of: datetime | None = None,
        explain: bool = False,
    ) -> SearchResult:
        """Recall by meaning and by words; `as_of` answers with what was believed at that instant.

        With `explain` every hit says of what its score was made.
        """
        question = SearchQuery(scope, query, self.engine.clock(), limit, max_tokens, filters or {}, as_of, explain)
        ledger, embedder = self.engine.ledger, self.engine.embedder
        answer = await self.engine.run(lambda: search(ledger, embedder, self.projection, question))
        if self._background is not None and self.projection.is_behind():
            self._background.wake()
        return answer

    async def list(
        self,
        scope: Scope,
        *,
        limit: int = 20,
        cursor: str | None = None,
        deleted: bool = False,
        filters: Mapping[str, Any] | None = None,
    ) -> Page:
        """Return a page of memories, newest first."""
        return await self.engine.run(
            lambda: listing.page(self.engine.ledger, scope, limit, cursor, deleted=deleted, filters=filters)
        )

    async def update(
        self,
        scope: Scope,
        memory_id: str,
        *,
        text: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        caller: str = "",
    ) -> WriteResult:
        """Give a memory another text, other metadata (null removes a key), or both; the old ones stay in history."""

        async def update() -> WriteResult:
            done = await edit.update(self.engine, scope, memory_id, text, metadata, caller)
            return await add.compared(self.engine, scope, done)

        return await self._written(scope, update())

    async def restore(self, scope: Scope, owner_id: str, *, caller: str = "") -> WriteResult:
        """Bring a deleted or superseded memory, or a forgotten turn, back."""
        return await self._written(scope, edit.restore(self.engine, scope, owner_id, caller))

    async def delete(self, scope: Scope, owner_ids: Sequence[str], *, caller: str = "") -> WriteResult:
        """Forget memories and turns, all or none; each can be restored."""
        return await self._written(scope, edit.delete(self.engine, scope, owner_ids, caller))

    async def stored(self, scope: Scope) -> edit.Stored:
        """Return what `delete_all` would forget."""
        return await edit.stored(self.engine, scope)

    async def delete_all(self, scope: Scope, *, caller: str = "") -> WriteResult:
        """Forget every memory and turn of a scope itself, as one edit. A project's leave the global ones alone."""
        return await self._written(scope, edit.delete_all(self.engine, scope, caller))

    async def ids(self, scope: Scope, beginning: str, limit: int) -> Sequence[str]:
        """Return up to `limit` ids of memories that begin so, the newest memory first."""

        def read() -> Sequence[str]:
            with self.engine.ledger.read() as conn:
                return id_lookup.ids_beginning(conn, scope, beginning, limit)

        return await self.engine.run(read)

    async def log(self, scope: Scope, *, limit: int = 20, before: int | None = None) -> Sequence[Edit]:
        """Return what was changed, newest first, from below edit number `before`."""

        def read() -> Sequence[Edit]:
            with self.engine.ledger.read() as conn:
                return edit_queries.edits(conn, scope, limit, before)

        return await self.engine.run(read)

    async def undo(self, scope: Scope, undo: Undo | None = None, *, caller: str = "") -> WriteResult:
        """Take an edit back, all since an instant, or the newest still in effect."""
        return await self._written(scope, edit.take_back(self.engine, scope, undo or Undo(), caller))

    async def purge_selection(self, scope: Scope, owner_ids: Sequence[str] | None) -> PurgeSelection:
        """Return what `purge` would erase."""

        def read() -> PurgeSelection:
            with self.engine.ledger.read() as conn:
                return purge_writes.purge_selection(conn, scope, owner_ids)

        return await self.engine.run(read)

    async def purge(self, scope: Scope, owner_ids: Sequence[str] | None, *, and_backups: bool = False) -> Purged:
        """Erase memories and turns for good, or, with None, all of a scope itself; search the files to prove it."""
        ledger, projection = self.engine.ledger, self.projection
        return await self.engine.run(lambda: purge(ledger, projection, scope, owner_ids, and_backups=and_backups))

    async def export(self, out: Path | TextIO, form: Literal["jsonl", "markdown"], progress: Progress) -> int:
        """Write everything of the settings' user, or, as Markdown, what is believed now; return how much that was."""
        return await self.engine.run(lambda: export(self.engine, self.scope, out, form, progress))

    async def import_file(self, scope: Scope, file: Path, progress: Progress, *, dry_run: bool = False) -> ImportResult:
        """Store what a file of ours or of another tool holds for a user, each item once; or say what that would be."""

        def work() -> ImportResult:
            plan = plan_import(self.engine, scope, file, self.engine.clock())
            if dry_run:
                return preview_import(self.engine, scope, plan)
            return run_import(self.engine, scope, plan, progress)

        return await self.engine.run(work)

    async def summary(
        self, scope: Scope, kind: str = "overall", *, refresh: bool = False, caller: str = ""
    ) -> summaries.Summarized:
        """Return what is known of the scope in a paragraph."""
        refresh = refresh or (self.engine.lent and await self._summary_is_due(scope, kind))
        return await summaries.get_summary(self.engine, scope, kind, refresh=refresh, caller=caller)

    async def history(self, scope: Scope, memory_id: str) -> tuple[models.Memory, Sequence[Version]]:
        """Return a memory, living or deleted, and every change of it, oldest first."""

        def read() -> tuple[models.Memory, Sequence[Version]]:
            with self.engine.ledger.read() as conn:
                memory = id_lookup.find_memory(conn, scope, memory_id)
                return memory, history_queries.versions_of(conn, memory.id)

        return await self.engine.run(read)

    async def health(self) -> dict[str, str]:
        """Return how the ledger, the vectors and the index are, in a word each."""

        def look() -> dict[str, str]:
            try:
                with self.engine.ledger.read() as conn:
                    waiting = vector_queries.has_missing_vectors(conn, self.engine.embedder.fingerprint)
            except LedgerError:
                return {"status": "failed", "ledger": "unreadable"}
            index = self.projection.state
            degraded = waiting or index == "broken"
            vectors = "waiting" if waiting else "complete"
            return {"status": "degraded" if degraded else "ok", "ledger": "ok", "vectors": vectors, "index": index}

        return await self.engine.run(look)

    async def rebuild(self, progress: Progress | None = None) -> tuple[int, int]:
        """Make the full text and the vector index anew from the ledger; return how many rows each holds."""
        ledger, embedder = self.engine.ledger, self.engine.embedder
        rows = await self.engine.run(ledger.rebuild_full_text)
        await self.engine.run(lambda: embed_missing(ledger, embedder, progress=progress))
        return rows, await self.engine.run(lambda: self.projection.rebuild(progress))

    async def _summary_is_due(self, scope: Scope, kind: str) -> bool:
        return await summaries.changes_missed(self.engine, scope, kind) >= self.settings.summary.every

    async def _written(self, scope: Scope, writing: Awaitable[WriteResult]) -> WriteResult:
        done = await writing
        if self._background is not None:
            await self._background.written(scope)
        return done


@asynccontextmanager
async def open_memory(settings: Settings, *, clock: Clock = now, background: bool = True) -> AsyncGenerator[Memory]:
    """Open the ledger and all that follows it, and close them at the end.

    With `background` the vector index is opened and kept up in the background; without, searches scan the
    ledger's vectors exactly, which suits a process that asks once. Raises PalimpsestError.
    """
    threads = anyio.CapacityLimiter(THREADS)

    def build() -> tuple[Engine, Projection]:
        prompts = open_prompts(settings)
        ledger = open_ledger(settings.ledger_path, clock)
        try:
            embedder = open_embedder(settings)
            index = open_projection(settings, ledger, embedder.fingerprint)
            model = open_model(settings)
            return Engine(ledger, embedder, model, prompts, clock, index, threads, settings.keep_secrets), index
        except BaseException:
            ledger.close()
            raise

    engine, projection = await anyio.to_thread.run_sync(build, limiter=threads)
    failure: Exception | None = None
    try:
        async with anyio.create_task_group() as tasks:
            background_work = BackgroundWork(engine, projection, tasks, settings.summary.every) if background else None
            if background_work is not None:
                tasks.start_soon(background_work.follow)
            try:
                yield Memory(settings, engine, projection, background_work)
            except Exception as error:  # noqa: BLE001 - raised again below, without the task group's wrapping
                failure = error
            finally:
                projection.stop()
                tasks.cancel_scope.cancel()
        if failure is not None:
            raise failure
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(projection.close, limiter=threads)
            if engine.model is not None:
                await engine.model.aclose()
            engine.ledger.close()
