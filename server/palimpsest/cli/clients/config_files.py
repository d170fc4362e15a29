"""The configuration files of MCP clients: where each client keeps its servers, and our entry in them.

To add a client, add one row to `CLIENTS`. The commands, their help and their errors take everything from it. Then write
`docs/clients/NAME.md`.
"""

from __future__ import annotations

import shutil
import stat
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

import platformdirs

from palimpsest.cli.clients import jsonc
from palimpsest.core.errors import InputError
from palimpsest.core.files import OWNER_ONLY, replace_file

ENTRY_NAME = "memory"
"""The name of our entry in the client."""

BACKUP_SUFFIX = ".before-palimpsest"
"""Suffix of the copy that is made of a client's file before it is changed."""


@dataclass(frozen=True, slots=True)
class Client:
    """An MCP client and its configuration files.

    `user_file` is relative to the home folder, or, with `in_config_folder`, to the platform's folder for settings.
    `project_file` is relative to a project's folder, or None if the client has no such file. `section` is the object in
    the file that lists the servers. `names_transport` says that an entry has a "type". `next_step` is what a person
    does after the installation.
    """

    title: str
    user_file: str
    project_file: str | None
    next_step: str
    in_config_folder: bool = False
    section: str = "mcpServers"
    names_transport: bool = False


CLIENTS: Mapping[str, Client] = {
    "claude-desktop": Client(
        title="Claude Desktop",
        user_file="Claude/claude_desktop_config.json",
        in_config_folder=True,
        project_file=None,
        next_step="Quit Claude Desktop and start it again.",
    ),
    "claude-code": Client(
        title="Claude Code",
        user_file=".claude.json",
        project_file=".mcp.json",
        names_transport=True,
        next_step="Restart Claude Code and run /mcp.",
    ),
    "cursor": Client(
        title="Cursor",
        user_file=".cursor/mcp.json",
        project_file=".cursor/mcp.json",
        next_step="Open Cursor's settings and look under MCP.",
    ),
    "vscode": Client(
        title="VS Code",
        user_file="Code/User/mcp.json",
        in_config_folder=True,
        project_file=".vscode/mcp.json",
        section="servers",
        names_transport=True,
        next_step="Run “MCP: List Servers” in VS Code's command palette.",
    ),
}


@dataclass(frozen=True, slots=True)
class FileEdit:
    """A change of a file that is not written yet: its text before and after."""

    file: Path
    before: str
    after: str

    @property
    def has_changes(self) -> bool:
        """Return whether there is anything to write."""
        return self.before != self.after


def client_named(name: str) -> Client:
    """Return the client with this name. Raises InputError that lists the names."""
    if name not in CLIENTS:
        raise InputError(f"'{name}' is not a known client. Use one of {', '.join(CLIENTS)}")
    return CLIENTS[name]


def config_file(client: Client, home: PurePath, config: PurePath, project: PurePath | None) -> PurePath:
    """Return a client's file: that of a project, or else that of the user.

    `config` is the platform's folder for settings. Raises InputError if the client has no file in a project.
    """
    if project is None:
        return (config if client.in_config_folder else home) / client.user_file
    if client.project_file is None:
        raise InputError(f"{client.title} has no configuration file in a project. Leave --project out")
    return project / client.project_file


def local_config_file(client: Client, *, in_project: bool) -> Path:
    """Return a client's file on this machine, that of the current folder if `in_project`. Raises InputError."""
    config = platformdirs.user_config_path(roaming=True)  # ~/.config, ~/Library/Application Support, AppData/Roaming
    return Path(config_file(client, Path.home(), config, Path.cwd() if in_project else None))


def entry_for(client: Client, env: Mapping[str, str], *, shared: bool) -> dict[str, Any]:
    """Return the entry that starts this installation. If the file is `shared`, name the command without its path."""
    executable = Path(sys.executable).with_name("palimpsest.exe" if sys.platform == "win32" else "palimpsest")
    if shared:
        command: dict[str, Any] = {"command": "palimpsest"}
    elif executable.exists():
        command = {"command": str(executable)}
    else:
        command = {"command": sys.executable, "args": ["-m", "palimpsest"]}
    transport = {"type": "stdio"} if client.names_transport else {}
    return {**transport, **command, **({"env": dict(env)} if env else {})}


def with_entry(client: Client, file: Path, entry: Mapping[str, Any]) -> FileEdit:
    """Return the edit that puts our entry into a file. Raises InputError if the file cannot be read or parsed."""
    return _edit(file, lambda text: jsonc.with_entry(text, (client.section, ENTRY_NAME), dict(entry)))


def without_entry(client: Client, file: Path) -> FileEdit:
    """Return the edit that removes our entry from a file. Raises InputError if the file cannot be read or parsed."""
    return _edit(file, lambda text: jsonc.without_entry(text, (client.section, ENTRY_NAME)))


def write(edit: FileEdit) -> Path | None:
    """Replace the file with its new text. Return the copy of the old file, or None if there was none.

    Raises InputError if that fails. The file is unchanged then.
    """
    target = edit.file.resolve()  # a symbolic link stays a link
    backup = target.with_name(target.name + BACKUP_SUFFIX)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        exists = target.exists()
        if exists:
            shutil.copy2(target, backup)
        with replace_file(target, stat.S_IMODE(target.stat().st_mode) if exists else OWNER_ONLY) as file:
            file.write(edit.after)
    except OSError as error:
        raise InputError(f"{target} could not be written: {error.strerror}. The file is unchanged.") from error
    return backup if exists else None


def _edit(file: Path, change: Callable[[str], str]) -> FileEdit:
    before = _read(file)
    try:
        return FileEdit(file, before, change(before))
    except ValueError as error:
        message = f"{file} is not valid JSON for this client: {error}. The file is unchanged. Correct it and try again."
        raise InputError(message) from error


def _read(file: Path) -> str:
    try:
        return file.read_bytes().decode("utf-8")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{file} cannot be read: {error}. The file is unchanged.") from error
