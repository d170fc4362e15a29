"""A model that counts its calls for jobs, and is asked only so often a day, over all processes of a ledger.

What was said in a call is learned from however often that takes, because somebody asked for it. What hooks captured has
a limit of its own, and all other work shares one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from palimpsest.core.errors import CutOffReplyError, DailyLimitError
from palimpsest.core.protocols import LanguageModel
from palimpsest.learn.engine import Engine
from palimpsest.llm.prompts import name_of
from palimpsest.llm.usage import reported_tokens
from palimpsest.store.queries.jobs import JobKind
from palimpsest.store.writes.jobs.daily_calls import Limits, ModelCall, Refusal
from palimpsest.text.counting import counted
from palimpsest.text.tokenizer import count_tokens

TOMORROW = "This goes on tomorrow (UTC)."


def model_for(engine: Engine, model: LanguageModel, kind: JobKind) -> LanguageModel:
    """Return the model that works on jobs of a kind."""
    return _CountedModel(engine, model, kind)


def next_day(now: datetime) -> datetime:
    """Return when the next day begins in UTC."""
    today = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    return today + timedelta(days=1)


@dataclass(frozen=True, slots=True)
class _CountedModel:
    """A language model that counts its calls, and raises DailyLimitError in place of one that is one too many.

    A call counts from its beginning with the tokens of its prompt, and at its end with those that the endpoint reports.
    If it reports none, they are counted as everywhere else.
    """

    engine: Engine
    model: LanguageModel
    kind: JobKind

    @property
    def name(self) -> str:
        return self.model.name

    async def complete(self, messages: Sequence[Mapping[str, str]], schema: Mapping[str, Any] | None) -> str:
        ledger = self.engine.ledger
        prompt = sum(count_tokens(message["content"]) for message in messages)
        call = ModelCall(self.kind, name_of(messages) or "other", prompt)
        limits = self._limits
        if refusal := await self.engine.write(partial(ledger.begin_call, call, limits)):
            raise DailyLimitError(_refused(refusal, limits, prompt))
        with reported_tokens() as reported:
            try:
                reply = await self.model.complete(messages, schema)
            except CutOffReplyError as error:
                await self._end(call, reported, error.reply)
                raise
        await self._end(call, reported, reply)
        return reply

    async def _end(self, call: ModelCall, reported: Sequence[int], reply: str) -> None:
        tokens = sum(reported) or call.tokens + count_tokens(reply)
        await self.engine.write(partial(self.engine.ledger.end_call, call, tokens))

    @property
    def _limits(self) -> Limits:
        background = self.engine.background
        return Limits(self.engine.captured_calls_per_day, background.calls_per_day, background.tokens_per_day)

    async def check(self) -> None:
        await self.model.check()

    async def aclose(self) -> None:
        await self.model.aclose()


def _refused(refusal: Refusal, limits: Limits, prompt: int) -> str:
    """Return why a call was not made, and when it will be."""
    match refusal:
        case "captured calls":
            calls = counted(limits.captured_calls, "call")
            return f"the {calls} of the model that learn.captured_calls_per_day allows today were made. {TOMORROW}"
        case "tokens" if prompt > limits.tokens:
            return (
                f"it needs a prompt of {counted(prompt, 'token')}, which is more than background.tokens_per_day allows "
                f"for a whole day ({limits.tokens:,}). Raise it."
            )
        case "tokens":
            tokens = f"{limits.tokens:,} tokens"
            return f"the next call would exceed the {tokens} that background.tokens_per_day allows today. {TOMORROW}"
        case _:
            calls = counted(limits.calls, "call")
            return f"the {calls} of the model that background.calls_per_day allows today were made. {TOMORROW}"
