"""What is deleted or was replaced, to be restored, and what was captured, to be confirmed or dropped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, tzinfo
from typing import Any
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response

from palimpsest.core.errors import InputError
from palimpsest.core.models import Scope
from palimpsest.core.validation import MAX_TOKENS, parse_until
from palimpsest.learn.browsing import TimeLine
from palimpsest.memory import Memory
from palimpsest.page.page_context import is_part, memory_of, rendered, scope_of, visitor_of
from palimpsest.page.time_line_page import Period, period
from palimpsest.recall.hits import shortest_passages

# The filters of a search, as its form sends them.

KINDS = ("memory", "message")

FURTHER = ("tag", "entity", "speaker", "first", "last", "agent", "run")
"""The filters that stand folded below the search."""


@dataclass(frozen=True, slots=True)
class Filters:
    """What hits must be: of a kind, with a tag, about an entity, by a speaker, of an agent or run, within two days.

    What is "" does not filter. `first` and `last` are days in ISO 8601.
    """

    kind: str = ""
    tag: str = ""
    entity: str = ""
    speaker: str = ""
    first: str = ""
    last: str = ""
    agent: str = ""
    run: str = ""

    @property
    def further(self) -> Mapping[str, str]:
        """Return those that stand folded below the search, by name."""
        return {name: str(getattr(self, name)) for name in FURTHER}

    @property
    def of_hits(self) -> Mapping[str, Any]:
        """Return them as a filter on hits."""
        chosen = {"kind": self.kind, "tags": self.tag, "entity": self.entity, "speaker": self.speaker}
        filters: dict[str, Any] = {name: value for name, value in chosen.items() if value}
        days = {operator: day for operator, day in (("gte", self.first), ("lte", self.last)) if day}
        return filters | {"at": days} if days else filters

    def within(self, scope: Scope) -> Scope:
        """Return a scope with the agent and the run that are asked for."""
        return replace(scope, agent_id=self.agent, run_id=self.run)


def filters_of(request: Request) -> Filters:
    """Return the filters of a request."""
    asked = request.query_params
    kind = asked.get("kind", "")
    return Filters(kind if kind in KINDS else "", **{name: asked.get(name, "").strip() for name in FURTHER})


# The first page: search as you type, and without a question the newest memories.

LIMIT = 20
"""How many hits a search and a list show at once."""

MONTHS = 18
"""How many months back the strip below the search goes; a date goes further: two lines of a screen."""


async def search(request: Request) -> Response:
    """Answer a question, or list the newest memories. As part of a page only the hits."""
    memory, asked, filters = await memory_of(request), request.query_params, filters_of(request)
    scope = filters.within(scope_of(request))
    values: dict[str, Any] = {
        "scope": scope,
        "question": asked.get("q", "").strip(),
        "as_of": asked.get("as_of", ""),
        "filters": filters,
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
    return rendered(request, "hits.html" if is_part(request) else "search.html", values)


async def _found(memory: Memory, scope: Scope, values: Mapping[str, Any], cursor: str | None) -> Mapping[str, Any]:
    """Return the hits of a question; without one what was believed at a time, or the newest memories."""
    instant, filters = _instant(values["as_of"], memory.engine.clock().tzinfo), values["filters"]
    if values["question"]:
        found = await _answer(memory, scope, values, instant)
    elif instant is not None:
        before = int(cursor) if cursor is not None and cursor.isdecimal() else None
        believed = await TimeLine(memory.engine).believed(scope, instant, LIMIT, before)
        found = {"hits": believed.hits, "more": _more(values, believed.before), "ignores": bool(filters.of_hits)}
    else:
        listed = await memory.list(scope, limit=LIMIT, cursor=cursor, filters=filters.of_hits)
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
        limit=LIMIT,
        max_tokens=MAX_TOKENS,
        filters=values["filters"].of_hits,
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
    filters = {"kind": values["filters"].kind, **values["filters"].further}
    asked = {"cursor": cursor, "as_of": values["as_of"], **filters}
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
    return rendered(request, "correct/deleted.html", {"scope": scope, "listed": listed, "kind": kind})


async def captured(request: Request) -> Response:
    """List what was recognized in conversations without a model and nobody has confirmed yet, the newest first."""
    memory, scope = await memory_of(request), scope_of(request)
    found = await memory.corrections.captured(scope, LIMIT + 1)
    return rendered(
        request, "correct/captured.html", {"scope": scope, "found": found[:LIMIT], "has_more": len(found) > LIMIT}
    )
