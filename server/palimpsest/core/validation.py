"""Validation of what callers send: scopes, messages, texts, metadata, bounds. Every error says what would be valid."""

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

from palimpsest.core.clock import parse_instant, parse_until
from palimpsest.core.entities import MAX_NAME_CHARS, Relation, name_key, relation_key
from palimpsest.core.errors import InputError, Remedy
from palimpsest.core.models import EXPIRES_AT, MAX_SCOPE_CHARS, Message, Scope
from palimpsest.core.search.filters import JUNCTIONS, RESERVED

MAX_TEXT_CHARS = 20_000
MAX_MESSAGES = 500
MAX_MESSAGES_CHARS = 200_000
MAX_QUERY_CHARS = 4_000
MAX_METADATA_BYTES = 10_000
MAX_IDS = 100
MAX_RELATIONS = 20
_RELATION_PARTS = 3
MAX_LIMIT = 100
MAX_TOKENS = 20_000

_INVISIBLE = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2065\u2800\u3164\ufe00-\ufe0d\uffa0\ufff0-\ufff8\U000e0000-\U000e0fff]"
)
"""Letters, marks and unassigned characters that show nothing on screen.

The variation selectors U+FE0E and U+FE0F are not among them, because many emoji end in one.
"""

_UNSEEN_CATEGORIES = ("Cc", "Cf", "Cs", "Zl", "Zp")
_EMOJI_SELECTORS = "\ufe0e\ufe0f"
_SHOWN_FORMATS = frozenset("\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u0890\u0891\u08e2\U000110bd\U000110cd")
"""Format characters that show a sign, such as the Arabic end of ayah."""

ROLES = ("user", "assistant", "system")
SKIPPED_ROLES = ("tool", "function", "developer")
"""Roles of messages that are not part of the conversation. They are skipped, as are messages without text."""


class MessageInput(BaseModel):
    """One message of a conversation."""

    model_config = ConfigDict(extra="forbid")

    role: Annotated[str, WithJsonSchema({"enum": list(ROLES), "description": "system messages are context only"})]
    content: Annotated[Any, WithJsonSchema({"type": "string", "description": "the text"})] = None
    name: str | None = Field(default=None, description="who speaks")
    id: str | None = Field(default=None, description="your own id; returned in sources")
    at: str | None = Field(default=None, description="ISO 8601; default now")


class ScopeInput(BaseModel):
    """Parts of a scope that differ from the server's."""

    model_config = ConfigDict(extra="forbid")

    user_id: str | None = None
    project: str | None = None
    agent_id: str | None = None
    run_id: str | None = None


class SearchScopeInput(ScopeInput):
    """The same for a search, which may go through all projects of the user."""

    all_projects: bool = False


@dataclass(frozen=True, slots=True)
class ConversationInput:
    """A validated conversation: messages to store, system messages (context only), and how many were skipped."""

    messages: tuple[Message, ...]
    context: tuple[str, ...]
    skipped: int


def well_formed(text: str) -> str:
    """Return a text with lone surrogates replaced by "?". No file, index or request accepts them."""
    return text.encode("utf-8", "replace").decode("utf-8")


def is_blank(text: str) -> bool:
    """Return whether a text shows nothing: it has only white space, control and zero-width characters."""
    return all(char.isspace() or char in _EMOJI_SELECTORS or _is_unseen(char) for char in text)


def trimmed(text: str) -> str:
    """Return a well-formed text without surrounding white space, and "" if it shows nothing."""
    return "" if is_blank(text) else well_formed(text).strip()


def one_line(text: str) -> str:
    """Return a well-formed text as one line, with single spaces, and "" if it shows nothing."""
    return "" if is_blank(text) else " ".join(well_formed(text).split())


def _is_unseen(char: str) -> bool:
    is_format = unicodedata.category(char) in _UNSEEN_CATEGORIES and char not in _SHOWN_FORMATS
    return is_format or _INVISIBLE.match(char) is not None


