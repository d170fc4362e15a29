"""Learn from the messages of a job.

Each piece of a conversation marks its messages as learned from, so work that was interrupted goes on with the rest.
"""

from __future__ import annotations

from functools import partial

from palimpsest.core.models import Message, Outcome
from palimpsest.core.protocols import LanguageModel
from palimpsest.learn.apply import WriteResult
from palimpsest.learn.engine import Engine
from palimpsest.learn.facts.forget_notes import question_note
from palimpsest.learn.facts.reconcile import are_all_learned, not_learned_from
from palimpsest.learn.messages.from_messages import Lesson, learn_pieces
from palimpsest.store.queries import messages as message_queries
from palimpsest.store.queries.jobs import Job, JobEnd
from palimpsest.store.writes.jobs.queue import CONTEXT, STAYS
from palimpsest.text.tokenizer import count_tokens

SLICE_TOKENS = 20_000
"""How many tokens of messages an attempt learns from before other jobs have their turn. Set by hand: ten pieces, which
take a model one or two minutes."""


async def learn(engine: Engine, model: LanguageModel, job: Job) -> JobEnd:
    """Learn from the messages of a job that were neither learned from nor deleted since it was queued."""
    waiting = await engine.run(lambda: _messages(engine, job))
    messages = _first(waiting, SLICE_TOKENS)
    outcomes: list[Outcome] = []
    error: Exception | None

    async def on_piece(learned: int, result: WriteResult) -> None:
        outcomes.extend(result.outcomes)
        await engine.write(
            partial(engine.ledger.progress_job, job, learned, (*result.notes, *map(question_note, result.questions)))
        )

    try:
        stays = bool(job.payload.get(STAYS))
        lesson = Lesson(job.scope, messages, job.payload[CONTEXT], job.payload["caller"], stays_in_project=stays)
        error = (await learn_pieces(engine, model, lesson, on_piece)).error
    except Exception as fault:  # noqa: BLE001 - whatever it meets, what was learned before is passed on
        error = fault
    if error is not None and await are_all_learned(engine, messages):
        error = None
    return JobEnd(tuple(outcomes), error, is_unfinished=len(messages) < len(waiting))


def _first(messages: list[Message], budget: int) -> list[Message]:
    """Return the messages, from the first on, that fit a token budget; at least one."""
    for number, message in enumerate(messages):
        budget -= count_tokens(message.content)
        if budget < 0:
            return messages[: max(number, 1)]
    return messages


def _messages(engine: Engine, job: Job) -> list[Message]:
    with engine.ledger.read() as conn:
        messages = message_queries.messages_by_id(conn, job.message_ids)
    zone = engine.clock().tzinfo
    return not_learned_from(engine, [messages[key].in_zone(zone) for key in job.message_ids if key in messages])
