"""The facade and composition root: `async with open_memory(settings) as memory`.

The MCP tools and the command line are thin doors onto this; nothing else opens a store.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import anyio
import anyio.abc
import anyio.to_thread

from palimpsest import records, remember, summary
from palimpsest.clock import Clock, now
from palimpsest.compose import open_embedder, open_model, open_projection, open_shelf
from palimpsest.config import Settings
from palimpsest.embedding import embed_waiting
from palimpsest.engine import Engine
from palimpsest.errors import (
    EmbedderError,
    InputError,
    LedgerError,
    ModelError,
    PromptError,
    VectorIndexError,
)
from palimpsest.filters import compile_filter
from palimpsest.ledger import reading
from palimpsest.ledger.ledger import open_ledger
from palimpsest.ledger.writing import Write
from palimpsest.ports import LanguageModel
from palimpsest.projection import Progress, Projection
from palimpsest.recall import Answer, Question, memory_hit, recall, record
from palimpsest.records import Change, Decision, Event, Fact, HistoryEntry, Hit, Message, Provenance, Scope

logger = logging.getLogger(__name__)

THREADS = 8
"""Worker threads for blocking work; the MCP transport has its own."""

MAX_CURSOR_DIGITS = 18
PAGE = 200
"""How many memories are read at once where a filter is to be applied."""


@dataclass(frozen=True, slots=True)
class Page:
    """Hold one page of a listing; `cursor` asks for the next one and is None at the end."""

    hits: tuple[Hit, ...]
    cursor: str | None = None


class Memory:
    """Remember, recall, correct and forget. Open it with `open_memory`.

    Every method works in one scope and raises PalimpsestError. `caller` names who asked, for the history.
    """

    def __init__(
        self, settings: Settings, engine: Engine, projection: Projection, tasks: anyio.abc.TaskGroup | None
    ) -> None:
        self.settings = settings
        self.engine = engine
        self.projection = projection
        self._tasks = tasks
        self._changed = anyio.Event()
        self._summarizing: set[Scope] = set()
        self.embedding_fault = ""

    @property
    def scope(self) -> Scope:
        """Return the scope that the settings name."""
        chosen = self.settings
        return Scope(chosen.user_id, chosen.project, chosen.agent_id, chosen.run_id)

    async def add_messages(
        self,
        messages: Sequence[Message],
        *,
        context: Sequence[str] = (),
        infer: bool | None = None,
        caller: str = "",
    ) -> remember.Done:
        """Keep messages of one scope and learn from them, unless `infer` is False.

        `context` is shown to the model and never learnt from.
        """
        scope = messages[0].scope
        done = await remember.remember_messages(self.engine, scope, messages, context, infer=infer, caller=caller)
        await self._follow_up(scope)
        return done

    async def add_text(
        self,
        scope: Scope,
        text: str,
        *,
        replaces: Sequence[str] = (),
        metadata: Mapping[str, Any] | None = None,
        infer: bool | None = None,
        caller: str = "",
    ) -> remember.Done:
        """Store one fact in the caller's words; `replaces` are ids of memories it supersedes."""
        old = await self._find_all(scope, replaces)
        done = await remember.remember_text(
            self.engine,
            scope,
            Fact(text, metadata=metadata or {}),
            replaces=[memory.id for memory in old],
            infer=infer,
            caller=caller,
        )
        await self._follow_up(scope)
        return done

    async def search(
        self,
        scope: Scope,
        query: str,
        *,
        limit: int = 10,
        max_tokens: int = 800,
        filters: Mapping[str, Any] | None = None,
        as_of: datetime | None = None,
    ) -> Answer:
        """Recall by meaning and by words; `as_of` answers with what was believed at that instant."""
        question = Question(scope, query, self.engine.clock(), limit, max_tokens, filters or {}, as_of)
        ledger, embedder = self.engine.ledger, self.engine.embedder
        answer = await self.engine.run(lambda: recall(ledger, embedder, self.projection, question))
        if self.projection.lags():
            self._changed.set()
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
        test = compile_filter(filters) if filters else None
        before = _row_number(cursor)

        def read() -> Page:
            hits: list[Hit] = []
            row = before
            with self.engine.ledger.read() as conn:
                while True:
                    found = reading.list_memories(conn, scope, PAGE, before=row, deleted=deleted)
                    sources = reading.sources_of(conn, [memory.id for _, memory in found])
                    for number, memory in found:
                        hit = memory_hit(memory, memory.text, sources.get(memory.id, ()), 0.0)
                        if test is not None and not test(record(hit)):
                            continue
                        if len(hits) == limit:
                            return Page(tuple(hits), str(row))
                        hits.append(hit)
                        row = number
                    if len(found) < PAGE:
                        return Page(tuple(hits))
                    row = found[-1][0] if len(hits) < limit else row

        return await self.engine.run(read)

    async def update(
        self,
        scope: Scope,
        memory_id: str,
        *,
        text: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        caller: str = "",
    ) -> Change:
        """Give a memory another text, other metadata (null removes a key), or both; the old ones stay in history."""
        memory = await self._find(scope, memory_id)
        fact = Fact(text or "", metadata=metadata or {})
        return await self._decree(scope, Decision(Event.UPDATE, fact, memory.id), "update", caller)

    async def restore(self, scope: Scope, memory_id: str, *, caller: str = "") -> Change:
        """Bring a deleted or superseded memory back."""
        memory = await self._find(scope, memory_id, deleted=True)
        return await self._decree(scope, Decision(Event.ADD, memory_id=memory.id), "restore", caller)

    async def delete(self, scope: Scope, memory_ids: Sequence[str], *, caller: str = "") -> list[Change]:
        """Forget memories, all or none; each can be restored."""
        found = await self._find_all(scope, memory_ids)
        decisions = [Decision(Event.DELETE, memory_id=memory.id) for memory in found]
        return await self._apply(scope, decisions, "delete", caller)

    async def count(self, scope: Scope) -> int:
        """Return how many memories `delete_all` would forget."""
        return len(await self._stored_in(scope))

    async def delete_all(self, scope: Scope, *, caller: str = "") -> list[Change]:
        """Forget every memory of a scope itself; each can be restored. A project's leave the global ones alone."""
        decisions = [Decision(Event.DELETE, memory_id=memory.id) for memory in await self._stored_in(scope)]
        return await self._apply(scope, decisions, "delete", caller)

    async def summary(
        self, scope: Scope, kind: str = "overall", *, refresh: bool = False, caller: str = ""
    ) -> summary.Summarized:
        """Return what is known of the scope in a paragraph."""
        return await summary.get_summary(self.engine, scope, kind, refresh=refresh, caller=caller)

    async def history(self, scope: Scope, memory_id: str) -> tuple[records.Memory, list[HistoryEntry]]:
        """Return a memory, living or deleted, and every change of it, oldest first."""
        memory = await self._find(scope, memory_id, deleted=None)

        def read() -> list[HistoryEntry]:
            with self.engine.ledger.read() as conn:
                return reading.history_of(conn, memory.id)

        return memory, await self.engine.run(read)

    async def rebuild(self, progress: Progress | None = None) -> tuple[int, int]:
        """Make the full text and the vector index anew from the ledger; return how many rows each holds."""
        ledger, embedder = self.engine.ledger, self.engine.embedder
        rows = await self.engine.run(ledger.rebuild_lexical)
        await self.engine.run(lambda: embed_waiting(ledger, embedder, progress=progress))
        return rows, await self.engine.run(lambda: self.projection.rebuild(progress))

    async def follow(self) -> None:
        """Keep vectors and index behind the ledger until cancelled; failures are noted for the doctor.

        Begins after the first call has been answered: what opening the index imports would slow that down.
        """
        only_failed = False
        while True:
            await self._changed.wait()
            self._changed = anyio.Event()
            await self._embed(only_failed=only_failed)
            only_failed = only_failed or not self.embedding_fault
            if self.projection.state in ("closed", "broken"):
                await self._guarded(self.projection.open)
            await self._guarded(self.projection.catch_up)

    async def _embed(self, *, only_failed: bool) -> None:
        ledger, embedder, stopped = self.engine.ledger, self.engine.embedder, self.projection.stopping
        try:
            await self.engine.run(lambda: embed_waiting(ledger, embedder, only_failed=only_failed, stopped=stopped))
            self.embedding_fault = ""
        except (EmbedderError, LedgerError) as error:
            self.embedding_fault = str(error)
            logger.warning("some texts are found by words only: %s", error)

    async def _guarded(self, work: Callable[[], object]) -> None:
        try:
            await self.engine.run(work)
        except (VectorIndexError, LedgerError) as error:
            logger.warning("the vector index does not follow: %s", error)

    async def _follow_up(self, scope: Scope) -> None:
        """Wake the projection, and write the summary in the background where it is due."""
        self._changed.set()
        model = self.engine.model
        if self._tasks is None or model is None or scope in self._summarizing:
            return
        if await summary.is_due(self.engine, scope, self.settings.summary.every):
            self._summarizing.add(scope)
            self._tasks.start_soon(self._summarize, scope, model)

    async def _summarize(self, scope: Scope, model: LanguageModel) -> None:
        try:
            await summary.write_summary(self.engine, model, scope, "overall", "background")
        except (ModelError, PromptError, LedgerError) as error:
            logger.warning("the summary of %s was not refreshed: %s", scope, error)
        finally:
            self._summarizing.discard(scope)

    async def _decree(self, scope: Scope, decision: Decision, stage: str, caller: str) -> Change:
        return (await self._apply(scope, [decision], stage, caller))[0]

    async def _apply(self, scope: Scope, decisions: Sequence[Decision], stage: str, caller: str) -> list[Change]:
        texts = [decision.fact.text for decision in decisions if decision.fact is not None and decision.fact.text]
        engine = self.engine

        def apply() -> list[Change]:
            try:
                vectors = dict(zip(texts, engine.embedder.embed(texts), strict=True))
            except EmbedderError as error:
                logger.warning("stored without a vector for now: %s", error)
                vectors = {}
            write = Write(
                scope,
                Provenance(stage, caller=caller),
                decisions=tuple(decisions),
                vectors=vectors,
                embedder=engine.embedder.fingerprint,
            )
            return engine.ledger.apply(write)

        changes = await engine.run(apply)
        await self._follow_up(scope)
        return changes

    async def _stored_in(self, scope: Scope) -> list[records.Memory]:
        def read() -> list[records.Memory]:
            with self.engine.ledger.read() as conn:
                return reading.stored_in(conn, scope)

        return await self.engine.run(read)

    async def _find(self, scope: Scope, memory_id: str, *, deleted: bool | None = False) -> records.Memory:
        return (await self._find_all(scope, [memory_id], deleted=deleted))[0]

    async def _find_all(
        self, scope: Scope, memory_ids: Sequence[str], *, deleted: bool | None = False
    ) -> list[records.Memory]:
        def read() -> list[records.Memory]:
            with self.engine.ledger.read() as conn:
                found = [reading.find_memory(conn, scope, each, deleted=deleted) for each in memory_ids]
            return list({memory.id: memory for memory in found}.values())

        return await self.engine.run(read)


