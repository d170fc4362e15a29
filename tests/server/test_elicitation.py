"""Questions to the user, if the client can ask them (MCP elicitation)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp.types import CreateMessageResult, ElicitResult, TextContent

from loopback import OpenAIServer
from tests.support.mcp_client import reply_results, reply_text
from tests.support.server_in_process import server_in_process

pytestmark = pytest.mark.anyio

BOTH = pytest.mark.parametrize("mode", ["legacy", "auto"])


async def count_memories(client: Client) -> int:
    """Return the number of memories."""
    return len(reply_results(await client.call_tool("list_memories", {})))


@pytest.mark.few_by_day(1)
@BOTH
@pytest.mark.parametrize(
    ("answer", "left", "told", "offers_model"),
    [
        (ElicitResult(action="accept", content={"forget": True}), 0, "forgotten, as asked (the dentist)", False),
        (ElicitResult(action="accept", content={"forget": True}), 0, "forgotten, as asked (the dentist)", True),
        (ElicitResult(action="decline"), 6, "the user said no", False),
        (ElicitResult(action="cancel"), 6, "delete_memory(memory_ids=[", False),
        (None, 6, "delete_memory(memory_ids=[", False),  # a client that cannot ask
    ],
)
async def test_much_is_forgotten_once_the_user_agrees(
    tmp_path: Path, mode: str, answer: ElicitResult | None, left: int, told: str, *, offers_model: bool
) -> None:
    """Guards against a model that takes a small request for one to forget everything."""
    questions: list[str] = []

    async def ask(context: Any, params: Any) -> ElicitResult:
        del context
        questions.append(params.message)
        assert answer is not None
        return answer

    async def ask_model(context: Any, params: Any) -> CreateMessageResult:
        del context
        text = forgets_all({"messages": [{}, {"content": params.messages[0].content.text}]})
        return CreateMessageResult(role="assistant", content=TextContent(type="text", text=text), model="model-1")

    with OpenAIServer(forgets_all) as endpoint:
        model = {"PALIMPSEST_LLM__PROVIDER": "openai", "OPENAI_API_KEY": "k", "OPENAI_BASE_URL": endpoint.base_url}
        server = server_in_process(tmp_path, **({"PALIMPSEST_LLM__PROVIDER": "sampling"} if offers_model else model))
        client = Client(
            server,
            mode=mode,
            elicitation_callback=ask if answer is not None else None,
            sampling_callback=ask_model if offers_model else None,
        )
        async with client:
            for number in range(6):
                await client.call_tool("add_memory", {"text": f"Alice saw dentist number {number}", "infer": False})
            conversation = [{"role": "user", "content": "Please forget the dentist."}]
            reply = reply_text(await client.call_tool("add_memory", {"messages": conversation}))
            assert await count_memories(client) == left
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
