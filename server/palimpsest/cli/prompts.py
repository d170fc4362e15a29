"""The commands for prompts: list, show, check, compare."""

from __future__ import annotations

import difflib
import sys
from typing import Annotated

import typer
from rich.table import Table

from palimpsest.cli.console import guard, out, settings_of
from palimpsest.learn.engine import NEEDED_PROMPTS
from palimpsest.llm.prompts import PromptFiles, shipped_directory

app = typer.Typer(no_args_is_help=True, help="See and check the prompts that a language model is given.")


@app.command("list")
def prompts_list(ctx: typer.Context) -> None:
    """List the prompts: name, version, fingerprint, file."""

    def work() -> None:
        prompts = _shelf(ctx)
        table = Table("prompt", "version", "fingerprint", "file", box=None)
        for name in prompts.needed:
            prompt = prompts.get(name)
            table.add_row(name, str(prompt.version), prompt.fingerprint, str(prompt.path))
        out.print(table)

    guard(work)


@app.command("show")
def promptsshow(ctx: typer.Context, name: str) -> None:
    """Print the prompt file in use."""
    guard(lambda: sys.stdout.write(_shelf(ctx).path(name).read_text("utf-8")))  # verbatim, to be redirected


@app.command("check")
def prompts_check(ctx: typer.Context) -> None:
    """Check every prompt; exit with 1 and the file and variable at fault when one cannot be used."""

    def work() -> None:
        prompts = _shelf(ctx)
        prompts.check()
        out.print(f"{len(prompts.needed)} prompts in order")

    guard(work)


@app.command("diff")
def prompts_diff(ctx: typer.Context, name: Annotated[str | None, typer.Argument()] = None) -> None:
    """Show how your prompts differ from the shipped ones."""

    def work() -> None:
        prompts = _shelf(ctx)
        for each in [name] if name else prompts.needed:
            used, shipped = prompts.path(each), shipped_directory() / f"{each}.md"
            lines = [path.read_text("utf-8").splitlines(keepends=True) for path in (shipped, used)]
            sys.stdout.writelines(difflib.unified_diff(*lines, fromfile=str(shipped), tofile=str(used)))

    guard(work)


def _shelf(ctx: typer.Context) -> PromptFiles:
    return PromptFiles(NEEDED_PROMPTS, settings_of(ctx).prompts_dir)
