"""The kind `day`: what was said and learned on one day, as days are where the user is.

Days make the summary of the kind `overall`.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta

from sqlalchemy import Connection

from palimpsest.core.clock import first_instant
from palimpsest.core.errors import InputError
from palimpsest.core.models import Scope, Summary
from palimpsest.learn.views import listing
from palimpsest.learn.views.kinds import (
    Material,
    PlainText,
    SummaryKind,
    SummaryRequest,
    fitting,
    holding,
    material_of,
)
from palimpsest.store.queries import summaries as summary_queries

MAX_MEMORIES = 300
MAX_MEMORY_TOKENS = 6_000
"""How many memories of a day are read. Set by hand: 20 tokens each, half of what a small model can take."""

MAX_MESSAGES = 500
MAX_MESSAGE_TOKENS = 4_000
"""How many messages of a day are read, and how many tokens of them, spread over the day. Set by hand."""

DAYS_BACK = 14
"""How many past days the background looks at. Set by hand: what is older is read when it is asked for, so that an
import of years of conversations does not cost a call of the model for each of their days."""

A_DAY = timedelta(days=1)


def _material(conn: Connection, request: SummaryRequest) -> Material:
    since, until = _bounds(request.argument, request.now)
    memories = summary_queries.memories_said(conn, request.scope, since, until, MAX_MEMORIES)
    memories = fitting(holding(memories, request.now), MAX_MEMORY_TOKENS)
    messages = summary_queries.messages_said(conn, request.scope, since, until, MAX_MESSAGES)
    return material_of(memories, messages, MAX_MESSAGE_TOKENS)


def _plain(conn: Connection, request: SummaryRequest) -> PlainText:
    since, until = _bounds(request.argument, request.now)
    memories = summary_queries.memories_said(conn, request.scope, since, until, MAX_MEMORIES)
    messages = summary_queries.messages_said(conn, request.scope, since, until, MAX_MESSAGES)
    # In the order in which they were said.
    lines = [(f"- {listing.shown_text(memory)}", memory) for memory in holding(memories, request.now)[::-1]]
    plain = listing.lines_of(conn, request, lines, messages)
    return plain if plain.text else PlainText(f"Nothing was said on {request.argument}.", "")


def _resolved(conn: Connection, request: SummaryRequest) -> str:
    """Return the day in ISO 8601; without one, the last on which something was said."""
    today = request.now.date()
    match request.argument.lower():
        case "":
            said = days_with_something_said(conn, request.scope, request.now)
            return said[0] if said else f"{today}"
        case "today":
            return f"{today}"
        case "yesterday":
            return f"{today - A_DAY}"
        case text:
            try:
                return f"{date.fromisoformat(text)}"
            except ValueError as error:
                raise InputError(
                    f"'{text[:80]}' is no day; use day:{today}, day:yesterday, or day for the last one"
                ) from error


def _missed(conn: Connection, request: SummaryRequest, last: Summary) -> int:
    return summary_queries.count_said_since(conn, request.scope, last, *_bounds(request.argument, request.now))


def _due(conn: Connection, request: SummaryRequest, every: int) -> Sequence[str]:
    """Return the past days of whose memories and messages no summary has so many, the last first.

    What was said on quieter days is read by the summary of the kind `overall` as it is. Runs have no days: there may be
    many runs a day, and what is lasting in them is in the summary of the whole.
    """
    if request.scope.run_id:
        return ()
    today, zone = request.now.date(), request.now.tzinfo
    since, until = first_instant(today - DAYS_BACK * A_DAY, zone), first_instant(today, zone)
    said = summary_queries.dates_with_something_said(conn, request.scope, since, until, zone)
    return [day for day in said if _lacking(conn, request, day) >= every]


def days_with_something_said(conn: Connection, scope: Scope, now: datetime) -> list[str]:
    """Return the days until today on which something was said that lives, the last first."""
    end = first_instant(now.date() + A_DAY, now.tzinfo)
    return summary_queries.dates_with_something_said(conn, scope, datetime.min.replace(tzinfo=UTC), end, now.tzinfo)


def something_said_today(conn: Connection, scope: Scope, now: datetime) -> bool:
    """Return whether a scope has memories or messages of today, of which a summary may be due at the end of the day."""
    return not scope.run_id and summary_queries.count_said(conn, scope, *_bounds(f"{now.date()}", now)) > 0


def _lacking(conn: Connection, request: SummaryRequest, day: str) -> int:
    """Return how many memories and messages of a day no summary has."""
    last = summary_queries.current_summary(conn, request.scope, DAY.stored_as(day))
    if last is None:
        return summary_queries.count_said(conn, request.scope, *_bounds(day, request.now))
    return summary_queries.count_said_since(conn, request.scope, last, *_bounds(day, request.now))


def _bounds(day: str, now: datetime) -> tuple[datetime, datetime]:
    """Return when a day begins and ends in the zone of a time."""
    first = date.fromisoformat(day)
    return first_instant(first, now.tzinfo), first_instant(first + A_DAY, now.tzinfo)


DAY = SummaryKind(
    "day", "day", _material, _plain, argument="DATE", resolved=_resolved, missed=_missed, due=_due, has_pinned=False
)
