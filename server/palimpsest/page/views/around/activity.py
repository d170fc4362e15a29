"""What goes on in the background, and how the memory grew."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from starlette.requests import Request
from starlette.responses import Response

from palimpsest.facade.page.jobs import jobs_seen
from palimpsest.facade.page.time_line import TimeLine
from palimpsest.page.asked import memory_of, scope_of
from palimpsest.page.rendering import rendered
from palimpsest.page.views.around.periods import Period, period

JOBS = 30
"""How many jobs are shown, the newest. Set by hand."""

MONTHS = 24
"""How many months a plot shows. Set by hand: two years, a bar of each fits a narrow screen."""


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar of a plot: its month, its value, and its height from 0 to 1."""

    month: Period
    value: int
    height: float


async def activity(request: Request) -> Response:
    """Show the jobs, and plots of what was stored and said in the last months."""
    memory, scope = await memory_of(request), scope_of(request)
    months = _last_months(memory.engine.clock().date())
    line = TimeLine(memory.engine)
    growth = await line.growth(scope, "month", months[0].begin_instant, months[-1].end_instant)
    values = {
        "scope": scope,
        "jobs": await jobs_seen(memory.engine, scope, JOBS),
        "plots": {"memories_stored": _bars(months, growth.memories), "messages_said": _bars(months, growth.messages)},
    }
    return rendered(request, "around/activity.html", values)


def _last_months(today: date) -> Sequence[Period]:
    months = [period("month", today)]
    while len(months) < MONTHS and (before := months[0].before) is not None:
        months.insert(0, before)
    return months


def _bars(months: Sequence[Period], counts: Mapping[str, int]) -> Sequence[Bar]:
    most = max((counts.get(month.key, 0) for month in months), default=0) or 1
    return [Bar(month, counts.get(month.key, 0), counts.get(month.key, 0) / most) for month in months]
