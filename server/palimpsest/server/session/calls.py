"""Limit each caller's concurrency; cancel reads whose client has gone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, cast
from weakref import WeakValueDictionary

import anyio
from mcp.server.context import CallNext, HandlerResult
from mcp.shared.exceptions import MCPError
from mcp.types import INTERNAL_ERROR
from starlette.requests import Request

from palimpsest.core.threads import CpuShares, Threads
from palimpsest.server.access_tokens import current_grant
from palimpsest.server.rate_limits import caller_of
from palimpsest.server.session.continuations import ASKED_BETWEEN_REQUESTS_SINCE
from palimpsest.server.session.roots import RequestContext

# How much the bodies of unfinished requests may hold, in all and by caller.

FREE_BYTES = 64 * 1024
"""The part of each body that is not counted, so that a small request is accepted whatever others send."""

MAX_HELD_BYTES = 32 * 1024 * 1024
"""How much the bodies of unfinished requests may hold together. Parsed, they take a few times that."""

MAX_HELD_BYTES_PER_CALLER = 8 * 1024 * 1024
"""The same for one caller: two of the longest bodies."""

SHARE = "palimpsest.body"
"""The key of a request's `BodyShare` in its ASGI scope."""


class BodyBudget:
    """How much the bodies of unfinished requests hold, in all and by caller."""

    def __init__(self, max_bytes: int = MAX_HELD_BYTES, max_bytes_per_caller: int = MAX_HELD_BYTES_PER_CALLER) -> None:
        self._max_bytes = max_bytes
        self._max_bytes_per_caller = max_bytes_per_caller
        self._by_caller: Counter[str] = Counter()

    def has_room(self, caller: str, size: int) -> bool:
        """Return whether a caller may hold `size` bytes more."""
        return (
            self._by_caller[caller] + size <= self._max_bytes_per_caller
            and self._by_caller.total() + size <= self._max_bytes
        )

    def add(self, caller: str, size: int) -> None:
        """Count bytes that a caller holds; a negative size, bytes it no longer holds."""
        self._by_caller[caller] += size
        if not self._by_caller[caller]:
            del self._by_caller[caller]


class BodyShare:
    """What the body of one request holds of the budget, until everybody who held it has let go."""

    def __init__(self, budget: BodyBudget, caller: str) -> None:
        self._budget = budget
        self._caller = caller
        self._counted = 0
        self._holders = 0

    def take(self, size: int) -> bool:
        """Count the body as `size` bytes long. Return False if there is no room for that."""
        more = max(0, size - FREE_BYTES) - self._counted
        if more <= 0:
            return True
        if not self._budget.has_room(self._caller, more):
            return False
        self._budget.add(self._caller, more)
        self._counted += more
        return True

    @contextmanager
    def held(self) -> Generator[None]:
        """Count the body as held until the block ends. A call over SSE goes on after its request was answered."""
        self._holders += 1
        try:
            yield
        finally:
            self._holders -= 1
            if not self._holders:
                self._budget.add(self._caller, -self._counted)
                self._counted = 0


STREAM = "subscriptions/listen"
"""A request whose answer is a stream without an end of its own."""

COUNTED = ("tools/call", "resources/read", "prompts/get", "completion/complete", STREAM)
"""Requests that may take long."""

MAX_CALLS = 200
"""The number of one caller's calls that may be unfinished at a time. A person's agents make a few."""

THREADS = 8
"""How many threads all callers over HTTP use together. What the server does itself has its own."""

THREADS_PER_CALLER = 2
"""How many of them one caller uses at a time; its other calls wait: three leave some to a fourth."""


class InFlight:
    """How many calls are being answered, which a server that is to stop waits for."""

    def __init__(self) -> None:
        self.number = 0

    @contextmanager
    def counted(self, method: str) -> Generator[None]:
        """Count a request of a method until the block ends, unless it is a stream that its client ends."""
        is_call = method in COUNTED and method != STREAM
        self.number += is_call
        try:
            yield
        finally:
            self.number -= is_call


