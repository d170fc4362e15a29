"""Our hooks in a client's file: what a handler holds, which ones are ours, and the file with or without them.

A handler belongs to us only if it starts `palimpsest-hook`. All other handlers stay as they are.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from palimpsest.cli.clients import jsonc
from palimpsest.cli.clients.catalog import Event, Hooks
from palimpsest.cli.clients.programs import HOOK, program_name

_HANDLER_NAME = "palimpsest"
_WINDOWS_WORD = re.compile(r'&?\s*(?:"([^"]*)"|(\S+))')


@dataclass(frozen=True, slots=True)
class Handler:
    """A handler of ours in a file: the path to it, and its values."""

    path: tuple[jsonc.Step, ...]
    values: Mapping[str, Any]

    @property
    def program(self) -> str:
        """Return the program that it starts."""
        return next(program for program in _programs(self.values) if program_name(program) == HOOK)


def handlers_in(text: str) -> list[Handler]:
    """Return our handlers of all events, in groups and without. Raises ValueError if the text cannot be parsed."""
    events = jsonc.value_at(text, ("hooks",))
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
    if hooks.style == "flat" and jsonc.value_at(text, ("version",)) is None:
        text = jsonc.with_entry(text, ("version",), 1)
    names = {event.name for event in hooks.events}
    for handler in reversed(handlers_in(text)):
        if handler.path[1] not in names:
            text = _without(text, handler)
    for event in hooks.events:
        text = _with_event(hooks, text, event, command)
    return text


def without_hooks(text: str) -> str:
    """Return the text without our handlers, and without the lists that hold nothing else. Raises ValueError."""
    for handler in reversed(handlers_in(text)):  # the last one first: the numbers before it stay the same
        text = _without(text, handler)
    return text


def shell_line(words: Sequence[str], client: str) -> str:
    """Return words as one line for the shell in which a client runs its hooks on this platform."""
    if sys.platform != "win32":
        return shlex.join(words)
    line = subprocess.list2cmdline(words)
    return f"& {line}" if client == "gemini" else line  # it uses PowerShell, where a quoted path alone is only a text


def _with_event(hooks: Hooks, text: str, event: Event, command: Sequence[str]) -> str:
    present = [handler for handler in handlers_in(text) if handler.path[1] == event.name]
    for handler in reversed(present[1:]):
        text = _without(text, handler)
    values = _handler(hooks, event, command)
    if present:
        started = {key: value for key, value in values.items() if key in {"type", "command", "args"}}
        kept = {key: value for key, value in present[0].values.items() if key != "args"}
        return jsonc.with_entry(text, present[0].path, {**values, **kept, **started})
    number = len(_items(jsonc.value_at(text, ("hooks", event.name))))
    group = values if hooks.style == "flat" else {"hooks": [values]}
    return jsonc.with_entry(text, ("hooks", event.name, number), group)


def _handler(hooks: Hooks, event: Event, command: Sequence[str]) -> dict[str, Any]:
    """Return what starts our hook at an event."""
    if hooks.style == "exec":
        return {"type": "command", "command": command[0], "args": list(command[1:]), "timeout": event.timeout}
    line = shell_line(command, command[command.index("--client") + 1])
    if hooks.style == "flat":
        return {"command": line, "timeout": event.timeout}
    name = {"name": _HANDLER_NAME} if hooks.named else {}
    return {**name, "type": "command", "command": line, "timeout": event.timeout}


def _without(text: str, handler: Handler) -> str:
    """Return the text without a handler, and without the group, the event and the hooks that hold nothing else."""
    path = handler.path
    while len(path) > 1 and len(jsonc.value_at(text, path[:-1])) == 1:
        path = path[:-1]
        if path[-1] == "hooks" and len(path) > 1:
            path = path[:-1]  # a group without handlers does nothing, whatever else it says
    return jsonc.without_entry(text, path)


def _ours(path: tuple[jsonc.Step, ...], handler: object) -> list[Handler]:
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
