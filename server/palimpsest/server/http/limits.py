"""Limit how many requests a caller sends a minute, and how many it has unfinished. ASGI middleware.

Callers are distinguished by verified access token, or else by address. Requests for open paths are counted apart, so
that the probes are answered whatever else an address sends.
"""

from __future__ import annotations

import math
import time
from collections import Counter

from limits import RateLimitItemPerMinute
from limits.storage import MemoryStorage
from limits.strategies import SlidingWindowCounterRateLimiter
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from palimpsest.server.auth.caller import caller_of
from palimpsest.server.http.open_paths import is_open

MAX_UNFINISHED = 450
"""Requests of one caller that may be unfinished: calls, bodies that arrive, and streams. Set by hand: 200 sessions of
one caller may each have a stream and a call, and some calls are just ending. It is half of all connections."""


class RateLimit:
    """Answer 429 to a caller that sends more than `per_minute` requests a minute.

    The last minute is estimated from the counts of this clock minute and the one before, so that each caller takes the
    same small amount of memory.
    """

    def __init__(self, app: ASGIApp, per_minute: int) -> None:
        self.app = app
        self._limit = RateLimitItemPerMinute(per_minute)
        self._limiter = SlidingWindowCounterRateLimiter(MemoryStorage())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        if scope["type"] == "http":
            caller = _counted_as(scope)
            if not self._limiter.hit(self._limit, caller):
                text = f"more than {self._limit.amount} requests a minute; nothing was done"
                headers = {"retry-after": str(self._seconds_until_reset(caller))}
                await PlainTextResponse(text, 429, headers=headers)(scope, receive, send)
                return
        await self.app(scope, receive, send)

    def _seconds_until_reset(self, caller: str) -> int:
        """Return the whole seconds, at least 1, until the caller's count starts to fall."""
        reset_at = self._limiter.get_window_stats(self._limit, caller).reset_time
        return max(1, math.ceil(reset_at - time.time()))


class UnfinishedLimit:
    """Answer 503 to a caller that has too many unfinished requests. Each holds a connection."""

    def __init__(self, app: ASGIApp, maximum: int = MAX_UNFINISHED) -> None:
        self._app = app
        self._maximum = maximum
        self._unfinished: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        caller = _counted_as(scope)
        if self._unfinished[caller] >= self._maximum:
            text = f"{self._maximum} of your requests are unfinished; nothing was done. Wait until one ends."
            await PlainTextResponse(text, 503, headers={"retry-after": "1"})(scope, receive, send)
            return
        self._unfinished[caller] += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._unfinished[caller] -= 1
            if not self._unfinished[caller]:
                del self._unfinished[caller]


def _counted_as(scope: Scope) -> str:
    return f"{caller_of(scope)}, open paths" if is_open(scope) else caller_of(scope)
