"""The commands backup, restore, export and import."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from palimpsest.care.backup import back_up, inspect_copy, restore
from palimpsest.care.transfer.import_file import ImportResult
from palimpsest.care.transfer.markdown.manifest import has_manifest
from palimpsest.cli.commands.transfer.folders import exported_folder, imported_folder, is_page
from palimpsest.cli.console import (
    AsJson,
    exit_on_error,
    progress_bar,
    settings_of,
    with_memory,
)
from palimpsest.cli.options import MOVING
from palimpsest.cli.output import notes_text, print_result, print_text, printing, utf8_output
from palimpsest.core.clock import now
from palimpsest.memory import Memory
from palimpsest.text.control_characters import visible
from palimpsest.text.counting import counted

app = typer.Typer()


@app.command("backup", rich_help_panel=MOVING)
def backup_(
    ctx: typer.Context,
    file: Annotated[
        Path | None, typer.Argument(help="A new file. Default: a dated file in the backups folder.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Copy the ledger, also while it is in use, and check the copy."""
    copy = exit_on_error(lambda: back_up(settings_of(ctx), file, now))
    content = {"file": str(copy.path), "memories": copy.memories, "turns": copy.messages}
    counts = f"{counted(copy.memories, 'memory')} and {counted(copy.messages, 'message')}"
    text = f"backed up {counts} to {copy.path}; the copy was checked"
    print_result(as_json, content, text, done=text)


@app.command("restore", rich_help_panel=MOVING)
def restore_(
    ctx: typer.Context,
    file: Annotated[Path, typer.Argument(help="A backup, or any other ledger file.")],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    as_json: AsJson = False,
) -> None:
    """Replace the ledger with a backup. The present ledger is backed up first."""
    if not yes:
        settings = exit_on_error(lambda: settings_of(ctx))
        copy = exit_on_error(lambda: inspect_copy(settings, file))
        ledger = settings.ledger_path if settings.ledger_url is None else "the whole ledger, with all its users,"
        held = f"{counted(copy.memories, 'memory')} and {counted(copy.messages, 'message')}"
        typer.confirm(visible(f"Replace {ledger} with {file} ({held})?"), abort=True, err=True)
    result = exit_on_error(lambda: restore(settings_of(ctx), file, now))
    before = str(result.before) if result.before else None
    content = {"memories": result.copy.memories, "turns": result.copy.messages, "before": before}
    text = f"restored {counted(result.copy.memories, 'memory')} and {counted(result.copy.messages, 'message')}"
    if before:
        text += f"; the previous ledger is in {before}"
    print_result(as_json, content, text, done=text)


@app.command("export", rich_help_panel=MOVING)
def export_(
    ctx: typer.Context,
    file: Annotated[str, typer.Argument(help="A new file, or - for standard output. A folder for markdown.")],
    form: Annotated[
        Literal["jsonl", "markdown"],
        typer.Option(
            "--format", help="jsonl: everything, without loss; markdown: the current memories, to read and edit."
        ),
    ] = "jsonl",
    yes: Annotated[
        bool, typer.Option("--yes", help="Also write over files of the folder that were edited since.")
    ] = False,
) -> None:
    """Write the user's memory to a file: all projects, with history and deleted memories.

    As Markdown it is a folder with a file for each topic and entity, of this project and
    the global memories. palimpsest import FOLDER takes your edits in. A file that ends in
    .md is one page for reading.
    """
    if form == "markdown" and not is_page(file):
        with_memory(ctx, lambda memory: exported_folder(memory, Path(file), overwrites=yes))
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

    with_memory(ctx, work)


@app.command("import", rich_help_panel=MOVING)
def import_(
    ctx: typer.Context,
    file: Annotated[Path, typer.Argument(help="The file to import, or the folder of a Markdown export.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be imported, and store nothing.")] = False,
    deleted: Annotated[
        bool, typer.Option("--deleted", help="Also bring back what was deleted or purged since an earlier import.")
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", help="Also delete the memories that were removed from a Markdown export.")
    ] = False,
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
        with_memory(ctx, lambda memory: imported_folder(memory, file, dry_run=dry_run, deletes=yes, as_json=as_json))
        return
    if yes:
        raise typer.BadParameter("--yes is for the folder of a Markdown export, and this is none.")

    async def work(memory: Memory) -> None:
        with progress_bar("importing") as progress:
            result = await memory.care.import_file(memory.scope, file, progress, dry_run=dry_run, brings_back=deleted)

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

    with_memory(ctx, work)


def _counts(by_type: dict[str, int]) -> str:
    nouns = {"alias": "project name", "conversation": "conversation", "entity": "entity", "turn": "message"}
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
