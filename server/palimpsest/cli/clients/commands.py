"""`palimpsest install` and `palimpsest uninstall`: put the server into a client's configuration file, or remove it."""

from __future__ import annotations

import difflib
from typing import Annotated, cast

import typer

from palimpsest.cli.clients import config_files
from palimpsest.cli.clients.config_files import CLIENTS, Client, FileEdit, client_named, local_config_file
from palimpsest.cli.console import exit_on_error, settings_of
from palimpsest.cli.options import SETUP, Options
from palimpsest.cli.output import print_text
from palimpsest.core.configuration.endpoints import unused_variables_text
from palimpsest.core.errors import InputError, SettingsError
from palimpsest.core.settings import CONFIG_VARIABLE, ENV_PREFIX
from palimpsest.text.control_characters import visible

app = typer.Typer()


def _client(name: str) -> Client:
    try:
        return client_named(name)
    except InputError as error:
        raise typer.BadParameter(visible(str(error))) from error


ClientArgument = Annotated[
    Client, typer.Argument(parser=_client, metavar="CLIENT", help=f"One of {', '.join(CLIENTS)}.")
]
InProject = Annotated[
    bool, typer.Option("--project", help="Use the file of the current folder, for everyone who works in it.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show the change and write nothing.")]


@app.command(rich_help_panel=SETUP)
def install(ctx: typer.Context, client: ClientArgument, project: InProject = False, dry_run: DryRun = False) -> None:
    """Add the memory to a client. --user, --data-dir, --config, --agent and --run go into its entry."""
    options = cast("Options", ctx.obj)
    env = {f"{ENV_PREFIX}{name.upper()}": str(value) for name, value in options.overrides.items()}
    if options.config is not None:
        env[CONFIG_VARIABLE] = str(options.config)

    def edit() -> FileEdit:
        entry = config_files.entry_for(client, env, shared=project)
        return config_files.with_entry(client, local_config_file(client, in_project=project), entry)

    next_step = f"{client.next_step} Then tell it something, start a new conversation, and ask for it."
    _apply(exit_on_error(edit), "is already up to date", next_step, *_on_unused_variables(ctx), dry_run=dry_run)


def _on_unused_variables(ctx: typer.Context) -> list[str]:
    """Return what a person should know of OpenAI's variables that are set and not followed, or why it is unknown."""
    try:
        unused = settings_of(ctx).unused_openai_variables
    except SettingsError as error:
        return [f"The server will not start with these settings: {error}"]
    return [f"{unused_variables_text(unused)}."] if unused else []


@app.command(rich_help_panel=SETUP)
def uninstall(client: ClientArgument, project: InProject = False, dry_run: DryRun = False) -> None:
    """Remove the memory from a client's file. The stored memories stay."""
    edit = exit_on_error(lambda: config_files.without_entry(client, local_config_file(client, in_project=project)))
    _apply(edit, "does not exist", dry_run=dry_run)


def _apply(edit: FileEdit, unchanged_text: str, *next_steps: str, dry_run: bool) -> None:
    """Write an edit and print what was done and what comes next, or, with `dry_run`, print the difference."""
    if not edit.has_changes:
        _print(f"{edit.file}: the entry '{config_files.ENTRY_NAME}' {unchanged_text}", *(() if dry_run else next_steps))
        return
    if dry_run:
        lines = difflib.unified_diff(
            edit.before.splitlines(), edit.after.splitlines(), str(edit.file), str(edit.file), lineterm=""
        )
        _print(*lines)
        return
    backup = exit_on_error(lambda: config_files.write(edit))
    copy = f"; the old file is in {backup}" if backup is not None else ""
    done = f"changed: {edit.file}{copy}"
    _print(done, *next_steps, done=done)


def _print(*lines: str, done: str = "") -> None:
    print_text(*lines, done=done, soft_wrap=True)
