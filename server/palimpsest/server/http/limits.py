"""Limits for HTTP requests: the size and duration of a body, and the number of requests a minute. ASGI middleware."""

from __future__ import annotations

import hashlib
import math
import time

import anyio
from limits import RateLimitItemPerMinute
from limits.storage import MemoryStorage
from limits.strategies import SlidingWindowCounterRateLimiter
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MAX_BODY_BYTES = 4 * 1024 * 1024
BODY_SECONDS = 20.0
"""How long a client may take to send its request."""


class BodyLimit:
    """Read the body of a request before passing it on. Answer 413 if it is too long, 408 if it takes too long."""

    def __init__(self, app: ASGIApp, max_bytes: int = MAX_BODY_BYTES, seconds: float = BODY_SECONDS) -> None:
        self.app = app
        self._max_bytes = max_bytes
        self._seconds = seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on with its whole body, or refuse it."""
        if scope["type"] != "http" or scope["method"] not in ("POST", "PUT", "PATCH"):
            await self.app(scope, receive, send)
            return
        body = bytearray()
        message: Message | None = None
        with anyio.move_on_after(self._seconds) as reading:
            while message is None or message.get("more_body", False):
                message = await receive()
                if message["type"] == "http.disconnect":
                    return
                body += message.get("body", b"")
                if len(body) > self._max_bytes:
                    text = f"the request is longer than {self._max_bytes} bytes; nothing was done"
                    await _refuse(413, text)(scope, receive, send)
                    return
        if reading.cancelled_caught:
            text = f"the request took longer than {self._seconds:g} seconds to arrive; nothing was done"
            await _refuse(408, text)(scope, receive, send)
            return
        is_first = True

        async def receive_body() -> Message:
            nonlocal is_first
            if is_first:
                is_first = False
                return {"type": "http.request", "body": bytes(body), "more_body": False}
            return await receive()

        await self.app(scope, receive_body, send)


def _refuse(status: int, text: str) -> PlainTextResponse:
    """Return a response that closes the connection, because the rest of the body is not read."""
    return PlainTextResponse(text, status, headers={"connection": "close"})


class RateLimit:
    """Answer 429 to a caller that sends more than `per_minute` requests a minute.

    Callers are distinguished by access token, or by address if they send none. The last minute is estimated from the
    counts of this clock minute and the one before, so that each caller takes the same small amount of memory.
    """

    def __init__(self, app: ASGIApp, per_minute: int) -> None:
        self.app = app
        self._limit = RateLimitItemPerMinute(per_minute)
        self._limiter = SlidingWindowCounterRateLimiter(MemoryStorage())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        if scope["type"] == "http":
            caller = _caller(scope)
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


def _caller(scope: Scope) -> str:
    authorization = Headers(scope=scope).get("authorization", "")
    if authorization:
        return hashlib.sha256(authorization.encode()).hexdigest()
    client = scope.get("client")
    return str(client[0]) if client else ""
