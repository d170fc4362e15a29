"""Hostile model replies: no stage crashes, invents facts, loses facts or hides a failure in an empty result."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import UTC, timedelta
from itertools import product
from typing import Any, TypeVar

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palimpsest.core.errors import ReplyError
from palimpsest.core.models import Decision, Event, Fact, Memory
from palimpsest.learn.engine import NEEDED_PROMPTS
from palimpsest.llm.decide import MAX_TEXT_CHARS, DecideReply, Decisions, decide
from palimpsest.llm.extract import (
    MAX_FACT_CHARS,
    MAX_FACTS,
    MAX_LABEL_CHARS,
    MAX_LABELS,
    Conversation,
    ExtractReply,
    extract,
)
from palimpsest.llm.prompts import PromptFiles
from palimpsest.llm.structured_output import MAX_REPLY_CHARS, MAX_SHOWN_CHARS, read
from palimpsest.llm.summarize import MAX_SUMMARY_CHARS, summarize
from tests.support.examples import examples
from tests.support.hostile_replies import (
    DATES,
    MAX_LISTED,
    PROSE,
    UNKNOWN_ID,
    conflicting_decisions,
    decision_replies,
    fact_replies,
    holds_no_facts,
    hostile_texts,
    replies_of,
    replies_without_value,
    summary_replies,
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


def outcome(ask: Callable[[ScriptedModel], Awaitable[Result]], *replies: str) -> tuple[Result | None, str]:
    """Return what a stage makes of a reply and a second one, None for an error of ours; and the reply it went by.

    Whatever else is raised fails the test, and so does an error or a repair that is not fit to be passed on.
    """
    model = ScriptedModel(replies)

    async def asked() -> Result:
        return await ask(model)

    result: Result | None = None
    told = ""
    try:
        result = anyio.run(asked)
    except ReplyError as error:
        told = str(error)
    assert len(told.encode()) <= MAX_ERROR_CHARS
    assert not told or len(model.calls) == len(replies)
    assert all(len(sent["content"].encode()) for call in model.calls for sent in call.messages)
    assert all(len(call.messages[2]["content"]) <= MAX_SHOWN_CHARS for call in model.calls[1:])
    return result, replies[len(model.calls) - 1]


def is_plain(text: str, most: int) -> bool:
    """Return whether a text is one line of limited length, with content, that can be encoded."""
    return len(text.splitlines()) == 1 and len(text.encode()) <= 4 * most and len(text) <= most and not text.isspace()


async def extracted(model: ScriptedModel) -> list[Fact]:
    return await extract(model, PROMPTS.get("extract"), Conversation(MESSAGES), NOW)


async def summarized(model: ScriptedModel) -> str:
    shown: dict[str, Any] = {"memories": MEMORIES, "messages": MESSAGES}
    return await summarize(model, PROMPTS.get("summarize"), kind="overall", previous="", now=NOW, **shown)


def check_facts(facts: Sequence[Fact], reply: str) -> None:
    """Assert that the ledger accepts the facts, and that an empty list comes from a reply that says so."""
    assert facts or holds_no_facts(reply), "nothing was made of a reply that does not say 'nothing'"
    assert len(facts) <= MAX_FACTS
    assert len({each.text for each in facts}) == len(facts)
    cited = {number for item in read(reply, ExtractReply).facts for number in item.sources}
    assert cited <= set(range(1, len(MESSAGES) + 1)), "a message that was not given is taken for another"
    for each in facts:
        assert is_plain(each.text, MAX_FACT_CHARS)
        assert any(char.isalnum() for char in each.text)
        assert len(set(each.sources)) == len(each.sources)
        assert set(each.sources) <= {said.id for said in MESSAGES}
        assert (each.actor_id, each.role) in {("Ana", "user"), ("", "assistant"), ("", "")}
        assert each.happened_at is None or each.happened_at.utcoffset() == timedelta(0)
        for labels in (each.keywords, each.tags):
            assert len(labels) <= MAX_LABELS
            assert all(is_plain(label, MAX_LABEL_CHARS) for label in labels)
        assert each.metadata == {}


def check_decided(decided: Decisions, facts: Sequence[Fact], memories: Sequence[Memory], reply: str) -> None:
    """Assert that the decisions cover the shown facts and memories: none invented, lost or used twice."""
    said = read(reply, DecideReply)
    numbers = {each.memory for each in said.decisions}
    shown = {each.id for number, each in enumerate(memories) if number in numbers}
    for decision in decided.decisions:
        check_decision(decision, facts, shown)
    named = [(each.event, each.memory_id) for each in decided.decisions if each.memory_id is not None]
    updated = [memory_id for event, memory_id in named if event is Event.UPDATE]
    replaced = [memory_id for each in decided.decisions for memory_id in each.replaces]
    closed = [*replaced, *(memory_id for event, memory_id in named if event is Event.DELETE)]
    assert len(set(closed)) == len(closed), "a memory is closed twice"
    assert len(set(updated)) == len(updated), "a memory is updated twice"
    kept = {memory_id for event, memory_id in named if event is not Event.DELETE}
    assert not kept & set(closed), "a memory is closed, and spoken of as if it stayed"
    for memory_id in updated:
        late = named[named.index((Event.UPDATE, memory_id)) :]
        assert (Event.NONE, memory_id) not in late, "a memory is said to know what its old wording said"
    assert len(decided.decisions) <= (len(facts) + 1) * (len(memories) + 1), "one reply floods the ledger"
    check_none_lost(decided, facts, said)


def check_decision(decision: Decision, facts: Sequence[Fact], shown: set[str]) -> None:
    event, named = decision.event, decision.memory_id
    assert (event is Event.DELETE) == (decision.fact is None)
    assert named is None if event is Event.ADD else named in shown
    assert set(decision.replaces) <= shown if event is Event.ADD else decision.replaces == ()
    assert decision.kind == "memory"
    if decision.fact is not None:
        assert is_plain(decision.fact.text, MAX_TEXT_CHARS)
        assert any(replace(decision.fact, text=each.text) == each for each in facts), "more than the wording changed"
        assert event is not Event.NONE or decision.fact in facts


def check_none_lost(decided: Decisions, facts: Sequence[Fact], reply: DecideReply) -> None:
    """Assert that every fact is in a decision, is reported as dropped, or asked to delete a memory."""
    carried = [each.fact.sources for each in decided.decisions if each.fact is not None]
    forgets = {
        each.fact
        for each in reply.decisions
        if each.event is Event.DELETE and each.text is not None and not each.text.strip()
    }
    for number, each in enumerate(facts):
        dropped, undecided = each in decided.dropped, each in decided.undecided
        assert not (dropped and undecided)
        assert dropped or each.sources in carried or number in forgets, f"fact {number} is lost"
        assert not dropped or each.sources not in carried
        assert not dropped or any(entry.event is Event.NONE for entry in reply.decisions)
        assert not undecided or Decision(Event.ADD, each) in decided.decisions


def decided_on(facts: Sequence[Fact], memories: Sequence[Memory]) -> Callable[[ScriptedModel], Awaitable[Decisions]]:
    async def ask(model: ScriptedModel) -> Decisions:
        return await decide(model, PROMPTS.get("decide"), facts, memories)

    return ask


class TestExtract:
    @examples(1_800)
    @given(replies_of(fact_replies()), replies_of(fact_replies()))
    def test_whatever_is_said_facts_are_facts_or_an_error(self, first: str, second: str) -> None:
        """Guards the ledger against texts that are not facts, wrong sources, and a silent "nothing"."""
        facts, reply = outcome(extracted, first, second)
        if facts is not None:
            check_facts(facts, reply)

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
    def test_a_reply_cut_off_is_never_nothing(self, facts: Any, before: str, form: str, data: st.DataObject) -> None:
        """Guards against "nothing learnt" when the facts began and their end is missing, whatever stands before."""
        whole = form.replace("BODY", to_json(facts))
        begun = whole.index('"') + 1
        cut = before + whole[: data.draw(st.integers(begun, len(whole) - 1))]
        assert outcome(extracted, cut, cut)[0] is None

    @examples(300)
    @given(replies_without_value().filter(lambda text: not holds_no_facts(text)))
    def test_a_reply_without_facts_is_an_error(self, reply: str) -> None:
        """Guards against an empty list read from prose, half a bracket, or an empty reply."""
        assert outcome(extracted, reply, reply)[0] != []

    @pytest.mark.parametrize(("begin", "end"), [("[", "]"), ('{"a":', "}")], ids=["lists", "objects"])
    def test_no_depth_is_too_deep(self, begin: str, end: str) -> None:
        """Guards the interpreter's stack: whatever the parser can read is not nested too deep for the stages."""
        for depth in range(sys.getrecursionlimit() - 200, sys.getrecursionlimit() + 1):
            deep = begin * depth + "1" + end * depth
            for form in ('[{"text":"x","sources":DEEP}]', '{"facts":[{"text":"x","happened_at":DEEP}]}', "DEEP"):
                reply = form.replace("DEEP", deep)
                facts, _ = outcome(extracted, reply, reply)
                assert facts is None or [each.text for each in facts] == ["x"]
            strange = f'[{{"fact":0,"event":{deep}}}]'
            assert outcome(decided_on(FACTS[:1], MEMORIES[:1]), strange, strange)[0] is None


