"""What commands print: people's text as it is, never as markup, with control characters visible; tables; JSON.

A reply that cannot be written never hides what was done: stderr says it, and the exit code is `LOST_OUTPUT`.
"""

from __future__ import annotations

import codecs
import errno
import io
import json
import os
import sys
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn, TextIO, TypeAlias, cast

import typer
from rich.console import Console
from rich.text import Text

from palimpsest.cli.tables import Rows, wrapped
from palimpsest.text.control_characters import visible, visible_json

LOST_OUTPUT = 3
"""The exit code of a command that did its work and could not print its reply; 1 and 2 mean that it failed."""

Part: TypeAlias = str | Rows
"""A part of a reply: a text, or a table of `plain` texts."""


class _Terminal(Console):
    """A console that raises BrokenPipeError; Rich's own exits with 1."""

    def on_broken_pipe(self) -> NoReturn:
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))


out = _Terminal()
err = _Terminal(stderr=True)


def prepare_streams() -> None:
    """Make every text printable: what an encoding lacks is escaped, and a closed stream swallows what it is given."""
    if sys.stdout is None:
        sys.stdout = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - open until the process ends
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def utf8_output() -> TextIO:
    """Return standard output, from now on in UTF-8 whatever its encoding was: for what is a file in UTF-8."""
    stream: Any = sys.stdout
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    return cast("TextIO", stream)


def print_file(lines: Iterable[str]) -> None:
    """Print the lines of a file word for word, so that they can be redirected; on a terminal visibly."""
    stream = utf8_output()
    stream.writelines(map(visible, lines) if stream.isatty() else lines)


def plain(text: str) -> Text:
    """Return a text that is printed as it is, with its control characters visible."""
    return Text(visible(text))


def table(*columns: str, title: str = "") -> Rows:
    """Return an empty table. Its cells must be `plain`."""
    return Rows(columns, title)


def print_error(text: str) -> None:
    """Print an error on stderr. The terminal wraps it. If stderr cannot be written either, the exit code has to do."""
    _print_on_stderr(Text.assemble(("error:", "red"), " ", visible(text)))


def print_note(text: str) -> None:
    """Print a note on stderr, which does not get between the lines of a reply."""
    _print_on_stderr(Text(visible(f"note: {text}")))


def _print_on_stderr(text: Text) -> None:
    try:
        err.print(text, soft_wrap=True)
    except OSError:
        _discard(sys.stderr)


def _discard(stream: TextIO) -> None:
    """Discard what a stream still holds, which Python would try to write once more at its end."""
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def print_result(
    as_json: bool,  # noqa: FBT001 - the option's value
    content: dict[str, Any],
    *parts: Part,
    done: str = "",
    soft_wrap: bool = False,
) -> None:
    """Print the content as JSON, or the parts as `print_text` does.

    `done`: what the command changed, for stderr if the reply cannot be written. Exits as `printing` does.
    """
    if not as_json:
        print_text(*parts, done=done, soft_wrap=soft_wrap)
        return
    with printing(done):
        is_ascii = not codecs.lookup(sys.stdout.encoding or "utf-8").name.startswith("utf")
        print(visible_json(json.dumps(content, ensure_ascii=is_ascii, indent=2)))  # noqa: T201 - for programs: not wrapped


def print_text(*parts: Part, done: str = "", soft_wrap: bool = False) -> None:
    """Print the parts for people; with `soft_wrap` the terminal wraps long lines, so that a path can be copied."""
    with printing(done):
        for part in parts:
            if isinstance(part, str) and not soft_wrap:
                out.print(Text(wrapped(visible(part), out.width, keeps_words=True)), soft_wrap=True)
            else:
                out.print(plain(part) if isinstance(part, str) else part, soft_wrap=soft_wrap)


@contextmanager
def printing(done: str = "") -> Generator[None]:
    """Print within the block; if that fails, say on stderr what was done, and exit with `LOST_OUTPUT`.

    Without `done`, a pipe whose reader has gone is no error: nothing changed, and nobody wants the rest.
    """
    try:
        yield
        sys.stdout.flush()
    except OSError as error:
        _discard(sys.stdout)
        if not done and isinstance(error, BrokenPipeError):
            return
        kept = f". This was done and is kept: {done}" if done else ""
        print_error(f"standard output cannot be written ({error.strerror}){kept}")
        raise typer.Exit(LOST_OUTPUT) from error


def notes_text(notes: Sequence[str]) -> list[str]:
    """Return each note as a line."""
    return [f"note: {note}" for note in notes]
