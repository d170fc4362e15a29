"""The time line: what a day, week, month or year is about, and a way to what was believed then."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import cast

from starlette.requests import Request
from starlette.responses import Response

from palimpsest.core.models import Memory
from palimpsest.facade.page.time_line import Counts, TimeLine
from palimpsest.page.asked import memory_of, scope_of
from palimpsest.page.rendering import rendered
from palimpsest.page.views.around.periods import PERIOD_NAMES, Period, PeriodName, day_from, period

LIMIT = 200
"""How many memories, and how many conversations, a time line shows at most. Set by hand: a long day of work."""

FIRST_SHOWN = 5
"""How many memories each day of a week shows before its link to the whole day. Set by hand."""


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
