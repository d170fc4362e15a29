"""Hostile model replies: no stage crashes, invents facts, loses facts or hides a failure in an empty result."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, TypeVar

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palimpsest.core.errors import ReplyError
from palimpsest.core.models import MAX_NAME_CHARS, Decision, Event, Fact, Memory, name_key
from palimpsest.learn.engine import NEEDED_PROMPTS
from palimpsest.llm.ask import MAX_LABEL_CHARS, MAX_REPLY_CHARS, MAX_SHOWN_CHARS, ReplyModel, read, says_nothing
from palimpsest.llm.decide import MAX_TEXT_CHARS, Comparison, DecideReply, Decisions, KnownEntry, decide
from palimpsest.llm.extract import (
    MAX_ENTITIES,
    MAX_FACT_CHARS,
    MAX_FACTS,
    MAX_LABELS,
    MAX_RELATIONS,
    Conversation,
    ExtractReply,
    extract,
)
from palimpsest.llm.prompts import PromptFiles
from tests.support.examples import examples
from tests.support.hostile_replies import (
    MAX_LISTED,
    PROSE,
    decision_replies,
    fact_replies,
    holds_no_facts,
    hostile_texts,
    replies_of,
    to_json,
)
from tests.support.scripted_model import NOW, ScriptedModel, fact, memory, message

MAX_ERROR_CHARS = 500

PROMPTS = PromptFiles(NEEDED_PROMPTS)
MESSAGES = (
    message("Miso, my cat, is three. I like tea.", "said-1", name="Ana"),
    message("Lyon lies on the Rhone.", "said-2", role="assistant"),
    message("I moved to Lyon.", "said-3", name="Ana"),
)
FACTS = tuple(
    fact(text, sources=[f"said-{number}"], tags=[f"tag-{number}"])
    for number, text in enumerate(
        ("Ana moved to Lyon in May.", "Ana's cat Miso is three.", "Rui likes green tea.", "Ana is a pilot.")
    )
)
MEMORIES = tuple(
    memory(text, f"00000000-0000-4000-8000-00000000000{number}")
    for number, text in enumerate(
        ("Ana lives in Nice.", "Ana has a cat named Miso.", "Rui likes tea.", "Ana moved to Lyon in May.")
    )
)

Result = TypeVar("Result")


def run_stage(stage: Callable[[ScriptedModel], Awaitable[Result]], *replies: str) -> tuple[Result | None, str]:
    """Return the result of a stage and the reply it comes from. The result is None if the stage raises ReplyError.

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
    return result, replies[len(model.calls) - 1]


def readable(reply: str, first: str, reply_type: type[ReplyModel]) -> str:
    """Return a second reply if it can be read, else the first one, of which the sound parts count."""
    try:
        read(reply, reply_type)
    except ValueError:
        return first
    return reply


def is_plain(text: str, max_chars: int) -> bool:
    """Return whether a text is one line of limited length, with content, that can be encoded."""
    if len(text.splitlines()) != 1 or text.isspace():
        return False
    return len(text) <= max_chars and len(text.encode()) <= 4 * max_chars


async def run_extract(model: ScriptedModel) -> list[Fact]:
    return list((await extract(model, PROMPTS.get("extract"), Conversation(MESSAGES), NOW)).facts)


def check_facts(facts: Sequence[Fact], reply: str) -> None:
    """Assert that the ledger accepts the facts, and that an empty list comes from a reply with an empty list."""
    if not facts and not holds_no_facts(reply):
        texts = [item.text for item in read(reply, ExtractReply).facts]
        assert any(map(says_nothing, texts)), "the result is empty, and the reply does not say so"
    assert len(facts) <= MAX_FACTS
    assert len({fact.text for fact in facts}) == len(facts)
    for new_fact in facts:
        assert is_plain(new_fact.text, MAX_FACT_CHARS)
        assert any(char.isalnum() for char in new_fact.text)
        assert len(set(new_fact.sources)) == len(new_fact.sources)
        assert set(new_fact.sources) <= {message.id for message in MESSAGES}
        assert (new_fact.actor_id, new_fact.role) in {("Ana", "user"), ("", "assistant"), ("", "")}
        assert new_fact.happened_at is None or new_fact.happened_at.utcoffset() == timedelta(0)
        for labels in (new_fact.keywords, new_fact.tags):
            assert len(labels) <= MAX_LABELS
            assert all(is_plain(label, MAX_LABEL_CHARS) for label in labels)
        assert new_fact.metadata == {}
        keys = {name_key(entity.name) for entity in new_fact.entities}
        assert len(keys) == len(new_fact.entities) <= MAX_ENTITIES + 2 * MAX_RELATIONS
        assert len(new_fact.relations) <= MAX_RELATIONS
        ends = {name_key(end) for item in new_fact.relations for end in (item.source, item.destination)}
        assert ends <= keys, "a relation of nobody"
        assert all(is_plain(entity.name, MAX_NAME_CHARS) for entity in new_fact.entities)


