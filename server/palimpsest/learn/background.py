"""What goes on behind the calls: vectors that are missing, the index, the summary. Owned by the facade's task group."""

from __future__ import annotations

import logging
from collections.abc import Callable

import anyio
import anyio.abc

from palimpsest.core.errors import EmbedderError, LedgerError, ModelError, PromptError, VectorIndexError
from palimpsest.core.models import Scope
from palimpsest.core.protocols import LanguageModel
from palimpsest.index.backfill import embed_missing
from palimpsest.index.erasure import finish_purge
from palimpsest.index.sync import Projection
from palimpsest.learn import summaries
from palimpsest.learn.engine import Engine

logger = logging.getLogger(__name__)


REST_SECONDS = 1.0
MANY_WRITES = 50
"""The index rests that long after it has caught up, or until so many writes wait: a write to it holds the interpreter
for milliseconds, and searches find what it lacks without it."""


class BackgroundWork:
    """Keep vectors, index and summaries behind the ledger. `every` is after how many changes a summary is due."""

    def __init__(self, engine: Engine, projection: Projection, tasks: anyio.abc.TaskGroup, every: int) -> None:
        self._engine = engine
        self._projection = projection
        self._tasks = tasks
        self._every = every
        self._changed = anyio.Event()
        self._many = anyio.Event()
        self._writes = 0
        self._summarizing: set[Scope] = set()
        self._failed_at: dict[Scope, int] = {}
        self._fault = ""

    def wake(self) -> None:
        """Say that there is something to follow."""
        self._changed.set()

    async def follow(self) -> None:
        """Keep vectors and index behind the ledger until cancelled; failures are noted for the doctor.

        Begins after the first call has been answered: what opening the index imports would slow that down.
        """
        only_failed = False
        await self._changed.wait()
        await self._guarded(self._finish_purge)
        while True:
            await self._changed.wait()
            self._changed = anyio.Event()
            await self._embed(only_failed=only_failed)
            only_failed = only_failed or not self._fault
            if self._projection.state in ("closed", "broken"):
                await self._guarded(self._projection.open)
            await self._guarded(self._projection.catch_up)
            self._writes, self._many = 0, anyio.Event()
            with anyio.move_on_after(REST_SECONDS):
                await self._many.wait()

    async def written(self, scope: Scope) -> None:
        """Follow a write of a scope, and write its summary in the background where that is due."""
        self._writes += 1
        if self._writes >= MANY_WRITES:
            self._many.set()
        self.wake()
        model = self._engine.model
        if model is None or scope in self._summarizing:
            return
        behind = await summaries.changes_missed(self._engine, scope, "overall")
        if behind >= self._every + self._failed_at.get(scope, 0):
            self._summarizing.add(scope)
            self._tasks.start_soon(self._summarize, scope, model, behind)

    async def _summarize(self, scope: Scope, model: LanguageModel, behind: int) -> None:
        try:
            await summaries.write_summary(self._engine, model, scope, "overall", "background")
            self._failed_at.pop(scope, None)
        except (ModelError, PromptError, LedgerError) as error:
            self._failed_at[scope] = behind  # a model that fails is not asked at every write
            logger.warning("the summary of %s was not refreshed: %s", scope, error)
        finally:
            self._summarizing.discard(scope)

    async def _embed(self, *, only_failed: bool) -> None:
        engine, stopped = self._engine, self._projection.stopping
        try:
            await engine.run(
                lambda: embed_missing(engine.ledger, engine.embedder, only_failed=only_failed, stopped=stopped)
            )
            self._fault = ""
        except (EmbedderError, LedgerError) as error:
            self._fault = str(error)
            logger.warning("some texts are found by words only: %s", error)

    def _finish_purge(self) -> None:
        if self._engine.ledger.has_erased_rows_on_disk:
            finish_purge(self._engine.ledger, self._projection)

    async def _guarded(self, work: Callable[[], object]) -> None:
        try:
            await self._engine.run(work)
        except (VectorIndexError, LedgerError) as error:
            logger.warning("the vector index does not follow: %s", error)
