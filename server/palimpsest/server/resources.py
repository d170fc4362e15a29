"""What a client can read, subscribe to and complete without a tool call: `memory://…`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ResourceError, ResourceNotFoundError
from mcp.types import Completion, CompletionArgument, CompletionContext, PromptReference, ResourceTemplateReference

from palimpsest.core.errors import InputError, PalimpsestError
from palimpsest.core.models import Outcome
from palimpsest.server import render
from palimpsest.server.app import RECENT, SUMMARY, door_of_call, mcp, opened, scope_of, subscribers

SHOWN = 20
"""Memories in `memory://recent`, and ids in a completion."""

ANNOUNCED = 100
"""Of how many memories that one write changed subscribers are told one by one."""


@mcp.resource(
    "memory://{id}",
    name="memory",
    title="A memory",
    description="One memory by its id, or the first 8 characters of it",
    mime_type="text/plain",
)
async def memory_resource(id: str, ctx: Context[Any, Any]) -> str:  # noqa: A002 - its name in the template
    """Return a memory as it is; `summary` and `recent` stand where an id does."""
    async with _told():
        memory = await opened(ctx)
        scope = scope_of(memory, None)
        if id == SUMMARY:
            return render.summary_text(await memory.summary(scope), scope)
        if id == RECENT:
            return render.page_text(await memory.list(scope, limit=SHOWN), scope)
        found, _ = await memory.history(scope, id)
        return render.history_text(found, ())


@mcp.resource(
    "memory://{id}/history",
    name="memory-history",
    title="History of a memory",
    description="Every version of a memory, oldest first, and what changed it",
    mime_type="text/plain",
)
async def history_resource(id: str, ctx: Context[Any, Any]) -> str:  # noqa: A002 - its name in the template
    """Return every version of a memory."""
    async with _told():
        memory = await opened(ctx)
        return render.history_text(*await memory.history(scope_of(memory, None), id))


@mcp.completion()
async def complete(
    ref: PromptReference | ResourceTemplateReference, argument: CompletionArgument, context: CompletionContext | None
) -> Completion | None:
    """Complete the id of a memory, the newest first."""
    del context
    if not isinstance(ref, ResourceTemplateReference) or argument.name != "id":
        return None
    memory = await door_of_call().memory()
    fitting = list(await memory.ids(scope_of(memory, None), argument.value.strip().lower(), SHOWN + 1))
    more = len(fitting) > SHOWN
    return Completion(values=fitting[:SHOWN], total=None if more else len(fitting), has_more=more)


async def announce(ctx: Context[Any, Any], changes: Sequence[Outcome]) -> None:
    """Tell subscribers which resources a write changed."""
    if not changes:
        return
    uris = [f"memory://{name}" for name in (RECENT, SUMMARY)]
    for change in changes[:ANNOUNCED]:
        for memory_id in (change.memory.id, *change.replaced):
            uris += [f"memory://{memory_id}", f"memory://{memory_id}/history"]
    for uri in uris:
        await ctx.notify_resource_updated(uri)
    await subscribers.tell(frozenset(uris))


@asynccontextmanager
async def _told() -> AsyncGenerator[None]:
    """Raise our errors as the SDK's: what is not there as that, everything else with its text."""
    try:
        yield
    except InputError as error:
        raise ResourceNotFoundError(str(error)) from error
    except PalimpsestError as error:
        raise ResourceError(str(error)) from error
