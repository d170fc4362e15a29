"""What all commands share: global options, an open memory, one-line errors, and output as tables or JSON."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar, cast

import anyio
import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress
from rich.table import Table

from palimpsest.core.errors import PalimpsestError
from palimpsest.core.models import Hit
from palimpsest.core.protocols import Progress
from palimpsest.core.settings import Settings, load_settings
from palimpsest.memory import Memory, open_memory
from palimpsest.recall.pipeline import SearchResult
from palimpsest.server.replies import render
from palimpsest.server.replies.notes import short

out = Console()
err = Console(stderr=True)

CALLER = "cli"

_T = TypeVar("_T")

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@dataclass(frozen=True, slots=True)
class Options:
    """The global options, which stand before the command."""

    config: Path | None
    overrides: dict[str, Any]


def settings_of(ctx: typer.Context) -> Settings:
    """Return the settings from files, environment and global options. Raises SettingsError."""
    options = cast("Options", ctx.obj)
    return load_settings(options.config, **options.overrides)


def with_memory(
    ctx: typer.Context, work: Callable[[Memory], Awaitable[None]], settings: Settings | None = None
) -> None:
    """Run asynchronous work with an open memory. Exit as `exit_on_error` does."""

    async def work_with_memory() -> None:
        async with open_memory(settings or settings_of(ctx), background=False) as memory:
            await work(memory)

    run_async(work_with_memory)


def run_async(work: Callable[[], Awaitable[_T]]) -> _T:
    """Run asynchronous work and return its result. Exit as `exit_on_error` does."""

    async def result() -> _T:
        return await work()

    return exit_on_error(lambda: anyio.run(result))


def exit_on_error(work: Callable[[], _T]) -> _T:
    """Run the work and return its result. A PalimpsestError becomes one line on stderr and exit code 1."""
    try:
        return work()
    except* PalimpsestError as group:
        error: BaseException = group
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        err.print(f"[red]error:[/] {escape(str(error))}")
    raise typer.Exit(1)


def print_result(as_json: bool, content: dict[str, Any], print_text: Callable[[], object]) -> None:  # noqa: FBT001 - the option's value
    """Print the content as JSON, or call `print_text` to print it for people."""
    if as_json:
        print(json.dumps(content, ensure_ascii=False, indent=2))  # noqa: T201 - for programs: no markup, no wrapping
    else:
        print_text()


def print_notes(notes: tuple[str, ...]) -> None:
    """Print each note on a line."""
    for note in notes:
        out.print(escape(f"note: {note}"))


def hits_table(hits: tuple[Hit, ...], title: str) -> Table:
    """Return hits as a table."""
    table = Table("id", "date", "who", "what", title=escape(title), title_justify="left", box=None)
    for hit in hits:
        table.add_row(short(hit.id), f"{hit.at:%Y-%m-%d}", escape(hit.name or hit.role), escape(render.text_of(hit)))
    return table


def print_search(result: SearchResult, query: str) -> None:
    """Print the hits of a search as a table, with the relevance of each, and what was left out."""
    if result.hits and not result.confident:
        out.print(render.WEAK)
    columns = ("id", "relevance", "date", "who", "what")
    table = Table(*columns, title=escape(query), title_justify="left", box=None)
    for hit in result.hits:
        who, text = escape(hit.name or hit.role), escape(render.text_of(hit))
        table.add_row(short(hit.id), f"{hit.relevance:.2f}", f"{hit.at:%Y-%m-%d}", who, text)
        if hit.score_parts:
            table.add_row("", "", "", "", f"{hit.score:.3f}: {render.explanation(hit)}")
    out.print(table)
    if result.omitted:
        out.print(f"({result.omitted} more did not fit; a smaller --limit leaves them more room)")
    print_notes(result.notes)
    print_shortened(result.hits)


def print_shortened(hits: tuple[Hit, ...]) -> None:
    """Print how to get the whole texts, if a text is cut."""
    if any(hit.length is not None for hit in hits):
        out.print('a text that ends in "…" is longer; palimpsest history ID prints all of it')


@contextmanager
def progress_bar(what: str) -> Generator[Progress]:
    """Give a callback that shows the progress of the work. It shows nothing if stderr is not a terminal."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with RichProgress(*columns, console=err, transient=True, disable=not err.is_terminal) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
