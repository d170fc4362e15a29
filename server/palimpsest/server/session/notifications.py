"""Tell clients which resources a write changed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mcp.server.mcpserver import Context

from palimpsest.core.models import Outcome
from palimpsest.server.session.context import state_of
from palimpsest.server.session.subscriptions import SCHEME

SUMMARY = "summary"
RECENT = "recent"
"""Names that stand in `memory://{id}` in place of an id. These two resources always exist."""

MAX_ANNOUNCED = 100
"""The number of changed memories that one write announces individually."""


async def notify_changed(ctx: Context[Any, Any], outcomes: Sequence[Outcome]) -> None:
    """Notify subscribers of the resources that a write changed: the lists, the memories and their histories."""
    if not outcomes:
        return
    uris = [f"{SCHEME}{name}" for name in (RECENT, SUMMARY)]
    for outcome in outcomes[:MAX_ANNOUNCED]:
        for memory_id in (outcome.memory.id, *outcome.replaced):
            uris += [f"{SCHEME}{memory_id}", f"{SCHEME}{memory_id}/history"]
    for uri in uris:
        await ctx.notify_resource_updated(uri)
    await state_of(ctx).subscribers.notify(frozenset(uris))
