"""Mem0 (Chhikara et al. 2025, arXiv 2504.19413, section 2.1): extract facts, then decide on each against what is known.

The stored memories nearest to a fact are shown under small integers, and the model answers ADD, UPDATE, DELETE or NONE.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mcp import Client

from loopback import OpenAIServer
from tests.support.environment import model_environment
from tests.support.mcp_client import reply_results, reply_text
from tests.support.scripted_model import answering, decision, given, prompt_of
from tests.support.server_in_process import connect

INVENTED = 41


def inventing(*, repairs: bool) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Return a model that first decides on a memory that it was not shown, and then perhaps as it should."""

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        if repairs and len(request["messages"]) > 2:
            return decide(request)
        return {"decisions": [decision(fact, "DELETE", INVENTED) for fact in range(len(FACTS))]}

    return answer


pytestmark = pytest.mark.anyio

KNOWN = ("Leopold has a canary", "Leopold works at the mint", "Leopold drinks cocoa")
FACTS = (
    "Leopold's canary is called Figaro",
    "Leopold works at the opera",
    "Leopold drinks cocoa",
    "Leopold learns to sew",
)
SAID = "My canary Figaro sings, I left the mint for the opera, cocoa as ever, and I learn to sew."


def extract(request: dict[str, Any]) -> dict[str, Any]:
    del request
    return {"facts": [{"text": text, "sources": [1]} for text in FACTS]}


def decide(request: dict[str, Any]) -> dict[str, Any]:
    """Complete, replace, know and add, by the numbers that are shown."""
    number = numbers(request)
    decisions = [
        decision(0, "UPDATE", number[KNOWN[0]], "Leopold has a canary called Figaro"),
        decision(1, "DELETE", number[KNOWN[1]], FACTS[1]),
        decision(2, "NONE", number[KNOWN[2]]),
        decision(3, "ADD"),
    ]
    return {"decisions": decisions}


def numbers(request: dict[str, Any]) -> dict[str, int]:
    """Return the number under which each stored memory is shown."""
    return {item["text"]: item["id"] for item in given(request, "Stored memories")}


async def know(agent: Client) -> dict[str, str]:
    """Store what is known before, and return the ids by text."""
    added = [await agent.call_tool("add_memory", {"text": text, "infer": False}) for text in KNOWN]
    return {text: reply_results(result)[0]["id"] for text, result in zip(KNOWN, added, strict=True)}


async def test_a_conversation_becomes_facts_and_each_fact_a_decision(tmp_path: Path) -> None:
    """Two calls of the model do all four, an UPDATE keeps the id, and no stored id is ever shown."""
    with OpenAIServer(answering(extract=extract, decide=decide)) as server:
        async with connect(tmp_path, **model_environment(server.base_url)) as agent:
            ids = await know(agent)
            added = await agent.call_tool("add_memory", {"messages": [{"role": "user", "content": SAID}]})
            changes = {change["event"]: change for change in reply_results(added)}
            listed = reply_results(await agent.call_tool("list_memories", {}))
    assert [prompt_of(request) for request in server.chat_requests] == ["extract", "decide"]
    assert sorted(numbers(server.chat_requests[1]).values()) == [0, 1, 2]
    assert not any(memory_id in json.dumps(server.chat_requests) for memory_id in ids.values())
    texts = {hit["text"]: hit["id"] for hit in listed}
    assert texts.keys() == {"Leopold has a canary called Figaro", *FACTS[1:]}
    assert texts["Leopold has a canary called Figaro"] == ids[KNOWN[0]]
    assert changes["UPDATE"]["previous"] == KNOWN[0]
    assert changes["NONE"]["id"] == ids[KNOWN[2]]


@pytest.mark.few_by_day(1)
@pytest.mark.parametrize("repairs", [True, False])
async def test_an_invented_number_is_refused(tmp_path: Path, *, repairs: bool) -> None:
    """The model is told once what is wrong. If it insists, nothing of its decisions is applied, and that is said."""
    with OpenAIServer(answering(extract=extract, decide=inventing(repairs=repairs))) as server:
        async with connect(tmp_path, **model_environment(server.base_url)) as agent:
            await know(agent)
            added = await agent.call_tool("add_memory", {"messages": [{"role": "user", "content": SAID}]})
            text = reply_text(added)
            listed = [hit["text"] for hit in reply_results(await agent.call_tool("list_memories", {}))]
    asked = [prompt_of(request) for request in server.chat_requests]
    assert asked == ["extract", "decide", "decide"]
    assert f"no memory {INVENTED}" in str(server.chat_requests[-1]["messages"][-1])
    if repairs:
        assert set(listed) == {"Leopold has a canary called Figaro", *FACTS[1:]}
    else:
        assert set(KNOWN) <= set(listed)
        assert str(INVENTED) in text
