"""What an HTTP request may take: bytes and seconds for its body, and how many come in a minute. ASGI middleware."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable

import anyio
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MAX_BODY_BYTES = 4 * 1024 * 1024
BODY_SECONDS = 20.0
"""How long a client may take to send its request."""

MAX_CALLERS = 10_000
"""From so many callers on those are forgotten that have not come for a minute."""


class BodyLimit:
    """Take a request's body whole before anything works on it; answer 413 where it is too long, 408 where too slow."""

    def __init__(self, app: ASGIApp, max_bytes: int = MAX_BODY_BYTES, seconds: float = BODY_SECONDS) -> None:
        self.app = app
        self._max_bytes = max_bytes
        self._seconds = seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on with its body."""
        if scope["type"] != "http" or scope["method"] not in ("POST", "PUT", "PATCH"):
            await self.app(scope, receive, send)
            return
        body = bytearray()
        last: Message | None = None
        with anyio.move_on_after(self._seconds) as waited:
            while last is None or last.get("more_body", False):
                last = await receive()
                if last["type"] == "http.disconnect":
                    return
                body += last.get("body", b"")
                if len(body) > self._max_bytes:
                    told = f"the request is longer than {self._max_bytes} bytes; nothing was done"
                    await PlainTextResponse(told, 413, headers={"connection": "close"})(scope, receive, send)
                    return
        if waited.cancelled_caught:
            told = f"the request took longer than {self._seconds:g} seconds to arrive; nothing was done"
            await PlainTextResponse(told, 408, headers={"connection": "close"})(scope, receive, send)
            return
        first = True

        async def again() -> Message:
            nonlocal first
            if first:
                first = False
                return {"type": "http.request", "body": bytes(body), "more_body": False}
            return await receive()

        await self.app(scope, again, send)


class RateLimit:
    """Answer 429 to who asks more often than `per_minute`, counted by token, else by address: a bucket that refills."""

    def __init__(self, app: ASGIApp, per_minute: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.app = app
        self._most = float(per_minute)
        self._clock = clock
        self._left: dict[str, tuple[float, float]] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        wait = self._take(_caller(scope)) if scope["type"] == "http" else 0.0
        if wait > 0:
            told = f"more than {self._most:g} requests a minute; nothing was done"
            headers = {"retry-after": str(int(wait) + 1)}
            await PlainTextResponse(told, 429, headers=headers)(scope, receive, send)
            return
        await self.app(scope, receive, send)

    def _take(self, caller: str) -> float:
        """Count one request and return the seconds to wait before it may come; 0 where it may."""
        now = self._clock()
        left, at = self._left.get(caller, (self._most, now))
        left = min(self._most, left + (now - at) * self._most / 60)
        if left < 1:
            return (1 - left) * 60 / self._most
        if caller not in self._left and len(self._left) >= MAX_CALLERS:
            long_ago = now - 60  # their bucket is full again
            self._left = {each: bucket for each, bucket in self._left.items() if bucket[1] > long_ago}
        self._left[caller] = (left - 1, now)
        return 0.0


def _caller(scope: Scope) -> str:
    token = Headers(scope=scope).get("authorization", "")
    if token:
        return hashlib.sha256(token.encode()).hexdigest()
    client = scope.get("client")
    return str(client[0]) if client else ""
