"""Our entry and our hooks in the files of clients: install and remove them, say where they are and what is wrong."""

import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePath, PureWindowsPath
from typing import Any, TypeVar, cast

from palimpsest.cli.clients import config_files
from palimpsest.cli.clients.catalog import CLIENTS, Client, Folders, Hooks
from palimpsest.cli.clients.config_files import FileEdit, edit_of
from palimpsest.core.errors import InputError, raised_as
from palimpsest.core.models import Finding
from palimpsest.core.validation import list_of, object_of

_T = TypeVar("_T")

# Our programs as commands of a client: where they are on this machine, and which commands start them.

DISTRIBUTION = "palimpsest-mcp"
SERVER = "palimpsest"
HOOK = "palimpsest-hook"

# Options of uv and pipx whose value is the next argument.
_VALUE = (
    "--with|--with-editable|--python|-p|--directory|--project|--index|--default-index|--index-url|-i|--extra-index-url"
    "|--pip-args|--cache-dir|--env-file|--extra|--group"
)

# Words of a command, each but the first after a NUL.
_OPTION = rf"(?>\0(?:{_VALUE})\0[^\0]*|\0-(?!-(?:from|spec)[=\0])[^\0]*)"
_REQUIREMENT = rf"{DISTRIBUTION}(?![^\0\[@=<>~! ])[^\0]*"

# The words that start our server: its program, `python -m palimpsest`, or uv, uvx or pipx with our distribution.
_START = re.compile(
    rf"(?:{SERVER}|{DISTRIBUTION}"
    rf"|(?:(?:python|pypy)[\d.]*w?|py)(?:\0-(?!m\0)[^\0]*)*\0-m\0{SERVER}"
    rf"|(?:uvx|(?:uv|pipx){_OPTION}?(?:\0(?:tool|run)){{0,2}}){_OPTION}*+"
    rf"(?:\0--(?:from|spec)[=\0]{_REQUIREMENT}{_OPTION}*+\0[^\0-][^\0]*|\0(?:{SERVER}|{_REQUIREMENT})))(?=\0|$)"
)

# Folders where `uvx` and `pipx run` keep an environment until they clean up.
_TEMPORARY = re.compile(r"/(?:archive-v\d+|environments-v\d+|builds-v\d+)/|/\.cache/pipx/|/pipx/\.cache/")


@dataclass(frozen=True, slots=True)
class Invocation:
    """A command that starts our server: the program, and the arguments that the server itself gets."""

    program: str
    arguments: tuple[str, ...]


def invocation_of(entry: object) -> Invocation | None:
    """Return how an entry of a client starts our server, or None if it starts something else."""
    command, arguments = object_of(entry).get("command"), object_of(entry).get("args", [])
    if not isinstance(command, str) or not isinstance(arguments, list):
        return None
    words = [str(argument) for argument in cast("list[object]", arguments)]
    start = _START.match("\0".join((program_name(command), *words)))
    return None if start is None else Invocation(command, tuple(words[start[0].count("\0") :]))


def program_name(command: str) -> str:
    """Return the name of a program without its folder and .exe, in lower case, whatever the platform of its path."""
    return PureWindowsPath(command).name.lower().removesuffix(".exe")  # it splits at / and at \


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
            "uvx and pipx run empty the folder of this palimpsest from time to time, and hooks need a path that stays. "
            f"Nothing was changed. Run uv tool install {DISTRIBUTION} or pipx install {DISTRIBUTION} first"
        )
    if not (program := _beside_python(HOOK)).exists():
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

# The name of our entry in the client.
ENTRY_NAME = "palimpsest"

# How clients write that an entry is turned off.
_OFF = (("disabled", True), ("enabled", False))


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
    present = servers_in(client, file, text).get(ENTRY_NAME)
    ours = cast("Mapping[str, Any]", present or {})
    if present is not None and (invocation_of(present) is None or not isinstance(ours.get("env") or {}, Mapping)):
        raise InputError(
            f"{file} has an entry '{ENTRY_NAME}' that does not start this program, or with a faulty env. Nothing was "
            "changed. Rename that entry or remove it, and try again"
        )
    return _with_values(client, file, text, _merged(ours, entry))


def without_entry(client: Client, file: Path, text: str) -> str:
    """Return the text of a file without our entry. Raises ValueError if the file cannot be parsed."""
    if invocation_of(servers_in(client, file, text).get(ENTRY_NAME)) is None:
        return text
    return _with_values(client, file, text, None)


def _with_values(client: Client, file: Path, text: str, values: Mapping[str, Any] | None) -> str:
    """Return the text of a file with these values as our entry, or with None without it."""
    if file.suffix == ".toml":
        return config_files.with_table(text, client.section, ENTRY_NAME, values)
    path = (client.section, ENTRY_NAME)
    return config_files.without_entry(text, path) if values is None else config_files.with_entry(text, path, values)


