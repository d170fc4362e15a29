"""Replies in the forms that models send: which are accepted, which are repaired once, and which are errors."""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from loopback import OpenAIServer, Reply
from palimpsest.core.errors import ModelError, ReplyError
from palimpsest.core.settings import Endpoint, LlmConfig
from palimpsest.learn.engine import NEEDED_PROMPTS
from palimpsest.llm.ask import MAX_REPLY_CHARS, MAX_SHOWN_CHARS, ReplyModel, ask, read, strict_schema
from palimpsest.llm.decide import DecideReply
from palimpsest.llm.extract import Conversation, ExtractReply, extract
from palimpsest.llm.openai import OpenAIModel
from palimpsest.llm.prompts import Prompt, PromptFiles
from palimpsest.llm.summarize import MAX_SUMMARY_CHARS, SummarizeReply, summarize
from tests.support.memory import messages_from
from tests.support.scripted_model import NOW, ScriptedModel

MESSAGES = [{"role": "system", "content": "Take facts."}, {"role": "user", "content": "New messages: []"}]
GOOD = '{"facts": [{"text": "Ana drinks tea.", "sources": [1]}, {"text": "Ana has a cat.", "sources": [2]}]}'
REFUSAL = "I'm sorry, but I can't help with that."


def texts(reply: ExtractReply) -> list[str]:
    """Return the texts of the facts."""
    return [item.text for item in reply.facts]


def required(reply: ExtractReply) -> tuple[list[str], str]:
    """Return the texts of the facts. An empty one is refused."""
    if not all(item.text for item in reply.facts):
        raise ValueError("a fact has no text.")
    return texts(reply), ""


BOTH = ["Ana drinks tea.", "Ana has a cat."]
UNREADABLE = [
    *(
        (reply, "there is no JSON in it")
        for reply in ("", "   \n", REFUSAL, f"<think>never closed {GOOD}", "[" * 100_000)
    ),
    *(
        (prefix + reply[:cut], "there is no JSON in it")
        for prefix in ("", "Here you are: ", "```json\n")
        for reply in (GOOD, json.dumps(json.loads(GOOD)["facts"]))
        for cut in range(1, len(reply))
    ),
    ("{}", "facts"),
]


def test_the_error_about_an_unreadable_reply_names_its_fault() -> None:
    for reply, fault in UNREADABLE:
        with pytest.raises(ValueError, match=fault):
            read(reply, ExtractReply)


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("wrong_reply", "fault"),
    [
        ("", "there is no JSON in it"),
        ('{"facts": [{"sources": []}]}', "a fact has no text"),
        ("blah " * 10_000, "there is no JSON in it"),
    ],
    ids=["empty", "no text", "long"],
)
async def test_an_unreadable_reply_is_repaired_once_and_then_an_error(wrong_reply: str, fault: str) -> None:
    model = ScriptedModel([wrong_reply, GOOD])
    assert await ask(model, MESSAGES, ExtractReply, required) == BOTH
    *first_messages, bad_reply, repair = model.calls[1].messages
    assert first_messages == MESSAGES
    assert bad_reply == {"role": "assistant", "content": wrong_reply[:MAX_SHOWN_CHARS] or "(nothing)"}
    assert (repair["role"], fault in repair["content"]) == ("user", True)
    assert model.calls[1].schema == model.calls[0].schema
    model = ScriptedModel([wrong_reply, wrong_reply])
    with pytest.raises(ReplyError, match="the model scripted gave no usable reply in two attempts"):
        await ask(model, MESSAGES, ExtractReply, required)
    assert len(model.calls) == 2


def objects(schema: Any) -> list[dict[str, Any]]:
    """Return every object schema inside a schema."""
    parts: list[Any] = list(schema.values()) if isinstance(schema, dict) else schema if isinstance(schema, list) else []  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType, reportUnknownArgumentType]
    own: list[dict[str, Any]] = [schema] if isinstance(schema, dict) and "properties" in schema else []
    return own + [item for part in parts for item in objects(part)]


