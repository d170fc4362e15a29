"""Print what commands return: user text literally, with control characters visible; tables; JSON.

A reply that cannot be written never hides what was done: stderr says it, and the exit code is `LOST_OUTPUT`.
"""

import codecs
import errno
import io
import json
import os
import sys
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, is_dataclass
from datetime import datetime
from typing import Any, NoReturn, TextIO, TypeAlias, cast

import typer
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from palimpsest.core.clock import iso
from palimpsest.text.display import counted, visible, visible_json

# Tables that fit any terminal. Widths are those of the terminal, where a Chinese character takes two columns.

# The columns of the terminal between two columns of a table.
GAP = 2

# How wide a text of a hit may be before it is cut. In a table of 80 columns it takes five lines.
MAX_TEXT = 240

# How wide the name of a speaker may be before it is cut: most names are shorter.
MAX_NAME = 16


class Rows:
    """A table that Rich can print at any width: the widest columns are folded first, and no letter is lost."""

    def __init__(self, *columns: str, title: str = "") -> None:
        self._title = Text(visible(title), style="italic") if title else None
        self._table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0))
        for column in columns:
            self._table.add_column(column, overflow="fold")

    def add_row(self, *cells: object) -> None:
        """Add a row with a cell for each column. A cell that is no text for Rich is printed as it is."""
        self._table.add_row(*(cell if isinstance(cell, Text) else plain(str(cell)) for cell in cells))

    def __rich_console__(self, _console: object, _options: ConsoleOptions) -> RenderResult:
        """Yield the title, then the rows."""
        if self._title is not None:
            yield self._title
        yield self._table


def cut_to_width(text: str, width: int) -> str:
    """Return a text that is at most `width` columns wide as it is, and of a wider one the beginning and "…"."""
    shown = Text(text)
    shown.truncate(width, overflow="ellipsis")
    return shown.plain


# The exit code of a command that did its work and could not print its reply; 1 and 2 mean that it failed.
LOST_OUTPUT = 3

# A part of a reply: a text, or a table.
Part: TypeAlias = str | Rows


class _Terminal(Console):
    """A console that raises BrokenPipeError; Rich's own exits with 1."""

    def on_broken_pipe(self) -> NoReturn:
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))


out = _Terminal()
err = _Terminal(stderr=True)


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


def _as_json(value: object) -> Any:
    """Return a value that JSON has no form for as one that it has."""
    if isinstance(value, datetime):
        return iso(value)
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    return dict(cast("Mapping[str, Any]", value)) if isinstance(value, Mapping) else str(value)


def print_json(content: Mapping[str, Any], done: str) -> None:
    """Print the content as JSON, which a program reads: not wrapped."""
    with printing(done):
        is_ascii = not codecs.lookup(sys.stdout.encoding or "utf-8").name.startswith("utf")
        text = json.dumps(content, ensure_ascii=is_ascii, indent=2, default=_as_json)
        print(visible_json(text))  # noqa: T201 - see above


def print_text(*parts: Part, done: str = "") -> None:
    """Print the parts for people. The terminal wraps the lines of texts, so that a path can be copied."""
    with printing(done):
        for part in parts:
            out.print(plain(part) if isinstance(part, str) else part, soft_wrap=isinstance(part, str))


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


def confirm(question: str) -> None:
    """Ask a person whether to go on. Raises typer.Abort if not."""
    typer.confirm(visible(question), abort=True, err=True)


def counts(memories: int, messages: int) -> str:
    """Return how many memories and messages there are, in words."""
    return f"{counted(memories, 'memory')} and {counted(messages, 'message')}"


def waiting_text(texts: int) -> list[str]:
    """Return how many texts wait to be embedded as a line, and what does it; nothing if none does."""
    line = f"To be embedded, and found by words until then: {counted(texts, 'text')}."
    return [f"{line} A server does it in the background, palimpsest rebuild does it now."] if texts else []


def notes_text(notes: Sequence[str]) -> list[str]:
    """Return each note as a line."""
    return [f"note: {note}" for note in notes]
