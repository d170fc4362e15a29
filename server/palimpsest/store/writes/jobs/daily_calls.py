"""Count how often a model is asked in the background, inside a transaction, over all processes of a ledger.

What is counted is the day (UTC) of the last call, and all that was ever asked.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal, TypeAlias

from sqlalchemy import Connection, delete, insert

from palimpsest.store.queries.capture import CALLS, calls_on
from palimpsest.store.queries.jobs import MODEL_USE, TOLD_KINDS, JobKind, ModelUse, Use, UseByKind, model_use
from palimpsest.store.schema import meta

Refusal: TypeAlias = Literal["", "captured calls", "calls", "tokens"]


@dataclass(frozen=True, slots=True)
class Limits:
    """How often a model may be asked a day about what hooks captured, and for other work that nobody asked for."""

    captured_calls: int
    calls: int
    tokens: int


@dataclass(frozen=True, slots=True)
class ModelCall:
    """A call of a model for a job. `stage` is the name of the prompt, and `tokens` what is known of its length."""

    kind: JobKind
    stage: str
    tokens: int


def begin_call(conn: Connection, call: ModelCall, limits: Limits, now: datetime) -> Refusal:
    """Count one more call, unless it is one too many; return which limit is reached then, else ""."""
    made = model_use(conn, now)
    if call.kind == "capture":
        captured = calls_on(conn, now)
        if captured >= limits.captured_calls:
            return "captured calls"
        _put(conn, CALLS, f"{now.astimezone(UTC):%Y-%m-%d} {captured + 1}")
    elif call.kind not in TOLD_KINDS:
        budgeted = made.budgeted
        if budgeted.calls >= limits.calls:
            return "calls"
        if budgeted.tokens + call.tokens > limits.tokens:
            return "tokens"
    _store(conn, made, call, Use(1, call.tokens))
    return ""


def end_call(conn: Connection, call: ModelCall, tokens: int, now: datetime) -> None:
    """Correct the tokens of a call that has ended."""
    _store(conn, model_use(conn, now), call, Use(0, tokens - call.tokens))


def _store(conn: Connection, made: ModelUse, call: ModelCall, more: Use) -> None:
    value = {
        "day": made.day,
        "today": _with(made.today, call, more),
        "ever": _with(made.ever, call, more),
    }
    _put(conn, MODEL_USE, json.dumps(value))


def _with(made: UseByKind, call: ModelCall, more: Use) -> Mapping[str, Mapping[str, tuple[int, int]]]:
    """Return what was used, as it is stored, with what a call adds."""
    stages = dict(made.get(call.kind, {}))
    stages[call.stage] = stages.get(call.stage, Use()) + more
    return {
        kind: {stage: (use.calls, use.tokens) for stage, use in by_stage.items()}
        for kind, by_stage in {**made, call.kind: stages}.items()
    }


def _put(conn: Connection, key: str, value: str) -> None:
    conn.execute(delete(meta).where(meta.c.key == key))
    conn.execute(insert(meta).values(key=key, value=value))
