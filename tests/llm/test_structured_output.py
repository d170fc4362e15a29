"""Replies in the forms that models send: which are accepted, which are repaired once, and which are errors."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, cast

import pytest
from pydantic import BaseModel

from palimpsest.core.errors import ModelUnreachableError, ReplyError
from palimpsest.llm.ask import MAX_SHOWN_CHARS, ask, read, strict_schema, whole_items
from palimpsest.llm.decide import DecideReply
from palimpsest.llm.extract import ExtractReply
from palimpsest.llm.summarize import SummarizeReply
from tests.support.scripted_model import ScriptedModel

MESSAGES = [{"role": "system", "content": "Take facts."}, {"role": "user", "content": "New messages: []"}]
GOOD = '{"facts": [{"text": "Ana drinks tea.", "sources": [1]}, {"text": "Ana has a cat.", "sources": [2]}]}'
REFUSAL = "I'm sorry, but I can't help with that."


def texts(reply: ExtractReply) -> list[str]:
    """Return the texts of the facts."""
    return [item.text for item in reply.facts]


def number_of_facts(reply: ExtractReply) -> int:
    """Return how many facts a reply has."""
    if not all(item.text for item in reply.facts):
        raise ValueError("a fact has no text.")
    return len(reply.facts)


def objects(schema: Any) -> Iterator[dict[str, Any]]:
    """Yield every object schema inside a schema."""
    if isinstance(schema, dict):
        mapping = cast("dict[str, Any]", schema)
        if "properties" in mapping:
            yield mapping
        for part in mapping.values():
            yield from objects(part)
    elif isinstance(schema, list):
        for part in cast("list[Any]", schema):
            yield from objects(part)


@pytest.mark.parametrize(
    "reply",
    [
        GOOD,
        f"\n\n  {GOOD}  \n",
        f"```json\n{GOOD}\n```",
        f"```\n{GOOD}\n```",
        f"Sure! Here are the facts I found:\n\n{GOOD}\n\nLet me know if you need more.",
        f"Two of the messages (1 and 2) matter {{so far}}: {GOOD}",
        f'<think>The user says [1] tea... maybe {{"facts": []}}?</think>\n{GOOD}',
        f"<thinking>\nhm\n</thinking>\n```json\n{GOOD}\n```",
        f"<THINK>hm</THINK>{GOOD}",
        f'{GOOD}\n<think>was that right? {{"facts": []}}',
        GOOD.replace("}]}", "},],}"),
        json.dumps(json.loads(GOOD), indent=2),
        GOOD.replace('"facts"', '"memories"'),
        json.dumps(json.loads(GOOD)["facts"]),
        json.dumps(["Ana drinks tea.", "Ana has a cat."]),
        json.dumps({"facts": ["Ana drinks tea.", "Ana has a cat."]}),
        json.dumps([{"fact": "Ana drinks tea."}, "Ana has a cat."]),
    ],
)
def test_a_reply_is_read_in_every_form_that_models_send(reply: str) -> None:
    """Guards against losing facts to fences, chat, think tags, root lists, trailing commas and bare strings."""
    assert texts(read(reply, ExtractReply)) == ["Ana drinks tea.", "Ana has a cat."]


def test_a_line_break_inside_a_string_is_read() -> None:
    """Guards against models that do not escape line breaks in JSON."""
    assert texts(read('{"facts": ["first\nsecond"]}', ExtractReply)) == ["first\nsecond"]


@pytest.mark.parametrize("reply", ['{"facts": []}', "[]", 'Nothing here is worth keeping: {"facts": []}'])
def test_an_empty_list_is_a_valid_reply(reply: str) -> None:
    """Guards the difference between an empty list and a reply that cannot be read."""
    assert read(reply, ExtractReply).facts == []


@pytest.mark.parametrize("prefix", ["", "Here you are: ", "```json\n", "<think>hm</think>"])
@pytest.mark.parametrize("complete_reply", [GOOD, json.dumps(json.loads(GOOD)["facts"]), GOOD.replace("}]}", "},],}")])
def test_no_part_of_a_truncated_reply_is_read_as_the_reply(prefix: str, complete_reply: str) -> None:
    """Guards against half a reply: the list or the first fact inside a cut-off reply is not the reply."""
    for cut in range(1, len(complete_reply)):
        with pytest.raises(ValueError, match="there is no JSON in it"):
            read(prefix + complete_reply[:cut], ExtractReply)


@pytest.mark.parametrize(
    ("reply", "fault"),
    [
        ("", "there is no JSON in it"),
        ("   \n", "there is no JSON in it"),
        (REFUSAL, "there is no JSON in it"),
        ("<think>only thoughts</think>", "there is no JSON in it"),
        (f"<think>never closed {GOOD}", "there is no JSON in it"),
        ("[" * 100_000, "there is no JSON in it"),
        ('{"answer": 42}', "facts"),
        ("{}", "facts"),
    ],
    ids=range(8),
)
def test_the_error_about_an_unreadable_reply_names_its_fault(reply: str, fault: str) -> None:
    """Guards the repair, which depends on the fault that the error names."""
    with pytest.raises(ValueError, match=fault):
        read(reply, ExtractReply)


@pytest.mark.anyio
async def test_a_good_reply_takes_one_call() -> None:
    """Guards the cost: a valid first reply is not requested again."""
    model = ScriptedModel([GOOD])

    assert await ask(model, MESSAGES, ExtractReply, texts) == ["Ana drinks tea.", "Ana has a cat."]
    assert [list(call.messages) for call in model.calls] == [MESSAGES]
    assert model.calls[0].schema == strict_schema(ExtractReply)


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("wrong_reply", "fault"),
    [
        (REFUSAL, "there is no JSON in it"),
        ("", "there is no JSON in it"),
        (GOOD[:-5], "there is no JSON in it"),
        ('{"facts": [{"sources": []}]}', "a fact has no text"),
    ],
    ids=["refusal", "empty", "cut-off", "no text"],
)
async def test_an_unreadable_reply_is_repaired_once(wrong_reply: str, fault: str) -> None:
    """Guards the repair: the second call has the first request, the bad reply and what was wrong with it."""
    model = ScriptedModel([wrong_reply, GOOD])

    assert await ask(model, MESSAGES, ExtractReply, number_of_facts) == 2

    *first_messages, bad_reply, repair = model.calls[1].messages
    assert first_messages == MESSAGES
    assert bad_reply == {"role": "assistant", "content": wrong_reply or "(nothing)"}
    assert repair["role"] == "user"
    assert fault in repair["content"]
    assert model.calls[1].schema == model.calls[0].schema


@pytest.mark.anyio
@pytest.mark.parametrize("wrong_reply", [REFUSAL, "", GOOD[:-5], "{}"])
async def test_a_second_unreadable_reply_is_an_error(wrong_reply: str) -> None:
    """Guards against "nothing extracted": two unreadable replies are an error, which quotes no conversation."""
    model = ScriptedModel([wrong_reply, wrong_reply])

    with pytest.raises(ReplyError, match="the model scripted gave no usable reply in two attempts") as error:
        await ask(model, MESSAGES, ExtractReply, texts)

    assert len(model.calls) == 2
    assert "tea" not in str(error.value)


@pytest.mark.anyio
async def test_a_reply_that_the_caller_refuses_is_repaired_too() -> None:
    """Guards against replies that are valid but cannot be right."""
    model = ScriptedModel(['{"facts": []}', GOOD])

    def require_facts(reply: ExtractReply) -> int:
        if not reply.facts:
            raise ValueError("it forgets everything.")
        return len(reply.facts)

    assert await ask(model, MESSAGES, ExtractReply, require_facts) == 2
    assert "it forgets everything." in model.calls[1].messages[-1]["content"]


@pytest.mark.anyio
async def test_only_the_beginning_of_a_long_unreadable_reply_is_sent_again() -> None:
    """Guards the cost of a repair."""
    model = ScriptedModel(["blah " * 10_000, GOOD])

    await ask(model, MESSAGES, ExtractReply, texts)

    assert len(model.calls[1].messages[-2]["content"]) == MAX_SHOWN_CHARS


@pytest.mark.anyio
@pytest.mark.parametrize("script", [[], [REFUSAL]], ids=["first call", "repair"])
async def test_an_outage_is_raised_as_it_is(script: list[str]) -> None:
    """Guards outages: never an empty result, and no repair without a reply."""
    model = ScriptedModel([*script, ModelUnreachableError("no answer from the endpoint")])

    with pytest.raises(ModelUnreachableError, match="no answer from the endpoint"):
        await ask(model, MESSAGES, ExtractReply, texts)

    assert len(model.calls) == len(script) + 1


@pytest.mark.parametrize("reply_type", [ExtractReply, DecideReply, SummarizeReply])
def test_a_schema_is_closed_and_requires_every_key(reply_type: type[BaseModel]) -> None:
    """Guards OpenAI's strict mode, which refuses open objects and optional keys."""
    schema = strict_schema(reply_type)

    object_schemas = list(objects(schema))

    assert object_schemas
    assert schema["type"] == "object"
    for object_schema in object_schemas:
        assert object_schema["additionalProperties"] is False
        assert object_schema["required"] == list(object_schema["properties"])


