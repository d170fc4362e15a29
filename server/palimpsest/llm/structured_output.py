"""Ask a language model for one JSON value and read the answer as models really give it.

Taken are pure, fenced and chatty JSON, JSON after a think tag, root lists, and a trailing comma. An answer that
does not fit is repaired once, by telling the model what was wrong; then it is an error, never an empty result.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, TypeVar, cast

from pydantic import BaseModel, ValidationError

from palimpsest.core.errors import ReplyError
from palimpsest.core.protocols import LanguageModel

Reply = TypeVar("Reply", bound=BaseModel)
Result = TypeVar("Result")

MAX_REPLY_CHARS = 200_000
MAX_SHOWN_CHARS = 2_000
"""How much of a misfit reply goes back to the model, and into no error text at all."""

MAX_BRACKETS = 1_000
"""In how many places of a reply a JSON value is looked for; each miss costs a look at all that stands before it."""

_THOUGHT = re.compile(r"\A.*</think(?:ing)?>|<think(?:ing)?>.*\Z", re.DOTALL | re.IGNORECASE)
_STRING_OR_TRAILING_COMMA = re.compile(r'("(?:\\.|[^"\\])*+"?)|,(?=\s*[}\]])')
"""A string without an end is taken whole too: begun anew at each of its quotes it takes the square of its length."""

_START = re.compile(r"[{\[]")
_EMPTY_LIST = re.compile(r"`*(?:json)?\s*\[\s*\]\s*`*", re.IGNORECASE)


async def ask(
    model: LanguageModel,
    messages: Sequence[Mapping[str, str]],
    reply_type: type[Reply],
    use: Callable[[Reply], Result],
    make_do: Callable[[Reply], Result] | None = None,
) -> Result:
    """Return what `use` makes of the model's reply.

    `use` raises ValueError for a reply that has the right form and cannot be right; `make_do` takes its place for
    the second reply. Raises ReplyError after a second misfit, and whatever ModelError the model raises.
    """
    schema = strict_schema(reply_type)
    text = await model.complete(messages, schema)
    try:
        return use(read(text, reply_type))
    except ValueError as fault:
        repair = (
            f"That reply cannot be used: {fault} Answer again, with one JSON value of the form asked for and "
            "nothing else."
        )
        said = {"role": "assistant", "content": _sendable(text[:MAX_SHOWN_CHARS]) or "(nothing)"}
        text = await model.complete([*messages, said, {"role": "user", "content": repair}], schema)
    try:
        return (make_do or use)(read(text, reply_type))
    except ValueError as fault:
        raise ReplyError(f"the model {model.name} gave no usable reply, asked twice: {fault}") from fault


def read(text: str, reply_type: type[Reply]) -> Reply:
    """Return the JSON value in a reply that fits: an object before a list, and of either one that says something.

    Raises ValueError saying what was wrong.
    """
    fault = "there is no JSON in it."
    said = _said(text).strip()
    if len(said) > MAX_REPLY_CHARS:
        raise ValueError(f"it is longer than {MAX_REPLY_CHARS} characters.")
    for value in sorted(_values(said), key=lambda value: (not isinstance(value, dict), not _says_something(value))):
        try:
            return reply_type.model_validate(value)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            place = ".".join(str(part) for part in first["loc"])
            fault = f"{place}: {first['msg']}." if place else f"{first['msg']}."
    raise ValueError(fault)


def _said(text: str) -> str:
    """Return a reply without what the model thought aloud before it."""
    begins_with_json = text.lstrip().startswith(("{", "["))
    return text if begins_with_json else _THOUGHT.sub("", text)


@cache
def strict_schema(reply_type: type[BaseModel]) -> dict[str, Any]:
    """Return the JSON schema of a reply as OpenAI's strict mode wants it: closed objects, all keys required."""
    return cast("dict[str, Any]", _closed(reply_type.model_json_schema()))


def _closed(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_closed(item) for item in cast("list[Any]", schema)]
    if not isinstance(schema, dict):
        return schema
    closed = {key: _closed(value) for key, value in cast("dict[str, Any]", schema).items() if not _is_title(key, value)}
    if closed.get("type") == "object" and "properties" in closed:
        closed |= {"additionalProperties": False, "required": list(closed["properties"])}
    return closed


def _is_title(key: str, value: Any) -> bool:
    """Say whether a key of a schema is its title, and not a property that is called so."""
    return key == "title" and isinstance(value, str)


def _values(text: str) -> list[Any]:
    """Return the outermost JSON values in a text, in order.

    A bracket after which no string was read is prose, and so is an empty list (or check box) beside anything else. A
    value that is broken later on is cut off or garbled: what stands inside it is not the reply, and neither is a
    "nothing" before it.
    """
    decoder = json.JSONDecoder(strict=False)
    found: list[Any] = []
    position = 0
    for _ in range(MAX_BRACKETS):
        if (start := _START.search(text, position)) is None:
            return found or ([[]] if _EMPTY_LIST.fullmatch(text) else [])
        at = start.start()
        try:
            value, position = decoder.raw_decode(text, at)
        except json.JSONDecodeError as error:
            if '"' in text[at : error.pos + 1]:
                return _mended(decoder, text[at:], found)
            position = max(at + 1, error.pos)
        except (RecursionError, ValueError):  # deeper, or a number longer, than Python reads
            return _certain(found)
        else:
            if value != []:
                found.append(value)
    return _certain(found)


def _mended(decoder: json.JSONDecoder, text: str, before: Sequence[Any]) -> list[Any]:
    """Return the values before a broken one, and that itself if it can be read once trailing commas are out."""
    try:
        return [*before, decoder.raw_decode(_STRING_OR_TRAILING_COMMA.sub(r"\1", text))[0]]
    except (RecursionError, ValueError):
        return _certain(before)


def _certain(values: Sequence[Any]) -> list[Any]:
    """Return those that are a reply even beside a broken one: not a list from prose, and not an empty form."""
    return [value for value in values if isinstance(value, dict) and _says_something(value)]


def _says_something(value: Any) -> bool:
    return any(cast("dict[str, Any]", value).values()) if isinstance(value, dict) else bool(value)


def _sendable(text: str) -> str:
    """Return a text in which half surrogate pairs, which no request takes, are replaced."""
    return text.encode("utf-8", "replace").decode("utf-8")
