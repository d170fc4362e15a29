"""Ask a language model for one JSON value, and read what models really send.

A reply may have thoughts, drafts and sentences around it, and be written loosely (`json_values.py`). The last whole
value that fits counts. If none does, the model is told what was wrong and asked once more. A second reply that does not
fit is an error, never an empty result.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from functools import cache
from typing import Any, ClassVar, TypeVar, cast

from pydantic import BaseModel, ConfigDict, ValidationError

from palimpsest.core.errors import CutOffReplyError, ModelError, ReplyError
from palimpsest.core.protocols import LanguageModel
from palimpsest.core.validation import fault_text, trimmed, well_formed
from palimpsest.llm.json_values import reply_values, without_thoughts
from palimpsest.llm.nothing import says_nothing
from palimpsest.llm.prompts import PromptMessages, name_of


class ReplyModel(BaseModel):
    """What a stage's model replies. `LIST_KEY` is the key of its list, if it is one."""

    model_config = ConfigDict(extra="ignore")

    LIST_KEY: ClassVar[str] = ""

    @classmethod
    def is_item(cls, value: Mapping[str, Any]) -> bool:
        """Return whether a value is an item of the list, which stands by itself."""
        del value
        return False


Reply = TypeVar("Reply", bound=ReplyModel)
Result = TypeVar("Result")

MAX_REPLY_CHARS = 200_000
MAX_SHOWN_CHARS = 2_000
"""How much of a wrong reply is sent back to the model. Error texts never quote a reply."""

MAX_WRAPPERS = 3
"""How many objects may be around a reply."""

LIST_DEPTH = 2
"""How deep the items of a reply lie: in a list, or in a list of an object. Lists inside an item are deeper."""

_WRAPPERS = (
    *("reply", "result", "output", "response", "answer", "final", "final_answer"),
    *("data", "json", "content", "arguments", "parameters", "input"),
)
"""Keys of an object under which a reply may stand as a bare list, or as a text."""

_STRING_OR_BRACKET = re.compile(r'"(?:\\.|[^"\\])*+"|["{}\[\]]', re.DOTALL)
_START = re.compile(r"[{\[]")
_NAME = re.compile(r"\w+")
_EMPTY_LIST = re.compile(r"`*(?:json)?\s*\[\s*\]\s*`*", re.IGNORECASE)


async def ask(
    model: LanguageModel,
    messages: Sequence[Mapping[str, str]],
    reply_type: type[Reply],
    convert: Callable[[Reply], Result],
    *,
    convert_leniently: Callable[[Reply], Result] | None = None,
    convert_cut: Callable[[Reply], Result] | None = None,
    read_text: Callable[[str], Reply | None] | None = None,
) -> Result:
    """Return the model's reply, validated as `reply_type` and converted by `convert`.

    `convert` raises ValueError for a reply that is valid but cannot be right; the text of that error goes to the model.
    `convert_leniently` is used for the second reply instead, if it is set, and for the first one if there is no second
    that can be used. `convert_cut` is used for what is whole of a reply that was cut off; without it such a reply is an
    error. `read_text` returns what an answer without JSON says, or None. Raises ReplyError if the second reply does not
    fit either, and passes on every other ModelError.
    """
    schema = schema_for(messages, reply_type)

    async def reply_to(asked: Sequence[Mapping[str, str]], converted: Callable[[Reply], Result]) -> Result:
        nonlocal text, first
        try:
            text = await model.complete(asked, schema)
            reply = read(text, reply_type, read_text)
            first = first or reply
            return converted(reply)
        except CutOffReplyError as error:
            if convert_cut is None:
                raise
            try:
                return convert_cut(read(whole_items(error.reply), reply_type, read_text))
            except ValueError:
                raise error from None

    text, first = "", None
    try:
        return await reply_to(messages, convert)
    except CutOffReplyError:
        raise
    except (ReplyError, ValueError) as error:
        fault = error
    repair = (
        f"That reply cannot be used: {fault} Answer again, with one JSON value in the requested form and nothing else."
    )
    wrong_reply = {"role": "assistant", "content": well_formed(text[:MAX_SHOWN_CHARS]) or "(nothing)"}
    again = [*map(dict, messages), wrong_reply, {"role": "user", "content": repair}]
    try:
        return await reply_to(PromptMessages(name_of(messages), again), convert_leniently or convert)
    except ModelError as error:
        failure = error
    except ValueError as error:
        failure = ReplyError(f"the model {model.name} gave no usable reply in two attempts: {error}")
    if first is not None and convert_leniently is not None:
        with suppress(ValueError):
            return convert_leniently(first)
    raise failure


def whole_items(text: str) -> str:
    """Return a reply that was cut off with the items of its list that are whole, closed as JSON.

    Raises ValueError if none is.
    """
    text = without_thoughts(text)
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