@pytest.mark.parametrize("reply_type", [ExtractReply, DecideReply, SummarizeReply])
def test_a_schema_is_closed_and_requires_every_key(reply_type: type[ReplyModel]) -> None:
    """Guards OpenAI's strict mode, which refuses open objects and optional keys."""
    schema = strict_schema(reply_type)

    object_schemas = list(objects(schema))

    assert object_schemas
    assert schema["type"] == "object"
    for object_schema in object_schemas:
        assert object_schema["additionalProperties"] is False
        assert object_schema["required"] == list(object_schema["properties"])


ROWS: list[dict[str, Any]] = json.loads(Path(__file__).with_name("replies.json").read_text("utf-8"))


def sent(row: dict[str, Any]) -> Reply:
    """Return a row as the endpoint's reply: its text, its message, or its whole body."""
    if "reply" in row:
        return Reply(row["reply"])
    body = row.get("body") or {"choices": [{"finish_reason": "stop", "message": row["message"]}]}
    return Reply(body=json.dumps(body).encode())


@pytest.fixture(scope="module")
def prompt() -> Prompt:
    """Return the shipped prompt of the extraction."""
    return PromptFiles(NEEDED_PROMPTS).get("extract")


@pytest.mark.anyio
async def test_the_last_whole_reply_counts_and_never_a_draft(prompt: Prompt) -> None:
    said = Conversation(messages_from(("user", "I drink tea and have a cat.")))
    current = [ROWS[0]]
    wrong: dict[str, Any] = {}
    with OpenAIServer(lambda _: sent(current[-1])) as server:
        config = LlmConfig(model="scripted", temperature=None, max_tokens=300, timeout=9)
        model = OpenAIModel(config, Endpoint(None, server.base_url))
        for row in ROWS:
            current.append(row)
            read: list[str] | str
            try:
                read = [fact.text for fact in (await extract(model, prompt, said, NOW)).facts]
            except ModelError as error:
                read = str(error)
            is_right = row.get("told", "") in read if row["facts"] is None else read == row["facts"]
            if not is_right or isinstance(read, str) is not (row["facts"] is None):
                wrong[row["name"]] = read
        await model.aclose()
    assert wrong == {}


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("wrong_reply", "fault"),
    [
        ('{"summary": " \\n "}', "the summary is empty."),
        (json.dumps({"summary": "x" * (MAX_SUMMARY_CHARS + 1)}), f"longer than {MAX_SUMMARY_CHARS} characters"),
        ('{"summary": ["Ana", "tea"]}', "summary"),
    ],
    ids=["empty", "too long", "list"],
)
async def test_a_summary_that_is_not_valid_is_repaired_or_refused(wrong_reply: str, fault: str) -> None:
    async def summary_of(*replies: str) -> str:
        model, prompt = ScriptedModel(replies), PromptFiles(NEEDED_PROMPTS).get("summarize")
        text = await summarize(model, prompt, kind="overall", previous="", memories=[], messages=(), now=NOW)
        assert fault in model.calls[1].messages[-1]["content"]
        return text

    assert await summary_of(wrong_reply, '{"summary": "Ana drinks tea."}') == "Ana drinks tea."
    with pytest.raises(ReplyError):
        await summary_of(wrong_reply, wrong_reply)


SLOW = [
    *('{"facts": ["' + '\\"' * 90_000, "[" * 900 + "1," * 90_000 + "x", "[{" * 90_000, '{"a":' * 40_000),
    *('{"a": "b" "c", ' * 13_000, '</think>{"a' * 16_000, 'x {"a```{' * 20_000, 'x {"a' + '\\"' * 90_000 + '"x'),
]


@pytest.mark.nightly
def test_no_reply_takes_long_to_read_or_exhausts_the_stack() -> None:
    """Guards the event loop: in quadratic time a reply would stop the server for minutes."""
    for reply in SLOW:
        assert len(reply) <= MAX_REPLY_CHARS
        with pytest.raises(ValueError, match="there is no JSON in it"):
            read(reply, ExtractReply)
    for depth in range(sys.getrecursionlimit() - 200, sys.getrecursionlimit() + 1, 10):
        for begin, end in (("[", "]"), ('{"a":', "}")):
            deep = f"{begin * depth}1{end * depth}"
            for reply in (deep, f'[{{"text":"x","sources":{deep}}}]'):
                with contextlib.suppress(ValueError):
                    assert texts(read(reply, ExtractReply)) == ["x"]
