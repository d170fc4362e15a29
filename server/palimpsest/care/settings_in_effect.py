"""The settings in effect: the value of each, where it comes from, and no secret."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, SecretStr

from palimpsest.core.configuration.origins import Origin
from palimpsest.core.settings import ENV_PREFIX, Settings, environment_variable

MASK = "********"

_LOGIN = re.compile(r"(?<=://)[^/@\s]+@")
"""The login in a URL, which may hold a password."""


@dataclass(frozen=True, slots=True)
class SettingInEffect:
    """A setting by its dotted name, its value as text ("" for none), and where it comes from.

    `variable` is the name of the environment variable, if it comes from one.
    """

    name: str
    value: str
    origin: Origin
    variable: str = ""


def settings_in_effect(settings: Settings) -> list[SettingInEffect]:
    """Return every setting in the order of the sections."""
    return [_in_effect(settings, name, value) for name, value in _values(settings) if name != "config"]


def _values(section: BaseModel, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the dotted name and the value of every setting, but of no section."""
    for name in type(section).model_fields:
        value = getattr(section, name)
        if isinstance(value, BaseModel):
            yield from _values(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def _in_effect(settings: Settings, name: str, value: Any) -> SettingInEffect:
    completed = settings.openai_variables.model_dump().get(name) if value is None else None
    if completed is not None:
        return SettingInEffect(name, _as_text(completed), Origin.ENVIRONMENT, name.upper())
    origin = settings.origins.get(name, Origin.DEFAULT)
    variable = _variable(name) if origin is Origin.ENVIRONMENT else ""
    text = _as_text(value)
    if name == "llm.provider" and value == "auto":
        text = f"auto: {settings.llm_provider}"
    return SettingInEffect(name, text, origin, variable)


def _variable(name: str) -> str:
    """Return the environment variable that a setting comes from: its own, or one that holds a whole section as JSON."""
    own, *of_sections = [
        ENV_PREFIX + "__".join(name.upper().split(".")[:length]) for length in range(name.count(".") + 1, 0, -1)
    ]
    return next((variable for variable in (own, *of_sections) if environment_variable(variable)), own)


def _as_text(value: Any) -> str:
    if value is None or value in ((), {}):
        return ""
    if isinstance(value, SecretStr):
        return MASK
    if isinstance(value, bool | tuple | dict):
        value = json.dumps(value, ensure_ascii=False, default=_in_json)
    return _LOGIN.sub(f"{MASK}@", str(value))


def _in_json(value: Any) -> Any:
    """Return a value for JSON. Pydantic writes asterisks in place of a secret."""
    return value.model_dump(mode="json") if isinstance(value, BaseModel) else str(value)
