"""A graph database that is down, slow or refuses is reported, delays nobody, and is brought up to date later."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import anyio
import pytest

from network import free_port
from palimpsest.admin.doctor import examine
from palimpsest.core.errors import GraphStoreError
from palimpsest.core.models import Finding
from palimpsest.index import graph_database
from palimpsest.memory import Memory
from tests.support.bolt_server import BoltServer, caught_up, silent_port, state
from tests.support.memory import ALICE, add_text, memory_in

pytestmark = pytest.mark.anyio

LYON = ("Ana", "lives in", "Lyon")

# Seconds after which a test gives up waiting.
ENOUGH = 60


async def graph_finding(memory: Memory) -> Finding:
    return next(found for found in await examine(memory.settings) if found.part == "graph")


def elsewhere(port: int, **config: str) -> dict[str, Any]:
    url = f"bolt://127.0.0.1:{port}"
    return {"provider": "neo4j", "config": {"url": url, "username": "root", "password": "a-secret", **config}}


# The driver leaves a socket to the garbage collector if its task is cancelled in the moment in which it connects.
@pytest.mark.filterwarnings(r"ignore:Exception ignored in. <socket:pytest.PytestUnraisableExceptionWarning")
async def test_a_server_that_says_nothing_does_not_delay_a_close(tmp_path: Path) -> None:
    with silent_port() as port:
        async with memory_in(tmp_path, background=True, graph_store=elsewhere(port)) as memory:
            state(memory, *LYON)
            await add_text(memory, "Something else")
            assert (await memory.health())["graph"] == "waiting"
    gc.collect()  # not in the test after this one


async def test_a_purge_says_that_the_database_could_not_be_reached(tmp_path: Path) -> None:
    async with memory_in(tmp_path, graph_store=elsewhere(free_port())) as memory:
        memory_id = state(memory, *LYON)
        result = await memory.care.purge(ALICE, [memory_id])
        assert not result.clean
        assert any("may still show what was erased" in note for note in result.notes)


@pytest.mark.few_by_day(1)
@pytest.mark.parametrize(
    ("config", "text"),
    [({"password": "wrong-password"}, "refuses: "), ({"database": "nowhere"}, "database nowhere")],
)
async def test_settings_that_are_refused_are_reported_without_the_password(
    tmp_path: Path, bolt: BoltServer, config: dict[str, str], text: str
) -> None:
    async with memory_in(tmp_path, graph_store=bolt.settings(**config)) as memory:
        finding = await graph_finding(memory)
        assert not finding.ok
        assert text in finding.text
        assert "wrong-password" not in finding.text


async def test_without_the_driver_the_error_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "neo4j", None)
    async with memory_in(tmp_path, graph_store=elsewhere(1)) as memory:
        state(memory, *LYON)
        with pytest.raises(GraphStoreError, match=r"pip install 'palimpsest-mcp\[graph\]'"):
            await caught_up(memory)


async def test_a_failure_is_in_the_state_of_the_memory_and_all_else_goes_on(tmp_path: Path) -> None:
    async with memory_in(tmp_path, background=True, graph_store=elsewhere(free_port())) as memory:
        await add_text(memory, "Ana lives in Lyon")
        with anyio.fail_after(ENOUGH):
            while (await memory.health())["graph"] != "failing":
                await anyio.lowlevel.checkpoint()
        assert (await memory.health())["status"] == "degraded"
        assert (await memory.search(ALICE, "Where does Ana live?")).hits


@pytest.fixture
def mortal(tmp_path: Path) -> Generator[tuple[BoltServer, subprocess.Popen[str]]]:
    server = BoltServer.in_folder(tmp_path / "bolt")
    process = server.start(os.getpid())
    try:
        yield server.with_database("graph"), process
    finally:
        process.kill()
        process.wait()


@pytest.mark.nightly
async def test_a_server_that_was_killed_is_caught_up_with_when_it_is_back(
    tmp_path: Path, mortal: tuple[BoltServer, subprocess.Popen[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(graph_database, "RETRY_SECONDS", 0.05)
    monkeypatch.setattr(graph_database, "REST_SECONDS", 0.05)
    server, process = mortal

    async def wait_for(graph: str) -> None:
        with anyio.fail_after(ENOUGH):
            while (await memory.health())["graph"] != graph:
                await anyio.lowlevel.checkpoint()

    async with memory_in(tmp_path, background=True, graph_store=server.settings()) as memory:
        state(memory, *LYON)
        await add_text(memory, "A call that wakes the background work")
        await wait_for("ready")
        assert server.relations(memory) == [(*LYON, True)]
        process.kill()
        process.wait()
        state(memory, "Tom", "knows", "Eve")
        await add_text(memory, "Another call")
        await wait_for("failing")
        restarted = server.start(os.getpid())
        try:
            await wait_for("ready")
            assert server.relations(memory) == [(*LYON, True), ("Tom", "knows", "Eve", True)]
        finally:
            restarted.kill()
            restarted.wait()


async def test_waiting_for_another_process_keeps_no_sessions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look whether the other one is done gives its session back: the server of the tests has 400."""
    monkeypatch.setattr(graph_database, "TURN_SECONDS", 0)
    monkeypatch.setattr(graph_database, "MAX_TURNS", 450)
    async with memory_in(tmp_path, graph_store=elsewhere(free_port())) as memory:
        state(memory, *LYON)
        with memory.engine.ledger.database.alone_at("graph") as is_ours:
            assert is_ours
            with pytest.raises(GraphStoreError, match="another process is still writing to the graph database"):
                await caught_up(memory)
