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

pytestmark = pytest.mark.nightly

PALIMPSEST = [sys.executable, "-m", "palimpsest"]


@contextmanager
def target(folder: Path, transport: str) -> Generator[list[str]]:
    if transport == "stdio":
        yield PALIMPSEST
        return
    with run_http_server(folder) as server:
        yield [f"{server.base}/mcp"]


@pytest.mark.parametrize("transport", ["stdio", "http"])
@pytest.mark.parametrize(("release", "version"), [("v1", "2025-11-25"), ("v2", "2026-07-28")])
def test_the_typescript_clients_can_use_everything(tmp_path: Path, release: str, version: str, transport: str) -> None:
    with target(tmp_path, transport) as server:
        done = run_node("client.mjs", release, transport, *server, env=clean_environment(tmp_path))
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert set(seen["tools"]) == TOOL_NAMES
    assert seen["added"]["text"].startswith("added: [")
    assert seen["found"]["structured"]["results"][0]["text"] == "Alice plays the violin"
    assert seen["wrong"]["error"]
    assert "did you mean 'query'?" in seen["wrong"]["text"]
    assert seen["resources"] == ["memory://summary", "memory://recent", "memory://entities"]
    assert "Alice plays the violin" in seen["read"]
    assert "Alice plays the violin" in seen["prompt"]
    assert seen["completed"] == [seen["added"]["structured"]["results"][0]["id"]]
    assert seen["deleted"]["text"].startswith("deleted: [")
    if release == "v2":
        assert seen["version"] == version


def inspect(folder: Path, method: str, *arguments: str) -> dict[str, Any]:
    options = ["--cli", "--format", "json", "--method", method, *arguments, "--", *PALIMPSEST]
    done = run_node(installed_command("mcp-inspector"), *options, env=clean_environment(folder))
    assert done.returncode == 0, done.stderr + done.stdout
    return json.loads(done.stdout)["result"]


def test_the_inspector_accepts_the_schemas_of_the_tools(tmp_path: Path) -> None:
    """Guards the program that people debug servers with."""
    assert {tool["name"] for tool in inspect(tmp_path, "tools/list", "--strict")["tools"]} == TOOL_NAMES


@pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])
def test_the_conformance_suite_finds_only_the_expected_failures(tmp_path: Path, version: str) -> None:
    """Guards the protocol, check by check. `node/expected-failures.yml` explains every check that fails."""
    with run_http_server(tmp_path) as running:
        arguments = ["server", "--url", f"{running.base}/mcp", "--requirements", version]
        explained = NODE_FOLDER / "expected-failures.yml"
        done = run_node(
            installed_command("conformance"),
            *arguments,
            "--expected-failures",
            str(explained),
            env=clean_environment(tmp_path),
        )
    assert "=== SUMMARY ===" in done.stdout
    assert done.returncode == 0, done.stdout[done.stdout.index("=== SUMMARY ===") :]