def check_decisions(decisions: Decisions, facts: Sequence[Fact], memories: Sequence[Memory], reply: str) -> None:
    """Assert that the decisions cover the shown facts and memories: none invented, lost or used twice."""
    parsed_reply = read(reply, DecideReply)
    memory_numbers = {item.memory for item in parsed_reply.decisions}
    memory_ids = {memory.id for number, memory in enumerate(memories) if number in memory_numbers}
    for decision in decisions.decisions:
        assert {*decision.replaces, *filter(None, [decision.memory_id])} <= memory_ids, "an unknown memory is named"
        if decision.fact is not None:
            assert is_plain(decision.fact.text, MAX_TEXT_CHARS)
            assert any(replace(decision.fact, text=fact.text) == fact for fact in facts), "more than the text changed"
    events = [(item.event, item.memory_id) for item in decisions.decisions if item.memory_id is not None]
    updates = [memory_id for event, memory_id in events if event is Event.UPDATE]
    replacements = [memory_id for item in decisions.decisions for memory_id in item.replaces]
    deletions = [*replacements, *(memory_id for event, memory_id in events if event is Event.DELETE)]
    assert len(set(deletions)) == len(deletions), "a memory is deleted twice"
    assert len(set(updates)) == len(updates), "a memory is updated twice"
    living = {memory_id for event, memory_id in events if event is not Event.DELETE}
    assert not living & set(deletions), "a memory is deleted, and another decision relies on it"
    for memory_id in updates:
        later_events = events[events.index((Event.UPDATE, memory_id)) :]
        assert (Event.NONE, memory_id) not in later_events, "a memory is known to say what its old text said"
    assert len(decisions.decisions) <= (len(facts) + 1) * (len(memories) + 1), "one reply floods the ledger"
    check_none_lost(decisions, facts, parsed_reply)


def check_none_lost(decisions: Decisions, facts: Sequence[Fact], reply: DecideReply) -> None:
    """Assert that every fact is in a decision, is reported as dropped, or is a request to delete a memory."""
    sources = [item.fact.sources for item in decisions.decisions if item.fact is not None]
    requests_to_delete = {
        item.fact
        for item in reply.decisions
        if item.event is Event.DELETE and item.text is not None and not item.text.strip()
    }
    for number, shown_fact in enumerate(facts):
        dropped, undecided = shown_fact in decisions.dropped, shown_fact in decisions.undecided
        assert not (dropped and undecided)
        assert dropped or shown_fact.sources in sources or number in requests_to_delete, f"fact {number} is lost"
        assert not dropped or shown_fact.sources not in sources
        assert not dropped or any(item.event is Event.NONE for item in reply.decisions)
        assert not undecided or Decision(Event.ADD, shown_fact) in decisions.decisions


def decide_stage(facts: Sequence[Fact], memories: Sequence[Memory]) -> Callable[[ScriptedModel], Awaitable[Decisions]]:
    entries = tuple(KnownEntry(memory, memory.stated_at) for memory in memories)

    async def stage(model: ScriptedModel) -> Decisions:
        return await decide(model, PROMPTS.get("decide"), Comparison(tuple(facts), entries))

    return stage


@examples(900)
@given(replies_of(fact_replies()), replies_of(fact_replies()))
def test_any_reply_gives_valid_facts_or_an_error(first: str, second: str) -> None:
    facts, reply = run_stage(run_extract, first, second)
    if facts is not None:
        check_facts(facts, reply if holds_no_facts(reply) else readable(reply, first, ExtractReply))


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
    complete_reply = form.replace("BODY", to_json(facts))
    start = complete_reply.index('"') + 1
    truncated = prefix + complete_reply[: data.draw(st.integers(start, len(complete_reply) - 1))]
    assert run_stage(run_extract, truncated, truncated)[0] is None


@pytest.mark.few_by_day(1)
@pytest.mark.parametrize(("begin", "end"), [("[", "]"), ('{"a":', "}")], ids=["lists", "objects"])
def test_deep_nesting_is_no_crash(begin: str, end: str) -> None:
    """Guards the interpreter's stack: the stages can handle any nesting that the parser can read."""
    for depth in range(sys.getrecursionlimit() - 200, sys.getrecursionlimit() + 1):
        deep = begin * depth + "1" + end * depth
        for form in ('[{"text":"x","sources":DEEP}]', '{"facts":[{"text":"x","happened_at":DEEP}]}', "DEEP"):
            reply = form.replace("DEEP", deep)
            facts, _ = run_stage(run_extract, reply, reply)
            assert facts is None or [fact.text for fact in facts] == ["x"]
        reply = f'[{{"fact":0,"event":{deep}}}]'
        decisions, _ = run_stage(decide_stage(FACTS[:1], MEMORIES[:1]), reply, reply)
        assert decisions is None or (decisions.undecided == FACTS[:1] and decisions.faults)


@examples(900)
@given(
    st.integers(1, MAX_LISTED),
    st.integers(1, MAX_LISTED),
    replies_of(decision_replies()),
    replies_of(decision_replies()),
)
def test_any_reply_invents_no_memory_and_loses_no_fact(facts: int, memories: int, first: str, second: str) -> None:
    decisions, reply = run_stage(decide_stage(FACTS[:facts], MEMORIES[:memories]), first, second)
    if decisions is not None:
        check_decisions(decisions, FACTS[:facts], MEMORIES[:memories], readable(reply, first, DecideReply))


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
    assert run_stage(run_extract, reply, reply)[0] is None
