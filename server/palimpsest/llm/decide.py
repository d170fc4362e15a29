"""The decide stage: what to do with new facts, given the memories nearest to them.

This is the update phase in section 2.1 of the Mem0 paper. All facts of a call, what people ask to forget, and the
entries nearest to these go into one request. The model sees small integers instead of ids, and a number that was not
shown is an error. The model says what is the same and what cannot both be true; `decisions/settle.py` turns that into
decisions, and the later of two facts that contradict each other is the one that holds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from pydantic import BaseModel, ConfigDict, model_validator

from palimpsest.core.clock import shown_date
from palimpsest.core.models import Event, Fact
from palimpsest.core.protocols import LanguageModel
from palimpsest.llm.decisions.settle import settle
from palimpsest.llm.decisions.verdicts import Comparison, Decisions, Verdict, with_items
from palimpsest.llm.names import with_name
from palimpsest.llm.prompts import Prompt
from palimpsest.llm.structured_output import ReplyModel, ask

INPUTS = frozenset({"facts", "memories"})

NEAREST_MEMORIES = 10
"""How many of the nearest memories each fact is compared with; s in the paper."""

MAX_TEXT_CHARS = 4_000
MAX_DIGITS = 9

_WORDS = {"NOOP": "NONE", "NO CHANGE": "NONE", "SUPERSEDE": "DELETE", "REMOVE": "DELETE", "FORGET": "DELETE"}


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


class DecideReply(ReplyModel):
    """The model's reply: `{"decisions": […]}`, a bare list, or Mem0's `{"memory": […]}`, whose items name no fact."""

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


async def decide(model: LanguageModel, prompt: Prompt, comparison: Comparison) -> Decisions:
    """Return the decisions about facts and requests to forget. Raises ModelError.

    A fact that the model leaves out of both replies is added, and a request is not granted.
    """
    messages = prompt.render(facts=_shown_items(comparison), memories=_shown_entries(comparison))

    def convert_leniently(reply: DecideReply) -> Decisions:
        return settle(_verdicts(reply, comparison), comparison)

    def convert(reply: DecideReply) -> Decisions:
        decided = convert_leniently(reply)
        if decided.undecided or decided.unanswered:
            items = (*comparison.facts, *comparison.requests)
            left_out = (*decided.undecided, *decided.unanswered)
            numbers = [number for number, item in enumerate(items) if item in left_out]
            raise ValueError(f"it has no decision about fact {', '.join(map(str, numbers))}.")
        return decided

    return await ask(
        model,
        messages,
        DecideReply,
        convert,
        convert_leniently=convert_leniently,
        convert_cut=lambda reply: replace(convert_leniently(reply), is_cut=True),
    )


def _shown_items(comparison: Comparison) -> list[dict[str, Any]]:
    """Return the facts, and after them the requests to forget, with the numbers and likeness of what is near them."""
    items: list[dict[str, Any]] = [{"text": fact.text, **_dates(fact)} for fact in comparison.facts]
    items += [{"forget": request.what} for request in comparison.requests]
    near = comparison.near or ((),) * len(items)
    return [
        {"fact": number, **item, **_nearness(entries)}
        for number, (item, entries) in enumerate(zip(items, near, strict=True))
    ]


def _nearness(entries: Sequence[tuple[int, float]]) -> dict[str, dict[str, float]]:
    return {"near": {str(number): round(likeness, 2) for number, likeness in entries}} if entries else {}


def _dates(fact: Fact) -> dict[str, str]:
    at = fact.happened_at or fact.said_at
    precision = fact.happened_precision if fact.happened_at else ""
    since = shown_date(fact.valid_from, fact.valid_from_precision) if fact.valid_from else ""
    return {**({"date": shown_date(at, precision)} if at else {}), **_since(since)}


def _since(date: str) -> dict[str, str]:
    return {"since": date} if date else {}


def _shown_entries(comparison: Comparison) -> list[dict[str, Any]]:
    """Return what the facts are held against. The facts of the call that another item may be about come last.

    Memories of the time before the user's name was known are shown with the name, as the facts have it.
    """
    shown: list[dict[str, Any]] = [
        {
            "id": number,
            "text": with_name(entry.shown_text, comparison.user_name),
            "date": entry.memory.date,
            **_since(entry.memory.since),
            **({"message": True} if entry.kind == "message" else {}),
            **({"past": True} if entry.memory.deleted_at is not None else {}),
        }
        for number, entry in enumerate(comparison.entries)
    ]
    new = [{"text": comparison.facts[fact].text, "new": f"fact {fact}"} for fact in comparison.listed_facts]
    return shown + [{"id": number, **item} for number, item in enumerate(new, len(shown))]


def _verdicts(reply: DecideReply, comparison: Comparison) -> list[Verdict]:
    """Return the model's decisions. Raises ValueError for a number that was not shown, or a lacking memory or text."""
    for item in reply.decisions:
        _check(item, comparison)
    verdicts = [
        Verdict(item.fact, item.event, None if item.event is Event.ADD else item.memory, item.text)
        for item in reply.decisions
    ]
    return with_items(verdicts, comparison)


def _check(reply: DecisionReply, comparison: Comparison) -> None:
    items = len(comparison.facts) + len(comparison.requests)
    if reply.fact is not None and not 0 <= reply.fact < items:
        raise ValueError(f"there is no fact {reply.fact}; the facts are 0 to {items - 1}.")
    if len(reply.text or "") > MAX_TEXT_CHARS:
        raise ValueError(f"the text of a decision is longer than {MAX_TEXT_CHARS} characters.")
    if reply.event is Event.ADD:
        return
    if reply.memory is None:
        if reply.event is Event.NONE:
            return
        raise ValueError(f"{reply.event} names no memory.")
    entries = len(comparison.entries) + len(comparison.listed_facts)
    if not 0 <= reply.memory < entries:
        raise ValueError(f"there is no memory {reply.memory}; the ids are those shown, 0 to {entries - 1}.")
    if reply.event is Event.UPDATE and not any(map(str.isalnum, reply.text or "")):
        raise ValueError(f"UPDATE of memory {reply.memory} has no text.")


def _number(value: Any) -> int | None:
    """Return the number in a reply, None if there is none, and -1, which is never valid, for anything else."""
    if value is None or value == "":
        return None
    whole = isinstance(value, int) and not isinstance(value, bool)
    digits = str(value).strip() if whole or isinstance(value, str) else ""
    return int(digits) if digits.isdecimal() and len(digits) <= MAX_DIGITS else -1
