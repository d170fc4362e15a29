"""What `install` and `uninstall` change: our entry, our hooks, and the programs they start."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath, PureWindowsPath
from typing import Any, TypeAlias, cast

from palimpsest.cli.clients import config_files
from palimpsest.cli.clients.catalog import Client, Folders, Hooks
from palimpsest.cli.clients.config_files import FileEdit, edit_of
from palimpsest.core.errors import InputError
from palimpsest.core.validation import object_of

# Our programs as commands of a client: where they are on this machine, and which commands start them.

DISTRIBUTION = "palimpsest-mcp"
SERVER = "palimpsest"
HOOK = "palimpsest-hook"

_SERVER_NAMES = {SERVER, DISTRIBUTION}
_REQUIREMENT = re.compile(rf"{DISTRIBUTION}(?:$|[\[@=<>~! ])")
_PYTHON = re.compile(r"(?:python|pypy)[\d.]*w?|py")
_RUNNERS = {"uvx", "uv", "pipx"}
_SUBCOMMANDS = {"run", "tool"}
_PACKAGE_OPTIONS = {"--from", "--spec"}
_VALUE_OPTIONS = {
    *("--with", "--with-editable", "--python", "-p", "--directory", "--project", "--index", "--default-index"),
    *("--index-url", "-i", "--extra-index-url", "--pip-args", "--cache-dir", "--env-file", "--extra", "--group"),
}
"""Options of uv and pipx whose value is the next argument."""

_TEMPORARY = re.compile(r"/(?:archive-v\d+|environments-v\d+|builds-v\d+)/|/\.cache/pipx/|/pipx/\.cache/")
"""Folders where `uvx` and `pipx run` keep an environment until they clean up."""


@dataclass(frozen=True, slots=True)
class Invocation:
    """A command that starts our server: how it is started, and the arguments that the server itself gets."""

    start: tuple[str, ...]
    arguments: tuple[str, ...]


def invocation_of(entry: object) -> Invocation | None:
    """Return how an entry of a client starts our server, or None if it starts something else.

    Ours is a program called palimpsest, `python -m palimpsest`, and uv, uvx or pipx with our distribution.
    """
    if not isinstance(entry, Mapping):
        return None
    values = cast("Mapping[str, Any]", entry)
    command, arguments = values.get("command"), values.get("args", [])
    if not isinstance(command, str) or not isinstance(arguments, list):
        return None
    words = [str(argument) for argument in cast("list[object]", arguments)]
    program = program_name(command)
    if program in _SERVER_NAMES:
        used = 0
    elif _PYTHON.fullmatch(program):
        used = _module_end(words)
    elif program in _RUNNERS:
        used = _runner_end(words)
    else:
        return None
    return None if used is None else Invocation((command, *words[:used]), tuple(words[used:]))


def program_name(command: str) -> str:
    """Return the name of a program without its folder and .exe, in lower case, whatever the platform of its path."""
    return PureWindowsPath(command).name.lower().removesuffix(".exe")  # it splits at / and at \


def _module_end(words: Sequence[str]) -> int | None:
    """Return how many arguments of Python it takes to start our module, or None if they start something else."""
    for number, word in enumerate(words):
        if word == "-m":
            return number + 2 if words[number + 1 : number + 2] == [SERVER] else None
        if not word.startswith("-"):
            return None
    return None


def _runner_end(words: Sequence[str]) -> int | None:
    """Return how many arguments of uv or pipx it takes to start our server, or None if they start something else."""
    package, number = "", 0
    while number < len(words):
        word = words[number]
        name, _, value = word.partition("=")
        if name in _PACKAGE_OPTIONS:
            package = value or " ".join(words[number + 1 : number + 2])
            number += 1 if value else 2
        elif word in _VALUE_OPTIONS:
            number += 2
        elif word.startswith("-") or (word in _SUBCOMMANDS and number < len(_SUBCOMMANDS)):
            number += 1
        else:
            ours = _REQUIREMENT.match(package) if package else word == SERVER or _REQUIREMENT.match(word)
            return number + 1 if ours else None
    return None


def server_command(*, shared: bool) -> list[str]:
    """Return the command that starts the server.

    In a `shared` file it is one that works for everybody who has uv. Else it is the absolute path of this installation,
    or, if `uvx` or `pipx run` started this process from a folder that they clean up, the absolute path of uvx or pipx.
    """
    if shared:
        return ["uvx", DISTRIBUTION]
    if in_temporary_environment():
        for runner, arguments in (("uvx", [DISTRIBUTION]), ("pipx", ["run", DISTRIBUTION])):
            if (found := shutil.which(runner)) is not None:
                return [found, *arguments]
    program = _beside_python(SERVER)
    return [str(program)] if program.exists() else [sys.executable, "-m", SERVER]


def hook_program() -> str:
    """Return the absolute path of `palimpsest-hook`. Raises InputError if it may be gone tomorrow, or is missing."""
    if in_temporary_environment():
        raise InputError(
            "this palimpsest runs from a folder that uvx or pipx empties from time to time, and hooks need a path that "
            f"stays. Nothing was changed. Run uv tool install {DISTRIBUTION} or pipx install {DISTRIBUTION}, or, in a "
            "clone, uv tool install . or pipx install ., and then palimpsest install again"
        )
    program = _beside_python(HOOK)
    if not program.exists():
        raise InputError(f"{program} is missing. Nothing was changed. Install {DISTRIBUTION} again")
    return str(program)


def in_temporary_environment() -> bool:
    """Return whether this process runs from an environment that `uvx` or `pipx run` made and may remove."""
    return _TEMPORARY.search(f"{PurePath(sys.prefix).as_posix()}/") is not None


def _beside_python(name: str) -> Path:
    return Path(sys.executable).with_name(f"{name}.exe" if sys.platform == "win32" else name)


# Our entry in a client's list of servers: what it holds, which one is ours, and the file with or without it.
#
# An entry belongs to us only if it starts our server. What a person added to our entry stays when it is updated.

ENTRY_NAME = "palimpsest"
"""The name of our entry in the client."""

_OFF = (("disabled", True), ("enabled", False))
"""How clients write that an entry is turned off."""


def entry_for(client: Client, env: Mapping[str, str], *, shared: bool) -> dict[str, Any]:
    """Return the entry that starts the server, with these environment variables. A `shared` one names no path."""
    command, *arguments = server_command(shared=shared)
    return {
        **({"type": "stdio"} if client.names_transport else {}),
        "command": command,
        **({"args": arguments} if arguments else {}),
        **({"env": dict(env)} if env else {}),
    }


def servers_in(client: Client, file: Path, text: str) -> Mapping[str, Any]:
    """Return the servers that a file lists. Raises ValueError if the file cannot be parsed."""
    section, is_toml = client.section, file.suffix == ".toml"
    return object_of(config_files.parse(text).get(section) if is_toml else config_files.value_at(text, (section,)))


def with_entry(client: Client, file: Path, text: str, entry: Mapping[str, Any]) -> str:
    """Return the text of a file with our entry.

    Raises InputError if the name is taken by another server, ValueError if the file cannot be parsed.
    """
    servers = servers_in(client, file, text)
    present = servers.get(ENTRY_NAME)
    if present is not None and invocation_of(present) is None:
        raise InputError(
            f"{file} has an entry '{ENTRY_NAME}' that does not start this program: {_command_of(present)}. Nothing was "
            "changed. Rename that entry or remove it, and try again"
        )
    ours = cast("Mapping[str, Any]", present or {})
    if not isinstance(ours.get("env") or {}, Mapping):
        raise InputError(
            f"{file}: the env of the entry '{ENTRY_NAME}' is not a table of variables. Nothing was changed. Correct it "
            "and try again"
        )
    merged = _merged(ours, entry)
    if file.suffix == ".toml":
        return config_files.with_table(text, client.section, ENTRY_NAME, merged)
    return config_files.with_entry(text, (client.section, ENTRY_NAME), merged)


def without_entry(client: Client, file: Path, text: str) -> str:
    """Return the text of a file without our entry. Raises ValueError if the file cannot be parsed."""
    if invocation_of(servers_in(client, file, text).get(ENTRY_NAME)) is None:
        return text
    if file.suffix == ".toml":
        return config_files.with_table(text, client.section, ENTRY_NAME, None)
    return config_files.without_entry(text, (client.section, ENTRY_NAME))


def is_off(entry: Any) -> str:
    """Return what in an entry of ours keeps the client from starting it, such as "disabled = true", or ""."""
    if invocation_of(entry) is None:
        return ""
    return next((f"{key} = {json.dumps(value)}" for key, value in _OFF if entry.get(key) is value), "")


def _merged(present: Mapping[str, Any], entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return the new entry with what a person added to the present one: variables, arguments, other keys."""
    invocation = invocation_of(present)
    arguments = [*entry.get("args", []), *(invocation.arguments if invocation is not None else ())]
    given: Mapping[str, Any] = present.get("env") or {}
    env = {**given, **entry.get("env", {})}
    changed = {"args": arguments, "env": env}
    kept = {key: value for key, value in present.items() if key not in {"args", "env"}}
    merged = {**kept, **{key: value for key, value in entry.items() if key not in changed}}
    return {**merged, **{key: value for key, value in changed.items() if value}}


