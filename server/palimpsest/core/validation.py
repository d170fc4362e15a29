"""What callers send, checked: scopes, messages, texts, ids, bounds. Every refusal says what would do."""

from __future__ import annotations

import json
import re
import unicodedata
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, cast

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema

from palimpsest.core.clock import parse_instant
from palimpsest.core.errors import InputError
from palimpsest.core.filters import RESERVED
from palimpsest.core.models import MAX_SCOPE_CHARS, Message, Scope

MAX_TEXT_CHARS = 20_000
MAX_MESSAGES = 500
MAX_MESSAGES_CHARS = 200_000
MAX_QUERY_CHARS = 4_000
MAX_METADATA_BYTES = 10_000
MAX_IDS = 100
MAX_LIMIT = 100
MAX_TOKENS = 20_000

_UNSEEN = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2065\u2800\u3164\ufe00-\ufe0d\uffa0\ufff0-\ufff8\U000e0000-\U000e0fff]"
)
"""Letters, marks and unassigned characters that take no ink; but not the selectors in which many an emoji ends."""


ROLES = ("user", "assistant", "system")
PASSED_OVER = ("tool", "function", "developer")
"""Roles of turns that nobody said to anybody; they are skipped, with those that have no text."""


class MessageInput(BaseModel):
    """One turn of a conversation."""

    model_config = ConfigDict(extra="forbid")

    role: Annotated[str, WithJsonSchema({"enum": list(ROLES), "description": "system is context, never learnt from"})]
    content: Annotated[Any, WithJsonSchema({"type": "string", "description": "what was said"})] = None
    name: str | None = Field(default=None, description="the speaker's, if known")
    id: str | None = Field(default=None, description="your own; comes back in sources")
    at: str | None = Field(default=None, description="when it was said, ISO 8601; default now")


class ScopeInput(BaseModel):
    """Parts of a scope that differ from the server's."""

    model_config = ConfigDict(extra="forbid")

    user_id: str | None = None
    project: str | None = None
    agent_id: str | None = None
    run_id: str | None = None


@dataclass(frozen=True, slots=True)
class ConversationInput:
    """Hold the messages to keep, the system's words (context only), and how many turns had no text."""

    messages: tuple[Message, ...]
    context: tuple[str, ...]
    skipped: int


def well_formed(text: str) -> str:
    """Return a text in which half surrogate pairs, which no file and no index takes, are replaced."""
    return text.encode("utf-8", "replace").decode("utf-8")


def one_line(text: str) -> str:
    """Return a well-formed text on one line, with single spaces."""
    return " ".join(well_formed(text).split())


def scope_from(resolved: Scope, given: ScopeInput | None) -> Scope:
    """Return the server's scope with the given parts in place of its own. Raises InputError."""
    if given is None:
        return resolved
    parts = {
        name: scope_part(f"scope.{name}", value)
        if (value := getattr(given, name)) is not None
        else getattr(resolved, name)
        for name in ("user_id", "project", "agent_id", "run_id")
    }
    if not parts["user_id"]:
        raise InputError("scope.user_id is empty; leave it out to use the server's own user")
    return Scope(**parts)


