"""`palimpsest prompts`: list, show, check and compare the prompt files."""

from __future__ import annotations

import difflib
from typing import Annotated

import typer

from palimpsest.cli.console import exit_on_error, settings_of
from palimpsest.cli.output import plain, print_file, print_text, printing, table
from palimpsest.learn.engine import NEEDED_PROMPTS
from palimpsest.llm.prompts import PromptFiles, shipped_directory

app = typer.Typer(no_args_is_help=True, help="Show and check the prompts for the language model.")


@app.command("list")
def prompts_list(ctx: typer.Context) -> None:
    """List the prompts with version, fingerprint and file."""

    def work() -> None:
        prompts = _prompt_files(ctx)
        rows = table("prompt", "version", "fingerprint", "file")
        for name in prompts.needed:
            prompt = prompts.get(name)
            rows.add_row(*map(plain, (name, str(prompt.version), prompt.fingerprint, str(prompt.path))))
        print_text(rows)

    exit_on_error(work)


@app.command("show")
def prompts_show(ctx: typer.Context, name: str) -> None:
    """Print a prompt file as it is used."""
    text = exit_on_error(lambda: _prompt_files(ctx).path(name).read_text("utf-8"))
    with printing():
        print_file([text])


@app.command("check")
def prompts_check(ctx: typer.Context) -> None:
    """Check every prompt. If one cannot be used, name the file and the variable and exit with 1."""

    def work() -> None:
        prompts = _prompt_files(ctx)
        prompts.check()
        print_text(f"{len(prompts.needed)} valid prompts")

    exit_on_error(work)


@app.command("diff")
def prompts_diff(ctx: typer.Context, name: Annotated[str | None, typer.Argument()] = None) -> None:
    """Show how your prompts differ from the shipped ones."""

    def work() -> None:
        prompts = _prompt_files(ctx)
        for prompt_name in [name] if name else prompts.needed:
            used, shipped = prompts.path(prompt_name), shipped_directory() / f"{prompt_name}.md"
            lines = [path.read_text("utf-8").splitlines(keepends=True) for path in (shipped, used)]
            diff = difflib.unified_diff(*lines, fromfile=str(shipped), tofile=str(used))
            with printing():
                print_file(diff)

    exit_on_error(work)


def _prompt_files(ctx: typer.Context) -> PromptFiles:
    return PromptFiles(NEEDED_PROMPTS, settings_of(ctx).prompts_dir)
