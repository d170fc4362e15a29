"""Our programs as commands of a client: where they are on this machine, and which commands start them."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath, PureWindowsPath
from typing import Any, cast

from palimpsest.core.errors import InputError

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
