"""Decide: what becomes of new facts beside the memories they resemble (Mem0, section 2.1, the update phase).

All facts of a call and their nearest memories go in one request. The model sees small integers for ids; a number
it was not shown is refused. A contradicted memory is superseded by the fact that contradicts it.
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
"""s of the paper: how many of the nearest memories each fact is held against."""

MAX_TEXT_CHARS = 4_000
MAX_DIGITS = 9

_WORDS = {"NOOP": "NONE", "NO CHANGE": "NONE", "SUPERSEDE": "DELETE", "REMOVE": "DELETE"}


class DecisionReply(BaseModel):
    """Take one decision: about fact number `fact`, and for all but ADD about memory number `memory`."""

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
        given = cast("Mapping[str, Any]", value)
        named = given.get("event", given.get("operation"))
        event = named.strip().upper() if isinstance(named, str) else ""
        return {
            "fact": _number(given.get("fact")),
            "event": _WORDS.get(event, event),
            # Mem0's form, which custom update prompts ask for, calls it "id".
            "memory": _number(given.get("memory", given.get("id"))),
            "text": given["text"] if isinstance(given.get("text"), str) else None,
        }


class DecideReply(BaseModel):
    """Take `{"decisions": […]}`, a bare list, or Mem0's `{"memory": […]}`, whose entries name no fact."""

    model_config = ConfigDict(extra="ignore")

    decisions: list[DecisionReply]

    @model_validator(mode="before")
    @classmethod
    def _tolerate(cls, value: Any) -> Any:
        if isinstance(value, list):
            return {"decisions": cast("list[Any]", value)}
        if isinstance(value, Mapping):
            given = cast("Mapping[str, Any]", value)
            if "memory" in given and "decisions" not in given:
                return {"decisions": given["memory"]}
        return cast("Any", value)


@dataclass(frozen=True, slots=True)
class Decided:
    """Hold what is to be applied.

    `dropped` are facts the model found not worth keeping, `undecided` those it passed over twice, which are added.
    """

    decisions: tuple[Decision, ...]
    dropped: tuple[Fact, ...] = ()
    undecided: tuple[Fact, ...] = ()


async def decide(model: LanguageModel, prompt: Prompt, facts: Sequence[Fact], memories: Sequence[Memory]) -> Decided:
    """Return what becomes of the facts, none of which is lost. Raises ModelError."""
    messages = prompt.render(
        facts=[
            {
                "fact": number,
                "text": fact.text,
                **({"date": f"{fact.happened_at:%Y-%m-%d}"} if fact.happened_at else {}),
            }
            for number, fact in enumerate(facts)
        ],
        memories=[
            {"id": number, "text": memory.text, "date": f"{memory.at:%Y-%m-%d}"}
            for number, memory in enumerate(memories)
        ],
    )

    def make_do(reply: DecideReply) -> Decided:
        return _decided(_attributed(reply.decisions, facts), facts, memories)

    def use(reply: DecideReply) -> Decided:
        decided = make_do(reply)
        if decided.undecided:
            numbers = [number for number, fact in enumerate(facts) if fact in decided.undecided]
            raise ValueError(f"it decides nothing about fact {', '.join(map(str, numbers))}.")
        return decided

    return await ask(model, messages, DecideReply, use, make_do)


def _decided(replies: Sequence[DecisionReply], facts: Sequence[Fact], memories: Sequence[Memory]) -> Decided:
    for reply in replies:
        _check(reply, facts, memories)
    closed = {reply.memory for reply in replies if reply.event is Event.DELETE}
    updated: set[int] = set()
    decisions: list[Decision] = []
    dropped: list[Fact] = []
    undecided: list[Fact] = []
    for number, fact in enumerate(facts):
        mine = [reply for reply in replies if reply.fact == number]
        if not mine:
            undecided.append(fact)
            decisions.append(Decision(Event.ADD, fact))
            continue
        made = _of_fact(fact, mine, memories, closed, updated)
        decisions.extend(made)
        if not made:
            dropped.append(fact)
    decisions.extend(
        Decision(Event.DELETE, memory_id=memories[reply.memory].id)
        for reply in replies
        if reply.fact is None and reply.event is Event.DELETE and reply.memory is not None
    )
    reworded = {memories[number].id for number in updated}
    # A new wording may be another memory's, in whose favour this one closes: what it is said to know comes before.
    decisions.sort(key=lambda decision: decision.event is not Event.NONE or decision.memory_id not in reworded)
    return Decided(tuple(_each_closed_once(decisions)), tuple(dropped), tuple(undecided))