@pytest.mark.parametrize(
    "text",
    [
        '[final answer] {"facts": ["x"]}',
        'As of [2026-05-08]: {"facts": ["x"]}',
        '{name} said: {"facts": ["x"]}',
        '[] {"facts": ["x"]}',
        'I thought {"facts": []} hmm</think>{"facts": ["x"]}',
        '<think>{"facts": ["y"]}</think>\n```json\n{"facts": ["x"]}\n```',
    ],
)
def test_brackets_in_prose_and_thoughts_do_not_hide_the_reply(text: str) -> None:
    """Guards chatty models: only the JSON counts, not the text around it."""
    assert texts(read(text, ExtractReply)) == ["x"]


@pytest.mark.parametrize(
    ("text", "fact"),
    [('{"facts": ["likes <think> tags"]}', "likes <think> tags"), ('{"facts": ["a,] b",]}', "a,] b")],
)
def test_strings_are_left_as_they_are(text: str, fact: str) -> None:
    """Guards strings against the repair of trailing commas."""
    assert texts(read(text, ExtractReply)) == [fact]


def test_json_in_an_unfinished_thought_is_not_the_reply() -> None:
    """Guards against JSON in the thoughts of a reply that was cut off."""
    with pytest.raises(ValueError, match="no JSON"):
        read('<think>perhaps {"facts": []}', ExtractReply)


@pytest.mark.parametrize(
    "form", ['{"facts": LIST, "forget": []}', "LIST", 'Here it is:\n```json\n{"facts": LIST}\n```']
)
def test_wherever_a_reply_is_cut_off_only_whole_items_are_read(form: str) -> None:
    """Guards against half a fact, and against an empty list read from a reply that had items."""
    items = [{"text": 'Ana likes "tea" [green].', "tags": ["a", "b"]}, {"text": "Ana has {a} cat."}, "Plain."]
    whole = form.replace("LIST", json.dumps(items))
    lengths: set[int] = set()
    for length in range(len(whole)):
        try:
            facts = read(whole_items(whole[:length]), ExtractReply).facts
        except ValueError:
            continue
        expected = ['Ana likes "tea" [green].', "Ana has {a} cat.", "Plain."][: len(facts)]
        assert facts
        assert [fact.text for fact in facts] == expected
        lengths.add(len(facts))
    assert lengths == {1, 2, 3}