def _command_of(entry: object) -> str:
    """Return what an entry starts or connects to, in a few words; never its variables, which may be secret."""
    if not isinstance(entry, Mapping):
        return "it is no object"
    values = cast("Mapping[str, object]", entry)
    return f"{values.get('command') or values.get('url') or 'it has no command'}"


# Our hooks in a client's file: what a handler holds, which ones are ours, and the file with or without them.
#
# A handler belongs to us only if it starts `palimpsest-hook`. All other handlers stay as they are.

_HANDLER_NAME = "palimpsest"
_WINDOWS_WORD = re.compile(r'&?\s*(?:"([^"]*)"|(\S+))')


@dataclass(frozen=True, slots=True)
class Handler:
    """A handler of ours in a file: the path to it, and its values."""

    path: tuple[config_files.Step, ...]
    values: Mapping[str, Any]

    @property
    def program(self) -> str:
        """Return the program that it starts."""
        return next(program for program in _programs(self.values) if program_name(program) == HOOK)


def handlers_in(text: str) -> list[Handler]:
    """Return our handlers of all events, in groups and without. Raises ValueError if the text cannot be parsed."""
    events = config_files.value_at(text, ("hooks",))
    found: list[Handler] = []
    for event, groups in _items(events):
        for number, group in _items(groups):
            found += _ours(("hooks", event, number), group)
            if isinstance(group, Mapping):
                for inner, handler in _items(cast("Mapping[str, Any]", group).get("hooks")):
                    found += _ours(("hooks", event, number, "hooks", inner), handler)
    return found


