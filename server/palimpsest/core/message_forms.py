"""Read messages in the forms in which other programs write them.

They are those of OpenAI (chat, responses, assistants), Anthropic, Gemini, Bedrock, LangChain, the AI SDK and ShareGPT.
What was said is text; calls of tools and their results, reasoning, images and the like are left out and counted.
"""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, cast

Role: TypeAlias = Literal["user", "assistant", "system"]

LeftOut: TypeAlias = Counter[tuple[str, str]]
"""How much was left out, by a noun for one of it, and what follows that noun."""

CALLS = ("tool call", "")
RESULTS = ("tool result", "")
REASONING = ("piece", " of reasoning")
NO_TEXT = ("message", " without text")
OTHER_PARTS = ("part", " without text, such as an image")

ROLES: tuple[Role, ...] = ("user", "assistant", "system")

_ROLES: Mapping[str, Role] = {
    "user": "user",
    "human": "user",
    "humanmessage": "user",
    "humanmessagechunk": "user",
    "prompter": "user",
    "assistant": "assistant",
    "ai": "assistant",
    "aimessage": "assistant",
    "aimessagechunk": "assistant",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "chatbot": "assistant",
    "bot": "assistant",
    "model": "assistant",
    "system": "system",
    "systemmessage": "system",
    "developer": "system",
}
_UNSAID = (
    (
        RESULTS,
        re.compile(
            r"(?:tool|function|call|execution).*(?:result|output|response|message)|^(?:tool|function)$|observation|ipython"
        ),
    ),
    (CALLS, re.compile(r"tool|function|execut|_call")),
    (REASONING, re.compile(r"think|thought|reason")),
)
"""How roles and types of parts are recognized that nobody said."""

_ROLE_KEYS = ("role", "from", "type", "author", "sender")
_TEXT_KEYS = ("content", "parts", "text", "value", "message", "refusal", "audio", "transcript")
_CALL_KEYS = ("tool_calls", "function_call", "toolInvocations")
_REASONING_KEYS = ("reasoning", "reasoning_content", "thinking")
_TIME_KEYS = ("timestamp", "created_at", "createdAt", "create_time", "created", "date", "time")
_LIST_KEYS = ("messages", "conversations", "conversation", "turns", "history", "chat", "items", "contents", "data")
"""The keys under which an object holds a conversation, or several."""

_MAX_QUOTED = 40
"""How many characters of a role or a key that nobody knows are quoted."""

_MAX_DEPTH = 5
"""How deep texts are looked for in a message. OpenAI's assistants have the deepest: content, part, text, value."""

_PAIR = 2
"""LangChain writes a message as a role and a text, too."""


@dataclass(frozen=True, slots=True)
class SaidMessage:
    """A message as it was given. `at` is the caller's `at`, and `foreign_at` a time under another program's key."""

    role: Role
    text: str
    name: str = ""
    id: str = ""
    at: Any = None
    foreign_at: Any = None


@dataclass(slots=True)
class MessageReader:
    """Reads messages one by one. `left_out` counts what they have besides text; `problems` says what is no message."""

    left_out: LeftOut = field(default_factory=Counter[tuple[str, str]])
    problems: list[str] = field(default_factory=list[str])
    number: int = 0

    def read(self, value: Any) -> SaidMessage | None:
        """Return what a message says, or None. A message that says nothing is counted."""
        place, self.number = f"messages.{self.number}", self.number + 1
        message = _unwrapped(value)
        if message is None:
            self._refuse(
                "of an unknown form", f'{place}: must be an object, such as {{"role": "user", "content": "…"}}'
            )
            return None
        given = _role_of(message)
        kind = given.casefold()
        role = _ROLES.get(kind)
        unsaid = _unsaid([kind]) if role is None else None
        if unsaid is not None:
            self.left_out[unsaid] += 1
            return None
        if role is None:
            what = f"with the role '{given[:_MAX_QUOTED]}'" if given else "without a role"
            has = f"'{given[:_MAX_QUOTED]}'" if given else "missing" + _guess("role", message)
            self._refuse(what, f"{place}.role is {has}; use {', '.join(ROLES)}")
            return None
        text = self._text(message, place)
        if not text:
            return None
        return SaidMessage(
            role,
            text,
            _word(message.get("name")),
            _word(message.get("id")) or _word(message.get("uuid")),
            message.get("at"),
            next((message[key] for key in _TIME_KEYS if message.get(key) is not None), None),
        )

    def _refuse(self, what: str, problem: str) -> None:
        self.left_out["message", f" {what}"] += 1
        self.problems.append(problem)

    def _text(self, message: Mapping[str, Any], place: str) -> str:
        """Return the text of a message. What it has besides is counted; if it has nothing else, that it has no text."""
        found: LeftOut = Counter()
        texts: list[str] = []
        for key in _TEXT_KEYS:
            texts = [text for text in _texts(message.get(key), found) if text.strip()]
            if texts:
                break
        for key in _CALL_KEYS:
            calls = message.get(key)
            found[CALLS] += len(cast("list[Any]", calls)) if isinstance(calls, list) else isinstance(calls, dict)
        found[REASONING] += sum(bool(message.get(key)) for key in _REASONING_KEYS)
        found = +found
        if not texts and not found and (guess := _guess("content", message)):
            self._refuse(f"without content{guess}", f"{place}.content is missing{guess}")
        elif not texts and found.keys() <= {OTHER_PARTS}:
            found = Counter([NO_TEXT])
        self.left_out.update(found)
        return "\n".join(texts)


