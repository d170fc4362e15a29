"""The first page: search as you type, and without a question the newest memories."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from palimpsest.core.errors import InputError
from palimpsest.core.validation import MAX_TOKENS, parse_until
from palimpsest.memory import Memory
from palimpsest.page.asked import memory_of, scope_of, visitor_of
from palimpsest.page.rendering import is_part, rendered
from palimpsest.recall.retrieval.passages import shortest_passages

LIMIT = 20
"""How many hits a search and a list show at once."""

KINDS = ("memory", "message")


async def search(request: Request) -> Response:
    """Answer a question, or list the newest memories. As part of a page only the hits."""
    memory, scope = await memory_of(request), scope_of(request)
    asked = request.query_params
    question, cursor = asked.get("q", "").strip(), asked.get("cursor") or None
    values: dict[str, Any] = {
        "scope": scope,
        "question": question,
        "as_of": asked.get("as_of", ""),
        "kind": asked.get("kind", "") if asked.get("kind") in KINDS else "",
        "explain": asked.get("explain") == "on",
        "projects": await _projects(request, memory),
        "notes": (),
        "confident": True,
        "cursor": None,
        "relations": (),
    }
    filters = {"kind": values["kind"]} if values["kind"] else None
    if question:
        # What somebody reads on the way to their question is no use of it.
        result = await memory.search(
            scope,
            question,
            limit=LIMIT,
            max_tokens=MAX_TOKENS,
            filters=filters,
            as_of=_instant(values["as_of"]),
            explain=values["explain"],
            is_use=False,
        )
        values |= {
            "hits": shortest_passages(result.hits, question),
            "confident": result.confident,
            "notes": result.notes,
            "relations": [relation.line for relation in result.relations],
        }
    else:
        listed = await memory.list(scope, limit=LIMIT, cursor=cursor, filters=filters)
        values |= {"hits": listed.hits, "cursor": listed.cursor, "notes": listed.notes}
    return rendered(request, "hits.html" if is_part(request) else "search.html", values)


async def _projects(request: Request, memory: Memory) -> list[str]:
    """Return the projects that the visitor may choose."""
    grant = visitor_of(request).grant
    if grant.project:
        return [grant.project]
    return [project.name for project in await memory.projects.list()]


def _instant(text: str) -> datetime | None:
    """Return the end of a day as an instant. An unfinished date, as it is while somebody types it, is none."""
    try:
        return parse_until(text, "as_of") if text else None
    except InputError:
        return None
