"""The commands move and migrate, which work on the ledger as a whole."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from pydantic import SecretStr

from palimpsest.care.transfer.move import Moved, PendingMigration, migrate, move_ledger, pending_migration
from palimpsest.cli.console import AsJson, exit_on_error, progress_bar, settings_of
from palimpsest.cli.options import MOVING, absolute
from palimpsest.cli.output import print_result
from palimpsest.core.clock import now
from palimpsest.core.settings import Settings
from palimpsest.text.control_characters import visible
from palimpsest.text.counting import counted

app = typer.Typer()


@app.command("move", rich_help_panel=MOVING)
def move_(
    ctx: typer.Context,
    to: Annotated[
        str, typer.Option(metavar="URL|FILE", help="The URL of an empty PostgreSQL database, or a new file.")
    ],
    as_json: AsJson = False,
) -> None:
    """Copy the whole ledger, with all users, to PostgreSQL or back to a file, and compare every row.

    Clients may go on using the ledger. If the command is interrupted, run it again: it
    goes on where it was. The ledger is not changed, and the reply says what to set.
    """
    settings = exit_on_error(lambda: settings_of(ctx))
    target = SecretStr(to) if "://" in to else absolute(to)
    moved = exit_on_error(lambda: move_ledger(settings, target, progress_bar, now))
    content = {"to": moved.location, "until": moved.until.isoformat(), "rows": dict(moved.rows)}
    done = (
        f"copied {counted(moved.rows['memories'], 'memory')}, {counted(moved.rows['messages'], 'message')} and all "
        f"that belongs to them ({counted(sum(moved.rows.values()), 'row')}) to {moved.location}; every row was compared"
    )
    print_result(as_json, content, done, *_next_steps(settings, target, moved), done=done)


def _next_steps(settings: Settings, target: Path | SecretStr, moved: Moved) -> list[str]:
    """Return what to set, and what stays where it was."""
    if isinstance(target, Path):
        setting = f"history_db_path = {json.dumps(str(target))} in place of ledger_url"
    else:
        setting = 'ledger_url = "the URL that was given here" (or the variable PALIMPSEST_LEDGER_URL)'
    source = settings.ledger_path if settings.ledger_url is None else "the database it was copied from"
    return [
        f"To use it, set {setting}, and restart all clients. Until then they go on writing to {source}, which is "
        f"unchanged: what they wrote after {moved.until:%H:%M:%S} UTC is not in the copy.",
        f"What is not in a ledger stays in {settings.data_dir}: access tokens, what hooks captured, backups. The "
        "vector index is rebuilt by the next client.",
    ]


@app.command("migrate", rich_help_panel=MOVING)
def migrate_(
    ctx: typer.Context,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be done, and change nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask whether there is a backup.")] = False,
    as_json: AsJson = False,
) -> None:
    """Bring the schema of the ledger up to date, as a new version may need.

    A file is backed up first; it is also migrated whenever it is opened. A database that
    servers share is migrated by this command alone: stop them, and copy it with pg_dump.
    """
    settings = exit_on_error(lambda: settings_of(ctx))
    pending = exit_on_error(lambda: pending_migration(settings))
    content = {
        "from": pending.revision,
        "steps": [{"to": step.revision, "purpose": step.purpose} for step in pending.steps],
        "sql": pending.sql,
        "done": bool(pending.steps) and not dry_run,
    }
    if not pending.steps or dry_run:
        print_result(as_json, content, *_plan(pending))
        return
    if pending.dump_command and not yes:
        question = f"Are all servers stopped, and is {pending.location} copied, as with\n  {pending.dump_command}\n?"
        typer.confirm(visible(question), abort=True, err=True)
    exit_on_error(lambda: migrate(settings, now))
    done = f"migrated {pending.location} from schema {pending.revision} to {pending.steps[-1].revision}"
    print_result(as_json, content, done, done=done)


def _plan(pending: PendingMigration) -> list[str]:
    if not pending.steps:
        return [f"{pending.location} is up to date: nothing to migrate"]
    lines = [
        f"{pending.location} has schema {pending.revision}. To be done:",
        *(f"  {step.revision}: {step.purpose}" for step in pending.steps),
    ]
    if pending.dump_command:
        lines.append(f"Stop all servers first, and copy the database: {pending.dump_command}")
    else:
        lines.append("The file is copied into the backups folder first.")
    return [*lines, *([pending.sql] if pending.sql else [])]
