"""Limits that apply to a request before anything else handles it."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import anyio
import pytest
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from palimpsest.server.http import middleware
from palimpsest.server.http.middleware import limit_bodies, limit_sessions
from palimpsest.server.session import rate_limits
from palimpsest.server.session.rate_limits import FREE_BYTES, BodyBudget, limit_callers

pytestmark = pytest.mark.anyio


@dataclass
class RecordingApp:
    """Answer, and record the bodies that arrive. A request without a session opens one; DELETE forgets it."""

    bodies: list[bytes] = field(default_factory=list[bytes])
    open: set[str] = field(default_factory=set[str])

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, with the session's id."""
        if scope["method"] == "POST":
            self.bodies.append((await receive())["body"])
        session_id = dict(scope["headers"]).get(b"mcp-session-id", b"").decode()
        if not session_id:
            session_id = str(len(self.bodies))
            self.open.add(session_id)
        status = 200 if session_id in self.open else 404
        if scope["method"] == "DELETE":
            self.open.discard(session_id)
        headers = [(b"mcp-session-id", session_id.encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b""})


async def response(
    app: ASGIApp, *parts: Message, client: str = "1.2.3.4", token: str = "", path: str = "/", **headers: str
) -> Message:
    """Send a request whose body comes in parts and then stalls. Return the start of the response."""
    incoming, sent = list(parts) or [part(b"")], list[Message]()

    async def receive() -> Message:
        if not incoming:
            await anyio.sleep_forever()
        return incoming.pop(0)

    async def send(message: Message) -> None:
        sent.append(message)

    encoded = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    scope: dict[str, Any] = {"type": "http", "method": "POST", "path": path, "headers": encoded, "client": (client, 1)}
    if token:  # what authentication adds to a request with a valid one
        scope["user"] = AuthenticatedUser(AccessToken(token=token, client_id=token, scopes=[], subject="alice"))
    await app(scope, receive, send)
    return sent[0]


async def status(app: ASGIApp, *parts: Message, **request: Any) -> int:
    return (await response(app, *parts, **request))["status"]


async def statuses(app: ASGIApp, requests: Iterable[dict[str, Any]]) -> list[int]:
    return [await status(app, **request) for request in requests]


def part(body: bytes, *, more: bool = False) -> Message:
    return {"type": "http.request", "body": body, "more_body": more}


