"""Conversations: the list of them, and one of them message by message."""

from __future__ import annotations

from http import HTTPStatus

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from palimpsest.core.errors import InputError, MemoryNotFoundError
from palimpsest.facade.page.turns import cursor_before
from palimpsest.page.asked import memory_of, scope_of
from palimpsest.page.rendering import in_project, rendered

LISTED = 30
"""How many conversations are listed at once."""

LIMIT = 200
"""How many messages are shown at once."""

CONTEXT = 20
"""How many messages before the one that is asked for are shown with it. Set by hand: some screens of talk."""


async def conversations(request: Request) -> Response:
    """List the conversations, the one with the newest message first."""
    memory, scope = await memory_of(request), scope_of(request)
    page = await memory.conversations.list(scope, limit=LISTED, cursor=request.query_params.get("cursor") or None)
    return rendered(request, "around/conversations.html", {"scope": scope, "page": page})


async def conversation(request: Request) -> Response:
    """Show a conversation, named by its id or by that of a message in it; then it begins a little before that one."""
    memory, scope = await memory_of(request), scope_of(request)
    named = request.path_params["id"]
    cursor = request.query_params.get("cursor") or await cursor_before(memory.engine, scope, named, CONTEXT)
    try:
        page = await memory.conversations.read(scope, named, limit=LIMIT, cursor=cursor)
    except (MemoryNotFoundError, InputError) as error:
        raise HTTPException(404) from error
    if page.about is None and page.messages:
        target = in_project(f"/documents/{page.id}?message={named}", scope)
        return RedirectResponse(f"{target}#m-{named}", HTTPStatus.SEE_OTHER)
    values = {"scope": scope, "page": page, "named": named, "has_earlier": cursor is not None}
    return rendered(request, "around/conversation.html", values)
