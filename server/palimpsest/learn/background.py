"""Background work: learn and embed what waits for it, keep the vector index up to date, refresh summaries.

It runs in the task group of the facade.
"""

import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from functools import partial
from typing import TypeAlias

import anyio
import anyio.abc

from palimpsest.core.errors import EmbedderError, LedgerError, VectorIndexError, logged
from palimpsest.core.models import Outcome, Scope
from palimpsest.index.backfill import Backfill, embed_gists, embed_relations
from palimpsest.index.graph_database import graph_projection
from palimpsest.index.sync import Projection, finish_purge
from palimpsest.learn.engine import Engine
from palimpsest.learn.job_runner import JobReport, JobRunner, notes_on, once_told
from palimpsest.learn.summaries.summary_writer import DueSummaries
from palimpsest.store import jobs as job_queries
from palimpsest.store.jobs import Job
from palimpsest.store.purge import has_erased_rows_on_disk

logger = logging.getLogger(__name__)

_JobState: TypeAlias = tuple[int, str, datetime]

OnLearned: TypeAlias = Callable[[Sequence[Outcome]], Awaitable[None]]

# How long the index rests after it has caught up. A write to it holds the interpreter lock for milliseconds, and
# searches find new entries without it.
REST_SECONDS = 1.0

# The index rests at least this many times as long as it took to catch up: a tenth of a core. Every process follows the
# writes of all others, so on a busy machine the indexes of many would take the processors from the calls.
REST_SHARE = 9

# The longest rest: with a write every second the index is ten entries behind.
MAX_REST_SECONDS = 10.0

# After this many writes the index stops resting, because each of them makes searches a little slower.
MAX_PENDING_WRITES = 50


# How long texts are embedded before the index is brought up to date.
ROUND_SECONDS = 5.0


class BackgroundWork:
    """The background work of one open memory.

    `on_learned` is awaited with what was learned.
    """

    def __init__(
        self, engine: Engine, projection: Projection, tasks: anyio.abc.TaskGroup, on_learned: OnLearned
    ) -> None:
        self._engine = engine
        self._projection = projection
        self._tasks = tasks
        self._on_learned = on_learned
        self._work_waits = anyio.Event()
        self._many_writes_wait = anyio.Event()
        self._pending_writes = 0
        self._summaries = DueSummaries(engine)
        self._change_over = Backfill(engine.ledger, engine.embedder)
        self._jobs = JobRunner(engine, self._after_job)
        self._reported: set[_JobState] = set()
        self.graph = graph_projection(engine.settings.graph_store, engine.ledger, engine.threads)

    def wake(self) -> None:
        """Start the next round, because there is something new."""
        self._work_waits.set()
        if self.graph is not None:
            self.graph.wake()

    async def run(self) -> None:
        """Learn, embed and index what is new until cancelled. Failures are logged, and the next round tries again.

        Learning goes on at once. The first round of the rest waits until the first call was answered. Opening the index
        imports much, which would delay the answer.
        """
        self._tasks.start_soon(self._jobs.run)
        await self._work_waits.wait()
        if self.graph is not None:
            self._tasks.start_soon(self.graph.follow)
        await self._log_failure(self._finish_purge)
        await self._follow()

    async def _follow(self) -> None:
        while True:
            await self._work_waits.wait()
            self._work_waits = anyio.Event()
            is_embedded = await self._embed()
            if self._projection.state in ("closed", "broken"):
                await self._log_failure(self._projection.open)
            began = time.monotonic()
            await self._log_failure(self._projection.catch_up)
            rest = min(REST_SHARE * (time.monotonic() - began), MAX_REST_SECONDS) if is_embedded else 0
            self._pending_writes, self._many_writes_wait = 0, anyio.Event()
            with anyio.move_on_after(max(rest, REST_SECONDS)):
                await self._many_writes_wait.wait()

    async def after_write(self, scope: Scope) -> None:
        """Do what a write to a scope makes necessary: learn, index, and refresh the scope's summary if that is due."""
        self._count_write()
        await self._look_at_summaries(scope)
        self._jobs.wake()

    def report(self, reports: Sequence[JobReport]) -> tuple[str, ...]:
        """Return notes on jobs for a reply, unless another reply has them, and record that in the background."""
        new = [report for report in reports if _state(report.job) not in self._reported]
        self._reported.update(_state(report.job) for report in new)
        if new:
            self._tasks.start_soon(self._mark_reported, [once_told(report.job) for report in new])
        return notes_on(new)

    async def _mark_reported(self, jobs: Sequence[Job]) -> None:
        with logged(logger, "what was learned will be told again"):
            await self._engine.write(lambda: self._engine.ledger.run(job_queries.mark_reported, jobs))

    async def _after_job(self, scope: Scope, outcomes: Sequence[Outcome]) -> None:
        self._count_write()
        if outcomes:  # a job that wrote a summary makes none necessary
            await self._look_at_summaries(scope)
        await self._on_learned(outcomes)

    def _count_write(self) -> None:
        self._pending_writes += 1
        if self._pending_writes >= MAX_PENDING_WRITES:
            self._many_writes_wait.set()
        self.wake()

    async def _look_at_summaries(self, scope: Scope) -> None:
        with logged(logger, f"whether a summary of {scope} is due is not known"):
            if await self._summaries.after_write(scope):
                self._jobs.wake()

    async def _embed(self) -> bool:
        """Embed what is new, and then go on with what another embedder has embedded, which is done once.

        All stop after a while, so that the index is brought up to date in between. The next round then goes on. While
        another process embeds, this one waits for the next round. Return whether nothing is left to embed.
        """
        with logged(logger, "texts that wait for a vector are found by words only"):
            if await self._engine.run(self._embed_in_turn):
                return True
            self.wake()
        return False

    def _embed_in_turn(self) -> bool:
        """Embed for a while unless another process does. Return whether nothing is left to do."""
        engine, stopped = self._engine, self._projection.stopping
        end = time.monotonic() + ROUND_SECONDS

        def is_over() -> bool:
            return stopped() or time.monotonic() > end

        with engine.ledger.database.alone_at("embedding") as is_our_turn:
            if not is_our_turn:
                return False
            is_finished = True
            for what, embed in (
                ("texts", partial(_finish, Backfill(engine.ledger, engine.embedder, only_failed=True), is_over)),
                ("texts", partial(_finish, self._change_over, is_over)),
                ("gists of pages", partial(embed_gists, engine.ledger, engine.embedder, is_over)),
                ("relations", partial(embed_relations, engine.ledger, engine.embedder, is_over)),
            ):
                with logged(logger, f"some {what} are found by words only", EmbedderError, LedgerError):
                    is_finished = embed() and is_finished
        return is_finished

    def _finish_purge(self) -> None:
        if self._engine.ledger.read_with(has_erased_rows_on_disk):
            finish_purge(self._engine.ledger, self._projection)

    async def _log_failure(self, work: Callable[[], object]) -> None:
        with logged(logger, "the vector index is not up to date", VectorIndexError, LedgerError):
            await self._engine.run(work)


def _finish(backfill: Backfill, stopped: Callable[[], bool]) -> bool:
    """Embed what waits until stopped. Return whether nothing is left."""
    backfill.run(stopped)
    return backfill.is_finished


def _state(job: Job) -> _JobState:
    """Return what tells one end of a job from another."""
    return job.seq, job.state, job.due_at
