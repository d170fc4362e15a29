"""A model that is asked about captured messages only so often a day, over all processes of a ledger."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from palimpsest.core.errors import DailyLimitError
from palimpsest.core.protocols import LanguageModel
from palimpsest.learn.engine import Engine
from palimpsest.store.queries.jobs import Job
from palimpsest.text.counting import counted


def model_for(engine: Engine, model: LanguageModel, job: Job) -> LanguageModel:
    """Return the model that works on a job: for captured messages one that counts its calls."""
    return _LimitedModel(engine, model) if job.kind == "capture" else model


def next_day(now: datetime) -> datetime:
    """Return when the next day begins in UTC."""
    today = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    return today + timedelta(days=1)


@dataclass(frozen=True, slots=True)
class _LimitedModel:
    """A language model that raises DailyLimitError in place of a call that is one too many."""

    engine: Engine
    model: LanguageModel

    @property
    def name(self) -> str:
        return self.model.name

    async def complete(self, messages: Sequence[Mapping[str, str]], schema: Mapping[str, Any] | None) -> str:
        engine = self.engine
        limit = engine.captured_calls_per_day
        if not await engine.write(lambda: engine.ledger.take_captured_call(limit)):
            raise DailyLimitError(
                f"the {counted(limit, 'call')} of the model that learn.captured_calls_per_day allows today were made. "
                "This goes on tomorrow (UTC)."
            )
        return await self.model.complete(messages, schema)

    async def check(self) -> None:
        await self.model.check()

    async def aclose(self) -> None:
        await self.model.aclose()
