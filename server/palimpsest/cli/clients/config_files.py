"""Attach the server to a client: its entry in the client's own file, put in and taken out again."""

from __future__ import annotations

import shutil
import stat
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any, Literal, TypeAlias

import platformdirs

from palimpsest.cli.clients import jsonc
from palimpsest.core.errors import InputError
from palimpsest.core.files import OWNER_ONLY, replace_file

Client: TypeAlias = Literal["claude-desktop", "claude-code", "cursor", "vscode"]

NAME = "memory"
"""What the entry is called in the client."""

BACKUP = ".before-palimpsest"
"""How the name of the copy ends that is made before the first change."""


@dataclass(frozen=True, slots=True)
class Place:
    """Hold where a client looks: its file, and the object in it that lists servers."""

    file: PurePath
    section: str


@dataclass(frozen=True, slots=True)
class Edited:
    """Hold a file's text before and after a change."""

    file: Path
    before: str
    after: str

    @property
    def changed(self) -> bool:
        """Say whether there is anything to write."""
        return self.before != self.after


def place_of(client: Client, home: PurePath, config: PurePath, project: PurePath | None) -> Place:
    """Return where a client looks: in a user's home, in the platform's folder for settings, or in a project.

    Raises InputError where the client knows no file in a project.
    """
    section = "servers" if client == "vscode" else "mcpServers"
    if project is not None:
        inside = {"claude-code": ".mcp.json", "cursor": ".cursor/mcp.json", "vscode": ".vscode/mcp.json"}
        if client not in inside:
            raise InputError("Claude Desktop has no file in a project; leave --project out")
        return Place(project / inside[client], section)
    files = {
        "claude-desktop": config / "Claude" / "claude_desktop_config.json",
        "claude-code": home / ".claude.json",
        "cursor": home / ".cursor" / "mcp.json",
        "vscode": config / "Code" / "User" / "mcp.json",
    }
    return Place(files[client], section)


def here(client: Client, *, in_project: bool) -> Place:
    """Return where a client looks on this machine. Raises InputError."""
    config = platformdirs.user_config_path(roaming=True)  # ~/.config, ~/Library/Application Support, AppData/Roaming
    return place_of(client, Path.home(), config, Path.cwd() if in_project else None)


def entry_of(client: Client, settings: Mapping[str, str], *, shared: bool) -> dict[str, Any]:
    """Return what the client is to start. A file that is `shared` names the command as every machine finds it."""
    beside = Path(sys.executable).with_name("palimpsest.exe" if sys.platform == "win32" else "palimpsest")
    if shared:
        started: dict[str, Any] = {"command": "palimpsest"}
    elif beside.exists():
        started = {"command": str(beside)}
    else:
        started = {"command": sys.executable, "args": ["-m", "palimpsest"]}
    kind = {"type": "stdio"} if client in ("vscode", "claude-code") else {}
    return {**kind, **started, **({"env": dict(settings)} if settings else {})}


def installed(place: Place, entry: Mapping[str, Any]) -> Edited:
    """Return the file with the entry in it. Raises InputError where the file is not what it should be."""
    file = Path(place.file)
    before = _read(file)
    return Edited(file, before, _edited(file, lambda: jsonc.with_entry(before, (place.section, NAME), dict(entry))))


def uninstalled(place: Place) -> Edited:
    """Return the file without the entry. Raises InputError where the file is not what it should be."""
    file = Path(place.file)
    before = _read(file)
    return Edited(file, before, _edited(file, lambda: jsonc.without_entry(before, (place.section, NAME))))


def write(edited: Edited) -> Path | None:
    """Put the changed text in place, whole or not at all; return the copy of what was there, if anything was.

    Raises InputError where that fails; the file is then as it was.
    """
    target = edited.file.resolve()  # a link stays one
    backup = target.with_name(target.name + BACKUP)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        there = target.exists()
        if there:
            shutil.copy2(target, backup)
        with replace_file(target, stat.S_IMODE(target.stat().st_mode) if there else OWNER_ONLY) as file:
            file.write(edited.after)
    except OSError as error:
        raise InputError(f"{target} could not be written: {error.strerror}. It is as it was.") from error
    return backup if there else None


def _edited(file: Path, edit: Any) -> str:
    try:
        return str(edit())
    except ValueError as error:
        raise InputError(f"{file} is not the JSON it should be: {error}. Nothing was changed.") from error


def _read(file: Path) -> str:
    try:
        return file.read_bytes().decode("utf-8")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{file} cannot be read: {error}. Nothing was changed.") from error
