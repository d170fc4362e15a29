"""Limit the number of requests a minute. ASGI middleware."""

from __future__ import annotations

import math
import time

from limits import RateLimitItemPerMinute
from limits.storage import MemoryStorage
from limits.strategies import SlidingWindowCounterRateLimiter
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from palimpsest.server.auth.caller import caller_of


class RateLimit:
    """Answer 429 to a caller that sends more than `per_minute` requests a minute.

    Callers are distinguished by verified access token, or else by address. The last minute is estimated from the
    counts of this clock minute and the one before, so that each caller takes the same small amount of memory.
    """

    def __init__(self, app: ASGIApp, per_minute: int) -> None:
        self.app = app
        self._limit = RateLimitItemPerMinute(per_minute)
        self._limiter = SlidingWindowCounterRateLimiter(MemoryStorage())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        if scope["type"] == "http":
            caller = caller_of(scope)
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
