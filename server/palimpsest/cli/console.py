"""What the commands share: the options before the command, an open memory, results for people and for programs."""

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
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress
from rich.table import Table

from palimpsest.core.errors import PalimpsestError
from palimpsest.core.models import Hit
from palimpsest.core.protocols import Progress
from palimpsest.core.settings import Settings, load_settings
from palimpsest.memory import Memory, open_memory
from palimpsest.server.replies import render
from palimpsest.server.replies.notes import short

out = Console()
err = Console(stderr=True)

CALLER = "cli"

_T = TypeVar("_T")

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@dataclass(frozen=True, slots=True)
class Options:
    """Hold the options that stand before the command."""

    config: Path | None
    overrides: dict[str, Any]


def settings_of(ctx: typer.Context) -> Settings:
    """Return the settings that files, environment and options come to. Raises SettingsError."""
    options = cast("Options", ctx.obj)
    return load_settings(options.config, **options.overrides)


def with_memory(
    ctx: typer.Context, work: Callable[[Memory], Awaitable[None]], settings: Settings | None = None
) -> None:
    """Do work with an open memory; our errors become one line on stderr and exit code 1."""

    async def opened() -> None:
        async with open_memory(settings or settings_of(ctx), background=False) as memory:
            await work(memory)

    run(opened)


def run(work: Callable[[], Awaitable[_T]]) -> _T:
    """Run asynchronous work; our errors become one line on stderr and exit code 1."""

    async def awaited() -> _T:
        return await work()

    return guard(lambda: anyio.run(awaited))


def guard(work: Callable[[], _T]) -> _T:
    """Do the work; our errors become one line on stderr and exit code 1."""
    try:
        return work()
    except* PalimpsestError as group:
        error: BaseException = group
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        err.print(f"[red]error:[/] {plain(str(error))}")
    raise typer.Exit(1)


def show(as_json: bool, content: dict[str, Any], table: Callable[[], object]) -> None:  # noqa: FBT001 - the option's value
    """Print the content as JSON, or what `table` prints."""
    if as_json:
        print(json.dumps(content, ensure_ascii=False, indent=2))  # noqa: T201 - for programs: no markup, no wrapping
    else:
        table()


def show_notes(notes: tuple[str, ...]) -> None:
    """Print notes, a line each."""
    for note in notes:
        out.print(plain(f"note: {note}"))


def hits_table(hits: tuple[Hit, ...], title: str) -> Table:
    """Return hits as a table."""
    table = Table("id", "date", "who", "what", title=plain(title), title_justify="left", box=None)
    for hit in hits:
        text = " ".join(hit.text.split())
        table.add_row(short(hit.id), f"{hit.at:%Y-%m-%d}", plain(hit.name or hit.role), plain(text))
        if hit.score_parts:
            table.add_row("", "", "", f"{hit.score:.3f}: {render.explanation(hit)}")
    return table


def plain(text: str) -> str:
    """Return a text in which rich sees no markup."""
    return text.replace("[", "\\[")


@contextmanager
def progress(what: str) -> Generator[Progress]:
    """Give a function that shows how many of how many are done; silent where nobody watches."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with RichProgress(*columns, console=err, transient=True, disable=not err.is_terminal) as shown:
        task = shown.add_task(what, total=None)
        yield lambda done, total: shown.update(task, completed=done, total=total)
