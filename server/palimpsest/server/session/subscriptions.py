"""Who is told that a resource has changed: subscribers of the same user, on the newest protocol and the older."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import anyio
from mcp.server.context import ServerRequestContext
from mcp.server.session import ServerSession
from mcp.server.subscriptions import InMemorySubscriptionBus, ServerEvent
from mcp.shared.exceptions import MCPError
from mcp.types import INVALID_PARAMS, EmptyResult, SubscribeRequestParams, UnsubscribeRequestParams

from palimpsest.server.auth.access import calling_user
from palimpsest.server.session.roots import connection_of

SCHEME = "memory://"

MAX_SUBSCRIPTIONS = 1_000
"""Of one user on the older protocols; the oldest goes then. A connection that ended leaves its own until then."""

MAX_URI_CHARS = 200
PATIENCE = 1.0
"""Seconds that a subscriber has to take what it is told; one that does not read its connection is not told again."""

Call = ServerRequestContext[Any, Any]


class UsersBus(InMemorySubscriptionBus):
    """Deliver an event to the listeners of the user whose call it comes from; without tokens all are one."""

    def subscribe(self, listener: Callable[[ServerEvent], None]) -> Callable[[], None]:
        """Register a listener for the user of the call under way; return what ends it."""
        user = calling_user()

        def heard(event: ServerEvent) -> None:
            if calling_user() == user:
                listener(event)

        return super().subscribe(heard)


class Subscribers:
    """Tell clients of the older protocols, who ask with `resources/subscribe` and are told over their connection."""

    def __init__(self) -> None:
        self._of_user: dict[str, dict[tuple[str, str], ServerSession]] = {}

    async def subscribe(self, call: Call, params: SubscribeRequestParams) -> EmptyResult:
        """Tell this connection of a resource from now on. Raises MCPError for a resource that is not of this server."""
        uri = str(params.uri)
        if not uri.startswith(SCHEME) or len(uri) > MAX_URI_CHARS:
            raise MCPError(INVALID_PARAMS, f"there is no resource '{uri[:MAX_URI_CHARS]}'; they begin with {SCHEME}")
        mine = self._of_user.setdefault(calling_user(), {})
        while len(mine) >= MAX_SUBSCRIPTIONS:
            del mine[next(iter(mine))]
        mine[uri, connection_of(call)] = call.session
        return EmptyResult()

    async def unsubscribe(self, call: Call, params: UnsubscribeRequestParams) -> EmptyResult:
        """Tell this connection no longer."""
        self._of_user.get(calling_user(), {}).pop((str(params.uri), connection_of(call)), None)
        return EmptyResult()

    async def tell(self, uris: Collection[str]) -> None:
        """Tell the subscribers of resources that the call under way changed them for its user."""
        mine = self._of_user.get(calling_user(), {})
        for key, session in [(key, session) for key, session in mine.items() if key[0] in uris]:
            with anyio.move_on_after(PATIENCE) as waited:
                await session.send_resource_updated(key[0])
            if waited.cancelled_caught:
                mine.pop(key, None)
