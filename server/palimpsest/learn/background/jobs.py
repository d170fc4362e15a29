"""Work on the jobs in the ledger: what was said is learned from, and views of what is known are made.

A job stays in the ledger until it is done. Of all processes one works on jobs at a time, by a lock of the operating
system; if that process is killed, another goes on with what is left of it.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from datetime import datetime
from functools import partial

import anyio

from palimpsest.core.errors import DailyLimitError, LedgerError, PalimpsestError
from palimpsest.core.models import Outcome, Scope
from palimpsest.core.protocols import LanguageModel
from palimpsest.core.threads import in_background
from palimpsest.learn.background.daily_limit import model_for, next_day
from palimpsest.learn.background.kinds import do, kinds_for
from palimpsest.learn.engine import Engine
from palimpsest.store.queries import jobs as job_queries
from palimpsest.store.queries.jobs import Job, JobEnd, JobKind

logger = logging.getLogger(__name__)

LOOK_SECONDS = 30.0
"""How often a process looks for jobs of others: those of a process that was killed, or that has no time to do them. Set
by hand; a look takes less than a millisecond."""

BUSY_SECONDS = 5.0
"""How long a process waits while another one works on jobs, and after an error of the ledger. Set by hand."""

AfterWork = Callable[[Scope, Sequence[Outcome]], Awaitable[None]]


class JobRunner:
    """Works on the jobs of all users while the memory is open."""

    def __init__(self, engine: Engine, after_work: AfterWork) -> None:
        self._engine = engine
        self._after_work = after_work
        self._woken = anyio.Event()

    def wake(self) -> None:
        """Look for jobs now, because there may be a new one."""
        self._woken.set()

    async def run(self) -> None:
        """Work on what is due until cancelled, beginning with what waits from before."""
        with in_background():
            while True:
                self._woken = anyio.Event()
                rest = await self._work()
                with anyio.move_on_after(rest):
                    await self._woken.wait()

    async def _work(self) -> float:
        """Work on what is due and return for how many seconds there is nothing to do."""
        engine = self._engine
        kinds = kinds_for(engine.own_model)
        try:
            due_at = await engine.run(lambda: _next_due_at(engine, kinds))
            if due_at is not None and due_at <= engine.clock():
                if not await work_on_jobs(engine, engine.own_model, self._after_work):
                    return BUSY_SECONDS
                due_at = await engine.run(lambda: _next_due_at(engine, kinds))
        except LedgerError as error:
            logger.warning("what waits to be done is not looked at: %s", error)
            return BUSY_SECONDS
        except Exception:  # one that escaped would close the memory for all its callers
            logger.exception("what waits to be done is not looked at for a while")
            return LOOK_SECONDS
        if due_at is None:
            return LOOK_SECONDS
        return min(max((due_at - engine.clock()).total_seconds(), 0.0), LOOK_SECONDS)


async def work_on_jobs(engine: Engine, model: LanguageModel | None, after_work: AfterWork | None = None) -> bool:
    """Work on the jobs that are due, one after the other. Return False if another process is doing it.

    If another task of this process is doing it, its end is awaited. Without a model, jobs that need one wait.
    `after_work` is awaited after each job, with its scope and what it changed. Raises LedgerError.
    """
    async with engine.jobs_lock:
        return await _work_in_turn(engine, model, after_work)


async def _work_in_turn(engine: Engine, model: LanguageModel | None, after_work: AfterWork | None) -> bool:
    """Work on the jobs that are due unless another process is doing it; return whether it was our turn."""
    kinds = kinds_for(model)
    with ExitStack() as stack:
        if not await engine.run(lambda: stack.enter_context(engine.ledger.alone_at("jobs"))):
            return False
        while await engine.run(lambda: _is_due(engine, kinds)):
            job = await engine.write(lambda: engine.ledger.take_job(kinds))
            if job is None:
                continue
            end = await _attempt(engine, None if model is None else model_for(engine, model, job.kind), job)
            await engine.write(partial(_record, engine, job, end))
            if after_work is not None:
                await after_work(job.scope, end.outcomes)
    return True


async def _attempt(engine: Engine, model: LanguageModel | None, job: Job) -> JobEnd:
    """Return how an attempt at a job ended; an error is part of it."""
    try:
        return await do(engine.of_user(job.scope.user_id), model, job)
    except Exception as error:  # noqa: BLE001 - whatever one job meets, the memory and the other jobs go on
        return JobEnd(error=error)


def _record(engine: Engine, job: Job, end: JobEnd) -> None:
    """Record in the ledger how an attempt at a job ended."""
    error = end.error
    if isinstance(error, DailyLimitError):
        engine.ledger.postpone_job(job, str(error), next_day(engine.clock()))
    elif error is not None:
        logger.warning("a job ended before its end: %s", error, exc_info=not isinstance(error, PalimpsestError))
        text = str(error) if isinstance(error, PalimpsestError) else f"{type(error).__name__}: {error}."
        engine.ledger.finish_job(job, text)
    elif end.is_unfinished:
        engine.ledger.interrupt_job(job)
    else:
        engine.ledger.finish_job(job, again_at=end.again_at)


def _next_due_at(engine: Engine, kinds: Sequence[JobKind]) -> datetime | None:
    with engine.ledger.read() as conn:
        return job_queries.next_due_at(conn, kinds)


def _is_due(engine: Engine, kinds: Sequence[JobKind]) -> bool:
    due_at = _next_due_at(engine, kinds)
    return due_at is not None and due_at <= engine.clock()
