"""Where each setting in effect comes from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any, cast

from pydantic import BaseModel


class Origin(StrEnum):
    """Where a setting can come from. A default holds where nothing else says anything."""

    COMMAND_LINE = "command_line"
    ENVIRONMENT = "environment"
    FILE = "file"
    DEFAULT = "default"


def origins(given: Mapping[Origin, Mapping[str, Any]]) -> dict[str, Origin]:
    """Return where settings come from, by their dotted names, without their values, some of which are secrets.

    `given` are the nested values of each source, the source that wins first.
    """
    found: dict[str, Origin] = {}
    for origin, values in given.items():
        for name in _names(values):
            found.setdefault(name, origin)
    return found


def _names(values: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Yield the dotted names of nested values. A section may also be an instance of its class."""
    for name, value in values.items():
        yield prefix + name
        if isinstance(value, BaseModel):
            yield from _names({each: getattr(value, each) for each in value.model_fields_set}, f"{prefix}{name}.")
        elif isinstance(value, Mapping):
            yield from _names(cast("Mapping[str, Any]", value), f"{prefix}{name}.")
