"""The server as a client sees it over stdio. What a process of its own adds nothing to runs in this one."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from loopback import OpenAIServer
from palimpsest.hooks.instructions import INSTRUCTIONS
from tests.support.environment import clean_environment
from tests.support.mcp_client import TOOL_NAMES, connect_stdio, error_text, reply_results, reply_text
from tests.support.scripted_model import facts_reply
from tests.support.server_in_process import connect

pytestmark = pytest.mark.anyio


def readable_by_others(folder: Path) -> list[Path]:
    """Return the parts of a memory that somebody else may read. There should be none."""
    return [path for path in (folder / "data").rglob("*") if path.stat().st_mode & 0o077]


@pytest.mark.few_by_day(1)
@pytest.mark.parametrize(
    ("connected", "mode"), [(connect, "legacy"), (connect_stdio, "legacy"), (connect_stdio, "auto")]
)
async def test_a_memory_is_added_updated_deleted_and_restored(tmp_path: Path, connected: Any, mode: str) -> None:
    async with connected(tmp_path, mode) as memory:
        assert reply_text(await memory.call_tool("search_memories", {"query": "tea"})).startswith("nothing found")
        added = await memory.call_tool("add_memory", {"text": "User's favourite tea is Darjeeling"})
        assert reply_text(added).startswith("added: [")
        assert "scope:" not in reply_text(added)
        (result,) = reply_results(added)
        short = result["id"][:8]
        assert (result["event"], result["memory"]) == ("ADD", "User's favourite tea is Darjeeling")

        again = await memory.call_tool("add_memory", {"text": "user's favourite tea  is Darjeeling"})
        assert reply_text(again).startswith(f"unchanged (duplicate of {short})")

        updated = await memory.call_tool(
            "update_memory",
            {"memory_id": short, "text": "User's favourite tea is Assam", "metadata": {"topic": "food"}},
        )
        assert reply_text(updated).startswith(f"updated: [{short}] User's favourite tea is Assam (was: ")

        hits = reply_results(
            await memory.call_tool("search_memories", {"query": "which tea?", "filters": {"topic": "food"}})
        )
        assert [hit["text"] for hit in hits] == ["User's favourite tea is Assam"]
        assert hits[0].keys() >= {"id", "kind", "text", "score", "at", "sources", "role", "name", "metadata"}
        assert 0 <= hits[0]["score"] <= 1

        deleted = await memory.call_tool("delete_memory", {"memory_ids": [short]})
        assert reply_text(deleted).startswith(f"deleted: [{short}]")
        assert reply_results(await memory.call_tool("search_memories", {"query": "tea"})) == []
        assert [hit["id"] for hit in reply_results(await memory.call_tool("list_memories", {"deleted": True}))] == [
            result["id"]
        ]

        restored = await memory.call_tool("update_memory", {"memory_id": short, "restore": True})
        assert reply_text(restored).startswith(f"restored: [{short}]")
        history = await memory.call_tool("get_history", {"memory_id": short})
        assert reply_text(history).count("\n") == 5
        events = [entry["event"] for entry in history.structured_content["history"]]
        assert events == ["ADD", "UPDATE", "DELETE", "ADD"]
        assert "Assam" in reply_text(await memory.call_tool("get_summary", {}))
    if connected is connect_stdio:  # a process of ours has a umask of its own, which Chroma's files need
        assert readable_by_others(tmp_path) == []


async def test_two_servers_on_one_memory_see_each_others_writes_at_once(tmp_path: Path) -> None:
    async with connect_stdio(tmp_path) as one, connect(tmp_path) as other:
        for number in range(4):
            writer, reader = (one, other) if number % 2 else (other, one)
            added = reply_results(
                await writer.call_tool("add_memory", {"text": f"Box {number} holds {'abcde'[number] * 5}"})
            )
            hits = reply_results(await reader.call_tool("search_memories", {"query": f"{'abcde'[number] * 5}"}))
            assert hits[0]["id"] == added[0]["id"]


async def test_a_model_extracts_facts_and_v1_0_returns_a_bare_list(tmp_path: Path) -> None:
    reply = facts_reply("Ana flies to Porto in May 2026")
    for mode in ("legacy", "auto"):
        (tmp_path / mode).mkdir()
        with OpenAIServer([reply]) as server:
            async with connect(
                tmp_path / mode, mode, OPENAI_API_KEY="k", OPENAI_BASE_URL=server.base_url, PALIMPSEST_VERSION="v1.0"
            ) as memory:
                added = await memory.call_tool(
                    "add_memory", {"messages": [{"role": "user", "content": "Porto in May!"}]}
                )
                reply_text(added)
                content: Any = added.structured_content
                bare: list[dict[str, Any]] = content["result"] if mode == "legacy" else content
                assert [item["memory"] for item in bare] == ["Ana flies to Porto in May 2026"]


@pytest.mark.few_by_day(1)
@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"PALIMPSEST_USR_ID": "x"}, "did you mean 'PALIMPSEST_USER_ID'?"),
        ({"PALIMPSEST_CONFIG": "config.toml"}, "unknown setting 'embeder'; did you mean 'embedder'?"),
        ({"PALIMPSEST_PROMPTS_DIR": "own"}, "decide.md: the input $memories"),
        ({"PALIMPSEST_HISTORY_DB_PATH": "newer.db"}, "Upgrade palimpsest-mcp"),
    ],
)
async def test_a_server_that_cannot_open_its_memory_tells_the_agent_why(
    tmp_path: Path, settings: dict[str, str], expected: str
) -> None:
    """Guards against a server that stops silently, with the reason in a log that nobody reads."""
    (tmp_path / "config.toml").write_text("[embeder]\nprovider = 'local'\n", "utf-8")
    (tmp_path / "own").mkdir()
    decide = "---\nname: decide\nversion: 1\ninputs: [facts]\n---\n## system\nDecide.\n## user\n$facts\n"
    (tmp_path / "own" / "decide.md").write_text(decide, "utf-8")
    with sqlite3.connect(tmp_path / "newer.db") as conn:
        conn.execute("CREATE TABLE alembic_version (version_num TEXT)")
        conn.execute("INSERT INTO alembic_version VALUES ('9999')")
    conn.close()
    async with connect(tmp_path, **settings) as memory:
        for _ in range(2):
            assert expected in error_text(await memory.call_tool("list_memories", {}))


async def test_the_tools_are_few_small_annotated_and_described(tmp_path: Path) -> None:
    async with connect(tmp_path) as memory:
        listed = await memory.list_tools()
        assert memory.instructions == INSTRUCTIONS
        resources = [str(resource.uri) for resource in (await memory.list_resources()).resources]
        templates = [template.uri_template for template in (await memory.list_resource_templates()).resource_templates]
        prompts = (await memory.list_prompts()).prompts
    assert resources == ["memory://summary", "memory://recent", "memory://entities"]
    ids = ("memory://{id}", "conversation://{id}", "document://{document}")
    assert set(templates) == {*ids, "entity://{name}", f"{ids[0]}/history", f"{ids[1]}/{{after}}", f"{ids[2]}/{{page}}"}
    assert [prompt.name for prompt in prompts] == ["recall", "remember-this-conversation", "review-memory"]
    assert all(prompt.description for prompt in prompts)
    wire = listed.model_dump_json(by_alias=True, exclude_none=True)
    assert {tool.name for tool in listed.tools} == TOOL_NAMES
    assert len(wire.encode()) < 7_000
    assert len(INSTRUCTIONS.encode()) < 1_024
    for tool in listed.tools:
        assert tool.title
        assert tool.description
        assert tool.annotations is not None
        assert tool.annotations.read_only_hint is not None
        properties = tool.input_schema["properties"]
        assert len(properties) <= 11
        assert all("description" in schema for schema in properties.values())


async def test_stdout_carries_only_the_protocol_and_the_end_of_input_ends_the_server(tmp_path: Path) -> None:
    """Guards the pipe, byte by byte, and against servers that stay behind."""
    call = {"name": "add_memory", "arguments": {"text": "Ünïcödé 東京 🍵"}}
    start = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    lines = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": start},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call},
    ]

    def run() -> tuple[int, list[dict[str, Any]]]:
        with subprocess.Popen(
            [sys.executable, "-m", "palimpsest"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=clean_environment(tmp_path, PYTHONIOENCODING="latin-1"),
        ) as server:
            assert server.stdin is not None
            assert server.stdout is not None
            for line in lines:
                server.stdin.write(json.dumps(line, ensure_ascii=False).encode() + b"\n")
                server.stdin.flush()
            answers = [json.loads(server.stdout.readline()) for _ in range(2)]
            server.stdin.close()
            rest = server.stdout.read()
            assert rest == b""
            return server.wait(30), answers

    code, answers = await anyio.to_thread.run_sync(run)
    assert code == 0
    assert readable_by_others(tmp_path) == []
    assert [answer["id"] for answer in answers] == [1, 2]
    assert "Ünïcödé 東京 🍵" in answers[1]["result"]["content"][0]["text"]


def test_the_handshake_waits_for_no_library_of_the_memory() -> None:
    """Guards how soon a client is answered: the memory is opened, and its libraries are loaded, afterwards."""
    heavy = ("sqlalchemy", "numpy", "chromadb", "palimpsest.memory", "palimpsest.store")
    code = f"import sys, palimpsest.server.app; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
