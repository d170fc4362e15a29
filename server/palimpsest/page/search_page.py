"""Search, and list what is deleted, what was replaced, and what was captured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, tzinfo
from typing import Any, TypeAlias
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response

from palimpsest.core.errors import InputError
from palimpsest.core.models import Scope
from palimpsest.core.validation import MAX_TOKENS, parse_until
from palimpsest.learn.browsing import TimeLine
from palimpsest.memory import Memory
from palimpsest.page.browse import Period, period
from palimpsest.page.page_context import is_part, memory_of, scope_of, shown, visitor_of
from palimpsest.recall.hits import shortest_passages

# The filters of a search, as its form sends them.

KINDS = ("memory", "message")

FURTHER = ("tag", "entity", "speaker", "first", "last", "agent", "run")
"""The filters that stand folded below the search."""


Filters: TypeAlias = Mapping[str, str]
"""What hits must be, by `kind` and `FURTHER`; what is "" does not filter. `first` and `last` are days in ISO 8601."""


def of_hits(filters: Filters) -> Mapping[str, Any]:
    """Return what the form sent as a filter on hits."""
    names = {"kind": "kind", "tags": "tag", "entity": "entity", "speaker": "speaker"}
    chosen: dict[str, Any] = {name: filters[sent] for name, sent in names.items() if filters[sent]}
    days = {operator: filters[sent] for operator, sent in (("gte", "first"), ("lte", "last")) if filters[sent]}
    return chosen | {"at": days} if days else chosen


# The first page: search as you type, and without a question the newest memories.

LIMIT = 20
"""How many hits a search and a list show at once."""

MONTHS = 18
"""How many months back the strip below the search goes; a date goes further: two lines of a screen."""


async def search(request: Request) -> Response:
    """Answer a question, or list the newest memories. As part of a page only the hits."""
    memory, asked = await memory_of(request), request.query_params
    kind = asked.get("kind", "")
    filters = {"kind": kind if kind in KINDS else ""} | {name: asked.get(name, "").strip() for name in FURTHER}
    scope = replace(scope_of(request), agent_id=filters["agent"], run_id=filters["run"])
    values: dict[str, Any] = {
        "scope": scope,
        "question": asked.get("q", "").strip(),
        "also": asked.get("also", "").strip(),
        "as_of": asked.get("as_of", ""),
        "filters": filters,
        "further": {name: filters[name] for name in FURTHER},
        "is_filtered": bool(of_hits(filters)),
        "explain": asked.get("explain") == "on",
        "projects": await _projects(request, memory),
        "notes": (),
        "confident": True,
        "more": "",
        "relations": (),
        "ignores": False,
        "begins_later": "",
        "months": await _months(memory, scope) if not is_part(request) else (),
    }
    values |= await _found(memory, scope, values, asked.get("cursor") or None)
    return shown(request, "hits.html" if is_part(request) else "search.html", **values)


async def _found(memory: Memory, scope: Scope, values: Mapping[str, Any], cursor: str | None) -> Mapping[str, Any]:
    """Return the hits of a question; without one what was believed at a time, or the newest memories."""
    instant, filters = _instant(values["as_of"], memory.engine.clock().tzinfo), values["filters"]
    if values["question"]:
        found = await _answer(memory, scope, values, instant)
    elif instant is not None:
        before = int(cursor) if cursor is not None and cursor.isdecimal() else None
        believed = await TimeLine(memory.engine).believed(scope, instant, LIMIT, before)
        found = {"hits": believed.hits, "more": _more(values, believed.before), "ignores": values["is_filtered"]}
    else:
        listed = await memory.list(scope, limit=LIMIT, cursor=cursor, filters=of_hits(filters))
        found = {"hits": listed.hits, "more": _more(values, listed.cursor), "notes": listed.notes}
    if instant is not None and not found["hits"]:
        first = await TimeLine(memory.engine).first_stored_on(scope)
        found["begins_later"] = str(first) if first is not None and first > instant.date() else ""
    return found


async def _answer(memory: Memory, scope: Scope, values: Mapping[str, Any], instant: datetime | None) -> dict[str, Any]:
    """Return the hits of a question. What somebody reads on the way to their question is no use of it."""
    result = await memory.search(
        scope,
        values["question"],
        also=(values["also"],) if values["also"] else (),
        limit=LIMIT,
        max_tokens=MAX_TOKENS,
        filters=of_hits(values["filters"]),
        as_of=instant,
        explain=values["explain"],
        is_use=False,
    )
    return {
        "hits": shortest_passages(result.hits, values["question"]),
        "confident": not result.is_weak,
        "notes": result.notes,
        "relations": [relation.line for relation in result.relations],
    }


def _more(values: Mapping[str, Any], cursor: str | int | None) -> str:
    """Return the path of the next page of a list, "" if there is none."""
    if cursor is None:
        return ""
    asked = {"cursor": cursor, "as_of": values["as_of"], **values["filters"]}
    return "/?" + urlencode({name: value for name, value in asked.items() if value})


async def _months(memory: Memory, scope: Scope) -> Sequence[Period]:
    """Return the last months in which something was stored, the newest first."""
    first = await TimeLine(memory.engine).first_stored_on(scope)
    months: list[Period] = []
    month = period("month", memory.engine.clock().date()).before
    while first is not None and month is not None and month.end > first and len(months) < MONTHS:
        months.append(month)
        month = month.before
    return months


async def _projects(request: Request, memory: Memory) -> list[str]:
    """Return the projects that the visitor may choose."""
    grant = visitor_of(request).grant
    if grant.project:
        return [grant.project]
    return [project.name for project in await memory.projects.list()]


def _instant(text: str, zone: tzinfo | None) -> datetime | None:
    """Return the end of a day as an instant. An unfinished date, as it is while somebody types it, is none."""
    try:
        return parse_until(text, "as_of", zone or UTC) if text else None
    except InputError:
        return None


async def deleted(request: Request) -> Response:
    """List deleted and replaced memories, or deleted messages, the newest first."""
    memory, scope = await memory_of(request), scope_of(request)
    kind = "message" if request.query_params.get("kind") == "message" else "memory"
    listed = await memory.list(
        scope,
        limit=LIMIT,
        max_tokens=MAX_TOKENS,
        cursor=request.query_params.get("cursor") or None,
        deleted=True,
        filters={"kind": "message"} if kind == "message" else None,
    )
    return shown(request, "correct/deleted.html", listed=listed, kind=kind)


async def captured(request: Request) -> Response:
    """List what was recognized in conversations without a model and nobody has confirmed yet, the newest first."""
    found = await (await memory_of(request)).corrections.captured(scope_of(request), LIMIT + 1)
    return shown(request, "correct/captured.html", found=found[:LIMIT], has_more=len(found) > LIMIT)