def with_hooks(hooks: Hooks, text: str, command: Sequence[str]) -> str:
    """Return the text with one handler of ours for each event, which starts this command.

    What a person added to a handler of ours stays. Raises ValueError if the text cannot be parsed.
    """
    if hooks.style == "flat" and config_files.value_at(text, ("version",)) is None:
        text = config_files.with_entry(text, ("version",), 1)
    for handler in reversed(handlers_in(text)):
        if handler.path[1] not in hooks.events:
            text = _without_hooks(text, handler)
    for event in hooks.events:
        text = _with_event(hooks, text, event, command)
    return text


def without_hooks(text: str) -> str:
    """Return the text without our handlers, and without the lists that hold nothing else. Raises ValueError."""
    for handler in reversed(handlers_in(text)):  # the last one first: the numbers before it stay the same
        text = _without_hooks(text, handler)
    return text


def shell_line(words: Sequence[str], client: str) -> str:
    """Return words as one line for the shell in which a client runs its hooks on this platform."""
    if sys.platform != "win32":
        return shlex.join(words)
    line = subprocess.list2cmdline(words)
    return f"& {line}" if client == "gemini" else line  # it uses PowerShell, where a quoted path alone is only a text


def _with_event(hooks: Hooks, text: str, event: str, command: Sequence[str]) -> str:
    present = [handler for handler in handlers_in(text) if handler.path[1] == event]
    for handler in reversed(present[1:]):
        text = _without_hooks(text, handler)
    values = _handler(hooks, event, command)
    if present:
        started = {key: value for key, value in values.items() if key in {"type", "command", "args"}}
        kept = {key: value for key, value in present[0].values.items() if key != "args"}
        return config_files.with_entry(text, present[0].path, {**values, **kept, **started})
    number = len(_items(config_files.value_at(text, ("hooks", event))))
    group = values if hooks.style == "flat" else {"hooks": [values]}
    return config_files.with_entry(text, ("hooks", event, number), group)


def _handler(hooks: Hooks, event: str, command: Sequence[str]) -> dict[str, Any]:
    """Return what starts our hook at an event."""
    if hooks.style == "exec":
        return {"type": "command", "command": command[0], "args": list(command[1:]), "timeout": hooks.events[event]}
    line = shell_line(command, command[command.index("--client") + 1])
    if hooks.style == "flat":
        return {"command": line, "timeout": hooks.events[event]}
    name = {"name": _HANDLER_NAME} if hooks.named else {}
    return {**name, "type": "command", "command": line, "timeout": hooks.events[event]}


