"""What all commands share: the settings, an open memory, one-line errors, and the progress of long work.

What only some commands use is imported inside functions: the version and the help are printed at once.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, TypeVar, cast

import anyio
import typer

from palimpsest.cli.options import Options
from palimpsest.cli.output import err, print_error, print_note
from palimpsest.core.errors import PalimpsestError

if TYPE_CHECKING:
    from palimpsest.core.protocols import Progress
    from palimpsest.core.settings import Settings
    from palimpsest.memory import Memory

CALLER = "cli"

INTAKE_SECONDS = 0.2
"""After this long a command begins no further batch of what hooks captured. Set by hand: nobody notices it."""

OTHER_SCOPE = frozenset({"user_id", "project", "agent_id", "run_id"})
"""With one of these options a command works in another scope than the one that captured conversations belong to."""

_T = TypeVar("_T")

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def settings_of(ctx: typer.Context) -> Settings:
    """Return the settings from files, environment and the options of the call. Raises SettingsError."""
    from palimpsest.core.settings import load_settings  # noqa: PLC0415 - see above

    options = cast("Options", ctx.obj)
    return load_settings(options.config, **options.overrides)


def with_memory(
    ctx: typer.Context, work: Callable[[Memory], Awaitable[None]], settings: Settings | None = None
) -> None:
    """Run asynchronous work with an open memory. Exit as `exit_on_error` does."""
    from palimpsest.memory import open_memory  # noqa: PLC0415 - see above

    async def work_with_memory() -> None:
        async with open_memory(settings or settings_of(ctx), background=False) as memory, memory.briefs.kept_current():
            for note in await memory.projects.news(memory.scope):
                print_note(note)
            if settings is None and OTHER_SCOPE.isdisjoint(cast("Options", ctx.obj).overrides):
                await _take_in(memory)
            await work(memory)

    run_async(work_with_memory)


async def _take_in(memory: Memory) -> None:
    """Take in what hooks captured. The command goes on after a moment, and whatever happens."""
    try:
        await memory.capture.take_in(INTAKE_SECONDS)
    except (PalimpsestError, OSError) as error:
        print_note(f"what hooks captured waits in the spool: {error}")


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
        error: PalimpsestError | BaseExceptionGroup[PalimpsestError] = group
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        from palimpsest.server.replies.notes import COMMANDS, error_text  # noqa: PLC0415 - see above

        print_error(error_text(error, COMMANDS))
    raise typer.Exit(1)


@contextmanager
def progress_bar(what: str) -> Generator[Progress]:
    """Give a callback that shows the progress of the work. It shows nothing if stderr is not a terminal."""
    from rich.progress import (  # noqa: PLC0415 - see above
        BarColumn,
        MofNCompleteColumn,
        TextColumn,
        TimeRemainingColumn,
    )
    from rich.progress import Progress as RichProgress  # noqa: PLC0415 - see above

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with RichProgress(*columns, console=err, transient=True, disable=not err.is_terminal) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