def scope_from(resolved: Scope, requested: ScopeInput | None) -> Scope:
    """Return the server's scope with the caller's parts in place of its own. Raises InputError."""
    if requested is None:
        return resolved
    parts = {
        name: scope_part(f"scope.{name}", value)
        if (value := getattr(requested, name)) is not None
        else getattr(resolved, name)
        for name in ("user_id", "project", "agent_id", "run_id")
    }
    if not parts["user_id"]:
        raise InputError("scope.user_id is empty; omit it to use the server's own user")
    return Scope(**parts)


def scope_part(name: str, value: str) -> str:
    """Return a valid user, project, agent or run, without surrounding white space. Raises InputError naming `name`."""
    plain = value.strip()
    if plain == "*":
        raise InputError(f"{name} '*' is not a scope; use a name, or omit it")
    if len(plain) > MAX_SCOPE_CHARS:
        raise InputError(f"{name} is longer than {MAX_SCOPE_CHARS} characters")
    if any(unicodedata.category(char) in _UNSEEN_CATEGORIES for char in plain) or _INVISIBLE.search(plain):
        raise InputError(f"{name} contains control or invisible characters")
    return plain


def conversation_from(messages: Sequence[MessageInput], scope: Scope, now: datetime) -> ConversationInput:
    """Return a validated conversation. Raises InputError if it has no message to store, or too much text."""
    if len(messages) > MAX_MESSAGES:
        raise InputError(f"{len(messages)} messages are more than {MAX_MESSAGES}; add them in several calls")
    kept: list[Message] = []
    context: list[str] = []
    skipped = 0
    for number, message in enumerate(messages):
        content = trimmed(text_of(message.content))
        if message.role not in (*ROLES, *SKIPPED_ROLES):
            raise InputError(f"messages.{number}.role is '{message.role}'; use {', '.join(ROLES)}. Nothing was stored.")
        if not content or message.role in SKIPPED_ROLES:
            skipped += 1
        elif message.role == "system":
            context.append(content)
        else:
            kept.append(_message(message, content, scope, now))
    size = sum(len(message.content) for message in kept) + sum(map(len, context))
    if size > MAX_MESSAGES_CHARS:
        raise InputError(
            f"the messages have {size:,} characters, more than {MAX_MESSAGES_CHARS:,}. Nothing was stored. "
            "Add them in several calls."
        )
    if not kept:
        raise InputError("there is no user or assistant message with text, so nothing was stored")
    return ConversationInput(tuple(kept), tuple(context), skipped)


def _message(message: MessageInput, content: str, scope: Scope, now: datetime) -> Message:
    for field, value in (("name", message.name), ("id", message.id)):
        if value is not None and len(value) > MAX_SCOPE_CHARS:
            raise InputError(f"the {field} of a message is longer than {MAX_SCOPE_CHARS} characters")
    return Message(
        id=str(uuid.uuid4()),
        scope=scope,
        role=message.role,
        content=content,
        said_at=parse_instant(message.at, "the message's at") if message.at else now,
        created_at=now,
        name=one_line(message.name or ""),
        external_id=one_line(message.id or ""),
    )


