"""In which clients the memory is installed, and what is wrong there: for `palimpsest install` and `doctor`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from palimpsest.cli.clients import config_files, installation
from palimpsest.cli.clients.catalog import CLIENTS, Client, Folders
from palimpsest.core.errors import InputError, raised_as
from palimpsest.core.models import Finding
from palimpsest.core.validation import object_of

_T = TypeVar("_T")

# What a person has set in a client that concerns us: hooks that are turned off, and our plugin.

PLUGIN = "palimpsest@"
"""How the id of our plugin begins, whatever its marketplace is called."""


def switched_off(client: Client, folders: Folders) -> list[str]:
    """Return what a person has set that keeps our hooks from running, one line for each setting. Raises InputError."""
    if client.hooks is None:
        return []
    if client.name == "codex":
        file = folders.of_user(client.user_file)
        features = object_of(_settings(file).get("features"))
        off = [name for name in ("hooks", "codex_hooks") if features.get(name) is False]
        return [f"{file} turns hooks off ([features] {name} = false)" for name in off]
    files = [folders.of_user(client.hooks.user_file), folders.of_project(client.hooks.project_file)]
    if client.name == "claude-code":
        files.append(files[1].with_name("settings.json"))
    return [f"{file} turns hooks off ({why})" for file in dict.fromkeys(files) for why in _why_off(_settings(file))]


def active_plugin(client: Client, folders: Folders) -> bool:
    """Return whether the settings of Claude Code have our plugin turned on. Raises InputError."""
    if client.name != "claude-code" or client.hooks is None:
        return False
    local = folders.of_project(client.hooks.project_file)
    on = False
    for file in (folders.of_user(client.hooks.user_file), local.with_name("settings.json"), local):
        for name, state in object_of(_settings(file).get("enabledPlugins")).items():
            on = bool(state) if name.startswith(PLUGIN) else on  # the file nearer to the project decides
    return on


def _why_off(settings: Mapping[str, Any]) -> list[str]:
    """Return the settings of Claude Code or Gemini CLI that turn hooks off, or ours alone."""
    hooks, tools = object_of(settings.get("hooksConfig")), object_of(settings.get("tools"))
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
    parse = config_files.parse if file.suffix == ".toml" else config_files.value_at
    return object_of(_parsed(file, parse))


def _parsed(file: Path, parse: Callable[[str], _T]) -> _T:
    """Return what is made of a file's text, "" if there is no file. Raises InputError if it cannot be read."""
    with raised_as(InputError, f"{file} cannot be read", "", ValueError, RecursionError):
        return parse(config_files.read_text(file) or "")


def clients_finding(folders: Folders) -> Finding:
    """Return where the memory is installed, in the files of the user and of the current folder, and what is wrong."""
    parts: dict[str, None] = {}  # in the order in which they are found
    faults: list[str] = []
    notes: list[str] = []
    for client in CLIENTS.values():
        client_faults: list[str] = []
        try:
            installed = _examined(client, folders, client_faults)
            if "hooks" in installed:
                notes += switched_off(client, folders)
        except InputError as error:
            notes.append(str(error))
            continue
        faults += client_faults
        if installed:
            parts[f"{client.title} ({', '.join(installed)})"] = None
    text = ", ".join(parts) if parts else "in no client; palimpsest install lists them"
    return Finding("clients", "; ".join([text, *faults, *notes]), ok=not faults)


def _examined(client: Client, folders: Folders, faults: list[str]) -> list[str]:
    """Return what of ours a client has, and add what is wrong with it. Raises InputError if a file cannot be read."""
    has_entry = False
    inside = [folders.of_project(client.project_file)] if client.project_file is not None else []
    for file in dict.fromkeys([folders.of_user(client.user_file), *inside]):
        entry = _servers(client, file).get(installation.ENTRY_NAME)
        if (invocation := installation.invocation_of(entry)) is None:
            continue
        has_entry = True
        if off := installation.is_off(entry):
            faults.append(f"{file}: our entry is turned off ({off})")
        if _is_missing(invocation.program):
            repair = _repair_command(client, folders, file)
            faults.append(f"{file}: {invocation.program} no longer exists; {repair}")
    has_hooks = _examined_hooks(client, folders, faults)
    has_plugin = active_plugin(client, folders)
    if has_plugin and has_hooks:
        faults.append(
            "Claude Code runs the hooks twice, those of its settings and those of the plugin; remove one of them with "
            "palimpsest uninstall claude-code or with /plugin"
        )
    parts = {"memory": has_entry, "hooks": has_hooks, "plugin": has_plugin}
    return [name for name, is_there in parts.items() if is_there]


def _examined_hooks(client: Client, folders: Folders, faults: list[str]) -> bool:
    files: list[str] = []
    for file in _hooks_files(client, folders):
        programs = dict.fromkeys(handler.program for handler in _parsed(file, installation.handlers_in))
        files += [str(file)] if programs else []
        gone = f"no longer exists; {_repair_command(client, folders, file, '--hooks')}"
        faults += [f"{file}: the hooks' program {program} {gone}" for program in programs if _is_missing(program)]
    if len(files) > 1 and client.name != "claude-code":  # it runs two that are the same once
        faults.append(
            f"{client.title} runs the hooks twice, those of {' and of '.join(files)}; "
            f"palimpsest uninstall {client.name} --project removes those of this folder"
        )
    return bool(files)


def state_of(client: Client, folders: Folders) -> tuple[bool, str, str]:
    """Return whether a client is on this machine, and what its files have as our entry and our hooks, in a word."""
    entry_file = folders.of_user(client.user_file)
    hooks_file = folders.of_user(client.hooks.user_file) if client.hooks is not None else None
    homes = {file.parent for file in (entry_file, hooks_file) if file is not None} - {Path(folders.home)}
    found = entry_file.exists() or any(home.is_dir() for home in homes)
    try:
        servers = _servers(client, entry_file)
        ours = servers.get(installation.ENTRY_NAME)
        entry = "" if ours is None else "another server" if installation.invocation_of(ours) is None else "installed"
        if installation.is_off(ours):
            entry += ", turned off"
        if active_plugin(client, folders):
            entry = entry or "plugin"
        hooks = "installed" if hooks_file is not None and _parsed(hooks_file, installation.handlers_in) else ""
    except InputError as error:
        return found, str(error), ""
    return found, entry, hooks if hooks_file is not None else "none"


def _hooks_files(client: Client, folders: Folders) -> list[Path]:
    if client.hooks is None:
        return []
    files = (folders.of_user(client.hooks.user_file), folders.of_project(client.hooks.project_file))
    return list(dict.fromkeys(files))


def _servers(client: Client, file: Path) -> Mapping[str, Any]:
    return _parsed(file, lambda text: installation.servers_in(client, file, text))


def _is_missing(program: str) -> bool:
    """Return whether a program is named by its whole path and is not there."""
    return Path(program).is_absolute() and not Path(program).exists()


def _repair_command(client: Client, folders: Folders, file: Path, *options: str) -> str:
    in_users = file in (folders.of_user(client.user_file), *_hooks_files(client, folders)[:1])
    words = ("palimpsest install", client.name, *options, *(() if in_users else ("--project",)))
    return f"{' '.join(words)} mends it"
