"""Read and edit the settings file (TOML or JSON), and report where each setting comes from."""

from __future__ import annotations

import itertools
import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from enum import StrEnum
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, cast

import platformdirs
from pydantic import BaseModel
from pydantic_settings import (
    BaseSettings,
    JsonConfigSettingsSource,
    PydanticBaseSettingsSource,
    TomlConfigSettingsSource,
)

from palimpsest.core.errors import SettingsError
from palimpsest.core.files import OWNER_ONLY, replace_file

# The settings file in TOML or JSON: which one is read, how it is read, and how its values are changed.


def find_settings_file(chosen: Mapping[str, Any]) -> Path | None:
    """Return the settings file: the one in `config`, else `config.toml` in the data directory if it exists."""
    if chosen.get("config"):
        return Path(chosen["config"]).expanduser()
    data_dir = chosen.get("data_dir")
    folder = Path(data_dir).expanduser() if data_dir else platformdirs.user_data_path("palimpsest", appauthor=False)
    default = folder / "config.toml"
    return default if default.is_file() else None


def file_source(settings_cls: type[BaseSettings], path: Path) -> PydanticBaseSettingsSource:
    """Return the source that reads a settings file. Raises SettingsError if the file cannot be read."""
    is_json = path.suffix == ".json"
    try:
        path.open("rb").close()  # pydantic-settings skips a file that does not exist
        source = _JsonFile(settings_cls, path, "utf-8-sig") if is_json else _TomlFile(settings_cls, path)
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"the settings file {path} cannot be read: {error}") from error
    except (json.JSONDecodeError, tomllib.TOMLDecodeError) as error:
        kind = "JSON" if is_json else "TOML"
        raise SettingsError(f"the settings file {path} is not valid {kind}: {error}") from error
    if "config" in source():
        raise SettingsError(f"unknown setting 'config' (in {path}): a settings file cannot name another one")
    return source


def set_value(path: Path, section: str, key: str, value: str) -> None:
    """Set one value of a section in a settings file, as `set_values` does."""
    set_values(path, {f"{section}.{key}": value})


def set_values(path: Path, values: Mapping[str, str | None], *, private: bool = False) -> None:
    """Set values by their dotted names in a settings file, or remove those that are None; create a file if need be.

    Of a TOML file every other line stays as it is. The new text is read back before it replaces the old one: where it
    does not say the same with the values changed, the file is written in a way that this function does not know. With
    `private` only its owner can read it afterwards. Raises SettingsError, and the file is unchanged then.
    """
    by_hand = f"Change it by hand: {'; '.join(_by_hand(name, value) for name, value in values.items())}. "
    by_hand += "Nothing was changed."
    is_json = path.suffix == ".json"
    try:
        mode = path.stat().st_mode & 0o777 if path.exists() and not private else OWNER_ONLY
        # Line ends stay as they are, which `read_text` would change.
        before = path.read_bytes().decode("utf-8-sig") if path.exists() else ("{}" if is_json else "")
        wanted: Any = json.loads(before) if is_json else tomllib.loads(before)
        text = before
        for name, value in values.items():
            wanted = _changed(wanted, name.split("."), value)
            text = text if is_json else _with_value(text, name, value)
        if is_json:
            text = json.dumps(wanted, ensure_ascii=False, indent=2) + "\n"
        elif tomllib.loads(text) != wanted:
            raise SettingsError(f"the settings file {path} is not written line by line. {by_hand}")
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        # A link to a file elsewhere stays a link.
        with replace_file(path.resolve(), mode) as file:
            file.write(text)
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise SettingsError(f"the settings file {path} cannot be changed: {error}. {by_hand}") from error


def keep_copy(path: Path) -> Path | None:
    """Copy a file beside itself, under a name that is still free, for its owner only. Return None if there is none."""
    if not path.exists():
        return None
    names = (path.with_name(f"{path.name}.old{number or ''}") for number in itertools.count())
    copy = next(name for name in names if not name.exists())
    with replace_file(copy) as file:
        file.write(path.read_bytes().decode("utf-8"))
    return copy


def _by_hand(name: str, value: str | None) -> str:
    return f"remove {name}" if value is None else f"{name} = {'…' if is_key(name) else json.dumps(value)}"


def is_key(name: str) -> bool:
    """Return whether a setting is a secret, which is never printed."""
    return name.endswith("api_key")


def _changed(values: dict[str, Any], names: list[str], value: str | None) -> dict[str, Any]:
    """Return nested values with one of them set, or removed if it is None."""
    first, *rest = names
    if rest:
        inner = values.get(first)
        return values if inner is None and value is None else {**values, first: _changed(inner or {}, rest, value)}
    others = {name: other for name, other in values.items() if name != first or value is not None}
    return others if value is None else {**others, first: value}


def _with_value(text: str, name: str, value: str | None) -> str:
    """Return a TOML text with the value of a dotted name replaced, added, or, if it is None, removed."""
    section, _, key = name.rpartition(".")
    line = f"{key} = {json.dumps(value, ensure_ascii=False)}"
    ending = "\r\n" if "\r\n" in text else "\n"
    table = re.search(rf"^[ \t]*\[[ \t]*{re.escape(section)}[ \t]*\][^\n]*(?:\n|\Z)", text, re.MULTILINE)
    if section and table is None:
        gap = "" if not text else ending if text.endswith("\n") else 2 * ending
        return text if value is None else f"{text}{gap}[{section}]{ending}{line}{ending}"
    start = table.end() if section and table else 0
    next_table = re.compile(r"^[ \t]*\[", re.MULTILINE).search(text, start)
    end = next_table.start() if next_table else len(text)
    body = text[start:end]
    quoted = r"(?:\"(?:[^\"\\\n]|\\.)*\"|'[^'\n]*')"
    if value is None:
        return text[:start] + re.sub(rf"^[ \t]*{key}[ \t]*=[ \t]*{quoted}[^\n]*\n?", "", body, flags=re.M) + text[end:]
    old = re.compile(rf"^([ \t]*){key}[ \t]*=[ \t]*{quoted}", re.MULTILINE)
    if old.search(body):
        return text[:start] + old.sub(lambda found: found[1] + line, body, count=1) + text[end:]
    head = text[:start] if not start or text[:start].endswith("\n") else text[:start] + ending
    return f"{head}{line}{ending}{text[start:]}"


class _TomlFile(TomlConfigSettingsSource):
    def _read_file(self, file_path: Path | Traversable) -> dict[str, Any]:
        # Editors on Windows begin a file with a byte order mark, which tomllib refuses.
        return tomllib.loads(file_path.read_text("utf-8-sig"))


class _JsonFile(JsonConfigSettingsSource):
    def _read_file(self, file_path: Path | Traversable) -> dict[str, Any]:
        content: Any = super()._read_file(file_path)
        if not isinstance(content, dict):
            raise SettingsError(
                f"the settings file {file_path} holds {type(content).__name__} and should hold an object"
            )
        return cast("dict[str, Any]", content)


# Where each setting in effect comes from.


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
