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

from palimpsest.server.http.middleware import BodyLimit, SessionLimit
from palimpsest.server.rate_limits import RateLimit
from palimpsest.server.session.calls import FREE_BYTES, BodyBudget

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
    app: ASGIApp,
    parts: Iterable[Message] | None = None,
    client: str = "1.2.3.4",
    user: AuthenticatedUser | None = None,
    path: str = "/",
    **headers: str,
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

    encoded = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    scope: dict[str, Any] = {"type": "http", "method": "POST", "path": path, "headers": encoded, "client": (client, 1)}
    if user is not None:
        scope["user"] = user
    await app(scope, receive, send)
    return sent[0]


async def status(
    app: ASGIApp,
    parts: Iterable[Message] | None = None,
    client: str = "1.2.3.4",
    user: AuthenticatedUser | None = None,
    path: str = "/",
    **headers: str,
) -> int:
    """Return the status of a response."""
    return (await response(app, parts, client, user, path, **headers))["status"]


def verified(client_id: str, user: str = "alice") -> AuthenticatedUser:
    """Return what authentication adds to a request with a valid access token."""
    return AuthenticatedUser(AccessToken(token=client_id, client_id=client_id, scopes=[], subject=user))


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

    async def test_unfinished_requests_hold_a_bounded_amount_and_small_ones_nothing(self) -> None:
        """Guards memory from many long bodies at once, and small requests from those who send long ones."""
        budget = BodyBudget(max_bytes=5, max_bytes_per_caller=3)
        sizes: list[tuple[int, int]] = []

        def app(inner: ASGIApp) -> BodyLimit:
            return BodyLimit(inner, budget=budget)

        async def within(scope: Scope, receive: Receive, send: Send) -> None:
            """Answer a request while this one is unfinished."""
            long, small = part(b"x" * (FREE_BYTES + 1)), part(b"x" * FREE_BYTES)
            sizes.append((await status(app(RecordingApp()), [long]), await status(app(RecordingApp()), [small])))
            other = [part(b"x" * (FREE_BYTES + 3))]
            sizes.append((await status(app(RecordingApp()), list(other), "5.6.7.8"), 0))
            sizes.append((await status(app(RecordingApp()), [part(b"x" * (FREE_BYTES + 2))], "5.6.7.8"), 0))
            await RecordingApp()(scope, receive, send)

        longest = [part(b"x" * (FREE_BYTES + 3))]
        assert await status(app(within), list(longest)) == 200
        assert sizes == [(503, 200), (503, 0), (200, 0)]
        assert await status(app(within), list(longest)) == 200  # what ended is no longer counted


class SessionApp:
    """An ASGI application that opens a session at each request without one, and forgets one at DELETE."""

    def __init__(self) -> None:
        self.open: set[str] = set()
        self.opened = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, with the session's id."""
        del receive
        session_id = dict(scope["headers"]).get(b"mcp-session-id", b"").decode()
        if not session_id:
            self.opened += 1
            session_id = str(self.opened)
            self.open.add(session_id)
        status = 200 if session_id in self.open else 404
        if scope["method"] == "DELETE":
            self.open.discard(session_id)
        await send(
            {"type": "http.response.start", "status": status, "headers": [(b"mcp-session-id", session_id.encode())]}
        )
        await send({"type": "http.response.body", "body": b""})


class TestSessionLimit:
    async def test_if_all_callers_have_too_many_the_one_with_the_most_loses_one(self) -> None:
        """Guards memory from many callers with some sessions each, and those who have few from those who have many."""
        inner = SessionApp()
        app = SessionLimit(inner, max_sessions=4, max_per_caller=3)
        for client in ("many", "few", "many", "many", "new"):
            assert await status(app, client=client, path="/mcp") == 200
        assert inner.open == {"2", "3", "4", "5"}
        assert await status(app, client="many", path="/mcp", mcp_session_id="3") == 200
        assert await status(app, client="another", path="/mcp") == 200
        assert inner.open == {"2", "3", "5", "6"}  # the third was used after the fourth

    async def test_a_request_that_opens_no_session_takes_no_room(self) -> None:
        """Guards sessions from requests of the protocol that has none."""
        inner = SessionApp()
        app = SessionLimit(inner, max_sessions=1, max_per_caller=1)
        assert await status(app, path="/mcp") == 200
        for _ in range(3):
            assert await status(app, path="/mcp", mcp_protocol_version="2026-07-28") == 200
            assert await status(app, path="/messages/") == 200
        assert "1" in inner.open


class TestRateLimit:
    async def test_only_a_verified_token_has_a_count_of_its_own(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Guards against callers that invent a new header for each request, or an address of their own network."""
        monkeypatch.setattr(time, "time", lambda: 600_010.0)
        app = RateLimit(RecordingApp(), per_minute=2)
        assert [await status(app, authorization=f"Bearer {number}") for number in range(3)] == [200, 200, 429]
        assert [await status(app, user=verified("one")) for _ in range(3)] == [200, 200, 429]
        assert await status(app, user=verified("two")) == 200
        assert [await status(app, client=f"2001:db8::{number}") for number in range(3)] == [200, 200, 429]

    async def test_a_caller_above_the_limit_is_refused_and_no_other_is(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Guards the server from one caller, by access token or address, until its requests are a minute old."""
        now = [600_010.0]  # ten seconds after a full minute
        monkeypatch.setattr(time, "time", lambda: now[0])
        app = RateLimit(RecordingApp(), per_minute=2)
        assert [await status(app) for _ in range(3)] == [200, 200, 429]
        assert await status(app, client="5.6.7.8") == 200
        assert await status(app, user=verified("one")) == 200
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
