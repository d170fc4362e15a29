"""The client's own model: asked through a real client that answers, in both protocol eras, over every transport."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from mcp import Client, MCPError
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp.types import (
    CreateMessageResult,
    CreateMessageResultWithTools,
    ErrorData,
    ImageContent,
    InputRequiredResult,
    TextContent,
)

from loopback import OpenAIServer
from tests.support.http_server import connect_http, new_access_token, run_http_server
from tests.support.mcp_client import reply_results, reply_text
from tests.support.server_in_process import connect, server_in_process

pytestmark = pytest.mark.anyio

BOTH = pytest.mark.parametrize("mode", ["legacy", "auto"])
TEA = json.dumps({"facts": [{"text": "Alice likes Darjeeling", "sources": [1]}]})
SAID = {"messages": [{"role": "user", "content": "I do like Darjeeling"}]}

Asked = list[Any]


class Lender:
    """Answer the server's questions from a script, one reply a question; `asked` holds the questions.

    An ErrorData among the replies is the user who says no.
    """

    def __init__(self, *replies: str | ErrorData) -> None:
        self.asked: Asked = []
        self._script = list(replies)

    async def __call__(self, context: Any, params: Any) -> CreateMessageResult | ErrorData:
        """Give the next reply."""
        del context
        self.asked.append(params)
        reply = self._script[len(self.asked) - 1]
        if isinstance(reply, ErrorData):
            return reply
        return answer(reply)


def answer(text: str, model: str = "lent-1") -> CreateMessageResult:
    """Return a reply of the client's model."""
    content = TextContent(type="text", text=text)
    return CreateMessageResult(role="assistant", content=content, model=model, stop_reason="endTurn")


NO = ErrorData(code=-1, message="the user declined sampling")


def over_stdio(folder: Path, lender: Callable[..., Any], mode: str, **settings: str) -> Client:
    """Return a client over stdio that lends its model."""
    server = server_in_process(folder, **settings)
    return Client(server, mode=mode, sampling_callback=lender)


@asynccontextmanager
async def over_http(folder: Path, lender: Callable[..., Any], how: str) -> AsyncGenerator[Client]:
    """Connect a client over HTTP or SSE that lends its model."""
    with run_http_server(folder, PALIMPSEST_LLM__PROVIDER="sampling") as running:
        if how == "sse":
            async with Client(sse_client(f"{running.base}/sse"), sampling_callback=lender) as client:
                yield client
            return
        async with (
            httpx2.AsyncClient() as http,
            Client(
                streamable_http_client(f"{running.base}/mcp", http_client=http), mode=how, sampling_callback=lender
            ) as client,
        ):
            yield client


def asked_for(lender: Lender) -> Sequence[str]:
    """Return the user's part of every question."""
    return [question.messages[0].content.text for question in lender.asked]


@BOTH
async def test_facts_are_extracted_and_reconciled_by_the_clients_model(tmp_path: Path, mode: str) -> None:
    """Guards the whole pipeline without a key, and that the history names the model that decided."""
    update = json.dumps(
        {"decisions": [{"fact": 0, "event": "UPDATE", "memory": 0, "text": "Alice likes Darjeeling and Assam"}]}
    )
    assam = json.dumps({"facts": [{"text": "Alice likes Assam tea, like Darjeeling", "sources": [1]}]})
    lender = Lender(TEA, assam, update)
    async with over_stdio(tmp_path, lender, mode) as client:
        first = await client.call_tool("add_memory", SAID)
        assert "added: [" in reply_text(first)
        assert first.structured_content["kept_messages"] == 1
        second = await client.call_tool("add_memory", {"messages": [{"role": "user", "content": "And Assam"}]})
        assert reply_text(second).startswith("updated: [")
        (result,) = reply_results(second)
        assert result["memory"] == "Alice likes Darjeeling and Assam"
        history = await client.call_tool("get_history", {"memory_id": result["id"]})
        assert [each["model"] for each in history.structured_content["history"]] == ["lent-1", "lent-1"]
    assert "I do like Darjeeling" in asked_for(lender)[0]
    assert "Alice likes Darjeeling" in asked_for(lender)[2]
    assert all(question.system_prompt and 0 < question.max_tokens <= 4000 for question in lender.asked)


@pytest.mark.parametrize("how", ["legacy", "auto", "sse"])
async def test_the_model_is_lent_over_every_transport(tmp_path: Path, how: str) -> None:
    """Guards clients that connect by HTTP."""
    lender = Lender(TEA)
    async with over_http(tmp_path, lender, how) as client:
        assert reply_text(await client.call_tool("add_memory", SAID)).startswith("added: [")
    assert len(lender.asked) == 1


