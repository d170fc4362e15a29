"""What a client can read, subscribe to and complete without a tool call: `memory://…`."""

from __future__ import annotations

from typing import Any

from mcp.server.mcpserver import Context
from mcp.types import CompleteRequestParams, CompleteResult, Completion, ResourceTemplateReference

from palimpsest.server.errors import REQUEST, RESOURCE, mcp_errors
from palimpsest.server.mcp_server import MemoryServer
from palimpsest.server.replies import render
from palimpsest.server.replies.notes import LIST_TOKENS
from palimpsest.server.session.context import memory_of, scope_of
from palimpsest.server.session.notifications import RECENT, SUMMARY
from palimpsest.server.session.roots import RequestContext

MAX_SHOWN = 20
"""Memories in `memory://recent`, and ids in a completion."""


def add_resources(server: MemoryServer) -> None:
    """Register the resources on the server, and the completion of ids."""
    server.resource(
        "memory://{id}",
        name="memory",
        title="A memory",
        description="A memory or message with its whole text, by its id or the first 8 characters of it",
        mime_type="text/plain",
    )(read_memory)
    server.resource(
        "memory://{id}/history",
        name="memory-history",
        title="History of a memory",
        description="Every version of a memory, oldest first, and what changed it",
        mime_type="text/plain",
    )(read_history)
    server.add_request_handler("completion/complete", CompleteRequestParams, complete_id)


@mcp_errors(RESOURCE)
async def read_memory(id: str, ctx: Context[Any, Any]) -> str:  # noqa: A002 - its name in the template
    """Return a memory or message with its whole text, or the resource that `summary` or `recent` names."""
    memory = await memory_of(ctx)
    scope = scope_of(ctx, memory)
    if id == SUMMARY:
        return render.summary_text(await memory.summary(scope), scope)
    if id == RECENT:
        return render.page_text(await memory.list(scope, limit=MAX_SHOWN, max_tokens=LIST_TOKENS), scope)
    return render.whole_text(await memory.get(scope, id))


@mcp_errors(RESOURCE)
async def read_history(id: str, ctx: Context[Any, Any]) -> str:  # noqa: A002 - its name in the template
    """Return every version of a memory."""
    memory = await memory_of(ctx)
    stored, versions = await memory.history(scope_of(ctx, memory), id)
    return render.history_text(stored, versions, await memory.predecessors(stored.id))


@mcp_errors(REQUEST)
async def complete_id(ctx: RequestContext, params: CompleteRequestParams) -> CompleteResult:
    """Complete the id of a memory, the newest memories first."""
    if not isinstance(params.ref, ResourceTemplateReference) or params.argument.name != "id":
        return CompleteResult(completion=Completion(values=[]))
    memory = await memory_of(ctx)
    beginning = params.argument.value.strip().lower()
    ids = list(await memory.ids(scope_of(ctx, memory), beginning, MAX_SHOWN + 1))
    has_more = len(ids) > MAX_SHOWN
    completion = Completion(values=ids[:MAX_SHOWN], total=None if has_more else len(ids), has_more=has_more)
    return CompleteResult(completion=completion)
