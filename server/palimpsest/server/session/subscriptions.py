"""Tell clients which resources a write changed."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import anyio
from mcp.server.connection import Connection
from mcp.server.subscriptions import InMemorySubscriptionBus, ResourceUpdated, ServerEvent
from mcp.shared.exceptions import MCPError
from mcp.types import INVALID_PARAMS, EmptyResult, SubscribeRequestParams, UnsubscribeRequestParams

from palimpsest.core.models import ChangedMemory, Outcome
from palimpsest.server.access_tokens import Grant, current_grant
from palimpsest.server.session.client_requests import RequestContext
from palimpsest.text.display import visible

# Notify clients of changed resources.
#
# A client only hears of changes to its own user's memory, and one whose access token is bound to a project only of
# changes that it could read: those in the project, and those in no project.

SCHEME = "memory://"

SUMMARY = "summary"
RECENT = "recent"

# Names that stand in `memory://{id}` in place of an id. These resources always exist.
ENTITIES = "entities"

LISTS = (RECENT, SUMMARY, ENTITIES)

# The number of changed memories that one write announces individually.
MAX_ANNOUNCED = 100

# The number of resources one connection is told about. Beyond this the oldest is dropped.
MAX_URIS = 200

MAX_URI_CHARS = 200

# Seconds that a write waits for clients to take its notifications. One that does not read loses its subscriptions.
SEND_TIMEOUT = 1.0


@dataclass(frozen=True)
class MemoryUpdated(ResourceUpdated):
    """A resource of a user's memory changed, in a project or, with "", in none."""

    user: str
    project: str


@dataclass(slots=True)
class Subscription:
    """What one connection asked for, the oldest first, and what its access token allows."""

    grant: Grant
    uris: dict[str, None] = field(default_factory=dict[str, None])


def _may_hear(grant: Grant, user: str, project: str) -> bool:
    """Return whether a client hears of changes to a user's memory. If no access tokens are needed, all do."""
    return grant.user_id in {"", user} and grant.sees(project)


class Subscribers(InMemorySubscriptionBus):
    """All subscribers: listeners of this bus, and connections of clients up to protocol 2025-11-25."""

    def __init__(self) -> None:
        super().__init__()
        self._by_connection: dict[Connection, Subscription] = {}

    def subscribe(self, listener: Callable[[ServerEvent], None]) -> Callable[[], None]:
        """Register a listener for what the current request may read. Return a function that removes it."""
        grant = current_grant()

        def deliver(event: ServerEvent) -> None:
            if isinstance(event, MemoryUpdated) and _may_hear(grant, event.user, event.project):
                listener(event)

        return super().subscribe(deliver)

    async def add(self, ctx: RequestContext, params: SubscribeRequestParams) -> EmptyResult:
        """Notify this connection when a resource changes. Raises MCPError for a URI that is not `memory://…`."""
        uri = str(params.uri)
        if not uri.startswith(SCHEME) or len(uri) > MAX_URI_CHARS:
            shown, known = visible(uri[:MAX_URI_CHARS]), ", ".join(f"{SCHEME}{name}" for name in (*LISTS, "ID"))
            raise MCPError(INVALID_PARAMS, f"changes of '{shown}' are not announced; subscribe to one of {known}")
        connection = _connection(ctx)
        if (subscription := self._by_connection.get(connection)) is None:
            subscription = self._by_connection[connection] = Subscription(current_grant())
            connection.exit_stack.callback(self._by_connection.pop, connection, None)
        subscription.uris[uri] = None
        if len(subscription.uris) > MAX_URIS:
            del subscription.uris[next(iter(subscription.uris))]
        return EmptyResult()

    async def remove(self, ctx: RequestContext, params: UnsubscribeRequestParams) -> EmptyResult:
        """Stop notifying this connection about a resource."""
        if (subscription := self._by_connection.get(_connection(ctx))) is not None:
            subscription.uris.pop(str(params.uri), None)
        return EmptyResult()

    async def notify_changed(self, outcomes: Sequence[Outcome]) -> None:
        """Notify subscribers of the resources that a write changed: the lists, the memories and their histories."""
        changed: list[tuple[str, str, str]] = []
        for number, outcome in enumerate(outcomes):
            scope = outcome.memory.scope
            replaced = zip(outcome.replaced, outcome.replaced_projects, strict=True)
            for memory_id, project in ((outcome.memory.id, scope.project), *replaced):
                changed.append((scope.user_id, project, memory_id if number < MAX_ANNOUNCED else ""))
        await self._notify(changed)

    async def notify_external(self, changed: Sequence[ChangedMemory]) -> None:
        """Notify subscribers of memories that any server has changed, this one too: its clients hear of them twice."""
        await self._notify([(memory.user_id, memory.project, memory.id) for memory in changed])

    async def _notify(self, changed: Sequence[tuple[str, str, str]]) -> None:
        """Notify those who may read changed memories, by user, project and id; without an id only the lists."""
        uris_by_project: dict[tuple[str, str], dict[str, None]] = {}
        for user, project, memory_id in changed:
            uris = uris_by_project.setdefault((user, project), dict.fromkeys(f"{SCHEME}{name}" for name in LISTS))
            if memory_id:
                uris |= dict.fromkeys((f"{SCHEME}{memory_id}", f"{SCHEME}{memory_id}/history"))
        for (user, project), uris in uris_by_project.items():
            for uri in uris:
                await self.publish(MemoryUpdated(uri, user, project))
            async with anyio.create_task_group() as tasks:
                for connection, subscription in list(self._by_connection.items()):
                    if _may_hear(subscription.grant, user, project):
                        tasks.start_soon(self._send, connection, [uri for uri in uris if uri in subscription.uris])

    async def _send(self, connection: Connection, uris: Sequence[str]) -> None:
        with anyio.move_on_after(SEND_TIMEOUT) as sending:
            for uri in uris:
                await connection.send_resource_updated(uri)
        if sending.cancelled_caught:
            self._by_connection.pop(connection, None)


def _connection(ctx: RequestContext) -> Connection:
    """Return a request's connection. The request itself is not kept, because it holds its body."""
    return ctx.session._connection  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] - the SDK has no public name for it
