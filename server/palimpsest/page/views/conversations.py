"""A conversation, message by message."""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from palimpsest.core.errors import MemoryNotFoundError
from palimpsest.page.asked import memory_of, scope_of
from palimpsest.page.rendering import rendered

LIMIT = 200
"""How many messages are shown at once."""


async def conversation(request: Request) -> Response:
    """Show a conversation, named by its id or by that of a message in it."""
    memory, scope = await memory_of(request), scope_of(request)
    cursor = request.query_params.get("cursor") or None
    try:
        page = await memory.conversations.read(scope, request.path_params["id"], limit=LIMIT, cursor=cursor)
    except MemoryNotFoundError as error:
        raise HTTPException(404) from error
    return rendered(request, "conversation.html", {"scope": scope, "page": page})
