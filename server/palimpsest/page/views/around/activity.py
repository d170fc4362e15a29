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
from palimpsest.page.views.around.periods import Period, PeriodName, period

JOBS = 30
"""How many jobs are shown, the newest. Set by hand."""

MONTHS = 24
"""How many months a plot shows. Set by hand: two years, a bar of each fits a narrow screen."""


MAX_DAYS = 60
"""How many days a plot shows at most. Set by hand, as `MONTHS`."""


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar of a plot: its month or day, its value, and its height from 0 to 1."""

    period: Period
    value: int
    height: float


@dataclass(frozen=True, slots=True)
class Plot:
    """A plot by its name among the words of the page. `unit` is that of its bars, and `most` the highest value."""

    name: str
    unit: PeriodName
    bars: Sequence[Bar]
    most: int


async def activity(request: Request) -> Response:
    """Show the jobs, and plots of what was stored, said and asked."""
    memory, scope = await memory_of(request), scope_of(request)
    today = memory.engine.clock().date()
    months = _last("month", MONTHS, today)
    growth = await TimeLine(memory.engine).growth(scope, "month", months[0].first, months[-1].end)
    plots = [_plot("memories_stored", months, growth.memories), _plot("messages_said", months, growth.messages)]
    if memory.recall_log.days:
        days = _last("day", min(memory.recall_log.days, MAX_DAYS), today)
        plots.append(_plot("questions_asked", days, await memory.recall_log.count_by_day(scope)))
    values = {"scope": scope, "jobs": await jobs_seen(memory.engine, scope, JOBS), "plots": plots}
    return rendered(request, "around/activity.html", values)


def _last(name: PeriodName, number: int, today: date) -> Sequence[Period]:
    """Return the last days or months, the present one last."""
    periods = [period(name, today)]
    while len(periods) < number and (before := periods[0].before) is not None:
        periods.insert(0, before)
    return periods


def _plot(name: str, periods: Sequence[Period], counts: Mapping[str, int]) -> Plot:
    values = [counts.get(each.key, 0) for each in periods]
    most = max(values)
    bars = [Bar(each, value, value / (most or 1)) for each, value in zip(periods, values, strict=True)]
    return Plot(name, periods[0].name, bars, most)