@asynccontextmanager
async def open_memory(settings: Settings, *, clock: Clock = now, background: bool = True) -> AsyncGenerator[Memory]:
    """Open the ledger and all that follows it, and close them at the end.

    With `background` the vector index is opened and kept up in the background; without, searches scan the
    ledger's vectors exactly, which suits a process that asks once. Raises PalimpsestError.
    """
    threads = anyio.CapacityLimiter(THREADS)

    def build() -> tuple[Engine, Projection]:
        shelf = open_shelf(settings)
        ledger = open_ledger(settings.ledger_path, clock)
        try:
            embedder = open_embedder(settings)
            engine = Engine(ledger, embedder, open_model(settings), shelf, clock, threads)
            return engine, open_projection(settings, ledger, embedder.fingerprint)
        except BaseException:
            ledger.close()
            raise

    engine, projection = await anyio.to_thread.run_sync(build, limiter=threads)
    failure: Exception | None = None
    try:
        async with anyio.create_task_group() as tasks:
            memory = Memory(settings, engine, projection, tasks if background else None)
            if background:
                tasks.start_soon(memory.follow)
            try:
                yield memory
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


def _row_number(cursor: str | None) -> int | None:
    if cursor is None:
        return None
    if not cursor.isdecimal() or len(cursor) > MAX_CURSOR_DIGITS:
        raise InputError(f"'{cursor}' is no cursor; take it from the reply of list_memories")
    return int(cursor)
