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
from tests.support.scripted_model import answering, decision, facts_reply, given, prompt_of
from tests.support.server_in_process import connect

INVENTED = 41


def inventing(*, repairs: bool) -> Callable[[dict[str, Any]], dict[str, Any]]:

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
    number = numbers(request)
    decisions = [
        decision(0, "UPDATE", number[KNOWN[0]], "Leopold has a canary called Figaro"),
        decision(1, "DELETE", number[KNOWN[1]], FACTS[1]),
        decision(2, "NONE", number[KNOWN[2]]),
        decision(3, "ADD"),
    ]
    return {"decisions": decisions}


def numbers(request: dict[str, Any]) -> dict[str, int]:
    return {item["text"]: item["id"] for item in given(request, "Stored memories")}


async def know(agent: Client) -> dict[str, str]:
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


# Prompts that were written for Mem0, in the forms in which articles on it print them, and the replies they lead to.

TELLING = "Pick what is new and lasting in these lines.\nUser: {mt_1}\nAssistant: {mt}\nSo far: {summary}\n"
BULLETS = TELLING + "Answer with one fact a line, each after a dash. If there is none, answer <none> and nothing else."
LISTED = 'Note likes. Input: Hello.\nOutput: {{"facts" : []}}\nInput: I sew.\nOutput: {{"facts" : ["Sews"]}}'
PER_FACT = (
    "Compare the candidate with what is known.\nCandidate: {candidate_fact}\nKnown: {similar_memories}\nGive JSON: "
    '{{"operation": "ADD", "target_memory_id": "", "updated_content": null}}, or UPDATE, DELETE, NOOP.'
)
BY_EXAMPLE = 'Keep it tidy. Answer as {"memory": [{"id": "0", "text": "Sews", "event": "NONE"}]}.'
GUIDANCE = "Never overwrite a memory about {craft}: add to it. The user's notes are JSON."


def of_memory(request: dict[str, Any]) -> str:
    assert given(request, "New facts")[0]["text"] == "Ina sews gloves"
    assert given(request, "Stored memories")[0]["text"] == "Ina sews"
    return '{"memory": [{"id": "0", "text": "Ina sews gloves", "event": "update", "old_memory": "Ina sews"}]}'


def one_operation(request: dict[str, Any]) -> str:
    (message,) = request["messages"]
    assert '"Ina sews gloves"' in message["content"]
    assert '"Ina sews"' in message["content"]
    assert "{candidate_fact}" not in message["content"]
    assert '{"operation": "ADD"' in message["content"]
    return '{"operation": "Update", "target_memory_id": "0", "updated_content": "Ina sews gloves"}'


def by_number(request: dict[str, Any]) -> str:
    instructions = request["messages"][0]["content"]
    assert instructions.startswith(GUIDANCE)
    assert '{"decisions": [' in instructions
    return json.dumps({"decisions": [decision(0, "UPDATE", 0, "Ina sews gloves")]})


@pytest.mark.few_by_day(3)
@pytest.mark.parametrize(
    ("extraction", "found", "update", "decided"),
    [
        (BULLETS, "- Ina sews gloves", PER_FACT, one_operation),
        (LISTED, '{{"facts": ["Ina sews gloves"]}}', BY_EXAMPLE, of_memory),
        ("Note what people make.", '{"facts": [{"text": "Ina sews gloves"}]}', GUIDANCE, by_number),
    ],
)
async def test_prompts_for_mem0_work_as_they_are_printed(
    tmp_path: Path, extraction: str, found: str, update: str, decided: Callable[[dict[str, Any]], str]
) -> None:
    """One call finds the fact and one decides on it. A text with all placeholders is sent alone, and filled."""

    def answer(request: dict[str, Any]) -> str:
        return found if len(server.chat_requests) % 2 else decided(request)

    prompts = {"PALIMPSEST_CUSTOM_FACT_EXTRACTION_PROMPT": extraction, "PALIMPSEST_CUSTOM_UPDATE_MEMORY_PROMPT": update}
    with OpenAIServer(answer) as server:
        async with connect(tmp_path, **model_environment(server.base_url), **prompts) as agent:
            await agent.call_tool("add_memory", {"text": "Ina sews", "infer": False})
            await agent.call_tool("add_memory", {"messages": [{"role": "user", "content": "Ina sews gloves now"}]})
            listed = [hit["text"] for hit in reply_results(await agent.call_tool("list_memories", {}))]
    assert listed == ["Ina sews gloves"]
    assert len(server.chat_requests) == 2
    first = server.chat_requests[0]["messages"]
    assert "Ina sews gloves now" in first[-1]["content"]
    assert "{mt" not in str(first)
    assert "{{" not in first[0]["content"]


