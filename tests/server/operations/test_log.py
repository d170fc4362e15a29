"""The log as JSON: what is in it, and that nothing of what users store or ask ever is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.support.http_server import ACCEPT, connect_http, run_http_server
from tests.support.mcp_client import reply_text

pytestmark = pytest.mark.anyio

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
    assert len({line["user"] for line in calls}) == 1
    assert all(line["time"].endswith("+00:00") and line["duration_ms"] > 0 for line in calls)
    requests = [line for line in lines if line["message"] == "request"]
    assert {(line["path"], line["status"]) for line in requests} >= {("/mcp", 200), ("/mcp", 400), ("/mcp", 401)}
    assert "/health" not in {line["path"] for line in requests}
    of_requests = {line["request_id"]: line for line in requests}
    joined = [of_requests[line["request_id"]] for line in calls if line["request_id"] in of_requests]
    assert {line["path"] for line in joined} == {"/mcp", "/messages"}
    assert {line["user"] for line in joined} == {calls[0]["user"]}
