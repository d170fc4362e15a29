"""Many calls, long calls and learning after a call: nobody waits for another, and nothing is left half done."""

from __future__ import annotations

import json
import threading
from collections.abc import AsyncGenerator, Generator, Iterator
from contextlib import AbstractContextManager, ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import httpx2
import pytest
from mcp import Client

from loopback import OpenAIServer, word_vectors
from palimpsest.server.session.rate_limits import MAX_CALLS, THREADS_PER_CALLER
from tests.support.command_line import palimpsest
from tests.support.http_server import ACCEPT, TIMEOUT, HttpServer, connect_http, new_access_token, run_http_server
from tests.support.mcp_client import connect_stdio, reply_results, reply_text
from tests.support.scripted_model import add_all, answering, facts_reply
from tests.support.server_in_process import connect
from tests.support.slow_model import HeldModel, held_model, slow_model

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
    @pytest.mark.nightly
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


def listening(bearer: str) -> dict[str, Any]:
    meta = {
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"},
    }
    params = {"notifications": {"resourceSubscriptions": ["memory://recent"]}, "_meta": meta}
    method = "subscriptions/listen"
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    headers = {**ACCEPT, "mcp-protocol-version": MODERN, "mcp-method": method, "authorization": f"Bearer {bearer}"}
    return {"json": body, "headers": headers}


EVERY_TRANSPORT = pytest.mark.parametrize("how", ["stdio-auto", "auto", "stdio-legacy", "legacy", "sse"])
CONVERSATION = {"messages": [{"role": "user", "content": "I do like Darjeeling"}]}


@asynccontextmanager
async def connect_by(how: str, folder: Path, **settings: str) -> AsyncGenerator[Client]:
    """Connect to a new server, over stdio, HTTP or SSE. Over stdio only "auto" is a process of its own."""
    if how.startswith("stdio"):
        connection = connect_stdio if how == "stdio-auto" else connect
        async with connection(folder, how.removeprefix("stdio-"), **settings) as one:
            yield one
        return
    with run_http_server(folder, **settings) as running:
        async with connect_http(running, how) as one:
            yield one


@pytest.mark.nightly
@EVERY_TRANSPORT
async def test_a_cancelled_call_keeps_the_messages_and_nothing_else(tmp_path: Path, how: str) -> None:
    with slow_model() as model:
        async with connect_by(how, tmp_path, **model.settings) as memory:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(memory.call_tool, "add_memory", CONVERSATION)
                await anyio.to_thread.run_sync(model.was_asked.wait)
                tasks.cancel_scope.cancel()
            assert reply_results(await memory.call_tool("list_memories", {})) == []
            hits = reply_results(await memory.call_tool("search_memories", {"query": "Darjeeling"}))
            assert [hit["text"] for hit in hits] == ["I do like Darjeeling"]
            model.may_answer.set()
            assert reply_text(await memory.call_tool("add_memory", CONVERSATION)).startswith("added: [")
            assert len(reply_results(await memory.call_tool("list_memories", {}))) == 1


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_progress_is_reported_before_the_model_is_asked(tmp_path: Path, mode: str) -> None:
    reports: list[tuple[float, str]] = []
    with slow_model() as model:

        async def record(progress: float, total: float | None, message: str | None) -> None:
            del total
            reports.append((progress, message or ""))
            model.may_answer.set()

        async with connect(tmp_path, mode, **model.settings) as memory:
            await memory.call_tool("add_memory", CONVERSATION, progress_callback=record)
    assert reports[0] == (1, "kept 1 message; asking the model for facts")
    assert [number for number, _ in reports] == sorted({number for number, _ in reports})


TEA = {"messages": [{"role": "user", "content": "I do like tea"}]}
LEARNED = "learned from 1 message:\n- Alice likes tea"


