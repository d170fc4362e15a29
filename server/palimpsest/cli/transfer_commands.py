"""Commands that back up, restore, export, import, move and migrate, and those on projects."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import typer
from pydantic import SecretStr

from palimpsest.cli.console import CALLER, Commands, Memory, Reply, Settings, absolute, command, progress_bar
from palimpsest.cli.lazy import backup, browsing, import_file, markdown_files, markdown_import, output, replies
from palimpsest.core.clock import now, shown_date
from palimpsest.core.models import Event
from palimpsest.text.display import counted

# What the commands export and import print of a folder of Markdown files.

# How many memories of each kind are printed: JSON has all of them.
MAX_LISTED = 100

_DONE = {Event.ADD: "added", Event.UPDATE: "changed", Event.DELETE: "deleted"}


async def import_folder(memory: Memory, folder: Path, *, dry_run: bool, deletes: bool) -> Reply:
    """Import what was edited in a folder."""
    result = await memory.care.import_folder(folder, dry_run=dry_run, deletes=deletes, caller=CALLER)
    events = Counter(each.event for each in result.done)
    counts = [f"{word} {counted(events[event], 'memory')}" for event, word in _DONE.items() if events[event]]
    done = f"{folder}{' (dry run)' if dry_run else ''}: {', '.join(counts) or 'nothing to change'}"
    parts = [done, *_step_lines(result.done)]
    if result.removed:
        count = counted(len(result.removed), "memory")
        parts += [f"not deleted: {count} whose items were removed. --yes deletes them:", *_step_lines(result.removed)]
    if result.conflicts:
        parts.append(f"{counted(len(result.conflicts), 'conflict')}, in which the memory stays as it is:")
        for each in result.conflicts[:MAX_LISTED]:
            parts.append(f"! [{each.memory_id[:8]}] {each.where}: {each.reason}")
            parts += [f"    in the file: {_shown(each.in_file)}", f"    here: {_shown(each.here)}"]
        parts.append("To keep what is here, write it into the file. To keep what the file says: palimpsest edit ID.")
    if result.edit:
        parts.append(f"palimpsest undo --edit {result.edit} takes it back")
    content = {
        "format": "palimpsest-markdown",
        "dry_run": dry_run,
        "edit": result.edit or None,
        "changes": list(map(_step_json, result.done)),
        "not_deleted": list(map(_step_json, result.removed)),
        "conflicts": [replies.picked(each, "id=memory_id where reason in_file here") for each in result.conflicts],
        "notes": list(result.notes),
    }
    return Reply(content, *parts, *output.notes_text(result.notes), done=bool(result.edit))


def _step_lines(steps: Sequence[markdown_import.Step]) -> Iterator[str]:
    for each in steps[:MAX_LISTED]:
        yield f"{each.event.lower()} {each.where}"
        yield from (f"    {sign} {_shown(said)}" for sign, said in (("-", each.before), ("+", each.after)) if said)


def _shown(said: markdown_files.ItemFields | None) -> str:
    return f"{' '.join(said.text.split())} ({said.labels})" if said else "(not there)"


def _step_json(each: markdown_import.Step) -> dict[str, Any]:
    return {
        "event": each.event,
        "id": each.memory.id if each.memory else None,
        **replies.picked(each, "where before after"),
    }


# The commands backup, restore, export and import.

app = typer.Typer()


@command(app, "backup")
def backup_(settings: Settings, file: Path | None = None) -> Reply:
    """Copy the ledger, also while it is in use, and check the copy."""
    copy = backup.back_up(settings, file, now)
    text = f"backed up {output.counts(copy.memories, copy.messages)} to {copy.path}; the copy was checked"
    return Reply(replies.picked(copy, "file=path memories messages"), text, done=True)


@command(app, "restore")
def restore_(settings: Settings, file: Path, yes: bool = False) -> Reply:
    """Replace the ledger with a backup. The present ledger is backed up first."""
    if not yes:
        copy = backup.inspect_copy(settings, file)
        ledger = settings.ledger_path if settings.ledger_url is None else "the whole ledger, with all its users,"
        output.confirm(f"Replace {ledger} with {file} ({output.counts(copy.memories, copy.messages)})?")
    result = backup.restore(settings, file, now)
    before = f"; the previous ledger is in {result.before}" if result.before else ""
    text = f"restored {output.counts(result.copy.memories, result.copy.messages)}{before}"
    return Reply(replies.picked(result, "memories=copy.memories messages=copy.messages before"), text, done=True)


@command(app, "export")
async def export_(memory: Memory, file: str, form: Literal["jsonl", "markdown"] = "jsonl", yes: bool = False) -> None:
    """Write the user's memory to a file: all projects, with history and deleted memories.

    As Markdown it is a folder with a file for each topic and entity, of this project and
    the global memories. palimpsest import FOLDER takes your edits in.
    """
    if form == "markdown":
        with progress_bar("exporting") as progress:
            result = await memory.care.export_folder(Path(file), progress, overwrites=yes)
        files = f"files: {len(result.written):,} written, {len(result.removed):,} removed"
        text = f"exported {counted(result.memories, 'memory')} to {file}; {files}"
    elif file == "-":
        with output.printing():
            await memory.care.export(output.utf8_output(), lambda _result, _total: None)
        return
    else:
        with progress_bar("exporting") as progress:
            count = await memory.care.export(Path(file), progress)
        text = f"exported {counted(count, 'item')} to {file}"
    output.print_text(text, done=text)


@command(app, "import")
async def import_(memory: Memory, file: Path, dry_run: bool = False, yes: bool = False) -> Reply:
    """Import memories and conversations from a file. Items that are already stored are skipped.

    It may come from Palimpsest, ChatGPT, Claude, mem0 or the official MCP memory
    server. Messages are stored as they are, and no model is asked. Of the folder of a
    Markdown export your edits are imported, as one edit that can be undone.
    """
    if markdown_files.has_manifest(file):
        return await import_folder(memory, file, dry_run=dry_run, deletes=yes)
    if yes:
        raise typer.BadParameter("--yes is for the folder of a Markdown export, and this is none.")
    with progress_bar("importing") as progress:
        result = await memory.care.import_file(memory.scope, file, progress, dry_run=dry_run)
    verb = "would import" if dry_run else "imported"
    of_them = f" ({result.deleted:,} of them deleted there, and kept as deleted)" if result.deleted else ""
    known = f"; already known: {_counts(result.known)}" if any(result.known.values()) else ""
    done = f"{file} ({result.format}): {verb} {_counts(result.new) or 'nothing'}{of_them}{known}"
    notes = _notes(result)
    parts = [done, *(f"  {example[:100]}" for example in result.examples), *output.notes_text(notes)]
    parts += output.waiting_text(result.waiting)
    content = {
        "format": result.format,
        "dry_run": dry_run,
        **replies.picked(result, "new known deleted examples"),
        "notes": notes,
        "waiting": result.waiting,
    }
    return Reply(content, *parts, done=not dry_run)


def _counts(by_type: dict[str, int]) -> str:
    nouns = {"alias": "project name"}
    return ", ".join(counted(count, nouns.get(kind, kind)) for kind, count in by_type.items() if count)


def _notes(result: import_file.ImportResult) -> list[str]:
    """Return the notes on an import, with what stays away and how to go back."""
    left_out = " and ".join(f"{count:,} were {how}" for how, count in result.left_out.items() if count)
    left = f"left out: items that were imported before, of which {left_out} here since"
    undo = f"palimpsest restore {result.backup} undoes this import"
    return [*result.notes, *([left] if left_out else []), *([] if result.backup is None else [undo])]


# The commands move and migrate, which work on the ledger as a whole.


@command(app, "move")
def move_(settings: Settings, to: str) -> Reply:
    """Copy the whole ledger, with all users, to PostgreSQL or back to a file, and compare every row.

    Meanwhile clients can only read the ledger. The ledger is not changed, and the reply
    says what to set. If the command is interrupted, nothing was copied: run it again.
    """
    target = SecretStr(to) if "://" in to else absolute(to)
    with progress_bar("copying") as progress:
        moved = backup.move_ledger(settings, target, progress, now)
    content = {"to": moved.location, "until": moved.until.isoformat(), "rows": dict(moved.rows)}
    what = output.counts(moved.rows["memories"], moved.rows["messages"])
    rows = counted(sum(moved.rows.values()), "row")
    done = f"copied {what} and what belongs to them to {moved.location}; {rows} were compared"
    return Reply(content, done, *_next_steps(settings, target, moved), done=True)


def _next_steps(settings: Settings, target: Path | SecretStr, moved: backup.Moved) -> list[str]:
    """Return what to set, and what stays where it was."""
    if isinstance(target, Path):
        setting = f"history_db_path = {json.dumps(str(target))} in place of ledger_url"
    else:
        setting = 'ledger_url = "the URL that was given here" (or the variable PALIMPSEST_LEDGER_URL)'
    return [
        f"To use it, set {setting}, and restart all clients.",
        f"What they wrote to the old one after {moved.until:%H:%M:%S} UTC is not in the copy.",
        f"Access tokens, what hooks captured, and backups stay in {settings.data_dir}.",
    ]


@command(app, "migrate")
def migrate_(settings: Settings, dry_run: bool = False, yes: bool = False) -> Reply:
    """Bring the schema of the ledger up to date, as a new version may need.

    A file is backed up first; it is also migrated whenever it is opened. A database that
    servers share is migrated by this command alone: stop them, and copy it with pg_dump.
    """
    pending = backup.pending_migration(settings)
    content = {
        "from": pending.revision,
        "steps": [replies.picked(step, "to=revision purpose") for step in pending.steps],
        "done": bool(pending.steps) and not dry_run,
    }
    if not pending.steps or dry_run:
        return Reply(content, *_plan(pending))
    if pending.dump_command and not yes:
        question = f"Are all servers stopped, and is {pending.location} copied, as with\n  {pending.dump_command}\n?"
        output.confirm(question)
    backup.migrate(settings, now)
    done = f"migrated {pending.location} from schema {pending.revision} to {pending.steps[-1].revision}"
    return Reply(content, done, done=True)


def _plan(pending: backup.PendingMigration) -> list[str]:
    if not pending.steps:
        return [f"{pending.location} is up to date: nothing to migrate"]
    head = f"{pending.location} has schema {pending.revision}. To be done:"
    steps = (f"  {step.revision}: {step.purpose}" for step in pending.steps)
    stop = f"Stop all servers first, and copy the database: {pending.dump_command}"
    return [head, *steps, stop if pending.dump_command else "The file is copied into the backups folder first."]


# The commands that list projects, and move what is in one to another.

projects_app = typer.Typer(cls=Commands)


@command(projects_app, "projects")
async def projects(memory: Memory) -> Reply:
    """List projects, rename one, or merge two. Without a command: list them."""
    found = await memory.projects.list()
    rows = output.Rows("project", "memories", "messages", "last used", "known by")
    for project in found:
        used_at = shown_date(project.used_at) if project.used_at else ""
        aliases = "\n".join(f"{alias.kind} {alias.alias}" for alias in project.aliases)
        rows.add_row(project.name, project.memories, project.messages, used_at, aliases)
    listed = [
        {
            "name": project.name,
            "aliases": [replies.picked(alias, "kind alias") for alias in project.aliases],
            **replies.picked(project, "memories messages last_used=used_at"),
        }
        for project in found
    ]
    part = rows if found else "there are no projects; memories of no project are in palimpsest list"
    return Reply({"projects": listed}, part)


@command(projects_app, "projects move")
async def move(memory: Memory, old: str, new: str) -> Reply:
    """Give a project another name. A backup is made first."""
    return _moved(await memory.projects.move(old, new, caller=CALLER))


@command(projects_app, "projects merge")
async def merge(memory: Memory, old: str, new: str) -> Reply:
    """Move everything in one project into another. A backup is made first."""
    return _moved(await memory.projects.merge(old, new, caller=CALLER))


def _moved(result: browsing.MoveResult) -> Reply:
    move = result.move
    counts = output.counts(move.memories, move.messages)
    lines = [f"moved from {move.old} to {move.new}: {counts}, deleted ones included"]
    if move.same_memories or move.same_messages:
        same = output.counts(move.same_memories, move.same_messages)
        lines.append(f"of these, {same} were in both projects; one of each stays, no text is lost")
    lines.append(
        f'palimpsest undo cannot take this back; palimpsest restore "{result.backup}" brings back what was before'
    )
    content = {
        **replies.picked(move, "from=old to=new memories messages"),
        **replies.picked(move, "memories_in_both=same_memories messages_in_both=same_messages"),
        "backup": result.backup,
    }
    return Reply(content, "\n".join(lines), done=True)
