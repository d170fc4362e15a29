"""The settings file in TOML or JSON: which one is read, how it is read, and how one value is changed."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, cast

import platformdirs
from pydantic_settings import (
    BaseSettings,
    JsonConfigSettingsSource,
    PydanticBaseSettingsSource,
    TomlConfigSettingsSource,
)

from palimpsest.core.errors import SettingsError
from palimpsest.core.files import OWNER_ONLY, replace_file


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
    """Set one value of a section in a settings file; create the file if there is none.

    Of a TOML file every other line stays as it is. The new text is read back before it replaces the old one: where it
    does not say the same with the one value changed, the file is written in a way that this function does not know.
    Raises SettingsError, and the file is unchanged then.
    """
    by_hand = f"Set {section}.{key} = {json.dumps(value)} in it by hand. Nothing was changed."
    is_json = path.suffix == ".json"
    try:
        mode = path.stat().st_mode & 0o777 if path.exists() else OWNER_ONLY
        # Line ends stay as they are, which `read_text` would change.
        before = path.read_bytes().decode("utf-8-sig") if path.exists() else ("{}" if is_json else "")
        values: Any = json.loads(before) if is_json else tomllib.loads(before)
        wanted = {**values, section: {**values.get(section, {}), key: value}}
        if is_json:
            text = json.dumps(wanted, ensure_ascii=False, indent=2) + "\n"
        else:
            text = _with_value(before, section, key, value)
            if tomllib.loads(text) != wanted:
                raise SettingsError(f"the settings file {path} is not written line by line. {by_hand}")
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        # A link to a file elsewhere stays a link.
        with replace_file(path.resolve(), mode) as file:
            file.write(text)
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise SettingsError(f"the settings file {path} cannot be changed: {error}. {by_hand}") from error


def _with_value(text: str, section: str, key: str, value: str) -> str:
    """Return a TOML text with one value of a section replaced or added."""
    line = f'{key} = "{value}"'
    ending = "\r\n" if "\r\n" in text else "\n"
    table = re.search(rf"^[ \t]*\[[ \t]*{section}[ \t]*\][^\n]*(?:\n|\Z)", text, re.MULTILINE)
    if table is None:
        gap = "" if not text else ending if text.endswith("\n") else 2 * ending
        return f"{text}{gap}[{section}]{ending}{line}{ending}"
    next_table = re.compile(r"^[ \t]*\[", re.MULTILINE).search(text, table.end())
    end = next_table.start() if next_table else len(text)
    body = text[table.end() : end]
    old = re.compile(rf"^([ \t]*){key}[ \t]*=[ \t]*(?:\"[^\"\n]*\"|'[^'\n]*')", re.MULTILINE)
    if old.search(body):
        return text[: table.end()] + old.sub(rf"\g<1>{line}", body, count=1) + text[end:]
    head = text[: table.end()] if text[: table.end()].endswith("\n") else text[: table.end()] + ending
    return f"{head}{line}{ending}{text[table.end() :]}"


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