class TestDecide:
    @examples(1_800)
    @given(
        st.integers(1, MAX_LISTED),
        st.integers(1, MAX_LISTED),
        replies_of(decision_replies()),
        replies_of(decision_replies()),
    )
    def test_whatever_is_said_nothing_is_invented_or_lost(
        self, facts: int, memories: int, first: str, second: str
    ) -> None:
        """Guards memories that were not shown, and every fact: it is stored, merged, known, or reported as dropped."""
        told, known = FACTS[:facts], MEMORIES[:memories]
        decided, reply = outcome(decided_on(told, known), first, second)
        if decided is not None:
            check_decided(decided, told, known, reply)

    @pytest.mark.parametrize("event", ["ADD", "update", "DELETE", "NONE", "NO CHANGE", "DROP TABLE", "", None, 1, []])
    def test_every_part_may_be_missing_or_wrong(self, event: Any) -> None:
        """Guards each event with every combination of missing, null, out-of-range and mistyped parts."""
        missing = object()
        numbers = (missing, None, 0, "1", 2, -1, True, 0.0, UNKNOWN_ID)
        wordings = (missing, None, "", "\u200b", "Ana lives in Lyon.", 5)
        for number, about, text in product(numbers, numbers, wordings):
            parts = {"fact": number, "event": event, "memory": about, "text": text}
            entry = {key: value for key, value in parts.items() if value is not missing}
            reply = json.dumps([entry, {"fact": 1, "event": "UPDATE", "memory": 0, "text": "Ana lives in Lyon."}])
            decided, _ = outcome(decided_on(FACTS[:2], MEMORIES[:2]), reply, reply)
            if decided is not None:
                check_decided(decided, FACTS[:2], MEMORIES[:2], reply)

    @examples(500)
    @given(conflicting_decisions(3, 3, [MEMORIES[0].text, MEMORIES[1].text, "Ana is in Lyon."]))
    def test_contradicting_decisions_are_reconciled(self, entries: list[dict[str, Any]]) -> None:
        """Guards against valid replies that decide about the same fact or memory many times and in every way."""
        reply = json.dumps({"decisions": entries})
        decided, _ = outcome(decided_on(FACTS[:3], MEMORIES[:3]), reply, reply)
        if decided is not None:
            check_decided(decided, FACTS[:3], MEMORIES[:3], reply)

    @pytest.mark.parametrize(
        "entry",
        [
            {"fact": 0, "event": "NONE", "memory": 0},
            {"fact": 0, "event": "UPDATE", "memory": 0, "text": "Ana."},
            {"fact": 0, "event": "DELETE", "memory": 0, "text": ""},
            {"id": "0", "event": "ADD", "text": "Ana lives in Lyon now, with her cat."},
        ],
        ids=str,
    )
    def test_a_flood_of_decisions_comes_to_a_few(self, entry: dict[str, Any]) -> None:
        """Guards the ledger against thousands of rows, and the stage against quadratic time."""
        facts = [fact(f"{each.text} {number}", sources=[str(number)]) for number in range(25) for each in FACTS]
        reply = json.dumps({"memory" if "id" in entry else "decisions": [entry] * (MAX_REPLY_CHARS // 100)})
        decided, _ = outcome(decided_on(facts, MEMORIES), reply, reply)
        assert decided is not None
        assert len(decided.decisions) <= len(facts) + len(MEMORIES)


class TestSummarize:
    @examples(600)
    @given(replies_of(summary_replies()), replies_of(summary_replies()))
    def test_whatever_is_said_a_summary_is_a_text_or_an_error(self, first: str, second: str) -> None:
        """Guards the last good summary against an empty, endless or broken one."""
        text, reply = outcome(summarized, first, second)
        if text is not None:
            assert any(char.isalnum() for char in text)
            assert text == text.strip()
            assert len(text) <= MAX_SUMMARY_CHARS
            assert text.encode().decode() == text
            assert re.search(r"\{\s*\"", reply), "a summary was read out of prose"


@pytest.mark.parametrize(
    "reply",
    ['{"facts": ["' + '\\"' * 90_000, "[" * 900 + "1," * 90_000 + "x", "[{" * 90_000, '{"a":' * 40_000, "[1 " * 60_000],
    ids=["escaped quotes", "numbers", "brackets", "keys", "broken lists"],
)
def test_no_reply_takes_long_to_read(reply: str) -> None:
    """Guards the event loop: a parser with quadratic time would stop the server for minutes."""
    assert len(reply) <= MAX_REPLY_CHARS
    assert outcome(extracted, reply, reply)[0] is None


@pytest.mark.parametrize("misfit", ['{"facts": ["\ud83d", 5]}', "\ud83d" * 5_000, "no \udc00 JSON"], ids=ascii)
def test_a_repair_can_be_sent(misfit: str) -> None:
    """Guards the second call: a request cannot contain the lone surrogates of a wrong reply."""
    model = ScriptedModel([misfit, '{"facts": ["Ana drinks tea."]}'])

    async def asked() -> list[Fact]:
        return await extracted(model)

    assert [each.text for each in anyio.run(asked)] == ["Ana drinks tea."]
    assert all(sent["content"].encode() for sent in model.calls[1].messages)


def test_dates_at_the_edge_of_the_calendar_cost_no_fact() -> None:
    """Guards facts whose date is impossible, or only just possible: none of them is an error."""
    for date in DATES:
        facts, _ = outcome(extracted, json.dumps([{"text": "Long ago.", "sources": [1], "happened_at": date}]), "")
        assert facts is not None
        assert facts[0].happened_at is None or facts[0].happened_at.tzinfo is UTC
