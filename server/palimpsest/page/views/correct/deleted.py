"""What is deleted or was replaced, to be restored, and what was captured, to be confirmed or dropped."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from palimpsest.core.validation import MAX_TOKENS
from palimpsest.page.asked import memory_of, scope_of
from palimpsest.page.rendering import rendered

LIMIT = 20
"""How many are shown at once."""


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
