"""Requests over HTTP that are meant to harm: each is refused at once, and others are served meanwhile."""

from __future__ import annotations

import socket

import httpx2
import pytest

from palimpsest.server.jsonrpc import MAX_JSON_VALUES, MAX_MESSAGE_BYTES
from palimpsest.server.session.rate_limits import FAILED_PER_MINUTE
from tests.support.http_server import ACCEPT, INITIALIZE, TIMEOUT, HttpServer, new_access_token, post

pytestmark = pytest.mark.anyio


def begin(server: HttpServer, method: str, path: str, sent: int, **headers: str) -> socket.socket:
    """Send the headers of a request of the longest length and `sent` bytes of its body. Return its connection."""
    connection = socket.create_connection(("127.0.0.1", server.port), timeout=TIMEOUT)
    lines = {"host": "localhost", **ACCEPT, "content-length": str(MAX_MESSAGE_BYTES), **headers}
    head = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in lines.items())]
    connection.sendall("\r\n".join([*head, "", ""]).encode() + b"x" * sent)
    return connection


def status_of(connection: socket.socket) -> int:
    return int(connection.recv(12).split()[1])


class TestBodies:
    def test_no_body_is_waited_for_without_a_token(self, protected_server: HttpServer) -> None:
        """Guards memory before authentication: the headers decide, and not a byte of the body is needed."""
        for method, path, status in (
            ("POST", "/mcp", 401),
            ("GET", "/mcp", 401),
            ("POST", "/messages/", 401),
            ("POST", "/elsewhere", 401),
            ("POST", "/health", 405),
            ("GET", "/health", 200),
        ):
            with begin(protected_server, method, path, sent=0) as connection:
                assert status_of(connection) == status, (method, path)

    def test_a_length_that_is_too_long_is_refused_before_the_body(self, open_server: HttpServer) -> None:
        """Guards clients from sending what will be refused anyway."""
        for length in (str(MAX_MESSAGE_BYTES + 1), "9" * 20):
            with begin(open_server, "POST", "/mcp", sent=0, **{"content-length": length}) as connection:
                assert status_of(connection) == 413, length

    def test_a_body_of_very_many_values_is_refused_before_it_is_parsed(self, open_server: HttpServer) -> None:
        """Guards memory and time: a value of two bytes takes fifty in memory."""
        answer = post(open_server, content=b"[" + b"[]," * MAX_JSON_VALUES + b"[]]")
        assert answer.status_code == 413
        assert str(MAX_JSON_VALUES) in answer.text


class TestTokens:
    def test_an_address_that_sends_wrong_tokens_is_limited_and_locks_nobody_out(
        self, protected_server: HttpServer
    ) -> None:
        """Guards tokens from being guessed, and an honest client behind the same address."""
        honest = new_access_token(protected_server.data, "alice")
        # Other tests are behind another address of this machine.
        transport = httpx2.HTTPTransport(local_address="127.0.0.2")
        with httpx2.Client(base_url=protected_server.base, headers=ACCEPT, transport=transport) as http:

            def status(bearer: str) -> int:
                return http.post("/mcp", json=INITIALIZE, headers={"authorization": f"Bearer {bearer}"}).status_code

            assert status(honest) == 200
            # A minute that ends meanwhile leaves a little room for more.
            statuses = [status(f"guess {number}") for number in range(FAILED_PER_MINUTE + 10)]
            assert (statuses[0], statuses[-1]) == (401, 429)
            assert status(honest) == 200
            answer = http.post("/mcp", json=INITIALIZE, headers={"authorization": "Bearer one more"})
        assert answer.status_code == 429
        assert int(answer.headers["retry-after"]) >= 1


FOREIGN_HOSTS = (
    "evil.example",
    "localhost.evil.example",
    "localhost:1@evil.com",
    "localhost:evil.com",
    "localhost:80:80",
    "localhost:123456",
    "localhost:1/evil",
    "[::1]evil.com",
    "[::1]:1@evil.com",
    "user@localhost",
)


class TestHosts:
    @pytest.mark.parametrize("path", ["/mcp", "/sse", "/messages/", "/health"])
    def test_a_host_or_origin_that_only_looks_like_ours_is_refused(self, open_server: HttpServer, path: str) -> None:
        """Guards against DNS rebinding: a name, and a port of digits, with nothing before or after them."""
        with httpx2.Client(base_url=open_server.base, timeout=TIMEOUT) as http:
            for host in FOREIGN_HOSTS:
                assert http.get(path, headers={"host": host}).status_code == 421, host
                assert http.get(path, headers={"origin": f"http://{host}"}).status_code == 403, host

    def test_our_own_names_are_accepted_with_any_port(self, open_server: HttpServer) -> None:
        """Guards clients that reach the server by another name, or through a forwarded port."""
        for host in ("localhost", "LocalHost:8000", "127.0.0.1:1", "[::1]", "[::1]:65535"):
            answer = httpx2.get(f"{open_server.base}/health", headers={"host": host, "origin": f"http://{host}"})
            assert answer.status_code == 200, host
