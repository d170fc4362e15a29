"""The clients: where each keeps its servers and its hooks, on every platform.

To add a client, add a table to `catalog.toml`. The commands, their help and their errors take everything from it. Then
write `docs/clients/NAME.md`.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Literal

import platformdirs
from pydantic import TypeAdapter


@dataclass(frozen=True, slots=True)
class UserFile:
    """A file of the user: its path below the home folder, or, with `in_config_folder`, below the platform's settings.

    `moved_by` is the client's own environment variable that names another folder for it.
    """

    path: str
    in_config_folder: bool = False
    moved_by: str = ""


@dataclass(frozen=True, slots=True)
class Hooks:
    """How a client runs hooks.

    `style` is how a handler is written: "exec" has a program and a list of arguments, "shell" is one line for a shell,
    "flat" is such a line without a group around it. `named` says that a handler has a name. `project_file` is relative
    to a project's folder. `events` are those that run our hook, each with its time limit in the client's unit.
    """

    user_file: UserFile
    project_file: str
    style: Literal["exec", "shell", "flat"]
    events: Mapping[str, int]
    next_step: str = ""
    named: bool = False


@dataclass(frozen=True, slots=True)
class Client:
    """An MCP client and its configuration files.

    `project_file` is relative to a project's folder, or None if the client has no such file. `section` is the object in
    the file that lists the servers. `names_transport` says that an entry has a "type". `next_step` is what a person
    does after the installation.
    """

    name: str
    title: str
    user_file: UserFile
    next_step: str
    project_file: str | None = None
    section: str = "mcpServers"
    names_transport: bool = False
    hooks: Hooks | None = None


_STORED = tomllib.loads(Path(__file__).with_name("catalog.toml").read_text("utf-8"))

CLIENTS: Mapping[str, Client] = TypeAdapter(dict[str, Client]).validate_python(
    {name: {"name": name, **values} for name, values in _STORED.items()}
)


@dataclass(frozen=True, slots=True)
class Folders:
    """The folders that clients' files are in: the home folder, the platform's settings, and the open project's.

    `moved` are the environment variables of clients that name another folder.
    """

    home: PurePath
    config: PurePath
    project: PurePath
    moved: Mapping[str, str]

    @classmethod
    def of_this_machine(cls) -> Folders:
        """Return the folders of the user who runs this process, in the current folder."""
        # The second is ~/.config, ~/Library/Application Support or AppData.
        return cls(Path.home(), platformdirs.user_config_path(roaming=True), Path.cwd(), os.environ)

    def place_of(self, file: UserFile) -> PurePath:
        """Return the path of a file of the user, on the platform of these folders."""
        if moved := self.moved.get(file.moved_by, ""):
            return PurePath(moved) / PurePath(file.path).name
        return (self.config if file.in_config_folder else self.home) / file.path

    def of_user(self, file: UserFile) -> Path:
        """Return the path of a file of the user on this machine."""
        return Path(self.place_of(file))

    def of_project(self, file: str) -> Path:
        """Return the path of a file of the open project on this machine."""
        return Path(self.project / file)
