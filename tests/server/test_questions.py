"""What a server asks of its client: its own language model (MCP sampling), and a question to its user."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client
from mcp.types import (
    CreateMessageResult,
    CreateMessageResultWithTools,
    ElicitResult,
    ErrorData,
    ImageContent,
    InputRequiredResult,
    TextContent,
    TextResourceContents,
)

from loopback import OpenAIServer
from tests.support.http_server import connect_http, new_access_token, run_http_server
from tests.support.mcp_client import reply_results, reply_text
from tests.support.scripted_model import facts_reply, is_extraction, summary_reply
from tests.support.server_in_process import connect, server_in_process

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


@pytest.mark.nightly
async def test_a_call_ends_though_the_clients_model_never_answers(tmp_path: Path) -> None:
    """Guards calls from waiting for ever: what is sent, what was found in time and summaries are kept, and told."""
    async with over_stdio(tmp_path, SilentClientModel(TEA), "legacy", **call_seconds("1.5")) as client:
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
        assert "painter sent an empty reply" in text


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


AGREES = ElicitResult(action="accept", content={"delete": True})


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
