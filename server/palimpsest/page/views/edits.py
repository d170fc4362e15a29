"""The log of edits, newest first, each with its undo."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from palimpsest.facade.page.labels import label_changes
from palimpsest.page.asked import memory_of, scope_of
from palimpsest.page.rendering import rendered

LIMIT = 30
"""How many edits are shown at once."""


async def edits(request: Request) -> Response:
    """List the edits that the scope sees."""
    memory, scope = await memory_of(request), scope_of(request)
    before = request.query_params.get("before", "")
    listed = await memory.log(scope, limit=LIMIT, before=int(before) if before.isdecimal() else None)
    values = {
        "scope": scope,
        "edits": listed,
        "labels": await label_changes(memory.engine, scope, [edit.number for edit in listed]),
        "before": listed[-1].number if len(listed) == LIMIT else None,
    }
    return rendered(request, "edits.html", values)
