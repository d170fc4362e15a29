"""The decide stage: what to do with new facts, given the memories nearest to them.

This is the update phase in section 2.1 of the Mem0 paper. All facts of a call, what people ask to forget, and the
entries nearest to these go into one request. The model sees small integers instead of ids, and a number that was not
shown is an error. The model says what is the same and what cannot both be true; `decisions/settle.py` turns that into
decisions, and the later of two facts that contradict each other is the one that holds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Annotated, Any

from pydantic import AliasChoices, BeforeValidator, Field, WithJsonSchema, model_validator
from pydantic.json_schema import SkipJsonSchema

from palimpsest.core.clock import shown_date
from palimpsest.core.models import Event
from palimpsest.core.protocols import LanguageModel
from palimpsest.core.validation import object_of
from palimpsest.llm import ask
from palimpsest.llm.prompts import Prompt
from palimpsest.llm.settle import Comparison, Decisions, Verdict, settle, with_items
from palimpsest.llm.user_name import with_name

INPUTS = frozenset({"facts", "memories"})

MAX_TEXT_CHARS = 4_000

_EVENTS: Mapping[str, Event] = {
    **{event.value: event for event in Event},
    **dict.fromkeys(("INSERT", "CREATE", "\u6dfb\u52a0", "\u65b0\u589e"), Event.ADD),
    **dict.fromkeys(("MODIFY", "\u66f4\u65b0", "\u4fee\u6539"), Event.UPDATE),
    **dict.fromkeys(("SUPERSEDE", "REMOVE", "FORGET", "\u5220\u9664"), Event.DELETE),
    **dict.fromkeys(("NOOP", "NO OP", "NO CHANGE", "IGNORE", "SKIP", "\u65e0", "\u65e0\u53d8\u5316"), Event.NONE),
}
"""Events as models name them, also in Chinese."""

_MEMORY_KEYS = ("memory", "memory_id", "target_memory_id", "id")
_TEXT_KEYS = ("text", "updated_content", "new_memory", "new_text", "content", "data")
_LIST_KEYS = ("decisions", "memory", "results", "operations")


def _number(value: Any) -> int | None:
    """Return the number in a reply, None if there is none, and -1, which is never valid, for anything else."""
    is_none = value is None or (isinstance(value, str) and value.strip().casefold() in ask.NOTHING)
    return None if is_none else ask.number_in(value)


def _event(value: Any) -> Event | None:
    return _EVENTS.get(ask.text_in(value).upper().replace("_", " ").replace("-", " ").strip())


_MaybeNumber = Annotated[int | None, BeforeValidator(_number)]
_EVENT_SCHEMA = WithJsonSchema({"enum": [event.value for event in Event], "type": "string"})


class DecisionReply(ask.ReplyItem):
    """One decision of the model's reply, about fact number `fact` and, except for ADD, memory number `memory`.

    What is no event is None. An operation is a decision in another form, of which there is one for each fact. Custom
    update prompts written for Mem0 ask for "id".
    """

    fact: _MaybeNumber
    event: Annotated[Event | None, BeforeValidator(_event), _EVENT_SCHEMA] = Field(
        None, validation_alias=AliasChoices("event", "operation")
    )
    memory: _MaybeNumber = Field(None, validation_alias=AliasChoices(*_MEMORY_KEYS))
    text: str | None
    is_operation: SkipJsonSchema[bool] = False

    @model_validator(mode="before")
    @classmethod
    def _tolerate(cls, value: Any) -> Any:
        item = object_of(value)
        text = next((item[key] for key in _TEXT_KEYS if isinstance(item.get(key), str)), None)
        is_operation = "operation" in item and "fact" not in item
        return cls.filled(
            item, text=None if text is None or ask.says_nothing(text) else text, is_operation=is_operation
        )


class DecideReply(ask.ReplyModel):
    """The model's reply: `{"decisions": […]}`, a bare list, or Mem0's `{"memory": […]}`, whose items name no fact."""

    LIST_KEY = "decisions"

    decisions: list[DecisionReply]

    @classmethod
    def is_item(cls, value: Mapping[str, Any]) -> bool:
        """Return whether a value is a decision without a list around it."""
        return isinstance(value.get("event", value.get("operation")), str)

    @model_validator(mode="before")
    @classmethod
    def _tolerate(cls, value: Any) -> Any:
        if isinstance(value, list):
            items = ask.list_in(value)
            if not all(isinstance(item, Mapping) for item in items):
                raise ValueError("it is a list of something else than decisions")
            return {"decisions": items}
        listed = next((value[key] for key in _LIST_KEYS if key in object_of(value)), None)
        return {"decisions": list(filter(None, [object_of(listed)])) if isinstance(listed, Mapping) else listed}


async def decide(model: LanguageModel, prompt: Prompt, comparison: Comparison) -> Decisions:
    """Return the decisions about facts and requests to forget. Raises ModelError.

    What cannot be carried out of a reply is asked for once more, and then left out of the others. A fact without a
    decision is added, and a request without one is not granted.
    """
    messages = prompt.render(facts=_shown_items(comparison), memories=_shown_entries(comparison))

    def convert(reply: DecideReply) -> tuple[Decisions, str]:
        verdicts, faults = _verdicts(reply, comparison)
        decided = replace(settle(verdicts, comparison), faults=tuple(dict.fromkeys(faults)))
        left_out = (*decided.undecided, *decided.unanswered)
        items = enumerate((*comparison.facts, *comparison.requests))
        numbers = ", ".join(str(number) for number, item in items if item in left_out)
        return decided, next(iter(faults), f"it has no decision about fact {numbers}." if left_out else "")

    return await ask.ask(model, messages, DecideReply, convert, when_cut=partial(replace, is_cut=True))


def _shown_items(comparison: Comparison) -> list[dict[str, Any]]:
    """Return the facts, and after them the requests to forget, with the numbers and likeness of what is near them."""
    items: list[dict[str, Any]] = [
        {
            "text": fact.text,
            "date": shown_date(at, fact.happened_precision) if (at := fact.happened_at or fact.said_at) else "",
            "since": shown_date(fact.valid_from, fact.valid_from_precision) if fact.valid_from else "",
        }
        for fact in comparison.facts
    ]
    items += [{"forget": request.what} for request in comparison.requests]
    for number, item in enumerate(items):
        item["near"] = {str(entry): round(near, 2) for entry, near in comparison.near_to(number).items()}
    return [{"fact": number, **ask.without_empty(**item)} for number, item in enumerate(items)]


def _shown_entries(comparison: Comparison) -> list[dict[str, Any]]:
    """Return what the facts are held against. The facts of the call that another item may be about come last.

    Memories of the time before the user's name was known are shown with the name, as the facts have it.
    """
    shown: list[dict[str, Any]] = [
        {
            "id": number,
            **ask.without_empty(
                text=with_name(entry.shown_text, comparison.user_name),
                date=entry.memory.date,
                since=entry.memory.since,
                message=entry.kind == "message",
                past=entry.memory.deleted_at is not None,
                hints=entry.shown_hints if comparison.requests else "",
            ),
        }
        for number, entry in enumerate(comparison.entries)
    ]
    new = [{"text": comparison.facts[fact].text, "new": f"fact {fact}"} for fact in comparison.listed_facts]
    return shown + [{"id": number, **item} for number, item in enumerate(new, len(shown))]


def _verdicts(reply: DecideReply, comparison: Comparison) -> tuple[list[Verdict], list[str]]:
    """Return the model's decisions, and what is wrong with those that are left out."""
    items = len(comparison.facts) + len(comparison.requests)
    decisions = reply.decisions
    if len(decisions) == items and all(decision.is_operation for decision in decisions):
        decisions = [decision.model_copy(update={"fact": number}) for number, decision in enumerate(decisions)]
    verdicts: list[Verdict] = []
    faults: list[str] = []
    for item in decisions:
        fault = _fault(item, comparison)
        if item.event is None or fault:
            faults.append(fault)
        else:
            verdicts.append(Verdict(item.fact, item.event, None if item.event is Event.ADD else item.memory, item.text))
    return with_items(verdicts, comparison), faults


def _fault(reply: DecisionReply, comparison: Comparison) -> str:
    """Return what is wrong with a decision: a number that was not shown, or a lacking event, memory or text; or ""."""
    items = len(comparison.facts) + len(comparison.requests)
    entries = len(comparison.entries) + len(comparison.listed_facts)
    if reply.fact is not None and not 0 <= reply.fact < items:
        return f"there is no fact {reply.fact}; the facts are 0 to {items - 1}."
    if reply.event is None:
        about = "" if reply.fact is None else f" about fact {reply.fact}"
        return f"a decision{about} has no event that there is: {', '.join(Event)}."
    if len(reply.text or "") > MAX_TEXT_CHARS:
        return f"the text of a decision is longer than {MAX_TEXT_CHARS} characters."
    if reply.event is Event.ADD or (reply.memory is None and reply.event is Event.NONE):
        return ""
    if reply.memory is None:
        return f"{reply.event} names no memory."
    if not 0 <= reply.memory < entries:
        return ask.unknown_memory(reply.memory, entries)
    if reply.event is Event.UPDATE and not any(map(str.isalnum, reply.text or "")):
        return f"UPDATE of memory {reply.memory} has no text."
    return ""