def _of_fact(
    fact: Fact,
    replies: Sequence[DecisionReply],
    memories: Sequence[Memory],
    closed: set[int | None],
    updated: set[int],
) -> list[Decision]:
    """Return the decisions about one fact; an update of a memory that goes or was updated already is an ADD."""
    made: list[Decision] = []
    adds = False
    text = fact.text
    for reply in replies:
        number = reply.memory
        if reply.event is Event.UPDATE and number is not None and number not in closed and number not in updated:
            updated.add(number)
            made.append(Decision(Event.UPDATE, _worded(fact, reply.text), memories[number].id))
        elif reply.event is Event.NONE and number is not None and number not in closed:
            known = Decision(Event.NONE, fact, memories[number].id)
            made += [] if known in made else [known]
        elif reply.event in (Event.ADD, Event.UPDATE) or (reply.event is Event.NONE and number is not None):
            adds, text = True, reply.text or text
        elif reply.event is Event.DELETE and reply.text:
            text = reply.text
    gone = tuple(memories[r.memory].id for r in replies if r.event is Event.DELETE and r.memory is not None)
    nothing_instead = all(r.text is not None and not r.text.strip() for r in replies if r.event is Event.DELETE)
    if adds or (gone and not made and not nothing_instead):
        made.append(Decision(Event.ADD, _worded(fact, text), replaces=gone))
    else:
        made.extend(Decision(Event.DELETE, memory_id=memory_id) for memory_id in gone)
    return made


def _each_closed_once(decisions: Sequence[Decision]) -> list[Decision]:
    """Return the decisions with every memory closed by the first that closes it alone."""
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
    """Refuse numbers that were not shown and decisions that lack what they need."""
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


def _attributed(replies: Sequence[DecisionReply], facts: Sequence[Fact]) -> list[DecisionReply]:
    """Give entries of Mem0's form, which name no fact, the fact they most likely speak of.

    There a NONE entry lists a memory that stays; it answers for the facts that no other entry speaks of. A DELETE is
    attributed only to a fact that no other entry speaks of.
    """
    if any(reply.fact is not None for reply in replies):
        return list(replies)
    given: list[DecisionReply] = []
    silent = list(range(len(facts)))
    words = [set(search_tokens(fact.text)) for fact in facts]
    for reply in sorted(replies, key=lambda reply: reply.event is Event.DELETE):
        if reply.event is Event.NONE:
            continue
        number = _nearest_fact(reply, words, silent)
        if number in silent:
            silent.remove(number)
        text = None if reply.event is Event.DELETE else reply.text
        given.append(reply.model_copy(update={"fact": number, "text": text}))
    if any(reply.event is Event.NONE for reply in replies):
        given.extend(DecisionReply(fact=number, event=Event.NONE, memory=None, text=None) for number in silent)
    return given


def _nearest_fact(reply: DecisionReply, words: Sequence[AbstractSet[str]], silent: Sequence[int]) -> int | None:
    """Return the fact with most words of an entry, the next nobody spoke of where none has any."""
    numbers = silent if reply.event is Event.DELETE else range(len(words))
    said = set(search_tokens(reply.text or ""))
    shared = {number: len(said & words[number]) for number in numbers}
    best = max(shared, key=lambda number: shared[number], default=None)
    if best is not None and shared[best]:
        return best
    if reply.event is Event.DELETE:
        return None
    return silent[0] if silent else 0


def _worded(fact: Fact, text: str | None) -> Fact:
    plain = one_line(text or "")
    return replace(fact, text=plain) if any(map(str.isalnum, plain)) else fact


def _number(value: Any) -> int | None:
    """Return the number a model gives, None where it gives none, and -1, which is refused, for anything else."""
    if value is None or value == "":
        return None
    whole = isinstance(value, int) and not isinstance(value, bool)
    digits = str(value).strip() if whole or isinstance(value, str) else ""
    return int(digits) if digits.isdecimal() and len(digits) <= MAX_DIGITS else -1
