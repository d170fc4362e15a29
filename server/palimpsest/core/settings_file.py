"""The settings file: which one is read, and how, in TOML or JSON."""

from __future__ import annotations

import json
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
