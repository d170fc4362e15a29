"""Texts with NUL characters, which PostgreSQL cannot store.

A NUL is stored as two characters, of which the first is one that Unicode reserves for programs' own use. That one is
stored twice if a text has it. So every text comes back as it was.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, cast

from sqlalchemy import Dialect, String

NUL = "\0"
MARK = "\ufdd0"
"""A noncharacter (Unicode, section 23.7): no text for other programs has it."""

_STORED = {NUL: f"{MARK}0", MARK: f"{MARK}{MARK}"}
_TO_STORE = re.compile("|".join(_STORED))
_READ = {stored: text for text, stored in _STORED.items()}
_TO_READ = re.compile("|".join(_READ))


def storable(text: str) -> str:
    """Return a text as it is stored."""
    if NUL not in text and MARK not in text:
        return text
    return _TO_STORE.sub(lambda found: _STORED[found[0]], text)


def dumps(value: Any) -> str:
    """Return a value as JSON whose texts are storable."""
    dumped = json.dumps(value)
    if not _has(dumped, NUL) and not _has(dumped, MARK):
        return dumped
    return json.dumps(_with_texts(value, storable))


def loads(data: str | bytes) -> Any:
    """Return the value of JSON that `dumps` wrote."""
    value = json.loads(data)
    dumped = data if isinstance(data, str) else data.decode()
    return _with_texts(value, _restored) if _has(dumped, MARK) else value


def _has(dumped: str | None, char: str) -> bool:
    """Return whether a character may be in a value of JSON."""
    return dumped is not None and json.dumps(char)[1:-1] in dumped


def _with_texts(value: Any, change: Callable[[str], str]) -> Any:
    """Return a value of JSON with its texts and names changed."""
    match value:
        case str():
            return change(value)
        case list() | tuple():
            return [_with_texts(item, change) for item in cast("list[Any]", value)]
        case dict():
            items = cast("dict[str, Any]", value).items()
            return {change(name): _with_texts(item, change) for name, item in items}
        case _:
            return value


def _storable(value: Any) -> Any:
    return storable(value) if isinstance(value, str) else value


def _restored(value: Any) -> Any:
    if not isinstance(value, str) or MARK not in value:
        return value
    return _TO_READ.sub(lambda found: _READ[found[0]], value)


def _storable_json(dumped: Any) -> Any:
    return dumps(json.loads(dumped)) if _has(dumped, NUL) or _has(dumped, MARK) else dumped


def _restored_json(dumped: Any) -> Any:
    return json.dumps(loads(dumped)) if _has(dumped, MARK) else dumped


class AnyText(String):
    """A text that may have NUL characters."""

    render_bind_cast = True  # as SQLAlchemy does for psycopg
    to_store, to_read = staticmethod(_storable), staticmethod(_restored)

    def bind_processor(self, dialect: Dialect) -> Callable[..., Any]:
        """Return what makes a text storable."""
        del dialect
        return self.to_store

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[..., Any]:
        """Return what restores a stored text."""
        del dialect, coltype
        return self.to_read


class AnyJson(AnyText):
    """The text of a value of JSON, as it is stored. The texts in the value may have NUL characters."""

    render_bind_cast = False  # its column is no text
    to_store, to_read = staticmethod(_storable_json), staticmethod(_restored_json)
