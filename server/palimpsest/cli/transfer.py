"""The commands that move a memory: backup, restore, export and import."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from palimpsest.care.backup import back_up, restore
from palimpsest.care.import_file import ImportResult
from palimpsest.cli.console import AsJson, guard, out, plain, progress, settings_of, show, show_notes, with_memory
from palimpsest.core.clock import now
from palimpsest.memory import Memory

app = typer.Typer()


@app.command("backup")
def backup_(
    ctx: typer.Context,
    file: Annotated[
        Path | None, typer.Argument(help="A new file. Default: a dated file in the backups folder.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Copy the ledger, also while it is in use, and check the copy."""
    copy = guard(lambda: back_up(settings_of(ctx), file, now))
    content = {"file": str(copy.path), "memories": copy.memories, "turns": copy.messages}
    text = f"backed up {copy.memories} memories and {copy.messages} messages to {copy.path}; the copy was checked"
    show(as_json, content, lambda: out.print(plain(text)))


@app.command("restore")
def restore_(
    ctx: typer.Context,
    file: Annotated[Path, typer.Argument(help="A backup, or any other ledger file.")],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    as_json: AsJson = False,
) -> None:
    """Replace the ledger with a backup. The present ledger is backed up first."""
    if not yes:
        typer.confirm(f"Replace {guard(lambda: settings_of(ctx)).ledger_path} with {file}?", abort=True, err=True)
    done = guard(lambda: restore(settings_of(ctx), file, now))
    before = str(done.before) if done.before else None
    content = {"memories": done.copy.memories, "turns": done.copy.messages, "before": before}
    text = f"restored {done.copy.memories} memories and {done.copy.messages} messages"
    kept = f"; the previous ledger is in {before}" if before else ""
    show(as_json, content, lambda: out.print(plain(text + kept)))


@app.command("export")
def export_(
    ctx: typer.Context,
    file: Annotated[str, typer.Argument(help="A new file, or - for standard output.")],
    form: Annotated[
        Literal["jsonl", "markdown"],
        typer.Option("--format", help="jsonl: everything, without loss; markdown: the current memories, for reading."),
    ] = "jsonl",
) -> None:
    """Write the user's memory to a file: all projects, with history and deleted memories."""

    async def work(memory: Memory) -> None:
        if file == "-":
            await memory.export(sys.stdout, form, lambda _done, _total: None)
            return
        with progress("exporting") as told:
            count = await memory.export(Path(file), form, told)
        out.print(plain(f"exported {count} {'items' if form == 'jsonl' else 'memories'} to {file}"))

    with_memory(ctx, work)


@app.command("import")
def import_(
    ctx: typer.Context,
    file: Annotated[Path, typer.Argument(help="The file to import.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be imported, and store nothing.")] = False,
    as_json: AsJson = False,
) -> None:
    """Import memories and messages from a file. Items that are already stored are skipped.

    The file is an export of Palimpsest, the JSONL file of the official MCP memory server, a mem0 history database or
    export, or a ChatGPT or Claude conversation export (.json or .zip). Messages are stored as they are; no model is
    called.
    """

    async def work(memory: Memory) -> None:
        with progress("importing") as told:
            done = await memory.import_file(memory.scope, file, told, dry_run=dry_run)

        def text() -> None:
            verb = "would import" if dry_run else "imported"
            counts = f"{_counts(done.new)}; already known: {_counts(done.known)}"
            out.print(plain(f"{file} ({done.format}): {verb} {counts}"))
            for example in done.examples:
                out.print(plain(f"  {example[:100]}"))
            show_notes(done.notes)

        show(as_json, _imported_json(done, dry_run=dry_run), text)

    with_memory(ctx, work)


def _counts(by_type: dict[str, int]) -> str:
    nouns = {"turn": "messages", "memory": "memories", "summary": "summaries"}
    return ", ".join(f"{by_type[item_type]} {noun}" for item_type, noun in nouns.items())


def _imported_json(done: ImportResult, *, dry_run: bool) -> dict[str, Any]:
    return {
        "format": done.format,
        "dry_run": dry_run,
        "new": done.new,
        "known": done.known,
        "examples": list(done.examples),
        "notes": list(done.notes),
    }
