"""The decide stage: what to do with new facts, given the memories nearest to them.

This is the update phase in section 2.1 of the Mem0 paper. All facts of a call and their nearest memories go into one
request. The model sees small integers instead of ids, and a number that was not shown is an error. A fact that
contradicts a memory supersedes it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Any, cast

from pydantic import BaseModel, ConfigDict, model_validator

from palimpsest.core.models import Decision, Event, Fact, Memory
from palimpsest.core.protocols import LanguageModel
from palimpsest.core.validation import one_line
from palimpsest.llm.prompts import Prompt
from palimpsest.llm.structured_output import ask
from palimpsest.text.tokenizer import search_tokens

INPUTS = frozenset({"facts", "memories"})

NEAREST_MEMORIES = 10
"""How many of the nearest memories each fact is compared with; s in the paper."""

MAX_TEXT_CHARS = 4_000
MAX_DIGITS = 9

_WORDS = {"NOOP": "NONE", "NO CHANGE": "NONE", "SUPERSEDE": "DELETE", "REMOVE": "DELETE"}


class DecisionReply(BaseModel):
    """One decision of the model's reply, about fact number `fact` and, except for ADD, memory number `memory`."""

    model_config = ConfigDict(extra="ignore")

    fact: int | None
    event: Event
    memory: int | None
    text: str | None

    @model_validator(mode="before")
    @classmethod
    def _tolerate(cls, value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        item = cast("Mapping[str, Any]", value)
        event_name = item.get("event", item.get("operation"))
        event = event_name.strip().upper() if isinstance(event_name, str) else ""
        return {
            "fact": _number(item.get("fact")),
            "event": _WORDS.get(event, event),
            # Custom update prompts written for Mem0 ask for "id".
            "memory": _number(item.get("memory", item.get("id"))),
            "text": item["text"] if isinstance(item.get("text"), str) else None,
        }


class DecideReply(BaseModel):
    """The model's reply: `{"decisions": […]}`, a bare list, or Mem0's `{"memory": […]}`, whose items name no fact."""

    model_config = ConfigDict(extra="ignore")

    decisions: list[DecisionReply]

    @model_validator(mode="before")
    @classmethod
    def _tolerate(cls, value: Any) -> Any:
        if isinstance(value, list):
            return {"decisions": cast("list[Any]", value)}
        if isinstance(value, Mapping):
            reply = cast("Mapping[str, Any]", value)
            if "memory" in reply and "decisions" not in reply:
                return {"decisions": reply["memory"]}
        return cast("Any", value)


@dataclass(frozen=True, slots=True)
class Decisions:
    """The decisions to apply, in order.

    `dropped` are facts that the model considers not worth storing. `undecided` are facts that it left out of both
    replies; they are added.
    """

    decisions: tuple[Decision, ...]
    dropped: tuple[Fact, ...] = ()
    undecided: tuple[Fact, ...] = ()


async def decide(model: LanguageModel, prompt: Prompt, facts: Sequence[Fact], memories: Sequence[Memory]) -> Decisions:
    """Return the decisions about the facts. Every fact is decided, dropped or added as undecided. Raises ModelError."""
    messages = prompt.render(
        facts=[
            {
                "fact": number,
                "text": fact.text,
                **({"date": f"{at:%Y-%m-%d}"} if (at := fact.happened_at or fact.said_at) else {}),
            }
            for number, fact in enumerate(facts)
        ],
        memories=[{"id": number, "text": memory.text, "date": memory.date} for number, memory in enumerate(memories)],
    )

    def convert_leniently(reply: DecideReply) -> Decisions:
        return _to_decisions(_with_facts(reply.decisions, facts), facts, memories)

    def convert(reply: DecideReply) -> Decisions:
        decided = convert_leniently(reply)
        if decided.undecided:
            numbers = [number for number, fact in enumerate(facts) if fact in decided.undecided]
            raise ValueError(f"it has no decision about fact {', '.join(map(str, numbers))}.")
        return decided

    return await ask(model, messages, DecideReply, convert, convert_leniently)


def _to_decisions(replies: Sequence[DecisionReply], facts: Sequence[Fact], memories: Sequence[Memory]) -> Decisions:
    for reply in replies:
        _check(reply, facts, memories)
    deleted = {reply.memory for reply in replies if reply.event is Event.DELETE}
    updated: set[int] = set()
    decisions: list[Decision] = []
    dropped: list[Fact] = []
    undecided: list[Fact] = []
    for number, fact in enumerate(facts):
        about_fact = [reply for reply in replies if reply.fact == number]
        if not about_fact:
            undecided.append(fact)
            decisions.append(Decision(Event.ADD, fact))
            continue
        fact_decisions = _for_fact(fact, about_fact, memories, deleted, updated)
        decisions.extend(fact_decisions)
        if not fact_decisions:
            dropped.append(fact)
    decisions.extend(
        Decision(Event.DELETE, memory_id=memories[reply.memory].id)
        for reply in replies
        if reply.fact is None and reply.event is Event.DELETE and reply.memory is not None
    )
    reworded = {memories[number].id for number in updated}
    # An updated text may equal another memory's text, and then the updated memory is deleted as a duplicate. NONE
    # decisions that name this memory therefore come first.
    decisions.sort(key=lambda decision: decision.event is not Event.NONE or decision.memory_id not in reworded)
    return Decisions(tuple(_delete_each_once(decisions)), tuple(dropped), tuple(undecided))


def _for_fact(
    fact: Fact,
    replies: Sequence[DecisionReply],
    memories: Sequence[Memory],
    deleted: set[int | None],
    updated: set[int],
) -> list[Decision]:
    """Return the decisions about one fact. UPDATE of a memory that is deleted or already updated becomes ADD."""
    decisions: list[Decision] = []
    adds = False
    text = fact.text
    for reply in replies:
        number = reply.memory
        if reply.event is Event.UPDATE and number is not None and number not in deleted and number not in updated:
            updated.add(number)
            decisions.append(Decision(Event.UPDATE, _with_text(fact, reply.text), memories[number].id))
        elif reply.event is Event.NONE and number is not None and number not in deleted:
            known = Decision(Event.NONE, fact, memories[number].id)
            decisions += [] if known in decisions else [known]
        elif reply.event in (Event.ADD, Event.UPDATE) or (reply.event is Event.NONE and number is not None):
            adds, text = True, reply.text or text
        elif reply.event is Event.DELETE and reply.text:
            text = reply.text
    deletions = [reply for reply in replies if reply.event is Event.DELETE]
    deleted_ids = tuple(memories[reply.memory].id for reply in deletions if reply.memory is not None)
    without_new_text = all(reply.text is not None and not reply.text.strip() for reply in deletions)
    if adds or (deleted_ids and not decisions and not without_new_text):
        decisions.append(Decision(Event.ADD, _with_text(fact, text), replaces=deleted_ids))
    else:
        decisions.extend(Decision(Event.DELETE, memory_id=memory_id) for memory_id in deleted_ids)
    return decisions


def _delete_each_once(decisions: Sequence[Decision]) -> list[Decision]:
    """Return the decisions, with each memory deleted only by the first decision that deletes it."""
    seen: set[str] = set()
    kept: list[Decision] = []
    for decision in decisions:
        if decision.event is Event.DELETE and decision.memory_id in seen:
            continue
        fresh = tuple(memory_id for memory_id in dict.fromkeys(decision.replaces) if memory_id not in seen)
        seen.update(fresh)
        if decision.event is Event.DELETE and decision.memory_id is not None:
            seen.add(decision.memory_id)
        kept.append(replace(decision, replaces=fresh))
    return kept


def _check(reply: DecisionReply, facts: Sequence[Fact], memories: Sequence[Memory]) -> None:
    """Raise ValueError for a number that was not shown, or a decision that lacks a memory or a text."""
    if reply.fact is not None and not 0 <= reply.fact < len(facts):
        raise ValueError(f"there is no fact {reply.fact}; the facts are 0 to {len(facts) - 1}.")
    if len(reply.text or "") > MAX_TEXT_CHARS:
        raise ValueError(f"the text of a decision is longer than {MAX_TEXT_CHARS} characters.")
    if reply.event is Event.ADD:
        return
    if reply.memory is None:
        if reply.event is Event.NONE:
            return
        raise ValueError(f"{reply.event} names no memory.")
    if not 0 <= reply.memory < len(memories):
        raise ValueError(f"there is no memory {reply.memory}; the ids are those shown, 0 to {len(memories) - 1}.")
    if reply.event is Event.UPDATE and not any(map(str.isalnum, reply.text or "")):
        raise ValueError(f"UPDATE of memory {reply.memory} has no text.")


def _with_facts(replies: Sequence[DecisionReply], facts: Sequence[Fact]) -> list[DecisionReply]:
    """Return the replies with their facts. Items in Mem0's form name no fact and get the most likely one.

    In that form a NONE item lists a memory that stays. It decides about the facts that no other item is about. DELETE
    is assigned only to a fact that no other item is about.
    """
    if any(reply.fact is not None for reply in replies):
        return list(replies)
    with_facts: list[DecisionReply] = []
    open_facts = list(range(len(facts)))
    words = [set(search_tokens(fact.text)) for fact in facts]
    for reply in sorted(replies, key=lambda reply: reply.event is Event.DELETE):
        if reply.event is Event.NONE:
            continue
        number = _nearest_fact(reply, words, open_facts)
        if number in open_facts:
            open_facts.remove(number)
        text = None if reply.event is Event.DELETE else reply.text
        with_facts.append(reply.model_copy(update={"fact": number, "text": text}))
    if any(reply.event is Event.NONE for reply in replies):
        with_facts.extend(DecisionReply(fact=number, event=Event.NONE, memory=None, text=None) for number in open_facts)
    return with_facts


def _nearest_fact(reply: DecisionReply, words: Sequence[AbstractSet[str]], open_facts: Sequence[int]) -> int | None:
    """Return the fact that shares most words with a reply, else the first open one; for DELETE else None."""
    numbers = open_facts if reply.event is Event.DELETE else range(len(words))
    reply_words = set(search_tokens(reply.text or ""))
    shared = {number: len(reply_words & words[number]) for number in numbers}
    best = max(shared, key=lambda number: shared[number], default=None)
    if best is not None and shared[best]:
        return best
    if reply.event is Event.DELETE:
        return None
    return open_facts[0] if open_facts else 0


def _with_text(fact: Fact, text: str | None) -> Fact:
    plain = one_line(text or "")
    return replace(fact, text=plain) if any(map(str.isalnum, plain)) else fact


def _number(value: Any) -> int | None:
    """Return the number in a reply, None if there is none, and -1, which is never valid, for anything else."""
    if value is None or value == "":
        return None
    whole = isinstance(value, int) and not isinstance(value, bool)
    digits = str(value).strip() if whole or isinstance(value, str) else ""
    return int(digits) if digits.isdecimal() and len(digits) <= MAX_DIGITS else -1
