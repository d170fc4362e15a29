"""Bound what one caller's calls take at once, so that another's stay quick, and end reads that nobody waits for."""

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
from palimpsest.server.auth.access import current_grant
from palimpsest.server.auth.caller import caller_of
from palimpsest.server.session.body_budget import SHARE, BodyShare
from palimpsest.server.session.continuations import ASKED_BETWEEN_REQUESTS_SINCE
from palimpsest.server.session.roots import RequestContext

STREAM = "subscriptions/listen"
"""A request whose answer is a stream without an end of its own."""

COUNTED = ("tools/call", "resources/read", "prompts/get", "completion/complete", STREAM)
"""Requests that may take long."""

MAX_CALLS = 200
"""The number of one caller's calls that may be unfinished at a time. A person's agents make a few. Set by hand."""

THREADS = 8
"""How many threads all callers over HTTP use together. What the server does itself has its own. Set by hand."""

THREADS_PER_CALLER = 2
"""How many of them one caller uses at a time; its other calls wait. Set by hand: three leave some to a fourth."""


class UnderWay:
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
        self.under_way = UnderWay()

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

    async def bound(self, ctx: RequestContext, call_next: CallNext) -> HandlerResult:
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
            with _body_held(request), self.under_way.counted(ctx.method):
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
