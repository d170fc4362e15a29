"""Validation of what callers send: scopes, messages, texts, metadata, bounds. Every error says what would be valid."""

from __future__ import annotations

import json
import re
import unicodedata
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from pydantic import BaseModel, ConfigDict
from pydantic_core import ErrorDetails

from palimpsest.core.clock import parse_instant, parse_until
from palimpsest.core.entities import MAX_NAME_CHARS, Relation, name_key, relation_key
from palimpsest.core.errors import InputError, Remedy
from palimpsest.core.message_forms import NO_TEXT, LeftOut, MessageReader, SaidMessage
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

UNKNOWN_TIME = ("message", " counted as said with the one before, because the time given cannot be read")

_FIRST_YEAR = 1990
"""Times before it are no times of messages: a program wrote 0, or counts from elsewhere."""

_MILLISECONDS = 1e11
"""Larger numbers count milliseconds since 1970: as seconds they would be after the year 5000."""

_SHOWN_FORMATS = frozenset("\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u0890\u0891\u08e2\U000110bd\U000110cd")
"""Format characters that show a sign, such as the Arabic end of ayah."""


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
    """A validated conversation: messages to store, the texts of system messages (context only), what was left out.

    `problem` is what is wrong with the first message that is none.
    """

    messages: tuple[Message, ...]
    context: tuple[str, ...]
    left_out: LeftOut
    problem: str = ""


def fault_text(fault: ErrorDetails) -> str:
    """Return what is wrong with a value, without the words that pydantic puts before the text of an error of ours."""
    return fault["msg"].removeprefix("Value error, ").removeprefix("Assertion failed, ")


def well_formed(text: str) -> str:
    """Return a text with lone surrogates replaced by "?". No file, index or request accepts them."""
    return text.encode("utf-8", "replace").decode("utf-8")


def is_blank(text: str) -> bool:
    """Return whether a text shows nothing: it has only white space, control and zero-width characters."""
    return all(char.isspace() or char in _EMOJI_SELECTORS or _is_unseen(char) for char in text)


NO_VALUES = frozenset({"none", "null", "nil", "n/a", "undefined"})
"""Words that programs and models write where a value is missing, in lower case."""


def is_no_text(text: str) -> bool:
    """Return whether there is nothing to store in a text: it is blank, or a word for a missing value."""
    return is_blank(text) or trimmed(text).casefold() in NO_VALUES


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
    """Return the server's scope with the caller's parts in place of its own; null means none. Raises InputError.

    Without a user there is no scope, so null means the server's own there.
    """
    if requested is None:
        return resolved
    given = {name: getattr(requested, name) for name in requested.model_fields_set if name in Scope.__slots__}
    if given.get("user_id") is None:
        given.pop("user_id", None)
    parts = {name: getattr(resolved, name) for name in Scope.__slots__} | {
        name: scope_part(f"scope.{name}", value or "") for name, value in given.items()
    }
    if not parts["user_id"]:
        raise InputError("scope.user_id is empty; omit it to use the server's own user")
    return replace(resolved, **parts)


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


def conversation_from(messages: Sequence[Any], scope: Scope, now: datetime) -> ConversationInput:
    """Return a validated conversation. Raises InputError if it has no message to store, or too much text."""
    if len(messages) > MAX_MESSAGES:
        raise InputError(f"{len(messages)} messages are more than {MAX_MESSAGES}; add them in several calls")
    conversation = read_conversation(messages, scope, now)
    size = sum(len(message.content) for message in conversation.messages) + sum(map(len, conversation.context))
    if size > MAX_MESSAGES_CHARS:
        raise InputError(
            f"the messages have {size:,} characters, more than {MAX_MESSAGES_CHARS:,}. Nothing was stored. "
            "Add them in several calls."
        )
    if not conversation.messages:
        problem = conversation.problem or "there is no user or assistant message with text"
        raise InputError(f"{problem}, so nothing was stored")
    return conversation


def read_conversation(messages: Sequence[Any], scope: Scope, now: datetime) -> ConversationInput:
    """Return a conversation of any length, in any of the forms that `MessageReader` knows.

    A message without a time was said when the one before it was. Those before the first time were said then, or `now`
    if that is earlier, and so were all of them if none has a time. Raises InputError for a message whose `name` or `id`
    is too long.
    """
    reader = MessageReader()
    kept: list[Message] = []
    times: list[datetime | None] = []
    context: list[str] = []
    for value in messages:
        said = reader.read(value)
        content = "" if said is None else trimmed(said.text)
        if said is None or not content:
            reader.left_out[NO_TEXT] += said is not None
        elif said.role == "system":
            context.append(content)
        else:
            times.append(_time_of(said, now, reader.left_out))
            kept.append(_message(said, content, scope, now))
    at = min(next((time for time in times if time is not None), now), now)
    for number, time in enumerate(times):
        at = time or at
        kept[number] = replace(kept[number], said_at=at)
    return ConversationInput(tuple(kept), tuple(context), +reader.left_out, next(iter(reader.problems), ""))


def _time_of(said: SaidMessage, now: datetime, left_out: LeftOut) -> datetime | None:
    """Return when a message was said, or None if it does not say so. A time that cannot be read is counted."""
    given = said.foreign_at if said.at is None else said.at
    if given is None or given == "":
        return None
    try:
        at = parse_instant(said.at, "at", now.tzinfo or UTC) if isinstance(said.at, str) else _plausible(given, now)
    except InputError:
        at = None
    left_out[UNKNOWN_TIME] += at is None
    return at


def _message(said: SaidMessage, content: str, scope: Scope, now: datetime) -> Message:
    for field, value in (("name", said.name), ("id", said.id)):
        if len(value) > MAX_SCOPE_CHARS:
            raise InputError(f"the {field} of a message is longer than {MAX_SCOPE_CHARS} characters")
    return Message(
        id=str(uuid.uuid4()),
        scope=scope,
        role=said.role,
        content=content,
        said_at=now,
        created_at=now,
        name=one_line(said.name),
        external_id=one_line(said.id),
    )


def _plausible(value: object, now: datetime) -> datetime | None:
    """Return the time that another program gave to a message, or None for what cannot be when it was said."""
    try:
        if isinstance(value, str):
            at = parse_instant(value, "the time", now.tzinfo or UTC)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            at = datetime.fromtimestamp(value / 1_000 if value > _MILLISECONDS else value, UTC)
        else:
            return None
    except (InputError, ValueError, OverflowError, OSError):
        return None
    return at if at.year >= _FIRST_YEAR and at <= now + timedelta(days=1) else None


def text_from(text: str, what: str = "text") -> str:
    """Return a text as `trimmed` does. Raises InputError if it says nothing, is too long or not valid Unicode."""
    plain = trimmed(text)
    if not plain:
        raise InputError(f"{what} is empty. Nothing was done.")
    if is_no_text(plain):
        raise InputError(f"{what} is '{plain}', a word for no value. Nothing was done. Leave it out, or say something")
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