def _without_hooks(text: str, handler: Handler) -> str:
    """Return the text without a handler, and without the group, the event and the hooks that hold nothing else."""
    path = handler.path
    while len(path) > 1 and len(config_files.value_at(text, path[:-1])) == 1:
        path = path[:-1]
        if path[-1] == "hooks" and len(path) > 1:
            path = path[:-1]  # a group without handlers does nothing, whatever else it says
    return config_files.without_entry(text, path)


def _ours(path: tuple[config_files.Step, ...], handler: object) -> list[Handler]:
    if not isinstance(handler, Mapping):
        return []
    values = cast("Mapping[str, Any]", handler)
    ours = any(program_name(program) == HOOK for program in _programs(values))
    return [Handler(path, values)] if ours else []


def _programs(values: Mapping[str, Any]) -> list[str]:
    """Return what a handler may start: its command, or the first word of it as a shell of either platform reads it."""
    command = values.get("command")
    if not isinstance(command, str):
        return []
    if "args" in values:
        return [command]
    try:
        words = shlex.split(command)[:1]
    except ValueError:  # a quotation mark that is not closed
        words = []
    match = _WINDOWS_WORD.match(command)
    return [*words, *([match.group(1) or match.group(2) or ""] if match else [])]


def _items(values: object) -> list[tuple[Any, Any]]:
    """Return the members of an object or a list with their keys or numbers; of anything else, none."""
    if isinstance(values, Mapping):
        return list(cast("Mapping[str, Any]", values).items())
    return list(enumerate(cast("list[Any]", values))) if isinstance(values, list) else []


# What `install` and `uninstall` change: the edits of all files of a client.

_Change: TypeAlias = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class Target:
    """The client and the folders that a command works on, and whether it is the project's files."""

    client: Client
    folders: Folders
    in_project: bool

    @property
    def entry_file(self) -> Path:
        """Return the file with the servers. Raises InputError if the client has none in a project."""
        return self.folders.entry_file(self.client, in_project=self.in_project)

    @property
    def hooks_file(self) -> Path:
        """Return the file with the hooks. Raises InputError if the client runs no hooks."""
        return self.folders.hooks_file(self.hooks, in_project=self.in_project)

    @property
    def hooks(self) -> Hooks:
        """Return how the client runs hooks. Raises InputError if it runs none that we can install."""
        if self.client.hooks is None:
            raise InputError(
                f"hooks cannot be installed in {self.client.title}. Nothing was changed. Leave --hooks out"
            )
        return self.client.hooks


def installation(target: Target, env: Mapping[str, str], hook_arguments: Sequence[str] | None) -> list[FileEdit]:
    """Return the edits that install the entry and, with arguments for them, the hooks.

    Raises InputError if a file cannot be read, is not valid, or holds another server under our name.
    """
    client, file = target.client, target.entry_file
    entry = entry_for(client, env, shared=target.in_project)
    changes: dict[Path, list[_Change]] = {file: [lambda text: with_entry(client, file, text, entry)]}
    if hook_arguments is not None:
        hooks = target.hooks
        command = [hook_program(), "--client", client.name, *hook_arguments]
        changes.setdefault(target.hooks_file, []).append(lambda text: with_hooks(hooks, text, command))
    return _edits(target, changes)


def removal(target: Target) -> list[FileEdit]:
    """Return the edits that remove the entry and the hooks. Raises InputError as `installation` does."""
    client, file = target.client, target.entry_file
    changes: dict[Path, list[_Change]] = {file: [lambda text: without_entry(client, file, text)]}
    if client.hooks is not None:
        changes.setdefault(target.hooks_file, []).append(without_hooks)
    return _edits(target, changes)


def off_notes(target: Target, edit: FileEdit) -> list[str]:
    """Return a line if our entry is turned off in the file: a person did that, so an installation leaves it."""
    off = is_off(servers_in(target.client, edit.file, edit.after).get(ENTRY_NAME))
    turned = f"note: '{ENTRY_NAME}' is turned off in {edit.file} ({off}) and stays so. Remove that to use the memory"
    return [turned] if off else []


def foreign_notes(target: Target, edit: FileEdit) -> list[str]:
    """Return a line if the file still has a server of somebody else's under our name."""
    servers = servers_in(target.client, edit.file, edit.after)
    is_foreign = ENTRY_NAME in servers and invocation_of(servers[ENTRY_NAME]) is None
    return [f"{edit.file}: the entry '{ENTRY_NAME}' belongs to another server and stays"] if is_foreign else []


def _edits(target: Target, changes: Mapping[Path, list[_Change]]) -> list[FileEdit]:
    inside = Path(target.folders.project) if target.in_project else None
    return [edit_of(file, file_changes, inside=inside) for file, file_changes in changes.items()]
