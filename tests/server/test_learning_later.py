"""Learning after the call, by real processes: over HTTP by default, resumed after a kill, never done twice."""

from __future__ import annotations

import json
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from mcp import Client

from tests.support.command_line import palimpsest
from tests.support.http_server import TIMEOUT, connect_http, run_http_server
from tests.support.mcp_client import reply_text
from tests.support.scripted_model import add_all, answering, facts_reply
from tests.support.server_in_process import connect
from tests.support.slow_model import HeldModel, held_model

pytestmark = pytest.mark.anyio

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


def test_the_command_line_says_when_there_is_nothing_to_do(tmp_path: Path) -> None:
    assert "there are no jobs" in palimpsest(tmp_path, "jobs", settings={"PALIMPSEST_LLM__PROVIDER": "none"})
    refused = palimpsest(tmp_path, "jobs", "--retry", code=1, settings={"PALIMPSEST_LLM__PROVIDER": "none"})
    assert "nothing was tried again" in refused


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
