"""Ask a language model for one JSON value, and parse what models really send.

The parser accepts plain JSON, JSON in a code fence or between sentences, JSON after a think tag, a list at the root,
and trailing commas. If a reply does not fit, the model is told what was wrong and asked once more. A second reply that
does not fit is an error, never an empty result.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, TypeVar, cast

from pydantic import BaseModel, ValidationError

from palimpsest.core.errors import CutOffReplyError, ReplyError
from palimpsest.core.protocols import LanguageModel
from palimpsest.core.validation import trimmed, well_formed
from palimpsest.llm.prompts import PromptMessages, name_of

Reply = TypeVar("Reply", bound=BaseModel)
Result = TypeVar("Result")

MAX_REPLY_CHARS = 200_000
MAX_SHOWN_CHARS = 2_000
"""How much of a wrong reply is sent back to the model. Error texts never quote a reply."""

MAX_BRACKETS = 1_000
"""How many brackets of a reply are tried as the start of a JSON value. It bounds the time for hostile replies."""

LIST_DEPTH = 2
"""How deep the items of a reply lie: in a list, or in a list of an object. Lists inside an item are deeper."""

NOTHING = frozenset(
    {"", "none", "null", "nil", "nothing", "n/a", "na", "no", "false", "not applicable", "unknown", "undefined"}
)
"""What models write where they have nothing to say, in lower case."""

_THOUGHT = re.compile(r"\A.*</think(?:ing)?>|<think(?:ing)?>.*\Z", re.DOTALL | re.IGNORECASE)
_STRING_OR_TRAILING_COMMA = re.compile(r'("(?:\\.|[^"\\])*+"?)|,(?=\s*[}\]])')
"""Also matches a string without an end. Otherwise the search would start again at each quote, in quadratic time."""

_STRING_OR_BRACKET = re.compile(r'"(?:\\.|[^"\\])*+"|["{}\[\]]', re.DOTALL)

_START = re.compile(r"[{\[]")
_EMPTY_LIST = re.compile(r"`*(?:json)?\s*\[\s*\]\s*`*", re.IGNORECASE)


async def ask(
    model: LanguageModel,
    messages: Sequence[Mapping[str, str]],
    reply_type: type[Reply],
    convert: Callable[[Reply], Result],
    *,
    convert_leniently: Callable[[Reply], Result] | None = None,
    convert_cut: Callable[[Reply], Result] | None = None,
) -> Result:
    """Return the model's reply, validated as `reply_type` and converted by `convert`.

    `convert` raises ValueError for a reply that is valid but cannot be right; the text of that error goes to the model.
    `convert_leniently` is used for the second reply instead, if it is set. `convert_cut` is used for what is whole of a
    reply that was cut off; without it such a reply is an error. Raises ReplyError if the second reply does not fit
    either, and passes on every ModelError.
    """
    schema = strict_schema(reply_type)
    try:
        text = await model.complete(messages, schema)
        try:
            return convert(read(text, reply_type))
        except ValueError as fault:
            repair = (
                f"That reply cannot be used: {fault} Answer again, with one JSON value in the requested form and "
                "nothing else."
            )
            wrong_reply = {"role": "assistant", "content": well_formed(text[:MAX_SHOWN_CHARS]) or "(nothing)"}
            again = [*map(dict, messages), wrong_reply, {"role": "user", "content": repair}]
            text = await model.complete(PromptMessages(name_of(messages), again), schema)
    except CutOffReplyError as error:
        if convert_cut is None:
            raise
        try:
            return convert_cut(read(whole_items(error.reply), reply_type))
        except ValueError:
            raise error from None
    try:
        return (convert_leniently or convert)(read(text, reply_type))
    except ValueError as fault:
        raise ReplyError(f"the model {model.name} gave no usable reply in two attempts: {fault}") from fault


def whole_items(text: str) -> str:
    """Return a reply that was cut off with the items of its list that are whole, closed as JSON.

    Raises ValueError if none is.
    """
    text = _without_thoughts(text)
    start = _START.search(text)
    end, closing = 0, ""
    open_brackets: list[str] = []
    for found in _STRING_OR_BRACKET.finditer(text, start.start() if start else len(text)):
        mark = found[0]
        if mark in "{[":
            open_brackets.append(mark)
        elif mark in "}]" and open_brackets:
            open_brackets.pop()
        is_whole = mark != '"' and (mark[0] == '"' or mark in "}]")
        if is_whole and open_brackets[-1:] == ["["] and len(open_brackets) <= LIST_DEPTH:
            end = found.end()
            closing = "".join("}" if bracket == "{" else "]" for bracket in reversed(open_brackets))
    if not end:
        raise ValueError("none of its items is whole.")
    return text[:end] + closing


def read(text: str, reply_type: type[Reply]) -> Reply:
    """Return the JSON value in a reply that fits `reply_type`.

    If there are several, objects come before lists, and values with content before empty ones. Raises ValueError that
    says what was wrong.
    """
    fault = "there is no JSON in it."
    answer = _without_thoughts(text).strip()
    if len(answer) > MAX_REPLY_CHARS:
        raise ValueError(f"it is longer than {MAX_REPLY_CHARS} characters.")
    for value in sorted(_values(answer), key=lambda value: (not isinstance(value, dict), not _has_content(value))):
        try:
            return reply_type.model_validate(value)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            place = ".".join(str(part) for part in first["loc"])
            fault = f"{place}: {first['msg']}." if place else f"{first['msg']}."
    raise ValueError(fault)


def _without_thoughts(text: str) -> str:
    """Return a reply without the model's thoughts in think tags."""
    begins_with_json = text.lstrip().startswith(("{", "["))
    return text if begins_with_json else _THOUGHT.sub("", text)