@BOTH
async def test_a_reply_that_does_not_fit_is_repaired_once(tmp_path: Path, mode: str) -> None:
    """Guards the second question, which carries the first reply, through both ways of asking."""
    lender = Lender("Sure! Here you go.", TEA)
    async with over_stdio(tmp_path, lender, mode) as client:
        assert reply_text(await client.call_tool("add_memory", SAID)).startswith("added: [")
    assert [message.role for message in lender.asked[1].messages] == ["user", "assistant", "user"]


async def test_a_user_who_says_no_keeps_what_was_said_and_is_told(tmp_path: Path) -> None:
    """Guards what was said from a refusal, where the server hears of it."""
    async with over_stdio(tmp_path, Lender(NO, NO), "legacy") as client:
        told = reply_text(await client.call_tool("add_memory", SAID))
        assert "kept 1 message" in told
        assert "the user declined sampling" in told
        await client.call_tool("add_memory", {"text": "Alice likes Darjeeling", "infer": False})
        told = reply_text(await client.call_tool("add_memory", {"text": "Alice likes Darjeeling tea"}))
        assert told.startswith("added: [")
        assert "stored in your words, not reconciled" in told


async def test_a_question_that_is_never_answered_loses_nothing(tmp_path: Path) -> None:
    """Guards the newer protocol, where a client that declines just does not come back."""
    async with over_stdio(tmp_path, Lender(NO, NO), "auto", PALIMPSEST_LLM__CONFIG__TIMEOUT="0.2") as client:
        with pytest.raises(MCPError, match="declined"):
            await client.call_tool("add_memory", SAID)
        await client.call_tool("add_memory", {"text": "Alice likes Darjeeling", "infer": False})
        with pytest.raises(MCPError, match="declined"):
            await client.call_tool("add_memory", {"text": "Alice likes Darjeeling tea"})
        with anyio.fail_after(30):
            while len(reply_results(await client.call_tool("list_memories", {}))) < 2:
                await anyio.lowlevel.checkpoint()
        found = reply_results(await client.call_tool("search_memories", {"query": "Darjeeling"}))
    assert {hit["text"] for hit in found} == {
        "Alice likes Darjeeling",
        "Alice likes Darjeeling tea",
        "I do like Darjeeling",
    }


@BOTH
async def test_a_late_reply_finds_what_was_done_without_it(tmp_path: Path, mode: str) -> None:
    """Guards a slow model: the call ends with what was kept, in both ways of asking."""
    asked: Asked = []

    async def late(context: Any, params: Any) -> CreateMessageResult:
        del context
        asked.append(params)
        if len(asked) == 1:
            await anyio.sleep(1)
        return CreateMessageResult(role="assistant", content=TextContent(type="text", text=TEA), model="lent-1")

    async with over_stdio(tmp_path, late, mode, PALIMPSEST_LLM__CONFIG__TIMEOUT="0.3") as client:
        told = reply_text(await client.call_tool("add_memory", SAID))
        assert "no reply within 0.3 seconds" in told
        assert "kept 1 message" in told
        assert reply_text(await client.call_tool("add_memory", SAID)).startswith("added: [")


@BOTH
async def test_the_summary_is_written_by_the_clients_model_when_it_is_due(tmp_path: Path, mode: str) -> None:
    """Guards the summary where nothing can be asked in the background: asked for, it is written after K changes."""
    lender = Lender(json.dumps({"summary": "Likes tea."}), json.dumps({"summary": "Likes tea, has a cat."}))
    async with over_stdio(tmp_path, lender, mode, PALIMPSEST_SUMMARY__EVERY="2") as client:
        for text in ("Alice likes tea", "Alice has a cat", "Alice plays the violin"):
            await client.call_tool("add_memory", {"text": text, "infer": False})
            if text == "Alice likes tea":
                assert reply_text(await client.call_tool("get_summary", {})).startswith("Likes tea.")
        assert reply_text(await client.call_tool("get_summary", {})).startswith("Likes tea, has a cat.")
        assert reply_text(await client.call_tool("get_summary", {})).startswith("Likes tea, has a cat.")
    assert len(lender.asked) == 2


@pytest.mark.parametrize("provider", ["none", "openai"])
async def test_a_client_is_not_asked_where_the_settings_say_otherwise(tmp_path: Path, provider: str) -> None:
    """Guards users who do not want their client's model used, and those who have one of their own."""
    lender = Lender()
    with OpenAIServer([TEA]) as server:
        env = {"PALIMPSEST_LLM__PROVIDER": provider, "OPENAI_API_KEY": "k", "OPENAI_BASE_URL": server.base_url}
        async with over_stdio(tmp_path, lender, "auto", **env) as client:
            told = reply_text(await client.call_tool("add_memory", SAID))
    assert lender.asked == []
    assert told.startswith("added: [" if provider == "openai" else "kept 1 message")


