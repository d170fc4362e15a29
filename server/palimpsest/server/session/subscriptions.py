"""Notify clients of changed resources.

A client only hears of changes to its own user's memory, and one whose access token is bound to a project only of
changes that it could read: those in the project, and those in no project.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import anyio
from mcp.server.session import ServerSession
from mcp.server.subscriptions import InMemorySubscriptionBus, ResourceUpdated, ServerEvent
from mcp.shared.exceptions import MCPError
from mcp.types import INVALID_PARAMS, EmptyResult, SubscribeRequestParams, UnsubscribeRequestParams

from palimpsest.server.auth.access import Grant, current_grant, current_user
from palimpsest.server.session.roots import RequestContext, connection_of

SCHEME = "memory://"

MAX_SUBSCRIPTIONS_PER_USER = 1_000
"""Beyond this the oldest subscription is dropped, which is also how those of closed connections go."""

MAX_URI_CHARS = 200
SEND_TIMEOUT = 1.0
"""Seconds that a client has to take a notification. A client that does not read loses its subscription."""


@dataclass(frozen=True)
class MemoryUpdated(ResourceUpdated):
    """A resource of a user's memory changed, in a project or, with "", in none."""

    user: str
    project: str


@dataclass(frozen=True, slots=True)
class Subscription:
    """A connection that asked for one resource, and what its access token allows."""

    session: ServerSession
    grant: Grant | None


class GrantedSubscriptionBus(InMemorySubscriptionBus):
    """The bus for protocol 2026-07-28: deliver an event to the listeners whose access token lets them read it.

    Without access tokens there is only one user.
    """

    def subscribe(self, listener: Callable[[ServerEvent], None]) -> Callable[[], None]:
        """Register a listener for what the current request may read. Return a function that removes it."""
        user, grant = current_user(), current_grant()

        def deliver(event: ServerEvent) -> None:
            if isinstance(event, MemoryUpdated) and event.user == user and _may_hear(grant, event.project):
                listener(event)

        return super().subscribe(deliver)


class Subscribers:
    """All subscribers: those of `bus`, and those by `resources/subscribe`, as clients up to protocol 2025-11-25."""

    def __init__(self) -> None:
        self.bus = GrantedSubscriptionBus()
        self._by_user: dict[str, dict[tuple[str, str], Subscription]] = {}

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
        subscriptions[uri, connection_of(ctx)] = Subscription(ctx.session, current_grant())
        return EmptyResult()

    async def unsubscribe(self, ctx: RequestContext, params: UnsubscribeRequestParams) -> EmptyResult:
        """Stop notifying this connection about a resource."""
        self._by_user.get(current_user(), {}).pop((str(params.uri), connection_of(ctx)), None)
        return EmptyResult()

    async def notify(self, uris: Sequence[str], project: str) -> None:
        """Notify those who may read these resources of the current request's user, which changed in a project."""
        user = current_user()
        for uri in uris:
            await self.bus.publish(MemoryUpdated(uri, user, project))
        subscriptions = self._by_user.get(user, {})
        for key, subscription in [(key, subscription) for key, subscription in subscriptions.items() if key[0] in uris]:
            if not _may_hear(subscription.grant, project):
                continue
            with anyio.move_on_after(SEND_TIMEOUT) as sending:
                await subscription.session.send_resource_updated(key[0])
            if sending.cancelled_caught:
                subscriptions.pop(key, None)


def _may_hear(grant: Grant | None, project: str) -> bool:
    return grant is None or grant.sees(project)
