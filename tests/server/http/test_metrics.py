"""`/metrics`: read over real HTTP and parsed as Prometheus does."""

from __future__ import annotations

import sys
from pathlib import Path

import httpx2
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.support.command_line import palimpsest, palimpsest_process
from tests.support.http_server import METRICS_TOKEN, HttpServer, connect_http, new_access_token

pytestmark = pytest.mark.anyio

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


class TestWhatItSays:
    async def test_calls_are_counted_by_tool_and_outcome(self, protected_server: HttpServer, bearer: str) -> None:
        """Guards what an operator looks at first, and users: the labels are few and fixed, whatever clients send."""
        before = numbers_in(scraped(protected_server))
        async with connect_http(protected_server, "auto", bearer) as client:
            await client.call_tool("add_memory", {"text": TEXT})
            for query in ("beetles", "Xylotrupes"):
                await client.call_tool("search_memories", {"query": query})
            assert (await client.call_tool("search_memories", {"query": "beetles", "limit": 0})).is_error
            assert (await client.call_tool("Xylotrupes", {})).is_error
            assert (await client.call_tool("get_history", {"memory_id": "12345678"})).is_error
        httpx2.get(f"{protected_server.base}/Xylotrupes/alice", headers={"authorization": f"Bearer {bearer}"})
        after = numbers_in(scraped(protected_server))

        def grown(name: str, **labels: str) -> float:
            return number(after, name, **labels) - number(before, name, **labels)

        assert grown("palimpsest_calls_total", tool="add_memory", outcome="ok") == 1
        assert grown("palimpsest_calls_total", tool="search_memories", outcome="ok") == 2
        assert grown("palimpsest_calls_total", tool="search_memories", outcome="refused") == 1
        assert grown("palimpsest_calls_total", tool="get_history", outcome="refused") == 1
        assert grown("palimpsest_calls_total", tool="unknown", outcome="refused") == 1
        assert grown("palimpsest_call_seconds_count", tool="search_memories") == 3
        assert grown("palimpsest_requests_total", path="/mcp", status="200") >= 6
        text = scraped(protected_server).lower()
        for private in ("xylotrupes", "alice", bearer.lower(), METRICS_TOKEN.lower()):
            assert private not in text

    async def test_refused_requests_and_sessions_are_there(self, protected_server: HttpServer, bearer: str) -> None:
        """Guards alarms: requests without a token."""
        assert httpx2.post(f"{protected_server.base}/mcp").status_code == 401
        async with connect_http(protected_server, "legacy", bearer) as client:
            await client.call_tool("search_memories", {"query": "beetles"})
            during = numbers_in(scraped(protected_server))
        assert number(during, "palimpsest_sessions") >= 1
        assert number(during, "palimpsest_requests_total", path="/mcp", status="401") >= 1
        assert number(during, "palimpsest_calls_under_way") == 0
        assert number(during, "process_resident_memory_bytes") > 1_000_000


class TestWhoMayReadIt:
    def test_its_own_token_is_needed_and_no_other_opens_it(self, protected_server: HttpServer, bearer: str) -> None:
        """Guards numbers about all users from each of them."""
        for headers in ({}, {"authorization": f"Bearer {bearer}"}, {"authorization": METRICS_TOKEN}):
            answer = httpx2.get(f"{protected_server.base}/metrics", headers=headers)
            assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
            assert "palimpsest_" not in answer.text
        headers = {"authorization": f"Bearer {METRICS_TOKEN}"}
        assert httpx2.post(f"{protected_server.base}/mcp", headers=headers).status_code == 401
        assert (
            httpx2.get(f"{protected_server.base}/metrics", headers={**headers, "host": "evil.example"}).status_code
            == 421
        )

    @pytest.mark.nightly
    def test_a_server_for_others_does_not_start_without_the_token(self, tmp_path: Path) -> None:
        """Guards against numbers that anybody can read. The error names the setting."""
        palimpsest(tmp_path, "token", "create", "--user", "alice")
        command = ("serve", "--transport", "http", "--port", "0")
        error = palimpsest_process(tmp_path, *command, code=1, settings={"PALIMPSEST_HTTP__METRICS": "true"})
        assert "http.metrics_token" in error


@pytest.mark.nightly
def test_the_error_names_the_extra_if_its_package_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards whoever turns the numbers on without the extra: the error says what to install, and nothing is served."""
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    command = ("serve", "--transport", "http", "--port", "0")
    error = palimpsest(tmp_path, *command, code=1, settings={"PALIMPSEST_HTTP__METRICS": "true"})
    assert "palimpsest-mcp[metrics]" in " ".join(error.split())
