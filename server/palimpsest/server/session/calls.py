"""Limit each caller's concurrency; cancel reads whose client has gone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Generator
from contextlib import contextmanager
from typing import Any, cast
from weakref import WeakValueDictionary

import anyio
from mcp.server.context import CallNext, HandlerResult
from mcp.shared.exceptions import MCPError
from mcp.types import INTERNAL_ERROR
from starlette.requests import Request

from palimpsest.core.threads import CpuShares, Threads
from palimpsest.server.access_tokens import OPEN, current_grant
from palimpsest.server.rate_limits import caller_of, counted
from palimpsest.server.session.client_requests import ASKED_BETWEEN_REQUESTS_SINCE, RequestContext

# How much the bodies of unfinished requests may hold, in all and by caller.

FREE_BYTES = 64 * 1024
"""The part of each body that is not counted, so that a small request is accepted whatever others send."""

MAX_HELD_BYTES = 32 * 1024 * 1024
"""How much the bodies of unfinished requests may hold together. Parsed, they take a few times that."""

MAX_HELD_BYTES_PER_CALLER = 8 * 1024 * 1024
"""The same for one caller: two of the longest bodies."""

BODY_SIZE = "palimpsest.body_size"
"""The key of the size of a request's body in its ASGI scope."""


class BodyBudget:
    """How much the bodies of unfinished requests hold, in all and by caller."""

    def __init__(self) -> None:
        self._by_caller: Counter[str] = Counter()

    @contextmanager
    def share(self, caller: str) -> Generator[Callable[[int], bool]]:
        """Yield a function that counts a body, until the block ends, and returns False if there is no room for it."""
        counted = 0

        def take(size: int) -> bool:
            nonlocal counted
            more = max(0, size - FREE_BYTES) - counted
            if more <= 0:
                return True
            held, of_caller = self._by_caller.total() + more, self._by_caller[caller] + more
            if of_caller > MAX_HELD_BYTES_PER_CALLER or held > MAX_HELD_BYTES:
                return False
            self._by_caller[caller] += more
            counted += more
            return True

        try:
            yield take
        finally:
            self._by_caller[caller] -= counted
            if not self._by_caller[caller]:
                del self._by_caller[caller]


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


class Calls:
    """The unfinished calls of every caller over HTTP. Over stdio there is one caller, and nothing is bounded."""

    def __init__(self, reading_tools: Collection[str]) -> None:
        self._reading_tools = reading_tools
        self._unfinished: Counter[str] = Counter()
        self._shared = anyio.CapacityLimiter(THREADS)
        self._writing = anyio.CapacityLimiter(1)
        self._by_caller: WeakValueDictionary[str, Threads] = WeakValueDictionary()
        self.shares = CpuShares()
        self.bodies = BodyBudget()
        self.in_flight = 0

    def threads(self, ctx: RequestContext) -> Threads | None:
        """Return the threads that a request may use, or None if it came over stdio."""
        request = _http_request(ctx.request)
        if request is None:
            return None
        if current_grant() is OPEN:  # without access tokens, all callers are one
            return Threads((self._shared,), (self._writing,))
        caller = caller_of(request.scope)
        threads = self._by_caller.get(caller)
        if threads is None:
            own, own_writing = anyio.CapacityLimiter(THREADS_PER_CALLER), anyio.CapacityLimiter(1)
            threads = Threads((own, self._shared), (own_writing, self._writing), self.shares, caller)
            self._by_caller[caller] = threads
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
        is_waited_for = ctx.method != STREAM  # a stream is ended by its client
        with counted(self._unfinished, caller), self.bodies.share(caller) as take:
            if _is_over_sse(request):  # its HTTP request has been answered already
                take(request.scope.get(BODY_SIZE, 0))
            self.in_flight += is_waited_for
            try:
                if self._ends_with_its_request(request, ctx):
                    return await _until_disconnected(request, ctx, call_next)
                return await call_next(ctx)
            finally:
                self.in_flight -= is_waited_for

    def _ends_with_its_request(self, request: Request[Any], ctx: RequestContext) -> bool:
        """Return whether a call is of no use once its HTTP request has ended, and the SDK would let it go on.

        It ends calls since 2026-07-28 itself. Earlier protocols do not take a lost connection for a cancellation, so
        writes go on; but the result of a read could not be delivered any more. Over SSE the request has ended already.
        """
        if ctx.protocol_version >= ASKED_BETWEEN_REQUESTS_SINCE or _is_over_sse(request):
            return False
        return ctx.method != "tools/call" or (ctx.params or {}).get("name") in self._reading_tools


def _http_request(request: Any) -> Request[Any] | None:
    return cast("Request[Any]", request) if isinstance(request, Request) else None


def _is_over_sse(request: Request[Any]) -> bool:
    return "session_id" in request.query_params


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
