"""Commands that back up, restore, export, import, move and migrate, and those on projects."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from pydantic import SecretStr

from palimpsest.admin.backup import (
    Moved,
    PendingMigration,
    back_up,
    inspect_copy,
    migrate,
    move_ledger,
    pending_migration,
    restore,
)
from palimpsest.admin.import_file import ImportResult
from palimpsest.admin.markdown_files import PARTS, ItemFields, has_manifest, listed
from palimpsest.admin.markdown_import import Conflict, FolderImport, Imported
from palimpsest.cli.console import (
    CALLER,
    AsJson,
    absolute,
    command,
    progress_bar,
    run_with_memory,
    settings_of,
)
from palimpsest.cli.output import Part, notes_text, plain, print_result, print_text, printing, table, utf8_output
from palimpsest.core.clock import iso, now, shown_date
from palimpsest.core.git_project import Project
from palimpsest.core.models import Event
from palimpsest.core.settings import Settings
from palimpsest.learn.browsing import MoveResult
from palimpsest.memory import Memory
from palimpsest.text.display import counted, visible

# What the commands export and import print of a folder of Markdown files.

MAX_LISTED = 100
"""How many memories of each kind are printed: JSON has all of them."""

_MARKS = {Event.ADD: "+", Event.UPDATE: "~", Event.DELETE: "-"}
_VERBS = {Event.ADD: ("add", "added"), Event.UPDATE: ("change", "changed"), Event.DELETE: ("delete", "deleted")}


def is_page(file: str) -> bool:
    """Return whether a Markdown export goes to one page for reading, and not to a folder."""
    path = Path(file)
    return file == "-" or (path.suffix.lower() in (".md", ".markdown") and not path.is_dir())


async def exported_folder(memory: Memory, folder: Path, *, overwrites: bool) -> None:
    """Export to a folder, and print what was written."""
    with progress_bar("exporting") as progress:
        result = await memory.care.export_folder(folder, progress, overwrites=overwrites)
    counts = [
        f"{len(result.written):,} written",
        *([f"{len(result.removed):,} removed"] if result.removed else []),
        *([f"{result.unchanged:,} unchanged"] if result.unchanged else []),
    ]
    text = f"exported {counted(result.memories, 'memory')} to {folder}; files: {', '.join(counts)}"
    parts = [text]
    if result.left:
        parts += notes_text([f"copies from an earlier export, left as they are: {listed(result.left)}"])
    print_text(*parts, done=text)


async def imported_folder(memory: Memory, folder: Path, *, dry_run: bool, deletes: bool, as_json: bool) -> None:
    """Import what was edited in a folder, and print it."""
    result = await memory.care.import_folder(folder, dry_run=dry_run, deletes=deletes, caller=CALLER)
    counts = [
        f"{would if dry_run else did} {counted(number, 'memory')}"
        for event, (would, did) in _VERBS.items()
        if (number := sum(each.event is event for each in result.done))
    ]
    verb = "would " if dry_run and counts else ""
    done = f"{folder}: {verb}{', '.join(counts) or 'nothing to change'}"
    parts = [done, *_lines(result.done), *_removed_lines(result), *_conflict_lines(result)]
    if result.edit:
        parts.append(f"palimpsest undo --edit {result.edit} takes it back")
    parts += [*notes_text([*_missing_notes(result), *result.notes]), f"scope: {result.scope}"]
    print_result(as_json, _folder_json(result, dry_run=dry_run), *parts, done=done if result.edit else "")


def _lines(imported: tuple[Imported, ...]) -> list[str]:
    lines = [line for each in imported[:MAX_LISTED] for line in _imported_lines(each)]
    return [*lines, *_more(len(imported))]


def _imported_lines(each: Imported) -> list[str]:
    place = f"[{each.memory_id[:8]}] {each.where}" if each.memory_id else each.where
    joined = f" (joined with [{each.joined[:8]}], which says the same)" if each.joined else ""
    lines = [f"{_MARKS[each.event]} {place}{joined}"]
    if each.before is None or each.after is None:
        said = each.before or each.after
        return [*lines, *([f"    {_whole(said)}"] if said is not None else [])]
    return [*lines, *(f"    {line}" for line in _differences(each.before, each.after))]


def _differences(before: ItemFields, after: ItemFields) -> list[str]:
    """Return the parts that differ, each with both values."""
    differing = [part for part in PARTS if getattr(before, part) != getattr(after, part)]
    return [f"{part}: {_value(before, part)} -> {_value(after, part)}" for part in differing]


def _value(shown: ItemFields, part: str) -> str:
    return (", ".join(shown.tags) if part == "tags" else str(getattr(shown, part))) or "(none)"


def _whole(shown: ItemFields) -> str:
    return " ".join(shown.text.split())


def _more(count: int) -> list[str]:
    return [f"  and {count - MAX_LISTED:,} more"] if count > MAX_LISTED else []


def _removed_lines(result: FolderImport) -> list[str]:
    if not result.removed:
        return []
    count = counted(len(result.removed), "memory")
    return [f"not deleted: {count} whose items were removed. --yes deletes them:", *_lines(result.removed)]


def _conflict_lines(result: FolderImport) -> list[str]:
    if not result.conflicts:
        return []
    lines = [f"{counted(len(result.conflicts), 'conflict')}, in which the memory stays as it is:"]
    for conflict in result.conflicts[:MAX_LISTED]:
        lines += _one_conflict(conflict)
    return [
        *lines,
        *_more(len(result.conflicts)),
        "To keep what is here, write it into the file. To keep what the file says: palimpsest edit ID TEXT.",
    ]


def _one_conflict(conflict: Conflict) -> list[str]:
    lines = [f"! [{conflict.memory_id[:8]}] {conflict.where}: {conflict.reason}"]
    if conflict.in_file is not None and conflict.here is not None:
        differing = [part for part in PARTS if getattr(conflict.in_file, part) != getattr(conflict.here, part)]
        for part in differing:
            lines += [
                f"    {part} in the file: {_value(conflict.in_file, part)}",
                f"    {part} here: {_value(conflict.here, part)}",
            ]
        return lines
    in_file = "(removed)" if conflict.in_file is None else _whole(conflict.in_file)
    here = "(gone)" if conflict.here is None else _whole(conflict.here)
    return [*lines, f"    in the file: {in_file}", f"    here: {here}"]


def _missing_notes(result: FolderImport) -> list[str]:
    return [
        f"the file {path} is gone, and {counted(number, 'memory')} with it; nothing of it was deleted. Export again "
        "with --yes to have it back, or palimpsest delete"
        for path, number in result.missing.items()
    ]


def _folder_json(result: FolderImport, *, dry_run: bool) -> dict[str, Any]:
    return {
        "format": "palimpsest-markdown",
        "dry_run": dry_run,
        "edit": result.edit or None,
        "changes": [_imported_folder_json(each) for each in result.done],
        "not_deleted": [_imported_folder_json(each) for each in result.removed],
        "conflicts": [
            {
                "id": conflict.memory_id,
                "where": conflict.where,
                "reason": conflict.reason,
                "in_file": _shown_json(conflict.in_file),
                "here": _shown_json(conflict.here),
            }
            for conflict in result.conflicts
        ],
        "missing_files": dict(result.missing),
        "notes": list(result.notes),
    }


def _imported_folder_json(each: Imported) -> dict[str, Any]:
    return {
        "event": each.event.value,
        "id": each.memory_id or None,
        "where": each.where,
        "before": _shown_json(each.before),
        "after": _shown_json(each.after),
        **({"joined": each.joined} if each.joined else {}),
    }


def _shown_json(shown: ItemFields | None) -> dict[str, Any] | None:
    return None if shown is None else {**asdict(shown), "tags": list(shown.tags)}


# The commands backup, restore, export and import.

app = typer.Typer()


@command(app, "backup")
def backup_(ctx: typer.Context, file: Path | None = None, as_json: AsJson = False) -> None:
    """Copy the ledger, also while it is in use, and check the copy."""
    copy = back_up(settings_of(ctx), file, now)
    content = {"file": str(copy.path), "memories": copy.memories, "messages": copy.messages}
    counts = f"{counted(copy.memories, 'memory')} and {counted(copy.messages, 'message')}"
    text = f"backed up {counts} to {copy.path}; the copy was checked"
    print_result(as_json, content, text, done=text)


@command(app, "restore")
def restore_(ctx: typer.Context, file: Path, yes: bool = False, as_json: AsJson = False) -> None:
    """Replace the ledger with a backup. The present ledger is backed up first."""
    if not yes:
        settings = settings_of(ctx)
        copy = inspect_copy(settings, file)
        ledger = settings.ledger_path if settings.ledger_url is None else "the whole ledger, with all its users,"
        held = f"{counted(copy.memories, 'memory')} and {counted(copy.messages, 'message')}"
        typer.confirm(visible(f"Replace {ledger} with {file} ({held})?"), abort=True, err=True)
    result = restore(settings_of(ctx), file, now)
    before = str(result.before) if result.before else None
    content = {"memories": result.copy.memories, "messages": result.copy.messages, "before": before}
    text = f"restored {counted(result.copy.memories, 'memory')} and {counted(result.copy.messages, 'message')}"
    if before:
        text += f"; the previous ledger is in {before}"
    print_result(as_json, content, text, done=text)


@command(app, "export")
def export_(ctx: typer.Context, file: str, form: Literal["jsonl", "markdown"] = "jsonl", yes: bool = False) -> None:
    """Write the user's memory to a file: all projects, with history and deleted memories.

    As Markdown it is a folder with a file for each topic and entity, of this project and
    the global memories. palimpsest import FOLDER takes your edits in. A file that ends in
    .md is one page for reading.
    """
    if form == "markdown" and not is_page(file):
        run_with_memory(ctx, lambda memory: exported_folder(memory, Path(file), overwrites=yes))
        return

    async def work(memory: Memory) -> None:
        if file == "-":
            with printing():
                await memory.care.export(utf8_output(), form, lambda _result, _total: None)
            return
        with progress_bar("exporting") as progress:
            count = await memory.care.export(Path(file), form, progress)
        text = f"exported {counted(count, 'item' if form == 'jsonl' else 'memory')} to {file}"
        print_text(text, done=text)

    run_with_memory(ctx, work)


@command(app, "import")
def import_(
    ctx: typer.Context,
    file: Path,
    dry_run: bool = False,
    deleted: bool = False,
    yes: bool = False,
    as_json: AsJson = False,
) -> None:
    """Import memories and conversations from a file. Items that are already stored are skipped.

    It may come from Palimpsest, ChatGPT, Claude, mem0 or the official MCP memory
    server. Messages are stored as they are, and no model is asked. Of the folder of a
    Markdown export your edits are imported, as one edit that can be undone.
    """
    if has_manifest(file):
        if deleted:
            raise typer.BadParameter("--deleted is for files. palimpsest undelete brings back a memory.")
        run_with_memory(
            ctx, lambda memory: imported_folder(memory, file, dry_run=dry_run, deletes=yes, as_json=as_json)
        )
        return
    if yes:
        raise typer.BadParameter("--yes is for the folder of a Markdown export, and this is none.")

    async def work(memory: Memory) -> None:
        with progress_bar("importing") as progress:
            result = await memory.care.import_file(
                memory.scope, file, progress, dry_run=dry_run, restore_deleted=deleted
            )

        verb = "would import" if dry_run else "imported"
        of_them = f" ({result.deleted:,} of them deleted there, and kept as deleted)" if result.deleted else ""
        known = f"; already known: {_counts(result.known)}" if any(result.known.values()) else ""
        counts = f"{_counts(result.new) or 'nothing'}{of_them}{known}"
        done = f"{file} ({result.format}): {verb} {counts}"
        parts = [done, *(f"  {example[:100]}" for example in result.examples), *notes_text(_notes(result))]
        if result.waiting:
            parts.append(
                f"Waiting to be embedded, and found by words until then: {counted(result.waiting, 'text')}. "
                "The next server embeds them in the background; palimpsest rebuild does it now."
            )
        print_result(as_json, _imported_json(result, dry_run=dry_run), *parts, done="" if dry_run else done)

    run_with_memory(ctx, work)


def _counts(by_type: dict[str, int]) -> str:
    nouns = {"alias": "project name", "conversation": "conversation", "entity": "entity", "message": "message"}
    nouns |= {"memory": "memory", "summary": "summary"}
    return ", ".join(counted(by_type[kind], noun) for kind, noun in nouns.items() if by_type[kind])


def _notes(result: ImportResult) -> list[str]:
    """Return the notes on an import, with what stays away and how to go back."""
    notes = list(result.notes)
    left_out = [f"{count:,} were {how}" for how, count in result.left_out.items() if count]
    if left_out:
        notes.append(
            f"left out: items that were imported before, of which {' and '.join(left_out)} here since. "
            "palimpsest import FILE --deleted brings them back"
        )
    if result.backup is not None:
        notes.append(f"palimpsest restore {result.backup} undoes this import")
    return notes


def _imported_json(result: ImportResult, *, dry_run: bool) -> dict[str, Any]:
    return {
        "format": result.format,
        "dry_run": dry_run,
        "new": result.new,
        "known": result.known,
        "deleted": result.deleted,
        "examples": list(result.examples),
        "notes": _notes(result),
        "waiting": result.waiting,
    }


# The commands move and migrate, which work on the ledger as a whole.


@command(app, "move")
def move_(ctx: typer.Context, to: str, as_json: AsJson = False) -> None:
    """Copy the whole ledger, with all users, to PostgreSQL or back to a file, and compare every row.

    Clients may go on using the ledger. If the command is interrupted, run it again: it
    goes on where it was. The ledger is not changed, and the reply says what to set.
    """
    settings = settings_of(ctx)
    target = SecretStr(to) if "://" in to else absolute(to)
    moved = move_ledger(settings, target, progress_bar, now)
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


@command(app, "migrate")
def migrate_(ctx: typer.Context, dry_run: bool = False, yes: bool = False, as_json: AsJson = False) -> None:
    """Bring the schema of the ledger up to date, as a new version may need.

    A file is backed up first; it is also migrated whenever it is opened. A database that
    servers share is migrated by this command alone: stop them, and copy it with pg_dump.
    """
    settings = settings_of(ctx)
    pending = pending_migration(settings)
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
    migrate(settings, now)
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


# The commands that list projects, and move what is in one to another.

projects_app = typer.Typer()

DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say what would be moved.")]


@projects_app.callback(invoke_without_command=True)
def projects(ctx: typer.Context, as_json: AsJson = False) -> None:
    """List projects, rename one, or merge two. Without a command: list them."""
    if ctx.invoked_subcommand is not None:
        return

    async def work(memory: Memory) -> None:
        found = await memory.projects.list()
        part = _table(found) if found else "there are no projects; memories of no project are in palimpsest list"
        print_result(as_json, {"projects": [_project_json(project) for project in found]}, part)

    run_with_memory(ctx, work)


@command(projects_app, "projects move")
async def move(memory: Memory, old: str, new: str, dry_run: bool = False, as_json: AsJson = False) -> None:
    """Give a project another name. A backup is made first."""
    result = await memory.projects.move(old, new, caller=CALLER, dry_run=dry_run)
    _print(as_json, result)


@command(projects_app, "projects merge")
async def merge(memory: Memory, old: str, new: str, dry_run: bool = False, as_json: AsJson = False) -> None:
    """Move everything in one project into another. A backup is made first."""
    result = await memory.projects.merge(old, new, caller=CALLER, dry_run=dry_run)
    _print(as_json, result)


def _table(found: Sequence[Project]) -> Part:
    rows = table("project", "memories", "messages", "last used", "known by")
    for project in found:
        used_at = shown_date(project.used_at) if project.used_at else ""
        aliases = "\n".join(f"{alias.kind} {alias.alias}" for alias in project.aliases)
        rows.add_row(plain(project.name), str(project.memories), str(project.messages), used_at, plain(aliases))
    return rows


def _project_json(project: Project) -> dict[str, Any]:
    return {
        "name": project.name,
        "aliases": [{"kind": alias.kind, "alias": alias.alias} for alias in project.aliases],
        "memories": project.memories,
        "messages": project.messages,
        "last_used": iso(project.used_at) if project.used_at else None,
    }


def _print(as_json: bool, result: MoveResult) -> None:
    move, backup = result.move, result.backup
    what = f"{counted(move.memories, 'memory')} and {counted(move.messages, 'message')}, deleted ones included"
    lines = [f"{'moved' if backup else 'would move'} from {move.old} to {move.new}: {what}"]
    if move.same_memories or move.same_messages:
        same = f"{counted(move.same_memories, 'memory')} and {counted(move.same_messages, 'message')}"
        lines.append(
            f"of these, {same} {'were' if backup else 'are'} in both projects; one of each stays, no text is lost"
        )
    if backup:
        lines.append(
            f'palimpsest undo cannot take this back; palimpsest restore "{backup}" brings back what was before'
        )
    content = {
        "from": move.old,
        "to": move.new,
        "memories": move.memories,
        "messages": move.messages,
        "memories_in_both": move.same_memories,
        "messages_in_both": move.same_messages,
        "backup": str(backup) if backup else None,
    }
    print_result(as_json, content, *lines, done="\n".join(lines) if backup else "", soft_wrap=True)
