"""JSON from outside: objects and lists of which nothing is known."""

from __future__ import annotations

import json

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing takes a third of the time of all other modules
    from typing import TypeGuard

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
MAX_BYTES = 1024 * 1024
"""No file that servers and commands write for the hook comes near it."""


def read_object(path: str) -> dict[str, object]:
    """Return the JSON object in a file. Raises OSError, and ValueError if it has none."""
    with open(path, "rb") as file:
        return parsed_object(file.read(MAX_BYTES))


def parsed_object(text: bytes) -> dict[str, object]:
    """Return a JSON object, also one behind a byte order mark, as Cursor sends it.

    Raises ValueError, and RecursionError if it is nested too deeply.
    """
    value: object = json.loads(text.removeprefix(BYTE_ORDER_MARK).decode("utf-8", "replace"))
    if not is_object(value):
        raise ValueError("no JSON object")
    return value


def is_object(value: object) -> TypeGuard[dict[str, object]]:
    """Return whether a value is a JSON object."""
    return isinstance(value, dict)


def is_list(value: object) -> TypeGuard[list[object]]:
    """Return whether a value is a JSON list."""
    return isinstance(value, list)


def texts_in(value: object) -> list[str]:
    """Return the texts of a JSON list; none if it is no list."""
    return [item for item in value if isinstance(item, str)] if is_list(value) else []
