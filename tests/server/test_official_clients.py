"""The server under the official clients and checkers: TypeScript clients, the Inspector, the conformance suite."""

from __future__ import annotations

import json
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.environment import clean_environment
from tests.support.http_server import run_http_server
from tests.support.mcp_client import TOOL_NAMES
from tests.support.node_programs import NODE_FOLDER, installed_command, run_node

PALIMPSEST = [sys.executable, "-m", "palimpsest"]


@contextmanager
def target(folder: Path, transport: str) -> Generator[list[str]]:
    """Give what reaches a new server: a command to start it, or its URL."""
    if transport == "stdio":
        yield PALIMPSEST
        return
    with run_http_server(folder) as running:
        yield [f"{running.base}/{'mcp' if transport == 'http' else transport}"]


@pytest.mark.parametrize("transport", ["stdio", "http"])
@pytest.mark.parametrize(("release", "version"), [("v1", "2025-11-25"), ("v2", "2026-07-28")])
def test_the_typescript_clients_find_everything(tmp_path: Path, release: str, version: str, transport: str) -> None:
    """Guards the clients most people have: tools, errors, resources, prompts and completion, from end to end."""
    with target(tmp_path, transport) as reached:
        done = run_node("client.mjs", release, transport, *reached, env=clean_environment(tmp_path))
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert set(seen["tools"]) == TOOL_NAMES
    assert seen["added"]["text"].startswith("added: [")
    assert seen["found"]["structured"]["results"][0]["text"] == "Alice plays the violin"
    assert seen["wrong"]["error"]
    assert "did you mean 'query'?" in seen["wrong"]["text"]
    assert seen["resources"] == ["memory://summary", "memory://recent"]
    assert "Alice plays the violin" in seen["read"]
    assert "Alice plays the violin" in seen["prompt"]
    assert seen["completed"] == [seen["added"]["structured"]["results"][0]["id"]]
    assert seen["deleted"]["text"].startswith("deleted: [")
    if release == "v2":
        assert seen["version"] == version


@pytest.mark.parametrize("transport", ["stdio", "http", "sse"])
def test_the_inspector_lists_and_calls_every_tool(tmp_path: Path, transport: str) -> None:
    """Guards what people debug servers with, and that it finds no fault with the schemas of the tools."""
    env = clean_environment(tmp_path)

    with target(tmp_path, transport) as reached:

        def inspect(method: str, *arguments: str) -> dict[str, Any]:
            asked = ["--format", "json", "--method", method, *arguments]
            given = [*asked, "--", *reached] if transport == "stdio" else ["--server-url", *reached, *asked]
            done = run_node(installed_command("mcp-inspector"), "--cli", *given, env=env)
            assert done.returncode == 0, done.stderr + done.stdout
            return json.loads(done.stdout)["result"]

        def call(tool: str, *arguments: str) -> dict[str, Any]:
            pairs = [part for argument in arguments for part in ("--tool-arg", argument)]
            result = inspect("tools/call", "--tool-name", tool, *pairs)
            assert result["isError"] is False
            return result["structuredContent"]

        assert {tool["name"] for tool in inspect("tools/list", "--strict")["tools"]} == TOOL_NAMES
        memory_id = call("add_memory", "text=Alice plays the violin")["results"][0]["id"]
        assert call("search_memories", "query=violin")["results"][0]["id"] == memory_id
        assert call("list_memories")["results"][0]["id"] == memory_id
        called = call("update_memory", f"memory_id={memory_id}", "text=Alice plays the cello")["results"]
        assert called[0]["memory"] == "Alice plays the cello"
        assert "cello" in call("get_summary")["summary"]
        assert len(call("get_history", f"memory_id={memory_id}")["history"]) == 2
        assert call("delete_memory", f'memory_ids=["{memory_id}"]')["results"][0]["event"] == "DELETE"


@pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])
def test_the_conformance_suite_finds_no_other_fault_than_those_explained(tmp_path: Path, version: str) -> None:
    """Guards the protocol, check by check; `node/expected-failures.yml` says why each of the rest fails."""
    with run_http_server(tmp_path) as running:
        asked = ["server", "--url", f"{running.base}/mcp", "--requirements", version]
        explained = NODE_FOLDER / "expected-failures.yml"
        done = run_node(
            installed_command("conformance"),
            *asked,
            "--expected-failures",
            str(explained),
            env=clean_environment(tmp_path),
        )
    assert "=== SUMMARY ===" in done.stdout
    assert done.returncode == 0, done.stdout[done.stdout.index("=== SUMMARY ===") :]
