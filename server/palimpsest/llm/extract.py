"""The extract stage: facts from new messages (section 2.1 of the Mem0 paper).

The summary and the recent messages are context. Facts come from the new messages only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from typing import Any, cast

from pydantic import BaseModel, ConfigDict, model_validator

from palimpsest.core.models import Fact, Message
from palimpsest.core.protocols import LanguageModel
from palimpsest.core.validation import is_blank, one_line
from palimpsest.llm.prompts import Prompt
from palimpsest.llm.structured_output import ask
from palimpsest.text.tokenizer import search_tokens

INPUTS = frozenset({"today", "summary", "recent", "context", "messages"})

RECENT_MESSAGES = 10
"""How many earlier messages the model sees as context; m in the paper."""

MAX_FACTS = 100
MAX_FACT_CHARS = 4_000
MAX_LABELS = 12
MAX_LABEL_CHARS = 64
MAX_DIGITS = 9

_TEXT_KEYS = ("text", "fact", "memory", "content", "data")


class FactReply(BaseModel):
    """One fact of the model's reply. A bare string is accepted too."""

    model_config = ConfigDict(extra="ignore")

    text: str
    sources: list[int]
    happened_at: str | None
    keywords: list[str]
    tags: list[str]

    @model_validator(mode="before")
    @classmethod
    def _tolerate(cls, value: Any) -> Any:
        if isinstance(value, str):
            value = {"text": value}
        if not isinstance(value, Mapping):
            return value
        item = cast("Mapping[str, Any]", value)
        text = next((item[key] for key in _TEXT_KEYS if isinstance(item.get(key), str)), None)
        if text is None:
            raise ValueError("a fact has no text")
        return {
            "text": text,
            "sources": _integers(item.get("sources")),
            "happened_at": _scalar(item.get("happened_at")),
            "keywords": _strings(item.get("keywords")),
            "tags": _strings(item.get("tags")),
        }


class ExtractReply(BaseModel):
    """The model's reply: `{"facts": […]}`, a bare list, or a list under one of Mem0's other keys."""

    model_config = ConfigDict(extra="ignore")

    facts: list[FactReply]

    @model_validator(mode="before")
    @classmethod
    def _tolerate(cls, value: Any) -> Any:
        if isinstance(value, list):
            return {"facts": cast("list[Any]", value)}
        if isinstance(value, Mapping):
            reply = cast("Mapping[str, Any]", value)
            for key in ("facts", "fact", "memories", "memory"):
                if key in reply:
                    facts = reply[key]
                    return {"facts": cast("list[Any]", facts) if isinstance(facts, list) else [facts]}
        return cast("Any", value)


@dataclass(frozen=True, slots=True)
class Conversation:
    """What the stage reads. `messages` are new; everything else is context."""

    messages: Sequence[Message]
    recent: Sequence[Message] = ()
    context: Sequence[str] = ()
    summary: str = ""


async def extract(model: LanguageModel, prompt: Prompt, conversation: Conversation, now: datetime) -> list[Fact]:
    """Return the facts in the new messages, each with text and sources. Raises ModelError."""
    messages = prompt.render(
        today=f"{now:%Y-%m-%d, %A}",
        summary=conversation.summary,
        recent=[_shown(message) for message in conversation.recent],
        context=list(conversation.context),
        messages=[
            {"number": number, **_shown(message)} for number, message in enumerate(conversation.messages, start=1)
        ],
    )
    return await ask(model, messages, ExtractReply, lambda reply: _facts(reply, conversation.messages))


def _facts(reply: ExtractReply, messages: Sequence[Message]) -> list[Fact]:
    if len(reply.facts) > MAX_FACTS:
        raise ValueError(f"it holds {len(reply.facts)} facts; give at most {MAX_FACTS}, those that matter most.")
    facts: dict[str, Fact] = {}
    likely = _LikelySource(messages)
    for item in reply.facts:
        text = one_line(item.text)
        if not any(map(str.isalnum, text)):
            raise ValueError("one of its facts is empty.")
        if len(text) > MAX_FACT_CHARS:
            raise ValueError(f"one of its facts is longer than {MAX_FACT_CHARS} characters; a fact is a sentence.")
        if wrong := [number for number in item.sources if not 1 <= number <= len(messages)]:
            raise ValueError(f"it cites message {wrong[0]}; the messages are 1 to {len(messages)}.")
        cited = [messages[number - 1] for number in item.sources] or likely.of(text)
        known = facts[text].sources if text in facts else ()
        facts[text] = Fact(
            text=text,
            sources=tuple(dict.fromkeys((*known, *(message.id for message in cited)))),
            happened_at=_instant(item.happened_at),
            keywords=tuple(item.keywords[:MAX_LABELS]),
            tags=tuple(item.tags[:MAX_LABELS]),
            actor_id=cited[0].name if cited else "",
            role=cited[0].role if cited else "",
        )
    return list(facts.values())


class _LikelySource:
    """Finds the source of a fact if the model named none: the message that shares most words with it."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self._messages = messages
        self._words: list[set[str]] = []

    def of(self, text: str) -> list[Message]:
        """Return a list of that message, empty if no word is shared. A single message is always the source."""
        if len(self._messages) == 1:
            return list(self._messages)
        self._words = self._words or [set(search_tokens(message.content)) for message in self._messages]
        fact_words = set(search_tokens(text))
        shared = [len(fact_words & words) for words in self._words]
        best = max(shared, default=0)
        return [self._messages[shared.index(best)]] if best else []


def _shown(message: Message) -> dict[str, str]:
    return {
        "role": message.role,
        **({"name": message.name} if message.name else {}),
        "said_at": f"{message.said_at:%Y-%m-%d %H:%M, %A}",
        "text": message.content,
    }


def _instant(value: str | None) -> datetime | None:
    """Return the start of the day, month or year that the model names, or None if it names none."""
    if not value:
        return None
    text = value.strip()
    try:
        if len(text) == len("2026-05") and text[4:5] == "-":
            text += "-01"
        if len(text) == len("2026") and text.isdigit():
            text += "-01-01"
        if len(text) == len("2026-05-08"):
            return datetime.combine(date.fromisoformat(text), time(), UTC)
        instant = datetime.fromisoformat(text)
        return instant.replace(tzinfo=UTC) if instant.tzinfo is None else instant.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _strings(value: Any) -> list[str]:
    items = cast("list[Any]", value) if isinstance(value, list) else []
    return [one_line(item)[:MAX_LABEL_CHARS] for item in items if isinstance(item, str) and not is_blank(item)]


def _integers(value: Any) -> list[int]:
    """Return a number, or the numbers in a list. Anything else becomes 0, which is not a valid message number."""
    items = cast("list[Any]", value) if isinstance(value, list) else [value]
    texts = [(_scalar(item) or "").strip() for item in items if item is not None]
    return [int(text) if text.isdecimal() and len(text) <= MAX_DIGITS else 0 for text in texts]


def _scalar(value: Any) -> str | None:
    """Return a string or an integer as text, else None. str() of other values may exceed the recursion limit."""
    return str(value) if isinstance(value, str | int) and not isinstance(value, bool) else None
