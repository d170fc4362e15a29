"""Limits for the body of a request: its size, and how long it takes to arrive. ASGI middleware."""

from __future__ import annotations

import anyio
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from palimpsest.core.threads import CpuShares
from palimpsest.server.auth.caller import caller_of
from palimpsest.server.http.open_paths import is_open
from palimpsest.server.session.body_budget import SHARE, BodyBudget, BodyShare
from palimpsest.server.wire.json_text import MAX_MESSAGE_BYTES

BODY_SECONDS = 20.0
"""How long a client may take to send its request."""

SECONDS_PER_BYTE = 50e-3 / (4 * 1024 * 1024)
"""What a body costs of its sender's share of the CPU: parsing the longest, twice, takes some 50 ms."""

MAX_DIGITS = 20
"""How much of a declared length is read. It is more than any length has."""


class BodyLimit:
    """Read the body of a request before passing it on.

    Answer 413 if it is too long, 408 if it takes too long, and 503 if the unfinished requests hold too much already.
    With `shares`, its sender's share of the CPU pays for parsing it.
    """

    def __init__(
        self,
        app: ASGIApp,
        max_bytes: int = MAX_MESSAGE_BYTES,
        seconds: float = BODY_SECONDS,
        budget: BodyBudget | None = None,
        shares: CpuShares | None = None,
    ) -> None:
        self.app = app
        self._max_bytes = max_bytes
        self._seconds = seconds
        self._budget = budget or BodyBudget()
        self._shares = shares

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on with its whole body, or refuse it."""
        if scope["type"] != "http" or is_open(scope):
            await self.app(scope, receive, send)
            return
        caller = caller_of(scope)
        share = BodyShare(self._budget, caller)
        scope[SHARE] = share
        if self._shares is not None:
            await self._shares.of(caller).wait()
        with share.held():
            body = await self._body(scope, receive, share)
            if self._shares is not None and isinstance(body, bytearray):
                self._shares.of(caller).use(len(body) * SECONDS_PER_BYTE)
            if isinstance(body, PlainTextResponse):
                await body(scope, receive, send)
            elif body is not None:
                await self.app(scope, _receive_once(body, receive), send)

    async def _body(self, scope: Scope, receive: Receive, share: BodyShare) -> bytearray | PlainTextResponse | None:
        """Return the body, the response that refuses it, or None if the client disconnected."""
        too_long = f"the request is longer than {self._max_bytes} bytes; nothing was done"
        too_many = "too many long requests at once; nothing was done. Send it again in a second."
        declared = _declared_length(scope)
        if declared > self._max_bytes:
            return _refusal(413, too_long)
        if not share.take(declared):
            return _refusal(503, too_many, {"retry-after": "1"})
        body = bytearray()
        message: Message | None = None
        with anyio.move_on_after(self._seconds) as reading:
            while message is None or message.get("more_body", False):
                message = await receive()
                if message["type"] == "http.disconnect":
                    return None
                body += message.get("body", b"")
                if len(body) > self._max_bytes:
                    return _refusal(413, too_long)
                if not share.take(len(body)):
                    return _refusal(503, too_many, {"retry-after": "1"})
        if reading.cancelled_caught:
            return _refusal(408, f"the request took longer than {self._seconds:g} seconds to arrive; nothing was done")
        return body


def _declared_length(scope: Scope) -> int:
    """Return the length that a request declares, or 0 if it declares none."""
    digits = Headers(scope=scope).get("content-length", "")[:MAX_DIGITS]
    return int(digits) if digits.isascii() and digits.isdecimal() else 0


def _receive_once(body: bytearray, receive: Receive) -> Receive:
    """Return a `receive` that gives the body once and does not keep it."""
    unread: list[bytearray] = [body]

    async def receive_body() -> Message:
        if unread:
            return {"type": "http.request", "body": bytes(unread.pop()), "more_body": False}
        return await receive()

    return receive_body


def _refusal(status: int, text: str, headers: dict[str, str] | None = None) -> PlainTextResponse:
    """Return a response that closes the connection, because the rest of the body is not read."""
    return PlainTextResponse(text, status, headers={"connection": "close", **(headers or {})})