@pytest.mark.few_by_day(3)
@pytest.mark.parametrize(
    "reply",
    ["<none>", '{"facts": []}', '{"facts": {}}', "Facts (or <none>): <none>", "<none>\nIt is a greeting.", "<\u65e0>"],
)
async def test_no_facts_are_no_failure(tmp_path: Path, reply: str) -> None:
    """What a prompt asks for where there is nothing is understood at once."""
    prompts = {"PALIMPSEST_CUSTOM_FACT_EXTRACTION_PROMPT": BULLETS}
    with OpenAIServer([reply]) as server:
        async with connect(tmp_path, **model_environment(server.base_url), **prompts) as agent:
            added = await agent.call_tool("add_memory", {"messages": [{"role": "user", "content": "Good morning"}]})
            assert "nothing in these messages was found worth a memory" in reply_text(added)
    assert len(server.chat_requests) == 1


async def test_an_example_of_the_prompt_is_no_fact(tmp_path: Path) -> None:
    """Small models copy the example. What the messages do not say is not learned."""
    example = "Ana and Rui got the keys to their flat in Porto on 2026-03-01; Rui is very happy about it."
    with OpenAIServer([json.dumps({"facts": [example, "Leopold has a canary"]})]) as server:
        async with connect(tmp_path, **model_environment(server.base_url)) as agent:
            await agent.call_tool("add_memory", {"messages": [{"role": "user", "content": "I have a canary"}]})
            listed = [hit["text"] for hit in reply_results(await agent.call_tool("list_memories", {}))]
        assert example in server.chat_requests[0]["messages"][0]["content"].replace("\n", " ")
    assert listed == ["Leopold has a canary"]


@pytest.mark.few_by_day(3)
@pytest.mark.parametrize(
    ("setting", "value", "shown"),
    [("SIMILAR_MEMORIES", "1", 1), ("SIMILARITY_THRESHOLD", "0.99", 3), ("SIMILARITY_THRESHOLD", "0.1", 5)],
)
async def test_m_s_and_the_threshold_are_settings(tmp_path: Path, setting: str, value: str, shown: int) -> None:
    """The model sees so many messages before the new ones, and so many memories near to a fact."""
    variables = {"PALIMPSEST_LEARN__RECENT_MESSAGES": "2", f"PALIMPSEST_LEARN__{setting}": value}
    with OpenAIServer([json.dumps({"facts": ["the barn is red"]}), json.dumps({"decisions": []})] * 2) as server:
        async with connect(tmp_path, **model_environment(server.base_url), **variables) as agent:
            for text in (
                "the barn is old",
                "the barn leaks",
                "the barn is big",
                "the barn has a door",
                "the barn is dry",
            ):
                await agent.call_tool("add_memory", {"text": text, "infer": False})
            talk = [{"role": "user", "content": f"Line {number}"} for number in range(5)]
            await agent.call_tool("add_memory", {"messages": talk, "infer": False})
            await agent.call_tool("add_memory", {"messages": [{"role": "user", "content": "A red barn"}]})
    before = given(server.chat_requests[0], "Recent messages, for context only")
    assert [item["text"] for item in before] == ["Line 3", "Line 4"]
    assert len(given(server.chat_requests[1], "Stored memories")) == shown


# The replies to a prompt of one's own, and a prompt about one fact.

LINES = "Pick what is new, as lines."


