"""The client's own language model (MCP sampling), in both protocol eras and over every transport."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client
from mcp.types import (
    CreateMessageResult,
    CreateMessageResultWithTools,
    ErrorData,
    ImageContent,
    InputRequiredResult,
    TextContent,
)

from tests.support.http_server import connect_http, new_access_token, run_http_server
from tests.support.mcp_client import reply_results, reply_text
from tests.support.scripted_model import facts_reply, summary_reply
from tests.support.server_in_process import server_in_process

pytestmark = pytest.mark.anyio

TEA = facts_reply("Alice likes Darjeeling")
CONVERSATION = {"messages": [{"role": "user", "content": "I do like Darjeeling"}]}


class ScriptedClientModel:
    """A client's model that answers from a script. `requests` are the requests it got.

    An ErrorData among the replies stands for a user who declines.
    """

    def __init__(self, *replies: str | ErrorData) -> None:
        self.requests = list[Any]()
        self._script = list(replies)

    async def __call__(self, context: Any, params: Any) -> CreateMessageResult | ErrorData:
        """Return the next reply."""
        del context
        self.requests.append(params)
        reply = self._script[len(self.requests) - 1]
        if isinstance(reply, ErrorData):
            return reply
        return answer(reply)


def answer(text: str, model: str = "model-1") -> CreateMessageResult:
    content = TextContent(type="text", text=text)
    return CreateMessageResult(role="assistant", content=content, model=model, stop_reason="endTurn")


def over_stdio(folder: Path, model: Callable[..., Any], mode: str, **settings: str) -> Client:
    server = server_in_process(folder, **settings)
    return Client(server, mode=mode, sampling_callback=model)


class SilentClientModel(ScriptedClientModel):
    """A client's model that never answers after its script."""

    async def __call__(self, context: Any, params: Any) -> CreateMessageResult | ErrorData:
        """Return the next reply, or none."""
        if len(self.requests) < len(self._script):
            return await super().__call__(context, params)
        self.requests.append(params)
        await anyio.sleep_forever()
        raise AssertionError


def call_seconds(seconds: str) -> dict[str, str]:
    return {"PALIMPSEST_LEARN__CALL_SECONDS": seconds, "PALIMPSEST_LLM__CONFIG__TIMEOUT": "600"}


async def test_a_call_ends_though_the_clients_model_never_answers(tmp_path: Path) -> None:
    """Guards calls from waiting for ever: what is sent, what was found in time and summaries are kept, and told."""
    async with over_stdio(tmp_path, SilentClientModel(TEA), "legacy", **call_seconds("0.4")) as client:
        with anyio.fail_after(30):
            await client.call_tool("add_memory", {"text": "Alice likes Assam", "infer": False})
            added = await client.call_tool("add_memory", CONVERSATION)  # the model finds a fact, and never decides
            assert "learn.call_seconds" in reply_text(added)
            assert [result["memory"] for result in reply_results(added)] == ["Alice likes Darjeeling"]
            unheard = {"messages": [{"role": "user", "content": "I do like Ceylon"}]}
            text = reply_text(await client.call_tool("add_memory", unheard))
            for part in ("kept 1 message", "learn.call_seconds", "Send the same messages again"):
                assert part in text
            text = reply_text(await client.call_tool("add_memory", {"text": "Alice likes Darjeeling tea"}))
            assert text.startswith("added: [")
            text = reply_text(await client.call_tool("get_summary", {}))
            assert "Alice likes Darjeeling tea" in text
            assert "learn.call_seconds" in text


@pytest.mark.few_by_day(1)
@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_a_reply_in_parts_is_read_and_a_picture_is_not_an_answer(tmp_path: Path, mode: str) -> None:
    """Guards against unusual replies: nothing that was sent to the memory is lost."""
    parts = [TextContent(type="text", text=TEA[:20]), TextContent(type="text", text=TEA[20:])]
    picture = ImageContent(type="image", data="aGk=", mime_type="image/png")
    in_parts = CreateMessageResultWithTools(role="assistant", content=[*parts], model="a\nb", stop_reason="endTurn")
    painted = CreateMessageResult(role="assistant", content=picture, model="painter")
    replies = itertools.chain([in_parts], itertools.repeat(painted))

    async def odd(_context: Any, _params: Any) -> Any:
        return next(replies)

    async with over_stdio(tmp_path, odd, mode) as client:
        (tea,) = reply_results(await client.call_tool("add_memory", CONVERSATION))
        assert tea["memory"] == "Alice likes Darjeeling"
        history = await client.call_tool("get_history", {"memory_id": tea["id"]})
        assert history.structured_content["history"][0]["model"] == "a b"
        text = reply_text(await client.call_tool("add_memory", {"text": "Alice likes Darjeeling tea"}))
        assert text.startswith("added: [")
        assert "painter sent a reply without text" in text


async def test_a_repeated_last_request_gets_the_same_result(tmp_path: Path) -> None:
    """Guards a client whose connection lost the result: it gets it again, and nothing is done twice."""
    async with over_stdio(tmp_path, ScriptedClientModel(), "auto") as client:
        call = client.session.call_tool
        first = await call("add_memory", CONVERSATION, allow_input_required=True)
        assert isinstance(first, InputRequiredResult)
        assert first.input_requests
        responses: dict[str, Any] = {key: answer(TEA) for key in first.input_requests}
        for _ in range(2):
            done = await call("add_memory", CONVERSATION, input_responses=responses, request_state=first.request_state)
            assert reply_text(done).startswith("added: [")
        assert len(reply_results(await client.call_tool("list_memories", {}))) == 1


@pytest.mark.nightly
async def test_a_client_with_a_read_only_token_is_not_asked(tmp_path: Path) -> None:
    """Guards the summary, which enters later conversations, from clients that may only read."""
    with run_http_server(tmp_path, PALIMPSEST_LLM__PROVIDER="sampling") as running:
        reading = new_access_token(running.data, "alice", read_only=True)
    model = ScriptedClientModel(summary_reply("POISONED"))
    with run_http_server(tmp_path, PALIMPSEST_LLM__PROVIDER="sampling") as running:
        for bearer, client_model in ((new_access_token(running.data, "alice"), None), (reading, model)):
            async with connect_http(running, "auto", bearer, sampling_callback=client_model) as client:
                if client_model is None:
                    await client.call_tool("add_memory", {"text": "Alice likes tea"})
                assert "Alice likes tea" in reply_text(await client.call_tool("get_summary", {"refresh": True}))
    assert model.requests == []