@BOTH
async def test_a_client_that_lends_no_model_does_the_wording_itself(tmp_path: Path, mode: str) -> None:
    """Guards the fallback of `sampling` and `auto`: turns are kept, and the agent is told what to do."""
    server = server_in_process(tmp_path, PALIMPSEST_LLM__PROVIDER="sampling")
    async with Client(server, mode=mode) as client:
        told = reply_text(await client.call_tool("add_memory", SAID))
    assert "there is no language model to ask: turns are kept as they are" in told


@BOTH
async def test_an_answer_in_parts_or_of_another_kind_loses_nothing(tmp_path: Path, mode: str) -> None:
    """Guards against clients that answer in their own way: text in parts is read, a picture is no answer."""
    asked: Asked = []

    async def odd(context: Any, params: Any) -> Any:
        del context
        asked.append(params)
        if len(asked) == 1:
            parts: list[Any] = [TextContent(type="text", text=TEA[:20]), TextContent(type="text", text=TEA[20:])]
            return CreateMessageResultWithTools(role="assistant", content=parts, model="a\nb", stop_reason="endTurn")
        return CreateMessageResult(
            role="assistant", content=ImageContent(type="image", data="aGk=", mime_type="image/png"), model="painter"
        )

    async with over_stdio(tmp_path, odd, mode) as client:
        (tea,) = reply_results(await client.call_tool("add_memory", SAID))
        assert tea["memory"] == "Alice likes Darjeeling"
        history = await client.call_tool("get_history", {"memory_id": tea["id"]})
        assert history.structured_content["history"][0]["model"] == "a b"
        told = reply_text(await client.call_tool("add_memory", {"text": "Alice likes Darjeeling tea"}))
        assert told.startswith("added: [")
        assert "painter sent a reply without text" in told


async def test_a_last_round_that_is_sent_again_is_answered_again(tmp_path: Path) -> None:
    """Guards a client whose connection lost the answer: it hears what was done, and nothing is done twice."""
    async with over_stdio(tmp_path, Lender(), "auto") as client:
        call = client.session.call_tool
        first = await call("add_memory", SAID, allow_input_required=True)
        assert isinstance(first, InputRequiredResult)
        assert first.input_requests
        given: dict[str, Any] = {key: answer(TEA) for key in first.input_requests}
        for _ in range(2):
            done = await call("add_memory", SAID, input_responses=given, request_state=first.request_state)
            assert reply_text(done).startswith("added: [")
        assert len(reply_results(await client.call_tool("list_memories", {}))) == 1


async def test_a_token_that_only_reads_lends_no_model(tmp_path: Path) -> None:
    """Guards the summary, which goes into every later conversation, from whoever may only read it."""
    with run_http_server(tmp_path, PALIMPSEST_LLM__PROVIDER="sampling") as running:
        reading = new_access_token(running.data, "alice", read_only=True)
    lender = Lender(json.dumps({"summary": "POISONED"}))
    with run_http_server(tmp_path, PALIMPSEST_LLM__PROVIDER="sampling") as running:
        for bearer, lent in ((new_access_token(running.data, "alice"), None), (reading, lender)):
            async with connect_http(running, "auto", bearer, sampling_callback=lent) as client:
                if lent is None:
                    await client.call_tool("add_memory", {"text": "Alice likes tea"})
                assert "Alice likes tea" in reply_text(await client.call_tool("get_summary", {"refresh": True}))
    assert lender.asked == []


async def test_a_summary_that_is_up_to_date_is_given_without_a_model_too(tmp_path: Path) -> None:
    """Guards what a client's model wrote, for the clients that lend none."""
    async with over_stdio(tmp_path, Lender(json.dumps({"summary": "Likes tea."})), "auto") as client:
        await client.call_tool("add_memory", {"text": "Alice likes tea", "infer": False})
        assert reply_text(await client.call_tool("get_summary", {})).startswith("Likes tea.")
    async with connect(tmp_path, mode="auto") as client:
        assert reply_text(await client.call_tool("get_summary", {})).startswith("Likes tea.")
        await client.call_tool("add_memory", {"text": "Alice has a cat", "infer": False})
        assert "Alice has a cat" in reply_text(await client.call_tool("get_summary", {}))
