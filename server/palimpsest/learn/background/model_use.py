"""How often a model was asked in the background, for people and as values."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from palimpsest.core.settings import Settings
from palimpsest.store.queries.jobs import JobKind, ModelUse, Use, total
from palimpsest.text.counting import counted


def in_words(use: ModelUse, settings: Settings) -> str:
    """Return how much of the limits of today was used, and for what kinds of jobs."""
    background, made = settings.background, use.budgeted
    captured = total(use.today.get("capture", {})).calls
    parts = [
        f"today (UTC) {made.calls} of {counted(background.calls_per_day, 'call')} and {made.tokens:,} of "
        f"{background.tokens_per_day:,} tokens for summaries, links and gists",
        f"{captured} of {counted(settings.learn.captured_calls_per_day, 'call')} for captured messages",
        *(_of_kind(kind, total(stages)) for kind, stages in use.today.items()),
    ]
    return "; ".join(parts)


def as_values(use: ModelUse, settings: Settings) -> dict[str, Any]:
    """Return the limits, what was used today by kind of job, and what was ever used by kind and prompt."""
    limits = {"captured_calls_per_day": settings.learn.captured_calls_per_day, **settings.background.model_dump()}
    today = {kind: asdict(total(stages)) for kind, stages in use.today.items()}
    ever = {kind: {stage: asdict(each) for stage, each in stages.items()} for kind, stages in use.ever.items()}
    return {"day": use.day, "limits": limits, "today": today, "ever": ever}


def _of_kind(kind: JobKind, use: Use) -> str:
    return f"{kind}: {counted(use.calls, 'call')}, {use.tokens:,} tokens"