def conversations_in(value: Any) -> list[list[Any]]:
    """Return the conversations in a JSON value, each a list of messages that may be in any form.

    The value is a list of messages, an object that has one, a list of such objects, or anything else: then it is a
    conversation of one message, which a reader refuses.
    """
    if isinstance(value, dict):
        return _conversations_of(cast("dict[str, Any]", value))
    if not isinstance(value, list):
        return [[value]]
    conversations: list[list[Any]] = []
    alone: list[Any] = []
    for item in cast("list[Any]", value):
        nested = _conversations_of(cast("dict[str, Any]", item)) if _holds_messages(item) else None
        if nested is None and isinstance(item, list) and _unwrapped(item) is None:
            nested = [cast("list[Any]", item)]
        if nested is None:
            alone.append(item)
        else:
            conversations += nested
    return [*([alone] if alone else []), *conversations]


def _conversations_of(value: dict[str, Any]) -> list[list[Any]]:
    """Return the conversations that an object holds. Anthropic has the system's text beside the messages."""
    for key in _LIST_KEYS:
        inner = value.get(key)
        if not isinstance(inner, list) or (key == "data" and _role_of(value)):
            continue
        conversations = conversations_in(inner)
        if key == "data":  # OpenAI lists the messages of a thread from the newest to the oldest
            conversations = [_oldest_first(messages) for messages in conversations]
        system = value.get("system")
        return (
            [[{"role": "system", "content": system}, *messages] for messages in conversations]
            if system
            else conversations
        )
    return [[value]]


def _holds_messages(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    item = cast("dict[str, Any]", value)
    return not _role_of(item) and any(isinstance(item.get(key), list) for key in _LIST_KEYS)


def _oldest_first(messages: list[Any]) -> list[Any]:
    times = [cast("dict[str, Any]", item).get("created_at") for item in messages if isinstance(item, dict)]
    numbers = [time for time in times if isinstance(time, int | float)]
    return messages[::-1] if len(numbers) == len(messages) and numbers and numbers[0] > numbers[-1] else messages


def _unwrapped(value: Any) -> dict[str, Any] | None:
    """Return the message in a value: an object, LangChain's frames around one, or a pair of a role and a text."""
    if isinstance(value, list):
        pair = cast("list[Any]", value)
        is_pair = len(pair) == _PAIR and all(isinstance(item, str) for item in pair) and pair[0].casefold() in _ROLES
        return {"role": pair[0], "content": pair[1]} if is_pair else None
    if not isinstance(value, dict):
        return None
    message = cast("dict[str, Any]", value)
    if isinstance(message.get("kwargs"), dict) and "lc" in message:
        names: Any = message.get("id")
        kind = cast("list[Any]", names)[-1] if isinstance(names, list) and names else ""
        return {"type": kind, **message["kwargs"]}
    for key in ("data", "message"):
        inner = message.get(key)
        if isinstance(inner, dict) and "role" not in message:
            return {**{name: part for name, part in message.items() if name != key}, **inner}
    return message


def _role_of(message: Mapping[str, Any]) -> str:
    """Return what a message says about who speaks, or else of what kind it is; "" if it says neither."""
    for key in _ROLE_KEYS:
        value: Any = message.get(key)
        if isinstance(value, dict):
            value = cast("dict[str, Any]", value).get("role")
        if isinstance(value, str) and value.strip():
            return value.strip()
    return ""


def _texts(value: Any, left_out: LeftOut, depth: int = 0) -> Iterator[str]:
    """Yield the texts of a message's content, and count the parts that are none."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list) and depth < _MAX_DEPTH:
        for part in cast("list[Any]", value):
            yield from _texts(part, left_out, depth + 1)
    elif isinstance(value, dict) and depth < _MAX_DEPTH:
        part = cast("dict[str, Any]", value)
        reason = _reason_of(part)
        nested = () if reason else (list(_texts(part[key], left_out, depth + 1)) for key in _TEXT_KEYS if key in part)
        texts = next((texts for texts in nested if any(texts)), ())
        if texts:
            yield from texts
        elif part and part.get("type") not in ("text", "step-start"):
            left_out[reason or OTHER_PARTS] += 1


def _reason_of(part: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return what a part of a message is if nobody said it. Gemini and Bedrock name the kind by a key."""
    if part.get("thought") is True:
        return REASONING
    kind = part.get("type")
    kinds = [kind] if isinstance(kind, str) else [] if any(key in part for key in _TEXT_KEYS) else list(part)
    return _unsaid(kinds)


def _unsaid(kinds: Iterable[str]) -> tuple[str, str] | None:
    names = [kind.casefold() for kind in kinds]
    return next((reason for reason, pattern in _UNSAID if any(map(pattern.search, names))), None)


def _guess(name: str, message: Mapping[str, Any]) -> str:
    """Return which key of a message is probably a misspelt `name`, in words, or ""."""
    close = difflib.get_close_matches(name, message, n=1, cutoff=0.75)
    return f" (is '{close[0][:_MAX_QUOTED]}' misspelt?)" if close and close[0] != name else ""


def _word(value: Any) -> str:
    """Return a name or an id, which some programs write as a number."""
    return value if isinstance(value, str) else str(value) if isinstance(value, int) and value is not True else ""