@pytest.mark.few_by_day(3)
@pytest.mark.parametrize("prompt", [LINES, TELLING + LINES], ids=["guidance", "whole"])
@pytest.mark.parametrize(
    ("reply", "learned"),
    [
        ("Ina sews gloves\nIna sold the loom", ["Ina sews gloves", "Ina sold the loom"]),
        ("\u30fbIna sews gloves\n\u30fbIna sold the loom", ["Ina sews gloves", "Ina sold the loom"]),
        ("New facts:\n\n- Ina sews gloves\n---", ["Ina sews gloves"]),
        ("", []),
    ],
    ids=["lines", "middle dots", "heading", "empty"],
)
async def test_a_fact_a_line_and_nothing_at_all_are_understood_at_once(
    tmp_path: Path, prompt: str, reply: str, learned: list[str]
) -> None:
    """An empty reply to a prompt of one's own says that there is no fact. To the shipped one it is a failure."""
    prompts = {"PALIMPSEST_CUSTOM_FACT_EXTRACTION_PROMPT": prompt}
    said = {"role": "user", "content": "Ina sews gloves now, and sold the loom"}

    def answer(request: dict[str, Any]) -> str:
        del request
        return reply if len(server.chat_requests) == 1 else '{"decisions": [{"fact": 0, "event": "ADD"}]}'

    with OpenAIServer(answer) as server:
        async with connect(tmp_path, **model_environment(server.base_url), **prompts) as agent:
            text = reply_text(await agent.call_tool("add_memory", {"messages": [said]}))
            listed = [hit["text"] for hit in reply_results(await agent.call_tool("list_memories", {}))]
    assert sorted(listed) == learned
    assert [request for request in server.chat_requests[1:] if "cannot be used" in str(request)] == []
    assert ("found worth a memory" in text) is not learned


async def test_an_update_prompt_for_one_fact_is_asked_once_for_each(tmp_path: Path) -> None:
    """As in the paper: the reply is one operation, about the only candidate that was shown."""

    def answer(request: dict[str, Any]) -> str:
        if len(server.chat_requests) == 1:
            return "- Ina sews gloves\n- Ina keeps geese"
        candidate = str(request["messages"]).partition("Candidate: ")[2].partition("Known: ")[0]
        assert candidate.count('"text"') == 1
        if "geese" in candidate:
            return '{"operation": "ADD", "target_memory_id": "", "updated_content": null}'
        return '{"operation": "UPDATE", "target_memory_id": "0", "updated_content": "Ina sews gloves"}'

    prompts = {"PALIMPSEST_CUSTOM_FACT_EXTRACTION_PROMPT": BULLETS, "PALIMPSEST_CUSTOM_UPDATE_MEMORY_PROMPT": PER_FACT}
    said = {"role": "user", "content": "Ina sews gloves now, and keeps geese"}
    with OpenAIServer(answer) as server:
        async with connect(tmp_path, **model_environment(server.base_url), **prompts) as agent:
            await agent.call_tool("add_memory", {"text": "Ina sews", "infer": False})
            text = reply_text(await agent.call_tool("add_memory", {"messages": [said]}))
            listed = [hit["text"] for hit in reply_results(await agent.call_tool("list_memories", {}))]
    assert sorted(listed) == ["Ina keeps geese", "Ina sews gloves"]
    assert len(server.chat_requests) == 3
    assert "decided nothing" not in text


async def test_an_update_prompt_for_one_fact_is_asked_about_a_request_to_forget_too(tmp_path: Path) -> None:
    def answer(request: dict[str, Any]) -> str:
        if len(server.chat_requests) == 1:
            return facts_reply("Ina keeps geese", forget="that Ina sews")
        is_request = '"forget"' in str(request["messages"]).partition("Known: ")[0]
        return '{"operation": "DELETE", "target_memory_id": "0"}' if is_request else '{"operation": "ADD"}'

    said = {"role": "user", "content": "I keep geese now. And forget that I sew."}
    with OpenAIServer(answer) as server:
        prompt = {"PALIMPSEST_CUSTOM_UPDATE_MEMORY_PROMPT": PER_FACT}
        async with connect(tmp_path, **model_environment(server.base_url), **prompt) as agent:
            await agent.call_tool("add_memory", {"text": "Ina sews", "infer": False})
            await agent.call_tool("add_memory", {"messages": [said]})
            listed = [hit["text"] for hit in reply_results(await agent.call_tool("list_memories", {}))]
    assert listed == ["Ina keeps geese"]