def text_of(content: Any) -> str:
    """Return the text of a message's content, which is a string or OpenAI's list of parts."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        parts = cast("list[Any]", content)
        texts = [cast("dict[str, Any]", part).get("text") if isinstance(part, dict) else part for part in parts]
        return "\n".join(text for text in texts if isinstance(text, str))
    return ""


def text_from(text: str, what: str = "text") -> str:
    """Return a text as `trimmed` does. Raises InputError if it is empty, too long or not valid Unicode."""
    plain = trimmed(text)
    if not plain:
        raise InputError(f"{what} is empty. Nothing was done.")
    if well_formed(text) != text:
        raise InputError(
            f"{what} is not valid Unicode: it has half a character, or bytes that are not UTF-8. Nothing was done."
        )
    if len(plain) > MAX_TEXT_CHARS:
        raise InputError(
            f"{what} has {len(plain):,} characters, more than {MAX_TEXT_CHARS:,}. Nothing was stored. "
            "A memory is one fact: store only what matters",
            Remedy.ADD_MESSAGES,
        )
    return plain


def query_from(query: str) -> str:
    """Return a search query as `trimmed` does. Raises InputError if it is empty or too long."""
    plain = trimmed(query)
    if not plain:
        raise InputError("query is empty; write what to search for, or page through the list of memories")
    if len(plain) > MAX_QUERY_CHARS:
        raise InputError(f"query has {len(plain):,} characters, more than {MAX_QUERY_CHARS:,}; use a shorter one")
    return plain


def json_object(value: dict[str, Any]) -> dict[str, Any]:
    """Return an object as it is. Raises ValueError if it has what JSON has not, such as an infinite number."""
    json.dumps(value, allow_nan=False)
    return value


def metadata_from(metadata: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return a copy of the caller's metadata. A null value means that the key is to be removed; any key may be null.

    Raises InputError if the metadata is not JSON, is too large, or has a key that means something else in filters.
    """
    copy = dict(metadata or {})
    try:
        size = len(json.dumps(copy, ensure_ascii=False, allow_nan=False).encode())
    except (TypeError, ValueError) as error:
        raise InputError(f"metadata is not valid JSON: {error}") from error
    if size > MAX_METADATA_BYTES:
        raise InputError(f"metadata is larger than {MAX_METADATA_BYTES:,} bytes as JSON")
    if reserved := [key for key, value in copy.items() if value is not None and _is_reserved(key)]:
        raise InputError(
            f"metadata may not use '{reserved[0]}', which means something else in filters; choose another key"
        )
    _check_end(copy.get(EXPIRES_AT))
    return copy


def _check_end(value: object) -> None:
    """Raise InputError if a memory is to end at what is no time."""
    if value is None:
        return
    text = value if isinstance(value, str) else json.dumps(value) + " (no text)"
    try:
        parse_until(text, EXPIRES_AT)
    except InputError as error:
        raise InputError(f"{error}. Nothing was stored. Give the date that is meant, such as that of Friday") from error


def relations_from(relations: Sequence[Sequence[str]]) -> tuple[Relation, ...]:
    """Return the relations that a caller gives with a text, each `[source, name, destination]`, each once.

    Raises InputError for too many, for one that is not three names, and for one of something with itself.
    """
    if len(relations) > MAX_RELATIONS:
        raise InputError(f"{len(relations)} relations are more than {MAX_RELATIONS}. Nothing was stored.")
    checked = {relation: None for number, parts in enumerate(relations) for relation in [_relation(number, parts)]}
    return tuple(checked)


def _relation(number: int, parts: Sequence[str]) -> Relation:
    names = [one_line(part) for part in parts]
    keys = [key(name) for key, name in zip((name_key, relation_key, name_key), names, strict=False)]
    if len(names) != _RELATION_PARTS or not all(keys):
        raise InputError(
            f"relations.{number} is not [source, name, destination], such as ['Ana', 'lives in', 'Lyon']. "
            "Nothing was stored."
        )
    if keys[0] == keys[2]:
        raise InputError(f"relations.{number} connects '{names[0][:MAX_NAME_CHARS]}' with itself. Nothing was stored.")
    if max(map(len, names)) > MAX_NAME_CHARS:
        raise InputError(f"relations.{number} has a name of more than {MAX_NAME_CHARS} characters. Nothing was stored.")
    return Relation(*names)


def _is_reserved(key: str) -> bool:
    """Return whether a filter on the key means something else: `and`, `or` and `not` do in any case."""
    return key in RESERVED or key.upper() in JUNCTIONS


def bounded(name: str, value: int, lowest: int, highest: int) -> int:
    """Return a number that lies within its bounds. Raises InputError."""
    if not lowest <= value <= highest:
        raise InputError(f"{name} is {value} and must be between {lowest} and {highest}")
    return value