@cache
def strict_schema(reply_type: type[BaseModel]) -> dict[str, Any]:
    """Return the JSON schema of a reply for OpenAI's strict mode: no additional properties, all keys required."""
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
    """Return whether a key of a schema is its title and not a property named "title"."""
    return key == "title" and isinstance(value, str)


def _values(text: str) -> list[Any]:
    """Return the outermost JSON values in a text, in order.

    A bracket that fails to parse before its first string is prose. So is an empty list (or check box) if anything else
    is in the text. A value that fails to parse later was cut off or garbled: values inside it are not the reply, and
    neither is an empty value before it.
    """
    decoder = json.JSONDecoder(strict=False)
    values: list[Any] = []
    position = 0
    for _ in range(MAX_BRACKETS):
        if (start := _START.search(text, position)) is None:
            return values or ([[]] if _EMPTY_LIST.fullmatch(text) else [])
        at = start.start()
        try:
            value, position = decoder.raw_decode(text, at)
        except json.JSONDecodeError as error:
            if '"' in text[at : error.pos + 1]:
                return _repaired(decoder, text[at:], values)
            position = max(at + 1, error.pos)
        except (RecursionError, ValueError):  # nested too deep, or a number with too many digits
            return _reliable(values)
        else:
            if value != []:
                values.append(value)
    return _reliable(values)


def written_text(text: str, what: str, max_chars: int) -> str:
    """Return what a model wrote, without white space around it. Raises ValueError if it is empty or too long."""
    written = trimmed(text)
    if not any(map(str.isalnum, written)):
        raise ValueError(f"the {what} is empty.")
    if len(written) > max_chars:
        raise ValueError(f"the {what} is longer than {max_chars} characters.")
    return written


def _repaired(decoder: json.JSONDecoder, text: str, before: Sequence[Any]) -> list[Any]:
    """Return the values before a broken one, and the broken one too if removing trailing commas repairs it."""
    try:
        return [*before, decoder.raw_decode(_STRING_OR_TRAILING_COMMA.sub(r"\1", text))[0]]
    except (RecursionError, ValueError):
        return _reliable(before)


def _reliable(values: Sequence[Any]) -> list[Any]:
    """Return the values that count as a reply even next to a broken one: objects with content, not lists from prose."""
    return [value for value in values if isinstance(value, dict) and _has_content(value)]


def _has_content(value: Any) -> bool:
    return any(cast("dict[str, Any]", value).values()) if isinstance(value, dict) else bool(value)
