"""What a person has set in a client that concerns us: hooks that are turned off, and our plugin."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from palimpsest.cli.clients import jsonc, toml_text
from palimpsest.cli.clients.catalog import Client, Folders
from palimpsest.cli.clients.file_edits import read_text
from palimpsest.core.errors import InputError

PLUGIN = "palimpsest@"
"""How the id of our plugin begins, whatever its marketplace is called."""


def switched_off(client: Client, folders: Folders) -> list[str]:
    """Return what a person has set that keeps our hooks from running, one line for each setting. Raises InputError."""
    if client.hooks is None:
        return []
    if client.name == "codex":
        file = folders.of_user(client.user_file)
        features = _object(_settings(file).get("features"))
        off = [name for name in ("hooks", "codex_hooks") if features.get(name) is False]
        return [f"{file} turns hooks off ([features] {name} = false)" for name in off]
    files = [folders.of_user(client.hooks.user_file), folders.hooks_file(client.hooks, in_project=True)]
    if client.name == "claude-code":
        files.append(files[1].with_name("settings.json"))
    return [f"{file} turns hooks off ({why})" for file in dict.fromkeys(files) for why in _why_off(_settings(file))]


def active_plugin(client: Client, folders: Folders) -> bool:
    """Return whether the settings of Claude Code have our plugin turned on. Raises InputError."""
    if client.name != "claude-code" or client.hooks is None:
        return False
    local = folders.hooks_file(client.hooks, in_project=True)
    on = False
    for file in (folders.of_user(client.hooks.user_file), local.with_name("settings.json"), local):
        for name, state in _object(_settings(file).get("enabledPlugins")).items():
            on = bool(state) if name.startswith(PLUGIN) else on  # the file nearer to the project decides
    return on


def _why_off(settings: Mapping[str, Any]) -> list[str]:
    """Return the settings of Claude Code or Gemini CLI that turn hooks off, or ours alone."""
    hooks, tools = _object(settings.get("hooksConfig")), _object(settings.get("tools"))
    disabled = hooks.get("disabled")
    why = {
        "disableAllHooks": settings.get("disableAllHooks") is True,
        "hooksConfig.enabled = false": hooks.get("enabled") is False,
        "hooksConfig.disabled": isinstance(disabled, list) and "palimpsest" in disabled,
        "tools.enableHooks = false": tools.get("enableHooks") is False,
    }
    return [setting for setting, is_set in why.items() if is_set]


def _settings(file: Path) -> Mapping[str, Any]:
    """Return the values of a file, none if there is no file. Raises InputError if it cannot be read or is not valid."""
    text = read_text(file) or ""
    try:
        return _object(toml_text.parse(text) if file.suffix == ".toml" else jsonc.value_at(text))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{file} cannot be read: {error}") from error


def _object(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}
