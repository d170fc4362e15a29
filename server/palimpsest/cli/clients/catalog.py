"""The clients: where each keeps its servers and its hooks, on every platform.

To add a client, add one row to `CLIENTS`. The commands, their help and their errors take everything from it. Then write
`docs/clients/NAME.md`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Literal

import platformdirs

from palimpsest.core.errors import InputError


@dataclass(frozen=True, slots=True)
class UserFile:
    """A file of the user: its path below the home folder, or, with `in_config_folder`, below the platform's settings.

    `moved_by` is the client's own environment variable that names another folder for it.
    """

    path: str
    in_config_folder: bool = False
    moved_by: str = ""


@dataclass(frozen=True, slots=True)
class Event:
    """An event that runs our hook, as the client names it, and its time limit in the client's unit."""

    name: str
    timeout: int


@dataclass(frozen=True, slots=True)
class Hooks:
    """How a client runs hooks.

    `style` is how a handler is written: "exec" has a program and a list of arguments, "shell" is one line for a shell,
    "flat" is such a line without a group around it. `named` says that a handler has a name. `project_file` is relative
    to a project's folder.
    """

    user_file: UserFile
    project_file: str
    style: Literal["exec", "shell", "flat"]
    events: tuple[Event, ...]
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
    project_file: str | None
    next_step: str
    section: str = "mcpServers"
    names_transport: bool = False
    hooks: Hooks | None = None


LIMIT = 5
"""Seconds after which a client stops our hook. The hook ends itself after 0.3; starting Python on a busy machine may
take some seconds more."""

CLAUDE_EVENTS = tuple(
    Event(name, LIMIT) for name in ("SessionStart", "UserPromptSubmit", "Stop", "PreCompact", "SessionEnd")
)
CODEX_EVENTS = (*CLAUDE_EVENTS[:-1], Event("SessionEnd", 3))  # Codex warns at every start if it is more than 3 seconds
GEMINI_EVENTS = tuple(
    Event(name, 1000 * LIMIT) for name in ("SessionStart", "BeforeAgent", "AfterAgent", "PreCompress", "SessionEnd")
)  # in milliseconds
CURSOR_EVENTS = tuple(
    Event(name, LIMIT)
    for name in ("sessionStart", "beforeSubmitPrompt", "afterAgentResponse", "preCompact", "sessionEnd")
)

CLIENTS: Mapping[str, Client] = {
    client.name: client
    for client in (
        Client(
            name="claude-desktop",
            title="Claude Desktop",
            user_file=UserFile("Claude/claude_desktop_config.json", in_config_folder=True),
            project_file=None,
            next_step="Quit Claude Desktop and start it again.",
        ),
        Client(
            name="claude-code",
            title="Claude Code",
            user_file=UserFile(".claude.json", moved_by="CLAUDE_CONFIG_DIR"),
            project_file=".mcp.json",
            names_transport=True,
            next_step="Restart Claude Code and run /mcp.",
            hooks=Hooks(
                UserFile(".claude/settings.json", moved_by="CLAUDE_CONFIG_DIR"),
                # The file that is not shared: the path is that of this machine, and each person decides about hooks.
                ".claude/settings.local.json",
                "exec",
                CLAUDE_EVENTS,
                "Run /hooks in Claude Code to see the hooks.",
            ),
        ),
        Client(
            name="codex",
            title="Codex",
            user_file=UserFile(".codex/config.toml", moved_by="CODEX_HOME"),
            project_file=".codex/config.toml",
            section="mcp_servers",
            next_step="Restart Codex and run /mcp.",
            hooks=Hooks(
                UserFile(".codex/hooks.json", moved_by="CODEX_HOME"),
                ".codex/hooks.json",
                "shell",
                CODEX_EVENTS,
                "Run /hooks in Codex and trust the hooks of Palimpsest. Codex skips them until then, and after every "
                "change of them.",
            ),
        ),
        Client(
            name="gemini",
            title="Gemini CLI",
            user_file=UserFile(".gemini/settings.json"),
            project_file=".gemini/settings.json",
            next_step="Restart Gemini CLI and run /mcp.",
            hooks=Hooks(
                UserFile(".gemini/settings.json"),
                ".gemini/settings.json",
                "shell",
                GEMINI_EVENTS,
                "Run /hooks in Gemini CLI to see the hooks.",
                named=True,
            ),
        ),
        Client(
            name="cursor",
            title="Cursor",
            user_file=UserFile(".cursor/mcp.json"),
            project_file=".cursor/mcp.json",
            next_step="Open Cursor's settings and look under MCP.",
            hooks=Hooks(
                UserFile(".cursor/hooks.json"),
                ".cursor/hooks.json",
                "flat",
                CURSOR_EVENTS,
                "Look under Hooks in Cursor's settings.",
            ),
        ),
        Client(
            name="vscode",
            title="VS Code",
            user_file=UserFile("Code/User/mcp.json", in_config_folder=True),
            project_file=".vscode/mcp.json",
            section="servers",
            names_transport=True,
            next_step="Run “MCP: List Servers” in VS Code's command palette.",
        ),
    )
}


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
        config = platformdirs.user_config_path(roaming=True)  # ~/.config, ~/Library/Application Support, AppData
        return cls(Path.home(), config, Path.cwd(), os.environ)

    def place_of(self, file: UserFile) -> PurePath:
        """Return the path of a file of the user, on the platform of these folders."""
        if moved := self.moved.get(file.moved_by, ""):
            return PurePath(moved) / PurePath(file.path).name
        return (self.config if file.in_config_folder else self.home) / file.path

    def of_user(self, file: UserFile) -> Path:
        """Return the path of a file of the user on this machine."""
        return Path(self.place_of(file))

    def entry_file(self, client: Client, *, in_project: bool) -> Path:
        """Return the file with a client's servers. Raises InputError if the client has none in a project."""
        if not in_project:
            return self.of_user(client.user_file)
        if client.project_file is None:
            raise InputError(f"{client.title} has no configuration file in a project. Leave --project out")
        return Path(self.project / client.project_file)

    def hooks_file(self, hooks: Hooks, *, in_project: bool) -> Path:
        """Return the file with a client's hooks."""
        return Path(self.project / hooks.project_file) if in_project else self.of_user(hooks.user_file)


def client_named(name: str) -> Client:
    """Return the client with this name. Raises InputError that lists the names."""
    if name not in CLIENTS:
        raise InputError(f"'{name}' is not a known client. Use one of {', '.join(CLIENTS)}")
    return CLIENTS[name]
