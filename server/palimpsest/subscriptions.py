"""Who is told that a resource has changed: subscribers of the same user, on the newest protocol and the older."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mcp.server.context import ServerRequestContext
from mcp.server.session import ServerSession
from mcp.server.subscriptions import InMemorySubscriptionBus, ServerEvent
from mcp.shared.exceptions import MCPError
from mcp.types import INVALID_PARAMS, EmptyResult, SubscribeRequestParams, UnsubscribeRequestParams

from palimpsest.access import granted
from palimpsest.roots import connection_of

SCHEME = "memory://"

MAX_SUBSCRIPTIONS = 10_000
"""Of the older protocols, in all; the oldest goes then. A connection that ended leaves its own behind until then."""

Call = ServerRequestContext[Any, Any]


class UsersBus(InMemorySubscriptionBus):
    """Deliver an event to the listeners of the user whose call it comes from; without tokens all are one."""

    def subscribe(self, listener: Callable[[ServerEvent], None]) -> Callable[[], None]:
        """Register a listener for the user of the call under way; return what ends it."""
        user = _user()

        def heard(event: ServerEvent) -> None:
            if _user() == user:
                listener(event)

        return super().subscribe(heard)


class Subscribers:
    """Tell clients of the older protocols, who ask with `resources/subscribe` and are told over their connection."""

    def __init__(self) -> None:
        self._sessions: dict[tuple[str, str, str], ServerSession] = {}

    async def subscribe(self, call: Call, params: SubscribeRequestParams) -> EmptyResult:
        """Tell this connection of a resource from now on. Raises MCPError for a resource that is not of this server."""
        uri = str(params.uri)
        if not uri.startswith(SCHEME):
            raise MCPError(code=INVALID_PARAMS, message=f"there is no resource '{uri}'; they begin with {SCHEME}")
        while len(self._sessions) >= MAX_SUBSCRIPTIONS:
            del self._sessions[next(iter(self._sessions))]
        self._sessions[uri, _user(), connection_of(call)] = call.session
        return EmptyResult()

    async def unsubscribe(self, call: Call, params: UnsubscribeRequestParams) -> EmptyResult:
        """Tell this connection no longer."""
        self._sessions.pop((str(params.uri), _user(), connection_of(call)), None)
        return EmptyResult()

    async def tell(self, uri: str) -> None:
        """Tell the subscribers of a resource that the call under way changed it for its user."""
        mine = (uri, _user())
        for session in [session for (*told, _), session in self._sessions.items() if tuple(told) == mine]:
            await session.send_resource_updated(uri)


def _user() -> str:
    grant = granted()
    return grant.user_id if grant is not None else ""