def is_off(entry: Any) -> str:
    """Return what in an entry of ours keeps the client from starting it, such as "disabled = true", or ""."""
    if invocation_of(entry) is None:
        return ""
    return next((f"{key} = {json.dumps(value)}" for key, value in _OFF if entry.get(key) is value), "")


def _merged(present: Mapping[str, Any], entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return the new entry, turned on, with what a person added to the present one: variables, arguments and others."""
    invocation = invocation_of(present)
    arguments = [*entry.get("args", []), *(invocation.arguments if invocation is not None else ())]
    merged = {"args": arguments, "env": {**object_of(present.get("env")), **entry.get("env", {})}}
    every = {**present, **entry, **merged}
    return {key: value for key, value in every.items() if (value or key not in merged) and (key, value) not in _OFF}


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
    found: list[Handler] = []
    for event, groups in _items(config_files.value_at(text, ("hooks",))):
        for number, group in _items(groups):
            path = ("hooks", event, number)
            inside = [((*path, "hooks", inner), each) for inner, each in _items(object_of(group).get("hooks"))]
            handlers = [(place, object_of(each)) for place, each in ((path, group), *inside)]
            found += [Handler(*each) for each in handlers if HOOK in map(program_name, _programs(each[1]))]
    return found


def with_hooks(hooks: Hooks, text: str, command: Sequence[str]) -> str:
    """Return the text with one handler of ours for each event, which starts this command.

    What a person added to a handler of ours stays. Raises ValueError if the text cannot be parsed.
    """
    if hooks.style == "flat" and config_files.value_at(text, ("version",)) is None:
        text = config_files.with_entry(text, ("version",), 1)
    text = _without_handlers(text, [each for each in handlers_in(text) if each.path[1] not in hooks.events])
    for event in hooks.events:
        text = _with_event(hooks, text, event, command)
    return text


def without_hooks(text: str) -> str:
    """Return the text without our handlers, and without the lists that hold nothing else. Raises ValueError."""
    return _without_handlers(text, handlers_in(text))


def shell_line(words: Sequence[str], client: str) -> str:
    """Return words as one line for the shell in which a client runs its hooks on this platform."""
    if sys.platform != "win32":
        return shlex.join(words)
    line = subprocess.list2cmdline(words)
    return f"& {line}" if client == "gemini" else line  # it uses PowerShell, where a quoted path alone is only a text


def _with_event(hooks: Hooks, text: str, event: str, command: Sequence[str]) -> str:
    present = [handler for handler in handlers_in(text) if handler.path[1] == event]
    text = _without_handlers(text, present[1:])
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


def _without_handlers(text: str, handlers: Sequence[Handler]) -> str:
    """Return the text without some handlers, and without the groups, events and hooks that hold nothing else."""
    for handler in reversed(handlers):  # the last one first: the numbers before it stay the same
        path = handler.path
        while len(path) > 1 and len(config_files.value_at(text, path[:-1])) == 1:
            path = path[:-1]
            if path[-1] == "hooks" and len(path) > 1:
                path = path[:-1]  # a group without handlers does nothing, whatever else it says
        text = config_files.without_entry(text, path)
    return text


def _programs(values: Mapping[str, Any]) -> list[str]:
    """Return what a handler may start: its command, or the first word of it as a shell of either platform reads it."""
    if not isinstance(command := values.get("command"), str):
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
    return [*object_of(values).items(), *enumerate(list_of(values))]


# What `install` and `uninstall` change: the edits of all files of a client.


@dataclass(frozen=True, slots=True)
class Target:
    """The client and the folders that a command works on, and whether it is the project's files."""

    client: Client
    folders: Folders
    in_project: bool

    @property
    def entry_file(self) -> Path:
        """Return the file with the servers. Raises InputError if the client has none in a project."""
        if not self.in_project:
            return self.folders.of_user(self.client.user_file)
        if self.client.project_file is None:
            raise InputError(f"{self.client.title} has no configuration file in a project. Leave --project out")
        return self.folders.of_project(self.client.project_file)

    @property
    def hooks_file(self) -> Path:
        """Return the file with the hooks. Raises InputError if the client runs no hooks."""
        folders, hooks = self.folders, self.hooks
        return folders.of_project(hooks.project_file) if self.in_project else folders.of_user(hooks.user_file)

    @property
    def hooks(self) -> Hooks:
        """Return how the client runs hooks. Raises InputError if it runs none that we can install."""
        if self.client.hooks is None:
            raise InputError(f"{self.client.title} runs no hooks of ours. Nothing was changed. Leave --hooks out")
        return self.client.hooks

    def edits(self, entry: Callable[[str], str], hooks: Callable[[str], str] | None) -> list[FileEdit]:
        """Return the edits that change the entry and, if they are changed, the hooks, which may be in one file."""
        changes = {self.entry_file: [entry]}
        if hooks is not None:
            changes.setdefault(self.hooks_file, []).append(hooks)
        inside = Path(self.folders.project) if self.in_project else None
        return [edit_of(file, of_file, inside=inside) for file, of_file in changes.items()]


def installation(target: Target, env: Mapping[str, str], hook_arguments: Sequence[str] | None) -> list[FileEdit]:
    """Return the edits that install the entry and, with arguments for them, the hooks.

    Raises InputError if a file cannot be read, is not valid, or holds another server under our name.
    """
    client, file, change = target.client, target.entry_file, None
    entry = entry_for(client, env, shared=target.in_project)
    if hook_arguments is not None:
        change = partial(with_hooks, target.hooks, command=[hook_program(), "--client", client.name, *hook_arguments])
    return target.edits(lambda text: with_entry(client, file, text, entry), change)


def removal(target: Target) -> list[FileEdit]:
    """Return the edits that remove the entry and the hooks. Raises InputError as `installation` does."""
    remove_hooks = None if target.client.hooks is None else without_hooks
    return target.edits(lambda text: without_entry(target.client, target.entry_file, text), remove_hooks)


# Where the memory is installed in the clients, our plugin among it, and what is wrong with it.

# How the id of our plugin begins, whatever its marketplace is called.
PLUGIN = "palimpsest@"


def active_plugin(client: Client, folders: Folders) -> bool:
    """Return whether the settings of Claude Code have our plugin turned on. Raises InputError."""
    if client.name != "claude-code" or client.hooks is None:
        return False
    local = folders.of_project(client.hooks.project_file)
    on = False
    for file in (folders.of_user(client.hooks.user_file), local.with_name("settings.json"), local):
        for name, state in object_of(object_of(_parsed(file, config_files.value_at)).get("enabledPlugins")).items():
            on = bool(state) if name.startswith(PLUGIN) else on  # the file nearer to the project decides
    return on


def _parsed(file: Path, parse: Callable[[str], _T]) -> _T:
    """Return what is made of a file's text, "" if there is no file. Raises InputError if it cannot be read."""
    with raised_as(InputError, f"{file} cannot be read", "", ValueError, RecursionError):
        return parse(config_files.read_text(file) or "")


def clients_finding(folders: Folders) -> Finding:
    """Return where the memory is installed, in the files of the user and of the current folder, and what is wrong."""
    parts, faults, notes = list[str](), list[str](), list[str]()
    for client in CLIENTS.values():
        try:
            installed, wrong = _examined(client, folders)
            faults += wrong
            parts += [f"{client.title} ({', '.join(installed)})"] if installed else []
        except InputError as error:
            notes.append(str(error))
    text = ", ".join(parts) if parts else "in no client; palimpsest install CLIENT adds it"
    return Finding("clients", "; ".join([text, *faults, *notes]), ok=not faults)


def _examined(client: Client, folders: Folders) -> tuple[list[str], list[str]]:
    """Return what of ours a client has, and what is wrong with it. Raises InputError if a file cannot be read."""
    installed: dict[str, None] = {}
    faults: dict[str, None] = {}  # the user's file may also be that of the folder
    of_user = Target(client, folders, in_project=False)
    for target in (of_user, Target(client, folders, in_project=True)):
        if target is of_user or client.project_file is not None:
            file = target.entry_file
            entry = _parsed(file, lambda text, file=file: servers_in(client, file, text)).get(ENTRY_NAME)
            if (invocation := invocation_of(entry)) is not None:
                installed["memory"] = None
                faults |= {f"{file}: our entry is turned off ({off})": None} if (off := is_off(entry)) else {}
                where = "" if file == of_user.entry_file else " --project"
                faults |= _missing(file, invocation.program, f"{client.name}{where}")
        if client.hooks is not None:
            file = target.hooks_file
            for handler in _parsed(file, handlers_in):
                installed["hooks"] = None
                where = "" if file == of_user.hooks_file else " --project"
                faults |= _missing(file, handler.program, f"{client.name} --hooks{where}")
    if active_plugin(client, folders):
        installed["plugin"] = None
        if "hooks" in installed:
            advice = "palimpsest uninstall claude-code or /plugin removes one of them"
            faults[f"Claude Code runs the hooks twice, as its settings and as the plugin; {advice}"] = None
    return list(installed), list(faults)


def _missing(file: Path, program: str, arguments: str) -> dict[str, None]:
    """Return the fault of a file that names a program by its whole path which is not there."""
    if not Path(program).is_absolute() or Path(program).exists():
        return {}
    return {f"{file}: {program} no longer exists; palimpsest install {arguments} mends it": None}
