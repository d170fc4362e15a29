"""A server as its operators see it: its log, its probes, its numbers, and how it ends."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import httpx2
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.support.command_line import palimpsest
from tests.support.http_server import (
    ACCEPT,
    METRICS_TOKEN,
    TIMEOUT,
    HttpServer,
    connect_http,
    new_access_token,
    run_http_server,
)
from tests.support.mcp_client import reply_text
from tests.support.slow_model import slow_model

pytestmark = pytest.mark.anyio


CONVERSATION = {"messages": [{"role": "user", "content": "I do like Darjeeling"}]}


async def until_closed(server: HttpServer) -> None:
    """Open connections to a server until it takes none."""
    while True:
        try:
            async with await anyio.connect_tcp("127.0.0.1", server.port):
                pass
        except OSError:
            return


class TestAnOrderlyEnd:
    @pytest.mark.nightly
    @pytest.mark.parametrize("how", ["auto", "legacy", "sse"])
    async def test_a_call_that_is_under_way_is_answered(self, tmp_path: Path, how: str) -> None:
        """Guards calls from a restart: the server listens no more, and yet answers what it was asked before."""
        replies: list[str] = []
        with (
            slow_model() as model,
            run_http_server(tmp_path, **model.settings) as server,
            anyio.fail_after(2 * TIMEOUT),
        ):
            async with connect_http(server, how) as client, anyio.create_task_group() as tasks:
                await client.list_tools()  # else the client asks for them with the result

                async def call() -> None:
                    replies.append(reply_text(await client.call_tool("add_memory", CONVERSATION)))

                tasks.start_soon(call)
                assert await anyio.to_thread.run_sync(model.was_asked.wait, TIMEOUT)
                server.process.send_signal(signal.SIGTERM)
                await until_closed(server)
                assert replies == []
                model.may_answer.set()
            assert await anyio.to_thread.run_sync(server.process.wait, TIMEOUT) == 0
        (reply,) = replies
        assert "Alice likes Darjeeling" in reply
        with run_http_server(tmp_path) as server:
            async with connect_http(server, how) as client:
                found = await client.call_tool("search_memories", {"query": "which tea does Alice like?"})
                assert "Alice likes Darjeeling" in reply_text(found)

    @pytest.mark.nightly
    async def test_a_server_that_drains_is_not_ready_and_still_serves(self, tmp_path: Path) -> None:
        """Guards requests that a proxy sends before it knows that the server is to stop."""
        with run_http_server(tmp_path, PALIMPSEST_HTTP__DRAIN_SECONDS="600") as server, anyio.fail_after(2 * TIMEOUT):
            async with connect_http(server, "auto") as client:
                await client.call_tool("add_memory", {"text": "Alice plays the violin"})
            server.process.send_signal(signal.SIGTERM)
            while (answer := readiness(server)) != (503, {"status": "draining"}):
                assert answer[1]["status"] in ("ready", "opening")
            async with connect_http(server, "legacy") as client:
                found = await client.call_tool("search_memories", {"query": "violin"})
                assert "Alice plays the violin" in reply_text(found)
            server.process.send_signal(signal.SIGTERM)
            await anyio.to_thread.run_sync(server.process.wait, TIMEOUT)


def readiness(server: HttpServer) -> tuple[int, dict[str, str]]:
    answer = httpx2.get(f"{server.base}/ready")
    return answer.status_code, answer.json()


@pytest.mark.nightly
def test_a_memory_that_could_not_be_opened_is_opened_once_it_can_be(tmp_path: Path) -> None:
    """Guards a replica that starts before its database: no other request would come that opens the memory."""
    ledger = tmp_path / "data" / "ledger.db"
    ledger.parent.mkdir()
    ledger.write_text("this is not a database, " * 100)
    with run_http_server(tmp_path) as server:
        while httpx2.get(f"{server.base}/health").json()["status"] == "opening":
            pass
        assert readiness(server) == (503, {"status": "failed"})
        ledger.unlink()
        while (answer := readiness(server)) == (503, {"status": "failed"}):
            pass
        assert answer == (200, {"status": "ready"})
        assert httpx2.get(f"{server.base}/health").status_code == 200


TOKEN = "a secret of the settings"  # noqa: S105 - made for the test
MARK = "Xylotrupes"
NAME = "Konstanze"


async def logged(folder: Path) -> list[dict[str, Any]]:
    """Serve every kind of request, valid or not, and return the lines of the log."""
    tokens = json.dumps([{"token": TOKEN, "user_id": NAME}])
    settings = {"PALIMPSEST_HTTP__LOG": "json", "PALIMPSEST_HTTP__TOKENS": tokens}
    with run_http_server(folder, **settings) as server:
        headers = {**ACCEPT, "authorization": f"Bearer {TOKEN}"}
        for how in ("auto", "legacy", "sse"):
            async with connect_http(server, how, TOKEN) as client:
                reply_text(await client.call_tool("add_memory", {"text": f"{MARK} is a beetle, {how}"}))
                reply_text(await client.call_tool("search_memories", {"query": f"what is a {MARK}?"}))
                for tool, arguments in (
                    ("add_memory", {"text": MARK * 5000}),
                    ("add_memory", {"text": f"{MARK}", "metadata": MARK}),
                    ("search_memories", {"query": MARK, "limit": MARK}),
                    ("search_memories", {"query": MARK, "filters": {MARK: {MARK: MARK}}}),
                    ("search_memories", {"query": MARK, MARK: MARK}),
                    ("get_history", {"memory_id": MARK}),
                    (MARK, {}),
                ):
                    assert (await client.call_tool(tool, arguments)).is_error
        for body in (
            f'{{"jsonrpc": "2.0", "id": 1, "method": "{MARK}"}}',
            f'{{"jsonrpc": "2.0", "method": "{MARK}", "params": {{"{MARK}": 1}}}}',
            f'{{"jsonrpc": "2.0", "id": "{MARK}", "method": "tools/call", "params": "{MARK}"}}',
            f'{{"{MARK}',
        ):
            httpx2.post(f"{server.base}/mcp", content=body, headers=headers)
        for path in (f"/{MARK}", f"/memories/{MARK}", f"/?q={MARK}"):
            httpx2.get(f"{server.base}{path}", headers={**headers, "user-agent": MARK, "x-request-id": MARK})
        httpx2.get(f"{server.base}/mcp", headers={**headers, "authorization": f"Bearer {MARK}.{MARK}.{MARK}"})
        httpx2.get(f"{server.base}/health")
    return [json.loads(line) for line in server.log]


@pytest.mark.nightly
async def test_it_tells_of_calls_and_requests_and_of_nothing_in_them(tmp_path: Path) -> None:
    """Guards users from those who read the log: no text, no query, no name, no token, whatever goes wrong."""
    lines = await logged(tmp_path)
    written = json.dumps(lines)
    for private in (MARK, MARK.lower(), NAME, TOKEN):
        assert private not in written
    calls = [line for line in lines if line["message"] == "call"]
    assert {(line["tool"], line["outcome"]) for line in calls} >= {
        ("add_memory", "ok"),
        ("search_memories", "ok"),
        ("add_memory", "refused"),
        ("search_memories", "refused"),
        ("unknown", "refused"),
    }
    assert {line["level"] for line in calls} == {"info"}
    assert all(line["time"].endswith("+00:00") and line["duration_ms"] > 0 for line in calls)
    requests = [line for line in lines if line["message"] == "request"]
    assert {(line["path"], line["status"]) for line in requests} >= {("/mcp", 200), ("/mcp", 400), ("/mcp", 401)}
    assert "/health" not in {line["path"] for line in requests}


TEXT = "Alice keeps Xylotrupes beetles"

Numbers = dict[tuple[str, frozenset[tuple[str, str]]], float]


@pytest.fixture(scope="module")
def bearer(protected_server: HttpServer) -> str:
    return new_access_token(protected_server.data, "alice")


def scraped(server: HttpServer) -> str:
    answer = httpx2.get(f"{server.base}/metrics", headers={"authorization": f"Bearer {METRICS_TOKEN}"})
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    return answer.text


def numbers_in(text: str) -> Numbers:
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    return {(sample.name, frozenset(sample.labels.items())): sample.value for sample in samples}


def number(numbers: Numbers, name: str, **labels: str) -> float:
    return numbers.get((name, frozenset(labels.items())), 0.0)


async def test_calls_and_requests_are_counted_and_nothing_in_them(protected_server: HttpServer, bearer: str) -> None:
    """Guards what an operator looks at first, and users: the labels are few and fixed, whatever clients send."""
    before = numbers_in(scraped(protected_server))
    assert httpx2.post(f"{protected_server.base}/mcp").status_code == 401
    async with connect_http(protected_server, "legacy", bearer) as client:
        await client.call_tool("add_memory", {"text": TEXT})
        for query in ("beetles", "Xylotrupes"):
            await client.call_tool("search_memories", {"query": query})
        assert (await client.call_tool("search_memories", {"query": "beetles", "limit": 0})).is_error
        assert (await client.call_tool("Xylotrupes", {})).is_error
        httpx2.get(f"{protected_server.base}/Xylotrupes/alice", headers={"authorization": f"Bearer {bearer}"})
        text = scraped(protected_server)
    after = numbers_in(text)

    def grown(name: str, **labels: str) -> float:
        return number(after, name, **labels) - number(before, name, **labels)

    for tool, outcome, count in (
        ("add_memory", "ok", 1),
        ("search_memories", "ok", 2),
        ("search_memories", "refused", 1),
        ("unknown", "refused", 1),
    ):
        assert grown("palimpsest_calls_total", tool=tool, outcome=outcome) == count
    assert grown("palimpsest_call_seconds_count", tool="search_memories") == 3
    assert grown("palimpsest_requests_total", path="/mcp", status="200") >= 5
    assert grown("palimpsest_requests_total", path="/mcp", status="401") == 1
    assert number(after, "palimpsest_sessions") >= 1
    assert number(after, "palimpsest_calls_under_way") == 0
    assert not [word for word in ("xylotrupes", "alice", bearer.lower(), METRICS_TOKEN.lower()) if word in text.lower()]


def test_its_own_token_is_needed_and_no_other_opens_it(protected_server: HttpServer, bearer: str) -> None:
    """Guards numbers about all users from each of them."""
    for headers in ({}, {"authorization": f"Bearer {bearer}"}, {"authorization": METRICS_TOKEN}):
        answer = httpx2.get(f"{protected_server.base}/metrics", headers=headers)
        assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
        assert "palimpsest_" not in answer.text
    headers = {"authorization": f"Bearer {METRICS_TOKEN}", "host": "evil.example"}
    assert httpx2.get(f"{protected_server.base}/metrics", headers=headers).status_code == 421


@pytest.mark.nightly
def test_a_server_does_not_start_without_the_token_or_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards against numbers that anybody can read, and whoever turns them on without the extra."""
    command, settings = ("serve", "--transport", "http", "--port", "0"), {"PALIMPSEST_HTTP__METRICS": "true"}
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "prometheus_client", None)
        error = palimpsest(tmp_path, *command, code=1, settings=settings)
        assert "palimpsest-mcp[metrics]" in " ".join(error.split())
    palimpsest(tmp_path, "token", "create", "--user", "alice")
    assert "http.metrics_token" in palimpsest(tmp_path, *command, code=1, settings=settings)
