"""Connections and sessions that are opened and not used: they end, and leave room for others."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import anyio
import anyio.lowlevel
import httpx2
import pytest
import uvicorn
from starlette.types import Receive, Scope, Send

from palimpsest.server.http import middleware
from palimpsest.server.http.middleware import BoundedConnection
from palimpsest.server.session.rate_limits import FAILED_PER_MINUTE
from tests.support.http_server import ACCEPT, INITIALIZE, TIMEOUT, HttpServer, new_access_token, run_http_server


def begun(bearer: str) -> bytes:
    headers = {**with_token(bearer), "host": "localhost", "content-length": "2", "expect": "100-continue"}
    lines = ["POST /mcp HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
    return "\r\n".join(lines).encode()


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
    """Send until the connection is cut off."""
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


class TestSlowHeaders:
    @pytest.mark.few_by_day(1)
    @pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nhost: loc", b"PO"])
    def test_a_connection_that_sends_no_whole_request_is_closed(self, sent: bytes) -> None:
        """Guards against slow headers (Slowloris), even if a byte arrives now and then."""
        with listening(REQUEST_SECONDS=0.2) as port, connected(port, sent) as connection:
            assert is_closed(connection)

    def test_a_second_request_has_no_more_time_than_the_first(self) -> None:
        """Guards against clients that send one quick request and then a slow one."""
        with listening(REQUEST_SECONDS=0.5) as port, connected(port, GET) as connection:
            assert b" 204 " in answer(connection)
            connection.sendall(GET + GET[:10])
            assert b" 204 " in answer(connection)
            assert is_closed(connection)

    def test_a_request_that_is_being_answered_may_take_long(self) -> None:
        """Guards calls that wait for a language model, and streams."""
        with listening(REQUEST_SECONDS=0.2) as port, connected(port, GET.replace(b"/ ", b"/wait ")) as waiting:
            with connected(port) as silent:
                assert is_closed(silent)
            waiting.shutdown(socket.SHUT_WR)
            assert is_closed(waiting)  # only now


class TestRefusedBodies:
    """A server that closes a connection with unread bytes resets it, and its client may never see the answer."""

    @pytest.mark.parametrize("length", ["8000000", "unknown"])
    def test_a_client_that_sends_its_whole_body_first_can_read_the_answer(self, length: str) -> None:
        """Guards clients that are refused by their headers, and read only when they have sent everything."""
        head = f"POST / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n".encode()
        with listening() as port, connected(port, head) as connection:
            connection.sendall(b"x" * 8_000_000)
            assert answer(connection).startswith(b"HTTP/1.1 ")

    def test_a_client_that_goes_on_sending_is_cut_off(self) -> None:
        """Guards connections from bodies without an end."""
        head = b"POST / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: 9\r\n\r\n"
        with listening(REQUEST_SECONDS=0.2) as port, connected(port, head) as connection:
            assert b" 204 " in answer(connection)
            assert is_closed(connection)
            with pytest.raises((ConnectionResetError, BrokenPipeError)):
                send_without_end(connection)


class TestSlowReaders:
    def test_a_client_that_does_not_read_its_answer_is_disconnected(self) -> None:
        """Guards connections and memory from clients that ask and never read."""
        app = Paths()
        with listening(app, READ_SECONDS=0.2) as port, connected(port, GET.replace(b"/ ", b"/large ")):
            assert app.has_ended.wait(TIMEOUT)


class TestManyConnections:
    def test_the_connection_that_waits_longest_makes_room(self) -> None:
        """Guards honest clients, who send their headers at once, from those who only connect."""
        with listening(MAX_CONNECTIONS=3) as port, ExitStack() as stack:
            waiting: list[socket.socket] = []
            for _ in range(3):  # after its answer a connection waits, and the server knows it before the next one
                waiting.append(stack.enter_context(connected(port, GET)))
                assert b" 204 " in answer(waiting[-1])
            for _ in range(2):
                with connected(port, GET) as honest:
                    assert b" 204 " in answer(honest)
            assert is_closed(waiting[0])

    def test_a_request_that_is_being_answered_is_never_closed_for_room(self) -> None:
        """Guards running calls: the newest connection is closed if all others are in use."""
        with listening(MAX_CONNECTIONS=3) as port, ExitStack() as stack:
            busy = GET.replace(b"/ ", b"/wait ")
            running = [stack.enter_context(connected(port, busy)) for _ in range(3)]
            with connected(port) as one_too_many:
                assert is_closed(one_too_many)
            running[0].close()
            assert any(is_answered(port) for _ in range(1000))  # once the server has seen the end


def with_token(bearer: str) -> dict[str, str]:
    return {**ACCEPT, "authorization": f"Bearer {bearer}"}


class TestProxies:
    def forged_until_limited(self, server: HttpServer) -> list[int]:
        """Return the statuses of many wrong tokens, each as if forwarded for another client."""
        return [
            httpx2.post(
                f"{server.base}/mcp",
                content=json.dumps(INITIALIZE),
                headers={**with_token(f"wrong {n}"), "x-forwarded-for": f"10.0.0.{n}"},
                timeout=TIMEOUT,
            ).status_code
            for n in range(FAILED_PER_MINUTE + 10)
        ]

    @pytest.mark.nightly
    def test_a_client_cannot_say_that_it_is_another(self, tmp_path: Path) -> None:
        """Guards the limits by address from programs on the same machine."""
        new_access_token(tmp_path / "data", "nobody")
        with run_http_server(tmp_path, FORWARDED_ALLOW_IPS="*") as server:
            assert self.forged_until_limited(server)[-1] == 429

    @pytest.mark.nightly
    def test_a_proxy_named_in_the_settings_is_believed(self, tmp_path: Path) -> None:
        """Guards the clients of a proxy from the limit of one of them."""
        new_access_token(tmp_path / "data", "nobody")
        with run_http_server(tmp_path, PALIMPSEST_HTTP__TRUSTED_PROXIES='["127.0.0.0/8"]') as server:
            assert set(self.forged_until_limited(server)) == {401}
