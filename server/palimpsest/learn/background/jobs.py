"""Work on the jobs in the ledger: learn from messages after their call was answered.

A job stays in the ledger until it is done. Of all processes one works on jobs at a time, by a lock of the operating
system; if that process is killed, another goes on. Each piece of a conversation marks its messages as learned from, so
work that was interrupted goes on with the rest.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from datetime import datetime
from functools import partial

import anyio

from palimpsest.core.errors import DailyLimitError, LedgerError, PalimpsestError
from palimpsest.core.models import Message, Outcome, Scope
from palimpsest.core.protocols import LanguageModel
from palimpsest.core.threads import in_background
from palimpsest.learn.apply import WriteResult
from palimpsest.learn.background.daily_limit import model_for, next_day
from palimpsest.learn.engine import Engine
from palimpsest.learn.facts.reconcile import not_learned_from
from palimpsest.learn.messages.from_messages import Lesson, learn_pieces
from palimpsest.store.queries import jobs as job_queries
from palimpsest.store.queries import messages as message_queries
from palimpsest.store.queries.jobs import Job

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
        """Work on what is due until cancelled, beginning with what waits from before. Without a model do nothing."""
        model = self._engine.model
        if model is None:
            return
        with in_background():
            while True:
                self._woken = anyio.Event()
                rest = await self._work(model)
                with anyio.move_on_after(rest):
                    await self._woken.wait()

    async def _work(self, model: LanguageModel) -> float:
        """Work on what is due and return for how many seconds there is nothing to do."""
        engine = self._engine
        try:
            due_at = await engine.run(lambda: _next_due_at(engine))
            if due_at is not None and due_at <= engine.clock():
                if not await work_on_jobs(engine, model, self._after_work):
                    return BUSY_SECONDS
                due_at = await engine.run(lambda: _next_due_at(engine))
        except LedgerError as error:
            logger.warning("what waits to be learned from is not looked at: %s", error)
            return BUSY_SECONDS
        except Exception:  # one that escaped would close the memory for all its callers
            logger.exception("what waits to be learned from is not looked at for a while")
            return LOOK_SECONDS
        if due_at is None:
            return LOOK_SECONDS
        return min(max((due_at - engine.clock()).total_seconds(), 0.0), LOOK_SECONDS)


async def work_on_jobs(engine: Engine, model: LanguageModel, after_work: AfterWork | None = None) -> bool:
    """Work on the jobs that are due, one after the other. Return False if another process is doing it.

    `after_work` is awaited after each job, with its scope and what was learned. Raises LedgerError.
    """
    with ExitStack() as stack:
        if not await engine.run(lambda: stack.enter_context(engine.ledger.working_on_jobs())):
            return False
        while (job := await engine.run(lambda: _due_job(engine))) is not None:
            try:
                error, outcomes = await _learn(engine, model_for(engine, model, job), job)
            except DailyLimitError as limit:
                await engine.write(partial(engine.ledger.postpone_job, job, str(limit), next_day(engine.clock())))
                continue
            await engine.write(partial(engine.ledger.finish_job, job, error))
            if after_work is not None:
                await after_work(job.scope, outcomes)
    return True


async def _learn(engine: Engine, model: LanguageModel, job: Job) -> tuple[str, Sequence[Outcome]]:
    """Learn from the messages of a job that were neither learned from nor deleted since it was queued.

    Return the error that ended it, "" if there was none, and what was learned. Raises DailyLimitError.
    """
    messages = await engine.run(lambda: _messages(engine, job))
    outcomes: list[Outcome] = []
    error: Exception | None

    async def on_piece(learned: int, result: WriteResult) -> None:
        outcomes.extend(result.outcomes)
        await engine.write(partial(engine.ledger.progress_job, job, learned, result.notes))

    try:
        lesson = Lesson(job.scope, messages, job.payload["context"], job.payload["caller"])
        error = (await learn_pieces(engine, model, lesson, on_piece)).error
    except Exception as fault:  # noqa: BLE001 - whatever one job meets, the memory and the other jobs go on
        error = fault
    if error is None or not await engine.run(lambda: not_learned_from(engine, messages)):
        return "", outcomes
    if isinstance(error, DailyLimitError):
        raise error
    logger.warning("a job ended before its end: %s", error, exc_info=not isinstance(error, PalimpsestError))
    return (str(error) if isinstance(error, PalimpsestError) else f"{type(error).__name__}: {error}."), outcomes


def _messages(engine: Engine, job: Job) -> list[Message]:
    with engine.ledger.read() as conn:
        messages = message_queries.messages_by_id(conn, job.message_ids)
    return not_learned_from(engine, [messages[key] for key in job.message_ids if key in messages])


def _next_due_at(engine: Engine) -> datetime | None:
    with engine.ledger.read() as conn:
        return job_queries.next_due_at(conn)


def _due_job(engine: Engine) -> Job | None:
    with engine.ledger.read() as conn:
        return job_queries.due_job(conn, engine.clock())
