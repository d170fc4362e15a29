"""Ask a language model for one JSON value and read the answer as models really give it.

Taken are pure, fenced and chatty JSON, JSON after a think tag, root lists, and a trailing comma. An answer that
does not fit is repaired once, by telling the model what was wrong; then it is an error, never an empty result.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar, cast

from pydantic import BaseModel, ValidationError

from palimpsest.errors import ReplyError
from palimpsest.ports import LanguageModel

Reply = TypeVar("Reply", bound=BaseModel)
Result = TypeVar("Result")

MAX_REPLY_CHARS = 200_000
MAX_SHOWN_CHARS = 2_000
"""How much of a misfit reply goes back to the model, and into no error text at all."""

_THOUGHT = re.compile(r"\A.*</think(?:ing)?>|<think(?:ing)?>.*\Z", re.DOTALL | re.IGNORECASE)
_STRING_OR_TRAILING_COMMA = re.compile(r'("(?:\\.|[^"\\])*")|,(?=\s*[}\]])')
_START = re.compile(r"[{\[]")


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
        said = {"role": "assistant", "content": text[:MAX_SHOWN_CHARS] or "(nothing)"}
        text = await model.complete([*messages, said, {"role": "user", "content": repair}], schema)
    try:
        return (make_do or use)(read(text, reply_type))
    except ValueError as fault:
        raise ReplyError(f"the model {model.name} gave no usable reply, asked twice: {fault}") from fault


def read(text: str, reply_type: type[Reply]) -> Reply:
    """Return the JSON value in a reply that fits, an object before a list. Raises ValueError saying what was wrong."""
    fault = "there is no JSON in it."
    values = list(_values(_said(text[:MAX_REPLY_CHARS])))
    for value in sorted(values, key=lambda value: not isinstance(value, dict)):
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


def _values(text: str) -> Iterator[Any]:
    """Yield the outermost JSON values in a text, in order.

    A bracket after which no string was read is prose. A value that is broken later on is cut off or garbled: what
    stands inside it is not the reply, and is not taken for one.
    """
    decoder = json.JSONDecoder(strict=False)
    position = 0
    while (start := _START.search(text, position)) is not None:
        at = start.start()
        try:
            value, position = decoder.raw_decode(text, at)
            yield value
        except json.JSONDecodeError as error:
            if '"' in text[at : error.pos + 1]:
                yield from _mended(decoder, text[at:])
                return
            position = at + 1
        except RecursionError:
            return


def _mended(decoder: json.JSONDecoder, text: str) -> Iterator[Any]:
    """Yield the value that a text begins with once trailing commas are out, if that helps."""
    try:
        yield decoder.raw_decode(_STRING_OR_TRAILING_COMMA.sub(r"\1", text))[0]
    except (json.JSONDecodeError, RecursionError):
        return