def held() -> AbstractContextManager[HeldModel]:
    """Run a model that learns of tea when it may. The tests ask again and again."""
    learns = answering(extract=lambda _: json.loads(facts_reply("Alice likes tea")), decide=add_all)
    often = {"PALIMPSEST_LLM__CONFIG__TIMEOUT": "300", "PALIMPSEST_HTTP__REQUESTS_PER_MINUTE": "100000"}
    return held_model(learns, **often)


async def search_until_told(client: Client) -> str:
    """Search until a reply tells what was learned, and return that reply."""
    with anyio.fail_after(TIMEOUT):
        while "learned from" not in (reply := reply_text(await client.call_tool("search_memories", {"query": "tea"}))):
            await anyio.lowlevel.checkpoint()
    return reply


def jobs(folder: Path, *options: str, **settings: str) -> list[dict[str, Any]]:
    """Return the jobs that learn, as the command line prints them."""
    printed = json.loads(palimpsest(folder, "jobs", "--json", *options, settings=settings))["jobs"]
    return [job for job in printed if job["kind"] == "learn"]


@pytest.mark.nightly
async def test_over_http_a_call_is_answered_at_once_and_a_later_reply_says_what_was_learned(tmp_path: Path) -> None:
    """The default over HTTP: a client gives up after a minute, and a slow model takes longer."""
    with held() as model, run_http_server(tmp_path, **model.settings) as server:
        async with connect_http(server, "auto") as client:
            reply = reply_text(await client.call_tool("add_memory", TEA))
            assert reply.startswith("kept 1 message; learning\n")
            assert not model.may_answer.is_set()
            model.may_answer.set()
            assert f"note: {LEARNED}" in await search_until_told(client)
            for tool, arguments in (("search_memories", {"query": "tea"}), ("list_memories", {}), ("get_summary", {})):
                assert "learned from" not in reply_text(await client.call_tool(tool, arguments))


@pytest.mark.nightly
async def test_a_killed_server_loses_nothing_and_the_next_one_goes_on(tmp_path: Path) -> None:
    """What was acknowledged is in the ledger. The next server resumes before anybody calls it."""
    with held() as model:
        with run_http_server(tmp_path, **model.settings) as server:
            async with connect_http(server, "auto") as client:
                await client.call_tool("add_memory", TEA)
                await model.wait()
                server.process.kill()
        (job,) = jobs(tmp_path)
        assert (job["state"], len(job["messages"]), job["learned"]) == ("waiting", 1, [])
        model.was_asked.clear()
        with run_http_server(tmp_path, **model.settings) as server:
            await model.wait()
            model.may_answer.set()
            async with connect_http(server, "auto") as client:
                assert LEARNED in await search_until_told(client)
        (job,) = jobs(tmp_path)
        assert (job["state"], [fact["memory"] for fact in job["learned"]]) == ("done", ["Alice likes tea"])


async def test_replies_that_take_longer_than_the_timeout_lose_nothing_and_hold_nobody_up(tmp_path: Path) -> None:
    """Guards slow models of one's own: calls end, messages are found meanwhile, and are learned from afterwards."""
    with held() as model:
        quick = {**model.settings, "PALIMPSEST_LLM__CONFIG__TIMEOUT": "0.3"}
        async with connect(tmp_path, **quick) as client:
            with anyio.fail_after(TIMEOUT):
                added = reply_text(await client.call_tool("add_memory", TEA))
                found = reply_text(await client.call_tool("search_memories", {"query": "tea"}))
                summary = reply_text(await client.call_tool("get_summary", {"refresh": True}))
        assert added.startswith("kept 1 message; learning\n")
        assert "did not answer in time" in added
        assert "I do like tea" in found
        assert "I do like tea" in summary
        assert [job["state"] for job in jobs(tmp_path)] == ["waiting"]
        model.may_answer.set()
        (job,) = jobs(tmp_path, "--retry", **model.settings)
        assert (job["state"], [fact["memory"] for fact in job["learned"]]) == ("done", ["Alice likes tea"])
