"""The time line: periods, their content, and activity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Literal, TypeAlias, cast, get_args

from starlette.requests import Request
from starlette.responses import Response

from palimpsest.core.models import Memory
from palimpsest.learn.browsing import Counts, TimeLine
from palimpsest.learn.job_reports import jobs_seen
from palimpsest.page.page_context import memory_of, rendered, scope_of

# Spans of a time line: a day, a week, a month or a year, with what comes before and after each.

PeriodName: TypeAlias = Literal["day", "week", "month", "year"]

PERIOD_NAMES: tuple[PeriodName, ...] = get_args(PeriodName)

DAYS_OF_WEEK = 7

MONTHS_OF_YEAR = 12


@dataclass(frozen=True, slots=True)
class Period:
    """A day, week, month or year: from its first day until before the day `end`. A week begins on Monday (ISO 8601)."""

    name: PeriodName
    first: date
    end: date

    @property
    def last(self) -> date:
        """Return its last day."""
        return self.end - timedelta(days=1)

    @property
    def parts(self) -> Sequence[Period]:
        """Return what it consists of: the months of a year, else its days."""
        if self.name == "year":
            return [period("month", date(self.first.year, month, 1)) for month in range(1, MONTHS_OF_YEAR + 1)]
        days = (self.end - self.first).days
        return [period("day", self.first + timedelta(days=number)) for number in range(days)]

    @property
    def key(self) -> str:
        """Return the name of its time in ISO 8601: "2026-11-21", "2026-W47", "2026-11" or "2026"."""
        if self.name == "week":
            year, week, _ = self.first.isocalendar()
            return f"{year}-W{week:02}"
        return self.first.isoformat()[: {"day": 10, "month": 7, "year": 4}[self.name]]

    @property
    def before(self) -> Period | None:
        """Return the period before it; None before the first year of the calendar."""
        return period(self.name, self.first - timedelta(days=1)) if self.first > date.min else None

    @property
    def after(self) -> Period | None:
        """Return the period after it; None after the last year of the calendar."""
        return period(self.name, self.end) if self.end.year < date.max.year else None


def period(name: PeriodName, day: date) -> Period:
    """Return the day, week, month or year that a day is in."""
    if name == "day":
        return Period(name, day, day + timedelta(days=1))
    if name == "week":
        monday = day - timedelta(days=day.weekday())
        return Period(name, monday, monday + timedelta(days=DAYS_OF_WEEK))
    if name == "month":
        first = day.replace(day=1)
        return Period(name, first, (first + timedelta(days=31)).replace(day=1))
    return Period(name, date(day.year, 1, 1), date(day.year + 1, 1, 1))


def day_from(text: str, default: date) -> date:
    """Return the day that a text names as in ISO 8601, of a month or year its first one; else `default`.

    The first and the last years of the calendar, around which there are no weeks, are not among them.
    """
    padded = f"{text}-01-01" if len(text) == len("2026") else f"{text}-01" if len(text) == len("2026-11") else text
    try:
        day = date.fromisoformat(padded)
    except ValueError:
        return default
    return day if date.min.year < day.year < date.max.year else default


# What goes on in the background, and how the memory grew.

JOBS = 30
"""How many jobs are shown, the newest."""

MONTHS = 24
"""How many months a plot shows: two years, a bar of each fits a narrow screen."""


MAX_DAYS = 60
"""How many days a plot shows at most. As `MONTHS`."""


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


# The time line: what a day, week, month or year is about, and a way to what was believed then.

LIMIT = 200
"""How many memories, and how many conversations, a time line shows at most: a long day of work."""

FIRST_SHOWN = 5
"""How many memories each day of a week shows before its link to the whole day."""


@dataclass(frozen=True, slots=True)
class Row:
    """A part of a period, with how much there is of it, and the first of its memories if they are shown."""

    period: Period
    memories: int
    messages: int
    first: Sequence[Memory] = ()


async def time_line(request: Request) -> Response:
    """Show a period of the time line, by default the week that something was last about."""
    memory, scope = await memory_of(request), scope_of(request)
    line = TimeLine(memory.engine)
    bounds = await line.bounds(scope)
    today = memory.engine.clock().date()
    newest = min(bounds[1], today) if bounds else today
    asked = request.query_params
    name = cast("PeriodName", asked.get("period")) if asked.get("period") in PERIOD_NAMES else "week"
    shown = period(name, day_from(asked.get("on", ""), newest))
    unit = "month" if name == "year" else "day"
    span = await line.span(scope, unit, shown.first, shown.end, LIMIT)
    rows = _rows(shown, span.counts, span.memories if name == "week" else ())
    values: Mapping[str, object] = {
        "scope": scope,
        "period": shown,
        "names": PERIOD_NAMES,
        "rows": rows,
        "most": max([row.memories + row.messages for row in rows], default=0),
        "memories": span.memories if name == "day" else (),
        "conversations": span.conversations if name == "day" else (),
        "today": today,
        "bounds": bounds,
        "limit": LIMIT,
    }
    return rendered(request, "around/time_line.html", values)


def _rows(shown: Period, counts: Counts, memories: Sequence[Memory]) -> list[Row]:
    of_day: dict[date, list[Memory]] = {}
    for memory in memories:
        of_day.setdefault(memory.at.date(), []).append(memory)
    return [
        Row(
            part,
            counts.memories.get(part.key, 0),
            counts.messages.get(part.key, 0),
            of_day.get(part.first, [])[:FIRST_SHOWN],
        )
        for part in shown.parts
    ]
