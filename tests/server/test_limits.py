"""What a request may take, before anything works on it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import anyio
import pytest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from palimpsest.server.http.limits import BodyLimit, RateLimit

pytestmark = pytest.mark.anyio


class Echo:
    """Answer with the body, and note that it was asked."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer."""
        del scope
        self.bodies.append((await receive())["body"])
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})


async def status(app: ASGIApp, parts: Iterable[Message], client: str = "1.2.3.4", **headers: str) -> int:
    """Send a request in parts, after which nothing comes, and return the status of the answer."""
    coming = list(parts)
    sent: list[Message] = []

    async def receive() -> Message:
        if not coming:
            await anyio.sleep_forever()
        return coming.pop(0)

    async def send(message: Message) -> None:
        sent.append(message)

    named = [(name.encode(), value.encode()) for name, value in headers.items()]
    scope: dict[str, Any] = {"type": "http", "method": "POST", "path": "/", "headers": named, "client": (client, 1)}
    await app(scope, receive, send)
    return sent[0]["status"]


def part(body: bytes, *, more: bool = False) -> Message:
    return {"type": "http.request", "body": body, "more_body": more}


async def test_a_body_in_parts_comes_whole() -> None:
    """Guards what is within bounds."""
    echo = Echo()
    assert await status(BodyLimit(echo), [part(b"ab", more=True), part(b"cd")]) == 200
    assert echo.bodies == [b"abcd"]


async def test_a_body_that_is_too_long_is_cut_off_on_the_way() -> None:
    """Guards memory from a body that says no length: it ends where the bound is passed."""
    echo = Echo()
    assert await status(BodyLimit(echo, max_bytes=3), [part(b"ab", more=True), part(b"cd", more=True)]) == 413
    assert echo.bodies == []


async def test_a_body_that_does_not_come_is_not_waited_for() -> None:
    """Guards connections from clients that send a little and no more."""
    echo = Echo()
    assert await status(BodyLimit(echo, seconds=0), [part(b"ab", more=True)]) == 408
    assert echo.bodies == []


async def test_who_asks_too_often_waits_and_nobody_else_does() -> None:
    """Guards the server from one caller, counted by token or address, until the bucket has refilled."""
    now = [0.0]
    app = RateLimit(Echo(), per_minute=2, clock=lambda: now[0])
    assert [await status(app, [part(b"")]) for _ in range(3)] == [200, 200, 429]
    assert await status(app, [part(b"")], client="5.6.7.8") == 200
    assert await status(app, [part(b"")], authorization="Bearer x") == 200
    now[0] = 30.0
    assert [await status(app, [part(b"")]) for _ in range(2)] == [200, 429]
