"""Limits of connections, sessions, bodies and requests, which apply before anything else handles them."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Generator, Iterable
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import httpx2
import pytest
import uvicorn
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from palimpsest.server.http import middleware
from palimpsest.server.http.middleware import BoundedConnection, limit_bodies, limit_sessions
from palimpsest.server.session.rate_limits import FAILED_PER_MINUTE, BodyBudget, limit_callers
from tests.support.http_server import ACCEPT, INITIALIZE, TIMEOUT, new_access_token, run_http_server

pytestmark = pytest.mark.anyio


GET = b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n"


class Paths:
    """An ASGI application that answers 204. At /wait it waits until the client is gone; /large is an endless answer.

    `has_ended` once an endless answer has ended.
    """

    def __init__(self) -> None:
        self.has_ended = threading.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer."""
        if scope["path"] == "/wait":
            await gone(receive)
        if scope["path"] == "/large":
            await send({"type": "http.response.start", "status": 200, "headers": []})
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(flood, send)
                await gone(receive)
                tasks.cancel_scope.cancel()
            self.has_ended.set()
            return
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})


async def flood(send: Send) -> None:
    while True:
        await send({"type": "http.response.body", "body": b"x" * 65_536, "more_body": True})
        await anyio.lowlevel.checkpoint()  # once the client is gone, nothing waits any more


async def gone(receive: Receive) -> None:
    """Wait until the client disconnects."""
    while (await receive())["type"] != "http.disconnect":
        pass


@contextmanager
def listening(app: Paths | None = None, **limits: float) -> Generator[int]:
    """Run a small server with other limits for connections, in a thread. Yield its port."""
    with pytest.MonkeyPatch.context() as patch, socket.create_server(("127.0.0.1", 0)) as listener:
        for name, value in limits.items():
            patch.setattr(middleware, name, value)
        config = uvicorn.Config(app or Paths(), log_level="error", lifespan="off", http=BoundedConnection, ws="none")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join(TIMEOUT)


def connected(port: int, sent: bytes = b"") -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT)
    connection.sendall(sent)
    return connection


def send_without_end(connection: socket.socket) -> None:
    while True:
        connection.sendall(b"x")


def is_closed(connection: socket.socket) -> bool:
    """Return whether the server closes a connection before it sends anything more. Wait for either."""
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def is_answered(port: int) -> bool:
    with connected(port, GET) as connection:
        return not is_closed(connection)


def answer(connection: socket.socket) -> bytes:
    received = b""
    while not received.endswith(b"\r\n\r\n"):
        part = connection.recv(1)
        assert part, received
        received += part
    return received


def test_slow_headers_are_cut_off_and_slow_answers_are_not() -> None:
    """Guards against connections that send no whole request, also as a second one (Slowloris), and calls that wait."""
    for sent in (b"", GET[:25], b"PO"):
        with listening(REQUEST_SECONDS=0.1) as port, connected(port, sent) as connection:
            assert is_closed(connection)
    with listening(REQUEST_SECONDS=0.3) as port, connected(port, GET) as connection:
        assert b" 204 " in answer(connection)
        connection.sendall(GET + GET[:10])
        assert b" 204 " in answer(connection)
        with connected(port, GET.replace(b"/ ", b"/wait ")) as waiting:
            assert is_closed(connection)
            with connected(port) as silent:
                assert is_closed(silent)
            waiting.shutdown(socket.SHUT_WR)
            assert is_closed(waiting)  # only now


@pytest.mark.parametrize("length", ["8000000", "unknown"])
def test_a_refused_client_can_read_the_answer_and_is_cut_off(length: str) -> None:
    """Guards clients that read only when they have sent everything, and connections from bodies without an end.

    A server that closes a connection with unread bytes resets it, and its client may never see the answer.
    """
    head = f"POST / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n".encode()
    with listening() as port, connected(port, head) as connection:
        connection.sendall(b"x" * 8_000_000)
        assert answer(connection).startswith(b"HTTP/1.1 ")
    head = head.replace(length.encode(), b"9")
    with listening(REQUEST_SECONDS=0.2) as port, connected(port, head) as connection:
        assert b"HTTP/1.1 " in answer(connection)
        assert is_closed(connection)
        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            send_without_end(connection)


def test_a_client_that_does_not_read_its_answer_is_disconnected() -> None:
    """Guards connections and memory from clients that ask and never read."""
    app = Paths()
    with listening(app, READ_SECONDS=0.2) as port, connected(port, GET.replace(b"/ ", b"/large ")):
        assert app.has_ended.wait(TIMEOUT)


