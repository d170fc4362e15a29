"""Hostile model replies: no stage crashes, invents facts, loses facts or hides a failure in an empty result."""

from __future__ import annotations

import json
import sys
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palimpsest.core.errors import ReplyError
from palimpsest.core.models import Fact
from palimpsest.learn.engine import NEEDED_PROMPTS
from palimpsest.llm.ask import MAX_REPLY_CHARS, MAX_SHOWN_CHARS
from palimpsest.llm.decide import Comparison, Decisions, KnownEntry, decide
from palimpsest.llm.extract import Conversation, extract
from palimpsest.llm.prompts import PromptFiles
from tests.support.examples import examples
from tests.support.hostile_replies import PROSE, hostile_texts
from tests.support.scripted_model import NOW, ScriptedModel, fact, memory, message

MAX_ERROR_CHARS = 500

PROMPTS = PromptFiles(NEEDED_PROMPTS)
SAID = Conversation((message("Miso, my cat, is three. I like tea.", "said-1", name="Ana"),))
FACT, KNOWN = fact("Ana moved to Lyon in May."), memory("Ana lives in Nice.")

Result = TypeVar("Result")


def run_stage(stage: Callable[[ScriptedModel], Awaitable[Result]], *replies: str) -> Result | None:
    """Return the result of a stage, or None if it raises ReplyError.

    The second reply answers the repair. Any other exception fails the test. So does an error text that is too long or
    cannot be encoded, and a repair that cannot be sent.
    """
    model = ScriptedModel(replies)

    async def call_stage() -> Result:
        return await stage(model)

    result: Result | None = None
    error_text = ""
    try:
        result = anyio.run(call_stage)
    except ReplyError as error:
        error_text = str(error)
    assert len(error_text.encode()) <= MAX_ERROR_CHARS
    assert not error_text or len(model.calls) == len(replies)
    assert all(len(part["content"].encode()) for call in model.calls for part in call.messages)
    assert all(len(call.messages[2]["content"]) <= MAX_SHOWN_CHARS for call in model.calls[1:])
    return result


async def run_extract(model: ScriptedModel) -> list[Fact]:
    return list((await extract(model, PROMPTS.get("extract"), SAID, NOW)).facts)


async def run_decide(model: ScriptedModel) -> Decisions:
    comparison = Comparison((FACT,), (KnownEntry(KNOWN, KNOWN.stated_at),), (), ({0: 1.0},))
    return await decide(model, PROMPTS.get("decide"), comparison)


@examples(500)
@given(
    st.lists(
        st.one_of(hostile_texts(), st.fixed_dictionaries({"text": hostile_texts(), "sources": st.just([1])})),
        min_size=1,
    ),
    st.sampled_from((*PROSE, "```json\n", '<think>{"facts": []}</think>', '{"facts": []}</think>\n', "[]\n")),
    st.sampled_from(('{"facts": BODY}', "BODY", '{"memory": BODY, "note": []}')),
    st.data(),
)
def test_a_truncated_reply_is_never_an_empty_result(facts: Any, prefix: str, form: str, data: st.DataObject) -> None:
    """Guards against "nothing learned" from a reply whose list of facts is cut off, whatever precedes the list."""
    complete_reply = form.replace("BODY", json.dumps(facts))
    start = complete_reply.index('"') + 1
    truncated = prefix + complete_reply[: data.draw(st.integers(start, len(complete_reply) - 1))]
    assert run_stage(run_extract, truncated, truncated) is None


@pytest.mark.few_by_day(1)
@pytest.mark.parametrize(("begin", "end"), [("[", "]"), ('{"a":', "}")], ids=["lists", "objects"])
def test_deep_nesting_is_no_crash(begin: str, end: str) -> None:
    """Guards the interpreter's stack: the stages can handle any nesting that the parser can read."""
    for depth in range(sys.getrecursionlimit() - 200, sys.getrecursionlimit() + 1):
        deep = begin * depth + "1" + end * depth
        for form in ('[{"text":"x","sources":DEEP}]', '{"facts":[{"text":"x","happened_at":DEEP}]}', "DEEP"):
            reply = form.replace("DEEP", deep)
            facts = run_stage(run_extract, reply, reply)
            assert facts is None or [fact.text for fact in facts] == ["x"]
        reply = f'[{{"fact":0,"event":{deep}}}]'
        decisions = run_stage(run_decide, reply, reply)
        assert decisions is None or (decisions.undecided == (FACT,) and decisions.faults)


@pytest.mark.few_by_day(1)
@pytest.mark.parametrize(
    "reply",
    [
        *('{"facts": ["' + '\\"' * 90_000, "[" * 900 + "1," * 90_000 + "x", "[{" * 90_000, '{"a":' * 40_000),
        *("{a:1," * 40_000, '{"a": "b" "c", ' * 13_000, '</think>{"a' * 16_000, "<thought>" * 20_000),
        *('x {"a```{' * 20_000, "[//\n" * 40_000, 'x {"a' + '\\"' * 90_000 + '"x', 'x {"a"b' * 20_000),
    ],
    ids=range(12),
)
def test_no_reply_takes_long_to_read(reply: str) -> None:
    """Guards the event loop: a parser with quadratic time would stop the server for minutes."""
    assert len(reply) <= MAX_REPLY_CHARS
    assert run_stage(run_extract, reply, reply) is None
