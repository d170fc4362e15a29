"""Notify clients of changed resources. A client only hears of changes to its own user's memory."""

from __future__ import annotations

from collections.abc import Callable, Collection

import anyio
from mcp.server.session import ServerSession
from mcp.server.subscriptions import InMemorySubscriptionBus, ServerEvent
from mcp.shared.exceptions import MCPError
from mcp.types import INVALID_PARAMS, EmptyResult, SubscribeRequestParams, UnsubscribeRequestParams

from palimpsest.server.auth.access import current_user
from palimpsest.server.session.roots import RequestContext, connection_of

SCHEME = "memory://"

MAX_SUBSCRIPTIONS_PER_USER = 1_000
"""Beyond this the oldest subscription is dropped, which is also how those of closed connections go."""

MAX_URI_CHARS = 200
SEND_TIMEOUT = 1.0
"""Seconds that a client has to take a notification. A client that does not read loses its subscription."""


class UserSubscriptionBus(InMemorySubscriptionBus):
    """The bus for protocol 2026-07-28: deliver an event to the listeners of the user whose request caused it.

    Without access tokens there is only one user.
    """

    def subscribe(self, listener: Callable[[ServerEvent], None]) -> Callable[[], None]:
        """Register a listener for the user of the current request. Return a function that removes it."""
        user = current_user()

        def deliver(event: ServerEvent) -> None:
            if current_user() == user:
                listener(event)

        return super().subscribe(deliver)


class Subscribers:
    """Subscriptions by `resources/subscribe`, as clients up to protocol 2025-11-25 make them."""

    def __init__(self) -> None:
        self._by_user: dict[str, dict[tuple[str, str], ServerSession]] = {}

    async def subscribe(self, ctx: RequestContext, params: SubscribeRequestParams) -> EmptyResult:
        """Notify this connection when a resource changes. Raises MCPError for a URI that is not `memory://…`."""
        uri = str(params.uri)
        if not uri.startswith(SCHEME) or len(uri) > MAX_URI_CHARS:
            raise MCPError(
                INVALID_PARAMS, f"there is no resource '{uri[:MAX_URI_CHARS]}'; resource URIs start with {SCHEME}"
            )
        subscriptions = self._by_user.setdefault(current_user(), {})
        while len(subscriptions) >= MAX_SUBSCRIPTIONS_PER_USER:
            del subscriptions[next(iter(subscriptions))]
        subscriptions[uri, connection_of(ctx)] = ctx.session
        return EmptyResult()

    async def unsubscribe(self, ctx: RequestContext, params: UnsubscribeRequestParams) -> EmptyResult:
        """Stop notifying this connection about a resource."""
        self._by_user.get(current_user(), {}).pop((str(params.uri), connection_of(ctx)), None)
        return EmptyResult()

    async def notify(self, uris: Collection[str]) -> None:
        """Notify the subscribers of these resources that belong to the user of the current request."""
        subscriptions = self._by_user.get(current_user(), {})
        for key, session in [(key, session) for key, session in subscriptions.items() if key[0] in uris]:
            with anyio.move_on_after(SEND_TIMEOUT) as sending:
                await session.send_resource_updated(key[0])
            if sending.cancelled_caught:
                subscriptions.pop(key, None)