@pytest.mark.parametrize(
    ("limits", "parts", "expected", "bodies"),
    [
        ({}, [part(b"ab", more=True), part(b"cd")], 200, [b"abcd"]),
        ({"MAX_MESSAGE_BYTES": 3}, [part(b"ab", more=True), part(b"cd", more=True)], 413, []),
        ({"BODY_SECONDS": 0}, [part(b"ab", more=True)], 408, []),
    ],
    ids=["in parts", "too long, before it ends", "never ending"],
)
async def test_a_body_arrives_whole_or_is_refused(
    limits: dict[str, Any],
    parts: list[Message],
    expected: int,
    bodies: list[bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Guards memory and connections from bodies without an end, and bodies that are within the limits."""
    for name, limit in limits.items():
        monkeypatch.setattr(middleware, name, limit)
    app = RecordingApp()
    assert await status(limit_bodies(app, BodyBudget()), *parts) == expected
    assert app.bodies == bodies


async def test_unfinished_requests_hold_a_bounded_amount_and_small_ones_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Guards memory from many long bodies at once, and small requests from those who send long ones."""
    monkeypatch.setattr(rate_limits, "MAX_HELD_BYTES", 5)
    monkeypatch.setattr(rate_limits, "MAX_HELD_BYTES_PER_CALLER", 3)
    budget = BodyBudget()
    seen: list[int] = []

    async def within(scope: Scope, receive: Receive, send: Send) -> None:
        """Answer other requests while this one is unfinished."""
        for more, client in ((1, "1.2.3.4"), (0, "1.2.3.4"), (3, "5.6.7.8"), (2, "5.6.7.8")):
            other = limit_bodies(RecordingApp(), budget=budget)
            seen.append(await status(other, part(b"x" * (FREE_BYTES + more)), client=client))
        await RecordingApp()(scope, receive, send)

    for _ in range(2):  # what ended is no longer counted
        assert await status(limit_bodies(within, budget=budget), part(b"x" * (FREE_BYTES + 3))) == 200
    assert seen == [503, 200, 503, 200] * 2


async def test_a_call_with_the_id_of_one_that_is_not_answered_yet_is_refused() -> None:
    """Guards a client that repeats itself from waiting for an answer that never comes."""
    seen: list[int] = []

    async def within(scope: Scope, receive: Receive, send: Send) -> None:
        """Send other calls while this one is not answered."""
        for session, request_id in (("s", "7"), ("s", '"7"'), ("s", "8"), ("t", "7"), ("", "7")):
            headers = {"mcp_session_id": session} if session else {}
            inner[0] = RecordingApp(open={"s", "t"})
            seen.append(await status(app, call(request_id), **headers))
        await RecordingApp(open={"s"})(scope, receive, send)

    def call(request_id: str) -> Message:
        return part(b'{"jsonrpc":"2.0","id":%b,"method":"tools/call","params":{}}' % request_id.encode())

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        await inner[0](scope, receive, send)

    inner: list[ASGIApp] = [within]
    app = limit_bodies(answer, BodyBudget())
    for _ in range(2):  # what is answered is no longer noted
        inner[0] = within
        assert await status(app, call("7"), mcp_session_id="s") == 200
    assert seen == [400, 400, 200, 200, 200] * 2


async def test_if_all_callers_have_too_many_sessions_the_one_with_the_most_loses_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Guards memory from many callers with some sessions each, and those who have few from those who have many."""
    inner = RecordingApp()
    monkeypatch.setattr(middleware, "MAX_SESSIONS", 4)
    monkeypatch.setattr(middleware, "MAX_SESSIONS_PER_CALLER", 3)
    app = limit_sessions(inner, [])
    for client in ("many", "few", "many", "many", "new"):
        assert await status(app, client=client, path="/mcp") == 200
    assert inner.open == {"2", "3", "4", "5"}
    assert await status(app, client="many", path="/mcp", mcp_session_id="3") == 200
    assert await status(app, client="another", path="/mcp") == 200
    assert inner.open == {"2", "3", "5", "7"}  # the third was used after the fourth


async def test_a_request_that_opens_no_session_takes_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards sessions from requests of the protocol that has none."""
    inner = RecordingApp()
    monkeypatch.setattr(middleware, "MAX_SESSIONS", 1)
    monkeypatch.setattr(middleware, "MAX_SESSIONS_PER_CALLER", 1)
    app = limit_sessions(inner, [])
    assert await status(app, path="/mcp") == 200
    for _ in range(3):
        assert await status(app, path="/mcp", mcp_protocol_version="2026-07-28") == 200
        assert await status(app, path="/messages/") == 200
    assert "1" in inner.open


async def test_a_caller_above_the_limit_is_refused_until_its_requests_are_a_minute_old(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Guards the server from one caller: by verified token or by network, whatever headers and addresses it invents."""
    now = [600_010.0]  # ten seconds after a full minute
    monkeypatch.setattr(time, "time", lambda: now[0])
    app = limit_callers(RecordingApp(), per_minute=2)
    assert await statuses(app, ({"authorization": f"Bearer {number}"} for number in range(3))) == [200, 200, 429]
    assert await statuses(app, [{"token": "one"}] * 3) == [200, 200, 429]
    assert await status(app, token="two") == 200  # noqa: S106 - made for the test
    assert await status(app, client="5.6.7.8") == 200
    assert await statuses(app, ({"client": f"2001:db8::{number}"} for number in range(3))) == [200, 200, 429]
    assert dict((await response(app))["headers"])[b"retry-after"] == b"50"
    now[0] = 600_060.5
    assert await status(app) == 200
    now[0] = 600_091.0  # half of the minute before counts
    assert await status(app, token="one") == 200  # noqa: S106 - as above
    now[0] = 600_200.0
    assert await statuses(app, [{"client": "1.2.3.4"}] * 3) == [200, 200, 429]
