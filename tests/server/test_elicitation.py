"""Requests to forget: questions to the user, if the client can ask them, and what a client sees afterwards."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp.types import ElicitResult, TextResourceContents

from loopback import OpenAIServer
from tests.support.mcp_client import reply_results, reply_text
from tests.support.scripted_model import is_extraction
from tests.support.server_in_process import connect, server_in_process

pytestmark = pytest.mark.anyio


AGREES = ElicitResult(action="accept", content={"forget": True})


@pytest.mark.few_by_day(1)
@pytest.mark.parametrize("mode", ["legacy", "auto"])
@pytest.mark.parametrize(
    ("answer", "left", "told"),
    [
        (AGREES, 0, "forgotten, as asked (the dentist)"),
        (ElicitResult(action="decline"), 6, "the user said no"),
        (ElicitResult(action="cancel"), 6, "delete_memory(memory_ids=["),
        (None, 6, "delete_memory(memory_ids=["),  # a client that cannot ask
    ],
)
async def test_much_is_forgotten_once_the_user_agrees(
    tmp_path: Path, mode: str, answer: ElicitResult | None, left: int, told: str
) -> None:
    """Guards against a model that takes a small request for one to forget everything."""
    questions: list[str] = []

    async def ask(context: Any, params: Any) -> ElicitResult:
        del context
        questions.append(params.message)
        assert answer is not None
        return answer

    with OpenAIServer(forgets_all) as endpoint:
        model = {"PALIMPSEST_LLM__PROVIDER": "openai", "OPENAI_API_KEY": "k", "OPENAI_BASE_URL": endpoint.base_url}
        server = server_in_process(tmp_path, **model)
        async with Client(server, mode=mode, elicitation_callback=ask if answer is not None else None) as client:
            for number in range(6):
                await client.call_tool("add_memory", {"text": f"Alice saw dentist number {number}", "infer": False})
            conversation = [{"role": "user", "content": "Please forget the dentist."}]
            reply = reply_text(await client.call_tool("add_memory", {"messages": conversation}))
            assert len(reply_results(await client.call_tool("list_memories", {}))) == left
    assert told in reply
    assert len(questions) == (answer is not None)
    assert all("the dentist" in question and "6 entries" in question for question in questions)


def forgets_all(request: dict[str, Any]) -> str:
    """Reply as a model that takes whatever is said for a request, which means every memory that it is shown."""
    prompt = request["messages"][1]["content"]
    if "Stored memories: " not in prompt:
        return json.dumps({"facts": [], "forget": [{"forget": "the dentist", "sources": [1]}]})
    memories = json.loads(prompt.split("Stored memories: ")[1])
    meant = [item["id"] for item in memories if not item.get("message")]
    return json.dumps({"decisions": [{"fact": 0, "event": "DELETE", "memory": number} for number in meant]})


TURN = "My ex-husband Mark drinks. I'm allergic to hazelnuts."
FACTS = [{"text": text, "sources": [1]} for text in ("Mark drinks.", "Alice is allergic to hazelnuts.")]


def model(request: dict[str, Any]) -> str:
    prompt = request["messages"][1]["content"]
    if not is_extraction(request):
        forgets = {"fact": 0, "event": "DELETE", "memory": prompt_number(prompt, "Mark drinks."), "text": ""}
        return json.dumps({"decisions": [forgets] if '"forget"' in prompt else []})
    if "hazelnuts" in prompt.split("New messages: ")[1]:
        return json.dumps({"facts": FACTS})
    return json.dumps({"facts": [], "forget": [{"forget": "Mark", "sources": [1]}]})


def prompt_number(prompt: str, text: str) -> int:
    shown = json.loads(prompt.split("Stored memories: ")[1])
    return next((entry["id"] for entry in shown if entry["text"] == text), 0)


async def test_no_id_leads_to_the_turn_and_the_reply_says_how_to_bring_it_back(tmp_path: Path) -> None:
    """A fact that stays names the turn as its source, and an agent may follow it."""
    with OpenAIServer(model) as endpoint:
        settings = {
            "PALIMPSEST_LLM__PROVIDER": "openai",
            "PALIMPSEST_LLM__CONFIG__OPENAI_BASE_URL": endpoint.base_url,
            "OPENAI_API_KEY": "k",
        }
        async with connect(tmp_path, **settings) as server:
            for text in (TURN, "Please forget Mark."):
                reply = await server.call_tool("add_memory", {"messages": [{"role": "user", "content": text}]})
            (listed,) = reply_results(await server.call_tool("list_memories", {}))
            (turn,) = listed["sources"]
            history = await server.call_tool("get_history", {"memory_id": turn})
            (content,) = (await server.read_resource(f"memory://{turn}")).contents
            assert isinstance(content, TextResourceContents)
            for shown in (reply_text(history), history.structured_content["memory"], content.text):
                assert "forgotten" in shown
                assert "Mark" not in shown

            told = reply_text(reply)
            assert 'forgotten, as asked (Mark): "Mark drinks."' in told
            assert ".." not in told
            (forgotten,) = re.findall(r'update_memory\(memory_id="(\w+)", restore=true\)', told)
            await server.call_tool("update_memory", {"memory_id": forgotten, "restore": True})
            history = await server.call_tool("get_history", {"memory_id": turn})
            assert TURN in reply_text(history)
