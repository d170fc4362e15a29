"""Learn from the messages of a job.

Each piece of a conversation marks its messages as learned from, so work that was interrupted goes on with the rest.
"""

from __future__ import annotations

from functools import partial

from palimpsest.core.models import Message, Outcome
from palimpsest.core.protocols import LanguageModel
from palimpsest.learn.apply import WriteResult
from palimpsest.learn.engine import Engine
from palimpsest.learn.facts.reconcile import not_learned_from
from palimpsest.learn.messages.from_messages import Lesson, learn_pieces
from palimpsest.store.queries import messages as message_queries
from palimpsest.store.queries.jobs import Job, JobEnd
from palimpsest.store.writes.jobs.queue import CONTEXT


async def learn(engine: Engine, model: LanguageModel, job: Job) -> JobEnd:
    """Learn from the messages of a job that were neither learned from nor deleted since it was queued."""
    messages = await engine.run(lambda: _messages(engine, job))
    outcomes: list[Outcome] = []
    error: Exception | None

    async def on_piece(learned: int, result: WriteResult) -> None:
        outcomes.extend(result.outcomes)
        await engine.write(partial(engine.ledger.progress_job, job, learned, result.notes))

    try:
        lesson = Lesson(job.scope, messages, job.payload[CONTEXT], job.payload["caller"])
        error = (await learn_pieces(engine, model, lesson, on_piece)).error
    except Exception as fault:  # noqa: BLE001 - whatever it meets, what was learned before is passed on
        error = fault
    if error is not None and not await engine.run(lambda: not_learned_from(engine, messages)):
        error = None
    return JobEnd(tuple(outcomes), error)


def _messages(engine: Engine, job: Job) -> list[Message]:
    with engine.ledger.read() as conn:
        messages = message_queries.messages_by_id(conn, job.message_ids)
    return not_learned_from(engine, [messages[key] for key in job.message_ids if key in messages])
