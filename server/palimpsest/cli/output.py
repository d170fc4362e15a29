"""Print what commands return: user text literally, with control characters visible; tables; JSON.

A reply that cannot be written never hides what was done: stderr says it, and the exit code is `LOST_OUTPUT`.
"""

from __future__ import annotations

import codecs
import errno
import io
import json
import os
import re
import sys
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, is_dataclass
from datetime import datetime
from typing import Any, NoReturn, TextIO, TypeAlias, cast

import typer
from rich.cells import cell_len, chop_cells, split_graphemes
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from palimpsest.core.clock import iso
from palimpsest.text.display import ELLIPSIS, counted, visible, visible_json

# Tables that fit any terminal.
#
# The last column takes the width that is left; where that is too little, each row stands as lines of its own. Widths
# are those of the terminal, where a Chinese or Japanese character takes two columns and a combining mark none.

GAP = 2
"""The columns of the terminal between two columns of a table."""

MIN_LAST = 24
"""The least width of the last column. With less, a sentence becomes a ribbon."""

MAX_TEXT = 240
"""How wide a text of a hit may be before it is cut. In a table of 80 columns it takes five lines."""

MAX_NAME = 16
"""How wide the name of a speaker may be before it is cut: most names are shorter."""


_WIDE = "\u2e80-\u30ff\u3400-\u9fff\uf900-\ufaff\uff00-\uff60\U00020000-\U0003ffff"
_CLOSING = "\u3001\u3002\u300b\u300d\u300f\u3011\uff01\uff09\uff0c\uff1a\uff1b\uff1f"
_UNIT = re.compile(rf"[{_WIDE}][{_CLOSING}]*\s*|[^\s{_WIDE}]+[{_CLOSING}]*\s*|\s+")
"""What stays on one line: a Chinese or Japanese character or a word, with what closes it. Korean has spaces."""


class Rows:
    """A table that Rich can print at any width. A cell that is no text for Rich is printed as it is."""

    def __init__(self, *columns: str, title: str = "") -> None:
        self._columns = columns
        self._title = Text(visible(title), style="italic") if title else None
        self._rows: list[tuple[Text, ...]] = []

    def add_row(self, *cells: object) -> None:
        """Add a row with a cell for each column."""
        self._rows.append(tuple(cell if isinstance(cell, Text) else plain(str(cell)) for cell in cells))

    def __rich_console__(self, _console: object, options: ConsoleOptions) -> RenderResult:
        """Yield the title, then the rows side by side, or one below the other on a narrow terminal."""
        if self._title is not None:
            yield self._title
        *widths, last = (
            max(map(cell_len, (column, *(line for cell in cells for line in cell.plain.split("\n")))))
            for column, *cells in zip(self._columns, *self._rows, strict=True)
        )
        is_wide = sum(widths) + GAP * len(widths) + min(MIN_LAST, last) <= options.max_width
        yield self._side_by_side(widths, options.max_width) if is_wide else self._stacked(options.max_width)

    def _side_by_side(self, widths: list[int], max_width: int) -> Table:
        grid = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0))
        for name, width in zip(self._columns, widths, strict=False):
            grid.add_column(name, width=width, no_wrap=True)
        grid.add_column(self._columns[-1], overflow="fold")
        left = max_width - sum(widths) - GAP * len(widths)
        for *first, last in self._rows:
            grid.add_row(*first, Text(wrapped(last.plain, left)))
        return grid

    def _stacked(self, max_width: int) -> Table:
        """Return each row as lines of name and value, with an empty line between two rows."""
        grid = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), show_header=False)
        grid.add_column(style="bold", overflow="fold")
        grid.add_column(overflow="fold")
        left = max(max_width - max(map(cell_len, self._columns)) - GAP, 1)
        for number, row in enumerate(self._rows):
            if number:
                grid.add_row("", "")
            for name, cell in zip(self._columns, row, strict=True):
                if cell.plain:
                    grid.add_row(name, Text(wrapped(cell.plain, left)))
        return grid


def wrapped(text: str, width: int, *, keeps_words: bool = False) -> str:
    """Return a text in lines of at most this width: broken at spaces and between Chinese or Japanese characters.

    Punctuation that closes never begins a line. A word that is too long for a line is broken anywhere; with
    `keeps_words` it is left to the terminal, so that a path can be copied.
    """
    return "\n".join(line for paragraph in text.split("\n") for line in _lines(paragraph, width, keeps_words))


def _lines(paragraph: str, width: int, keeps_words: bool) -> Iterator[str]:
    line = ""
    for match in _UNIT.finditer(paragraph):
        unit = match[0]
        if cell_len(line + unit.rstrip()) <= width:
            line += unit
            continue
        if line.rstrip():
            yield line.rstrip()
        *full, line = chop_cells(unit, width) if cell_len(unit.rstrip()) > width and not keeps_words else [unit]
        yield from full
    yield line.rstrip()


def cut_to_width(text: str, width: int) -> str:
    """Return a text that is at most `width` columns wide as it is, and of a wider one the beginning and "…".

    A character is never parted from its combining marks, nor an emoji from the parts it consists of.
    """
    if cell_len(text) <= width:
        return text
    spans, _ = split_graphemes(text)
    end, left = 0, width - cell_len(ELLIPSIS)
    for _, stop, cells in spans:
        left -= cells
        if left < 0:
            break
        end = stop
    return text[:end].rstrip() + ELLIPSIS


LOST_OUTPUT = 3
"""The exit code of a command that did its work and could not print its reply; 1 and 2 mean that it failed."""

Part: TypeAlias = str | Rows
"""A part of a reply: a text, or a table."""


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


def confirm(question: str) -> None:
    """Ask a person whether to go on. Raises typer.Abort if not."""
    typer.confirm(visible(question), abort=True, err=True)


def counts(memories: int, messages: int) -> str:
    """Return how many memories and messages there are, in words."""
    return f"{counted(memories, 'memory')} and {counted(messages, 'message')}"


def notes_text(notes: Sequence[str]) -> list[str]:
    """Return each note as a line."""
    return [f"note: {note}" for note in notes]
