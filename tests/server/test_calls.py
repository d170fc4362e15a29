"""Many calls at once, and calls that are given up, over HTTP: one caller's work does not delay another's."""

from __future__ import annotations

import socket
import threading
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import httpx2
import pytest

from loopback import OpenAIServer, word_vectors
from palimpsest.server.session.rate_limits import MAX_CALLS, THREADS_PER_CALLER
from tests.support.command_line import palimpsest
from tests.support.http_server import ACCEPT, TIMEOUT, HttpServer, connect_http, new_access_token, run_http_server
from tests.support.mcp_client import reply_text

pytestmark = pytest.mark.anyio

MODERN = "2026-07-28"


class SlowEmbedder:
    """Embeds texts, but holds those with the word "slow" until `may_end`.

    `is_busy` once it holds as many as one caller has threads.
    """

    def __init__(self) -> None:
        self.held = 0
        self.is_busy, self.may_end = threading.Event(), threading.Event()
        self._lock = threading.Lock()

    def __call__(self, texts: list[str]) -> list[list[float]]:
        """Return vectors."""
        if any("slow" in text for text in texts):
            with self._lock:
                self.held += 1
                if self.held >= THREADS_PER_CALLER:
                    self.is_busy.set()
            assert self.may_end.wait(10 * TIMEOUT)
        return word_vectors(texts)


@contextmanager
def run_with_slow_embedder(folder: Path) -> Generator[tuple[HttpServer, SlowEmbedder]]:
    """Run a server whose embedder is slow with some texts."""
    embed = SlowEmbedder()
    with OpenAIServer(embed=embed) as endpoint:
        embedder = {
            "PALIMPSEST_EMBEDDER__PROVIDER": "openai",
            "PALIMPSEST_EMBEDDER__CONFIG__MODEL": "words",
            "PALIMPSEST_EMBEDDER__CONFIG__API_KEY": "key",
            "PALIMPSEST_EMBEDDER__CONFIG__EMBEDDING_DIMS": "32",
            "PALIMPSEST_EMBEDDER__CONFIG__OPENAI_BASE_URL": endpoint.base_url,
            "PALIMPSEST_EMBEDDER__CONFIG__TIMEOUT": "300",
        }
        with run_http_server(folder, **embedder) as server:
            try:
                yield server, embed
            finally:
                embed.may_end.set()


class TestManyCalls:
    async def test_one_callers_slow_calls_leave_threads_to_another(self, tmp_path: Path) -> None:
        """Guards everybody from a token that sends more slow calls than the server has threads."""
        greedy, modest = (new_access_token(tmp_path / "data", "alice", read_only=True) for _ in range(2))
        with run_with_slow_embedder(tmp_path) as (server, embed):
            async with (
                connect_http(server, "auto", greedy) as attacker,
                connect_http(server, "auto", modest) as honest,
                anyio.create_task_group() as tasks,
            ):
                for number in range(20):
                    tasks.start_soon(attacker.call_tool, "search_memories", {"query": f"slow bees {number}"})
                assert await anyio.to_thread.run_sync(embed.is_busy.wait, TIMEOUT)
                with anyio.fail_after(TIMEOUT):
                    assert reply_text(await honest.call_tool("search_memories", {"query": "quick bees"}))
                assert embed.held == THREADS_PER_CALLER
                embed.may_end.set()

    @pytest.mark.nightly
    async def test_a_caller_has_a_bounded_number_of_unfinished_calls(self, tmp_path: Path) -> None:
        """Guards memory and other callers from a token that opens calls and never ends them."""
        greedy, modest = (new_access_token(tmp_path / "data", "alice") for _ in range(2))
        with run_http_server(tmp_path) as server, ExitStack() as calls:
            limits = httpx2.Limits(max_connections=None)
            open_streams = list[Iterator[str]]()
            with httpx2.Client(timeout=TIMEOUT, limits=limits) as http:

                def first_line_of_listening(bearer: str) -> str:
                    answer = calls.enter_context(http.stream("POST", f"{server.base}/mcp", **listening(bearer)))
                    open_streams.append(answer.iter_lines())
                    return next(open_streams[-1])

                for _ in range(MAX_CALLS):
                    assert first_line_of_listening(greedy).startswith("event:")
                assert f"{MAX_CALLS} of your calls are unfinished" in first_line_of_listening(greedy)
                assert first_line_of_listening(modest).startswith("event:")


def modern(method: str, params: dict[str, Any], **headers: str) -> dict[str, Any]:
    meta = {
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"},
    }
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
    return {"json": body, "headers": {**ACCEPT, "mcp-protocol-version": MODERN, "mcp-method": method, **headers}}


def listening(bearer: str) -> dict[str, Any]:
    params = {"notifications": {"resourceSubscriptions": ["memory://recent"]}}
    return modern("subscriptions/listen", params, authorization=f"Bearer {bearer}")


class SilentModel:
    """An endpoint that takes one request and never answers it. `is_given_up` once its client has closed it."""

    def __init__(self) -> None:
        self.is_asked, self.is_given_up = threading.Event(), threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._serve, daemon=True).start()

    @property
    def base_url(self) -> str:
        """Return the base URL for an OpenAI client."""
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}/v1"

    def _serve(self) -> None:
        connection, _ = self._listener.accept()
        with connection, self._listener:
            while connection.recv(65_536):
                self.is_asked.set()
            self.is_given_up.set()


class TestGivenUp:
    @pytest.mark.nightly
    def test_a_read_ends_when_its_client_disconnects(self, tmp_path: Path) -> None:
        """Guards the server from working for clients that are gone."""
        palimpsest(tmp_path, "add", "Alice plays the violin")
        model = SilentModel()
        llm = {
            "PALIMPSEST_LLM__PROVIDER": "openai",
            "PALIMPSEST_LLM__CONFIG__OPENAI_BASE_URL": model.base_url,
            "PALIMPSEST_LLM__CONFIG__TIMEOUT": "300",
        }
        call = modern(
            "tools/call", {"name": "get_summary", "arguments": {"refresh": True}}, **{"mcp-name": "get_summary"}
        )
        with run_http_server(tmp_path, **llm) as server:
            request = httpx2.Request("POST", f"{server.base}/mcp", **call)
            head = "".join(f"{name}: {value}\r\n" for name, value in request.headers.items())
            with socket.create_connection(("127.0.0.1", server.port)) as client:
                client.sendall(f"POST /mcp HTTP/1.1\r\n{head}\r\n".encode() + request.content)
                assert model.is_asked.wait(TIMEOUT)
            assert model.is_given_up.wait(TIMEOUT)
