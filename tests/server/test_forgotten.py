"""What a person asked to forget, through the tools: no id leads to it, and the reply says how to bring it back."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from mcp.types import TextResourceContents

from loopback import OpenAIServer
from tests.support.mcp_client import reply_results, reply_text
from tests.support.scripted_model import is_extraction
from tests.support.server_in_process import connect

pytestmark = pytest.mark.anyio

TURN = "My ex-husband Mark drinks. I'm allergic to hazelnuts."
FACTS = [{"text": text, "sources": [1]} for text in ("Mark drinks.", "Alice is allergic to hazelnuts.")]


def model(request: dict[str, Any]) -> str:
    """Learn both facts, then forget the one about Mark."""
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
