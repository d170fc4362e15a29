"""The model of Anthropic's Messages API, against a stand-in on loopback."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from loopback import OpenAIServer, Reply
from palimpsest.core.errors import CutOffReplyError, ModelError, ModelRefusedError, ModelUnreachableError
from palimpsest.core.settings import load_settings
from palimpsest.learn.engine import open_model
from tests.support.mcp_client import reply_results
from tests.support.scripted_model import facts_reply
from tests.support.server_in_process import connect

pytestmark = pytest.mark.anyio


async def asked(folder: Path, server: OpenAIServer, schema: dict[str, Any] | None = None, **config: Any) -> str:
    """Return the reply of the model that the settings name."""
    address = server.base_url.removesuffix("/v1")
    given = {"model": "claude", "api_key": SecretStr("key"), "anthropic_base_url": address, **config}
    model = open_model(load_settings(data_dir=folder, llm={"provider": "anthropic", "config": given}))
    assert model is not None
    try:
        await model.check()
        return await model.complete(
            [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}], schema
        )
    finally:
        await model.aclose()


async def test_facts_are_learned_with_it(tmp_path: Path) -> None:
    config = {"MODEL": "claude", "API_KEY": "test-key", "TOP_P": "0.5", "MAX_TOKENS": "900"}
    variables = {f"PALIMPSEST_LLM__CONFIG__{key}": value for key, value in config.items()}
    with OpenAIServer([facts_reply("Ada keeps bees")]) as server:
        variables["PALIMPSEST_LLM__CONFIG__ANTHROPIC_BASE_URL"] = server.base_url.removesuffix("/v1")
        async with connect(tmp_path, PALIMPSEST_LLM__PROVIDER="anthropic", **variables) as agent:
            await agent.call_tool("add_memory", {"messages": [{"role": "user", "content": "I keep bees"}]})
            listed = [hit["text"] for hit in reply_results(await agent.call_tool("list_memories", {}))]
    assert listed == ["Ada keeps bees"]
    (request,) = server.message_requests
    assert (request["model"], request["max_tokens"], request["top_p"]) == ("claude", 900, 0.5)
    assert request["system"].startswith("You keep the long-term memory")
    assert [message["role"] for message in request["messages"]] == ["user"]
    assert request["output_config"]["format"]["type"] == "json_schema"
    assert server.requests[0]["headers"]["authorization"] == "Bearer test-key"


async def test_options_that_a_model_refuses_are_left_out(tmp_path: Path) -> None:
    """Newer models take no temperature, and older ones no schema."""

    def answer(request: dict[str, Any]) -> Reply | str:
        refused = next((name for name in ("temperature", "output_config") if name in request), "")
        return Reply(f"{refused}: not supported", status=400) if refused else "Hello"

    with OpenAIServer(answer) as server:
        assert await asked(tmp_path, server, {"type": "object"}) == "Hello"
    assert len(server.message_requests) == 3


@pytest.mark.few_by_day(2)
@pytest.mark.parametrize(
    ("reply", "kind", "words"),
    [
        (Reply("{", finish_reason="length"), CutOffReplyError, "llm.config.max_tokens"),
        (Reply("The key is wrong", status=401), ModelRefusedError, "401: The key is wrong"),
        (Reply(body=json.dumps({"content": [], "stop_reason": "refusal"}).encode()), ModelRefusedError, "declined"),
        (Reply(body=b"busy"), ModelUnreachableError, "could not be reached"),
        (Reply(body=b'{"content": []}'), ModelError, "empty reply"),
    ],
)
async def test_what_fails_is_an_error_of_ours(tmp_path: Path, reply: Reply, kind: type[ModelError], words: str) -> None:
    with OpenAIServer([reply, reply]) as server, pytest.raises(kind, match=words):
        await asked(tmp_path, server)


@pytest.mark.parametrize(("top_p", "sent"), [(None, {"temperature"}), (0.5, {"top_p"})])
async def test_a_model_is_never_sent_both_temperature_and_top_p(
    tmp_path: Path, top_p: float | None, sent: set[str]
) -> None:
    """Some models refuse both; the temperature is one that nobody has to set."""
    with OpenAIServer(["Hello"]) as server:
        await asked(tmp_path, server, top_p=top_p)
    assert server.message_requests[0].keys() & {"temperature", "top_p"} == sent