def read(text: str, reply_type: type[Reply], read_text: Callable[[str], Reply | None] | None = None) -> Reply:
    """Return the last JSON value in a reply that fits `reply_type`; objects come before lists.

    An answer without JSON is for `read_text`. Raises ValueError that says what was wrong.
    """
    if len(text.strip()) > MAX_REPLY_CHARS:
        raise ValueError(f"it is longer than {MAX_REPLY_CHARS} characters.")
    found = reply_values(text)
    values = [value for value in found.values if value != []]
    if not values and not found.is_broken:
        if _EMPTY_LIST.fullmatch(found.answer):
            values = list[Any]([[]])
        elif read_text is not None and (reply := read_text(found.answer)) is not None:
            return reply
    fault = ""
    last_first = _with_items(values, reply_type)[::-1]
    for value in sorted(last_first, key=lambda value: not isinstance(value, dict)):
        for form in _forms(value, reply_type):
            try:
                return reply_type.model_validate(form)
            except ValidationError as error:
                first = error.errors(include_url=False, include_input=False)[0]
                place = "".join(f"{part}." for part in first["loc"])
                what = fault_text(first)
                fault = fault or f"{place[:-1]}: {what}.".removeprefix(": ")
    raise ValueError(fault or "there is no JSON in it.")


def _with_items(values: Sequence[Any], reply_type: type[ReplyModel]) -> list[Any]:
    """Return the values of a reply. Items at its end that stand by themselves, one a line, are one list."""
    end = len(values)
    while end and isinstance(values[end - 1], dict) and reply_type.is_item(values[end - 1]):
        end -= 1
    return [*values[:end], *([{reply_type.LIST_KEY: list(values[end:])}] if end < len(values) else [])]


def _forms(value: Any, reply_type: type[ReplyModel], depth: int = 0) -> Iterator[Any]:
    """Yield a value and what stands in it, under another key, in a list of one, or as a text; the last first."""
    yield value
    if depth == MAX_WRAPPERS:
        return
    if isinstance(value, list) and len(cast("list[Any]", value)) == 1:
        value = {"": cast("list[Any]", value)[0]}
    if not isinstance(value, dict):
        return
    for key, inner in reversed(cast("dict[str, Any]", value).items()):
        if isinstance(inner, dict):
            yield from _forms(inner, reply_type, depth + 1)
        elif key.casefold() in _WRAPPERS and isinstance(inner, list):
            yield inner
        elif key.casefold() in _WRAPPERS and isinstance(inner, str) and _START.search(inner):
            for held in reversed(_with_items(reply_values(inner).values, reply_type)):
                yield from _forms(held, reply_type, depth + 1)


def schema_for(messages: Sequence[Mapping[str, str]], reply_type: type[ReplyModel]) -> Mapping[str, Any] | None:
    """Return the schema that is sent with messages; None if they are of a prompt that asks for another form.

    A prompt that a person wrote asks for what it names. With a schema that it does not describe, a model would have to
    guess what belongs into the fields.
    """
    schema = strict_schema(reply_type)
    if not isinstance(messages, PromptMessages):
        return schema
    wanted = cast("dict[str, Any]", _without(schema, messages.unwanted))
    words = {word for message in messages if message["role"] == "system" for word in _NAME.findall(message["content"])}
    return wanted if _properties(wanted) <= words else None


def _properties(schema: Any) -> set[str]:
    """Return the names of all properties in a schema."""
    if isinstance(schema, list):
        return set[str]().union(*map(_properties, cast("list[Any]", schema)))
    if not isinstance(schema, Mapping):
        return set()
    parts = cast("Mapping[str, Any]", schema)
    return set(parts.get("properties", ())).union(*map(_properties, parts.values()))


def _without(schema: Any, names: AbstractSet[str]) -> Any:
    """Return a schema without the properties of these names."""
    if isinstance(schema, list):
        return [_without(item, names) for item in cast("list[Any]", schema)]
    if isinstance(schema, dict):
        kept = {key: _without(value, names) for key, value in cast("dict[str, Any]", schema).items()}
        if "properties" in kept:
            properties = {name: value for name, value in kept["properties"].items() if name not in names}
            kept |= {"properties": properties, "required": list(properties)}
        return kept
    return schema


@cache
def strict_schema(reply_type: type[ReplyModel]) -> dict[str, Any]:
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


def written_text(text: str, what: str, max_chars: int) -> str:
    """Return what a model wrote, without white space around it. Raises ValueError if it is empty or too long."""
    written = trimmed(text)
    if not any(map(str.isalnum, written)) or says_nothing(written):
        raise ValueError(f"the {what} is empty.")
    if len(written) > max_chars:
        raise ValueError(f"the {what} is longer than {max_chars} characters.")
    return written