def scope_part(name: str, value: str) -> str:
    """Return a user, project, agent or run as it is to be used. Raises InputError naming `name`."""
    plain = value.strip()
    if plain == "*":
        raise InputError(f"{name} '*' is no scope; name one, or leave it out")
    if len(plain) > MAX_SCOPE_CHARS:
        raise InputError(f"{name} is longer than {MAX_SCOPE_CHARS} characters")
    if any(unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp") for char in plain) or _UNSEEN.search(plain):
        raise InputError(f"{name} holds control or invisible characters")
    return plain


def conversation_from(turns: Sequence[MessageInput], scope: Scope, now: datetime) -> ConversationInput:
    """Return what is to be kept of a conversation. Raises InputError when that is nothing or too much."""
    if len(turns) > MAX_MESSAGES:
        raise InputError(f"{len(turns)} messages are more than {MAX_MESSAGES}; add them in several calls")
    messages: list[Message] = []
    context: list[str] = []
    skipped = 0
    for number, turn in enumerate(turns):
        content = well_formed(text_of(turn.content)).strip()
        if turn.role not in (*ROLES, *PASSED_OVER):
            raise InputError(
                f"messages.{number}.role is '{turn.role}'; there are {', '.join(ROLES)}. Nothing was stored."
            )
        if not content or turn.role in PASSED_OVER:
            skipped += 1
        elif turn.role == "system":
            context.append(content)
        else:
            messages.append(_message(turn, content, scope, now))
    size = sum(len(message.content) for message in messages) + sum(map(len, context))
    if size > MAX_MESSAGES_CHARS:
        raise InputError(
            f"the messages hold {size:,} characters, more than {MAX_MESSAGES_CHARS:,}; nothing was stored. "
            "Add them in several calls."
        )
    if not messages:
        raise InputError("no message of a user or assistant with a text was given, so there is nothing to remember")
    return ConversationInput(tuple(messages), tuple(context), skipped)


def _message(turn: MessageInput, content: str, scope: Scope, now: datetime) -> Message:
    for what, value in (("name", turn.name), ("id", turn.id)):
        if value is not None and len(value) > MAX_SCOPE_CHARS:
            raise InputError(f"the {what} of a message is longer than {MAX_SCOPE_CHARS} characters")
    return Message(
        id=str(uuid.uuid4()),
        scope=scope,
        role=turn.role,
        content=content,
        said_at=parse_instant(turn.at, "the message's at") if turn.at else now,
        created_at=now,
        name=one_line(turn.name or ""),
        external_id=one_line(turn.id or ""),
    )


def text_of(content: Any) -> str:
    """Return the text of a message's content: a string, or the text parts of OpenAI's list form."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        parts = cast("list[Any]", content)
        texts = [cast("dict[str, Any]", part).get("text") if isinstance(part, dict) else part for part in parts]
        return "\n".join(text for text in texts if isinstance(text, str))
    return ""


def text_from(text: str, what: str = "text") -> str:
    """Return a text stripped of white space around it. Raises InputError when it is empty or too long."""
    plain = well_formed(text).strip()
    if not plain:
        raise InputError(f"{what} is empty; nothing was done")
    if len(plain) > MAX_TEXT_CHARS:
        raise InputError(
            f"{what} has {len(plain):,} characters, more than {MAX_TEXT_CHARS:,}; nothing was stored. "
            "A memory is one fact: store what matters of it, or add a conversation as messages."
        )
    return plain


def query_from(query: str) -> str:
    """Return a question stripped of white space around it. Raises InputError when it is empty or too long."""
    plain = well_formed(query).strip()
    if not plain:
        raise InputError("query is empty; say what you want to know, or page through list_memories")
    if len(plain) > MAX_QUERY_CHARS:
        raise InputError(f"query has {len(plain):,} characters, more than {MAX_QUERY_CHARS:,}; ask a shorter question")
    return plain


def metadata_from(metadata: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return a copy of the caller's metadata; null stands for a key to take away, whatever it is called.

    Raises InputError when it is too large, or has a key that means something else in filters.
    """
    copy = dict(metadata or {})
    try:
        size = len(json.dumps(copy, ensure_ascii=False, allow_nan=False).encode())
    except (TypeError, ValueError) as error:
        raise InputError(f"metadata is no JSON: {error}") from error
    if size > MAX_METADATA_BYTES:
        raise InputError(f"metadata is larger than {MAX_METADATA_BYTES:,} bytes as JSON")
    if taken := [key for key in RESERVED if copy.get(key) is not None]:
        raise InputError(
            f"metadata may not use '{taken[0]}', which means something else in filters; choose another key"
        )
    return copy


def bounded(name: str, value: int, lowest: int, highest: int) -> int:
    """Return a number within its bounds. Raises InputError."""
    if not lowest <= value <= highest:
        raise InputError(f"{name} is {value} and should lie between {lowest} and {highest}")
    return value