class Calls:
    """The unfinished calls of every caller over HTTP. Over stdio there is one caller, and nothing is bounded."""

    def __init__(self, reading_tools: Collection[str]) -> None:
        self._reading_tools = reading_tools
        self._unfinished: Counter[str] = Counter()
        self._shared = anyio.CapacityLimiter(THREADS)
        self._writing = anyio.CapacityLimiter(1)
        self._by_caller: WeakValueDictionary[str, Threads] = WeakValueDictionary()
        self.shares = CpuShares()
        self.in_flight = InFlight()

    def threads(self, ctx: RequestContext) -> Threads | None:
        """Return the threads that a request may use, or None if it came over stdio."""
        request = _http_request(ctx.request)
        if request is None:
            return None
        if current_grant() is None:  # without access tokens, all callers are one
            return Threads((self._shared,), (self._writing,))
        caller = caller_of(request.scope)
        threads = self._by_caller.get(caller)
        if threads is None:
            own, own_writing = anyio.CapacityLimiter(THREADS_PER_CALLER), anyio.CapacityLimiter(1)
            threads = self._by_caller[caller] = Threads(
                (own, self._shared), (own_writing, self._writing), self.shares.of(caller)
            )
        return threads

    async def limit_calls(self, ctx: RequestContext, call_next: CallNext) -> HandlerResult:
        """Handle a request, unless its caller has too many unfinished ones. MCP middleware."""
        request = _http_request(ctx.request)
        if ctx.method not in COUNTED or request is None:
            return await call_next(ctx)
        caller = caller_of(request.scope)
        if self._unfinished[caller] >= MAX_CALLS:
            raise MCPError(
                INTERNAL_ERROR, f"{MAX_CALLS} of your calls are unfinished; nothing was done. Wait until one ends."
            )
        self._unfinished[caller] += 1
        try:
            with _body_held(request), self.in_flight.counted(ctx.method):
                if self._ends_with_its_request(request, ctx):
                    return await _until_disconnected(request, ctx, call_next)
                return await call_next(ctx)
        finally:
            self._unfinished[caller] -= 1
            if not self._unfinished[caller]:
                del self._unfinished[caller]

    def _ends_with_its_request(self, request: Request[Any], ctx: RequestContext) -> bool:
        """Return whether a call is of no use once its HTTP request has ended, and the SDK would let it go on.

        It ends calls since 2026-07-28 itself. Earlier protocols do not take a lost connection for a cancellation, so
        writes go on; but the result of a read could not be delivered any more. Over SSE the request has ended already.
        """
        if ctx.protocol_version >= ASKED_BETWEEN_REQUESTS_SINCE or "session_id" in request.query_params:
            return False
        return ctx.method != "tools/call" or (ctx.params or {}).get("name") in self._reading_tools


def _http_request(request: Any) -> Request[Any] | None:
    return cast("Request[Any]", request) if isinstance(request, Request) else None


def _body_held(request: Request[Any]) -> AbstractContextManager[None]:
    """Count the body of a request as held for as long as its call is unfinished."""
    share = request.scope.get(SHARE)
    return share.held() if isinstance(share, BodyShare) else nullcontext()


async def _until_disconnected(request: Request[Any], ctx: RequestContext, call_next: CallNext) -> HandlerResult:
    """Handle a request and return its result. Raises MCPError if the client disconnects before that."""
    outcome: list[HandlerResult | Exception] = []

    async def watch(scope: anyio.CancelScope) -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass
        scope.cancel()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch, tasks.cancel_scope)
        try:
            outcome.append(await call_next(ctx))
        except Exception as error:  # noqa: BLE001 - raised below, without the task group's wrapping
            outcome.append(error)
        tasks.cancel_scope.cancel()
    if not outcome:
        raise MCPError(INTERNAL_ERROR, "the client disconnected")
    (result,) = outcome
    if isinstance(result, Exception):
        raise result
    return result
