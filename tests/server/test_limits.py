"""Limits that apply to a request before anything else handles it."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import anyio
import pytest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from palimpsest.server.http.limits import BodyLimit, RateLimit

pytestmark = pytest.mark.anyio


@dataclass
class RecordingApp:
    """An ASGI application that answers 200 and records the bodies it gets."""

    bodies: list[bytes] = field(default_factory=list[bytes])

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer."""
        del scope
        self.bodies.append((await receive())["body"])
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})


async def response(
    app: ASGIApp, parts: Iterable[Message] | None = None, client: str = "1.2.3.4", **headers: str
) -> Message:
    """Send a request whose body comes in parts and then stalls. Return the start of the response."""
    incoming = [part(b"")] if parts is None else list(parts)
    sent: list[Message] = []

    async def receive() -> Message:
        if not incoming:
            await anyio.sleep_forever()
        return incoming.pop(0)

    async def send(message: Message) -> None:
        sent.append(message)

    encoded = [(name.encode(), value.encode()) for name, value in headers.items()]
    scope: dict[str, Any] = {"type": "http", "method": "POST", "path": "/", "headers": encoded, "client": (client, 1)}
    await app(scope, receive, send)
    return sent[0]


async def status(app: ASGIApp, parts: Iterable[Message] | None = None, client: str = "1.2.3.4", **headers: str) -> int:
    """Return the status of a response."""
    return (await response(app, parts, client, **headers))["status"]


def part(body: bytes, *, more: bool = False) -> Message:
    return {"type": "http.request", "body": body, "more_body": more}


class TestBodyLimit:
    async def test_a_body_in_parts_arrives_whole(self) -> None:
        """Guards bodies that are within the limits."""
        app = RecordingApp()
        assert await status(BodyLimit(app), [part(b"ab", more=True), part(b"cd")]) == 200
        assert app.bodies == [b"abcd"]

    async def test_a_body_that_is_too_long_is_refused_before_it_ends(self) -> None:
        """Guards memory from a body without a content-length: reading stops at the limit."""
        app = RecordingApp()
        assert await status(BodyLimit(app, max_bytes=3), [part(b"ab", more=True), part(b"cd", more=True)]) == 413
        assert app.bodies == []

    async def test_a_body_that_never_ends_is_refused(self) -> None:
        """Guards connections from clients that send a little and then stop."""
        app = RecordingApp()
        assert await status(BodyLimit(app, seconds=0), [part(b"ab", more=True)]) == 408
        assert app.bodies == []


class TestRateLimit:
    async def test_a_caller_above_the_limit_is_refused_and_no_other_is(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Guards the server from one caller, by access token or address, until its requests are a minute old."""
        now = [600_010.0]  # ten seconds after a full minute
        monkeypatch.setattr(time, "time", lambda: now[0])
        app = RateLimit(RecordingApp(), per_minute=2)
        assert [await status(app) for _ in range(3)] == [200, 200, 429]
        assert await status(app, client="5.6.7.8") == 200
        assert await status(app, authorization="Bearer x") == 200
        now[0] = 600_091.0  # half of the minute before counts
        assert [await status(app) for _ in range(2)] == [200, 200]
        assert await status(app) == 429
        now[0] = 600_200.0
        assert [await status(app) for _ in range(3)] == [200, 200, 429]

    async def test_a_refusal_says_when_to_try_again(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Guards clients that wait for as long as they are told."""
        now = [600_010.0]
        monkeypatch.setattr(time, "time", lambda: now[0])
        app = RateLimit(RecordingApp(), per_minute=2)
        for _ in range(2):
            await response(app)
        refused = await response(app)
        headers = dict(refused["headers"])
        assert (refused["status"], headers[b"retry-after"]) == (429, b"50")
        now[0] += 50.5
        assert await status(app) == 200
