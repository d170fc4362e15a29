"""`palimpsest install` and `uninstall`: into the file of a client, and out of it."""

from __future__ import annotations

import difflib
from typing import Annotated, cast

import typer

from palimpsest.cli.clients import config_files
from palimpsest.cli.clients.config_files import Client, Edited
from palimpsest.cli.console import Options, guard, out, plain
from palimpsest.core.settings import CONFIG_VARIABLE, ENV_PREFIX

app = typer.Typer()

InProject = Annotated[bool, typer.Option("--project", help="In this folder's file, for whoever works in it.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show the change and leave the file as it is.")]

THEN = {
    "claude-desktop": "Restart Claude Desktop",
    "claude-code": "Start claude anew and look with /mcp",
    "cursor": "Look in Cursor's settings under MCP",
    "vscode": "Look in VS Code with “MCP: List Servers”",
}


@app.command()
def install(ctx: typer.Context, client: Client, project: InProject = False, dry_run: DryRun = False) -> None:
    """Attach the memory to a client. Options before the command (--user, --data-dir, …) go into its entry."""
    options = cast("Options", ctx.obj)
    given = {f"{ENV_PREFIX}{name.upper()}": str(value) for name, value in options.overrides.items()}
    if options.config is not None:
        given[CONFIG_VARIABLE] = str(options.config.expanduser().absolute())

    def edited() -> Edited:
        entry = config_files.entry_of(client, given, shared=project)
        return config_files.installed(config_files.here(client, in_project=project), entry)

    _carry_out(guard(edited), "is there already, as it should be", dry_run=dry_run)
    if not dry_run:
        out.print(f"{THEN[client]}; then tell it something, begin a new conversation, and ask for it.")


@app.command()
def uninstall(client: Client, project: InProject = False, dry_run: DryRun = False) -> None:
    """Take the memory out of a client's file; what is remembered stays."""
    found = guard(lambda: config_files.uninstalled(config_files.here(client, in_project=project)))
    _carry_out(found, "is not there", dry_run=dry_run)


def _carry_out(edited: Edited, otherwise: str, *, dry_run: bool) -> None:
    file = plain(str(edited.file))
    if not edited.changed:
        out.print(f"{file}: the entry '{config_files.NAME}' {otherwise}", soft_wrap=True)
        return
    if dry_run:
        lines = difflib.unified_diff(
            edited.before.splitlines(), edited.after.splitlines(), str(edited.file), str(edited.file), lineterm=""
        )
        out.print(plain("\n".join(lines)), soft_wrap=True, highlight=False)
        return
    backup = guard(lambda: config_files.write(edited))
    kept = f"; before: {plain(str(backup))}" if backup is not None else ""
    out.print(f"changed: {file}{kept}", soft_wrap=True)