def test_who_makes_room_for_a_new_connection() -> None:
    """Guards honest clients from those who only connect, and running calls: the one that waits longest is closed."""
    with listening(MAX_CONNECTIONS=3) as port, ExitStack() as stack:
        waiting: list[socket.socket] = []
        for _ in range(3):  # after its answer a connection waits, and the server knows it before the next one
            waiting.append(stack.enter_context(connected(port, GET)))
            assert b" 204 " in answer(waiting[-1])
        for _ in range(2):
            with connected(port, GET) as honest:
                assert b" 204 " in answer(honest)
        assert is_closed(waiting[0])
    with listening(MAX_CONNECTIONS=3) as port, ExitStack() as stack:
        busy = GET.replace(b"/ ", b"/wait ")
        running = [stack.enter_context(connected(port, busy)) for _ in range(3)]
        with connected(port) as one_too_many:
            assert is_closed(one_too_many)
        running[0].close()
        assert any(is_answered(port) for _ in range(1000))  # once the server has seen the end


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("settings", "last"),
    [({"FORWARDED_ALLOW_IPS": "*"}, 429), ({"PALIMPSEST_HTTP__TRUSTED_PROXIES": '["127.0.0.0/8"]'}, 401)],
    ids=["a client cannot say that it is another", "a proxy named in the settings is believed"],
)
def test_whom_wrong_tokens_are_counted_for(tmp_path: Path, settings: dict[str, str], last: int) -> None:
    """Guards the limits by address from programs on the same machine, and the clients of a proxy from one of them."""
    new_access_token(tmp_path / "data", "nobody")
    statuses: list[int] = []
    with run_http_server(tmp_path, **settings) as server:
        for number in range(FAILED_PER_MINUTE + 10):
            headers = {**ACCEPT, "authorization": f"Bearer wrong {number}", "x-forwarded-for": f"10.0.0.{number}"}
            sent = httpx2.post(f"{server.base}/mcp", json=INITIALIZE, headers=headers, timeout=TIMEOUT)
            statuses.append(sent.status_code)
    assert statuses[-1] == last


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


async def test_a_body_arrives_whole_or_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards memory and connections from bodies without an end, and bodies that are within the limits."""
    for limits, parts, expected, bodies in (
        ({}, [part(b"ab", more=True), part(b"cd")], 200, [b"abcd"]),
        ({"MAX_MESSAGE_BYTES": 3}, [part(b"ab", more=True), part(b"cd", more=True)], 413, []),
        ({"BODY_SECONDS": 0}, [part(b"ab", more=True)], 408, []),
    ):
        with monkeypatch.context() as patch:
            for name, limit in limits.items():
                patch.setattr(middleware, name, limit)
            app = RecordingApp()
            assert await status(limit_bodies(app, BodyBudget()), *parts) == expected
            assert app.bodies == bodies


async def test_a_call_with_the_id_of_one_that_is_not_answered_yet_is_refused() -> None:
    """Guards a client that repeats itself from waiting for an answer that never comes."""
    seen: list[int] = []

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        """Answer. The first call of a session sends others while it is not answered."""
        if scope["path"] == "/first":
            for session, request_id in (("s", "7"), ("s", '"7"'), ("s", "8"), ("t", "7"), ("", "7")):
                headers = {"mcp_session_id": session} if session else {}
                seen.append(await status(app, call(request_id), **headers))
        await RecordingApp(open={"s", "t"})(scope, receive, send)

    def call(request_id: str) -> Message:
        return part(b'{"jsonrpc":"2.0","id":%b,"method":"tools/call","params":{}}' % request_id.encode())

    app = limit_bodies(answer, BodyBudget())
    for _ in range(2):  # what is answered is no longer noted
        assert await status(app, call("7"), path="/first", mcp_session_id="s") == 200
    assert seen == [400, 400, 200, 200, 200] * 2


async def test_if_all_callers_have_too_many_sessions_the_one_with_the_most_loses_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Guards memory, those who have few sessions, and all from requests of the protocol that has none."""
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
    for headers in ({"path": "/mcp", "mcp_protocol_version": "2026-07-28"}, {"path": "/messages/"}):
        assert await status(app, **headers) == 200
    assert {"2", "3", "5", "7"} <= inner.open


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
