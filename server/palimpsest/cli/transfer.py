"""The commands that move a memory: back it up, put a copy in its place, export and import."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from palimpsest.care.backup import back_up, restore
from palimpsest.care.transfer import Imported
from palimpsest.cli.console import AsJson, guard, out, plain, progress, settings_of, show, show_notes, with_memory
from palimpsest.core.clock import now
from palimpsest.memory import Memory

app = typer.Typer()


@app.command("backup")
def backup_(
    ctx: typer.Context,
    file: Annotated[Path | None, typer.Argument(help="A new file; default: among the backups.")] = None,
    as_json: AsJson = False,
) -> None:
    """Copy the ledger while it is in use, and read the copy back."""
    made = guard(lambda: back_up(settings_of(ctx), file, now))
    content = {"file": str(made.path), "memories": made.memories, "turns": made.messages}
    text = f"backed up {made.memories} memories and {made.messages} turns to {made.path}, read back whole"
    show(as_json, content, lambda: out.print(plain(text)))


@app.command("restore")
def restore_(
    ctx: typer.Context,
    file: Annotated[Path, typer.Argument(help="A backup, or any ledger.")],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: AsJson = False,
) -> None:
    """Put a backup in the ledger's place; what was there is backed up first."""
    if not yes:
        typer.confirm(
            f"Put {file} in the place of {guard(lambda: settings_of(ctx)).ledger_path}?", abort=True, err=True
        )
    done = guard(lambda: restore(settings_of(ctx), file, now))
    before = str(done.before) if done.before else None
    content = {"memories": done.copy.memories, "turns": done.copy.messages, "before": before}
    text = f"restored {done.copy.memories} memories and {done.copy.messages} turns"
    kept = f"; what was there is in {before}" if before else ""
    show(as_json, content, lambda: out.print(plain(text + kept)))


@app.command("export")
def export_(
    ctx: typer.Context,
    file: Annotated[str, typer.Argument(help="A new file, or - for standard output.")],
    form: Annotated[
        Literal["jsonl", "markdown"], typer.Option("--format", help="jsonl: all, without loss; markdown: to read.")
    ] = "jsonl",
) -> None:
    """Write everything of the user to a file: all projects, history and deleted memories too."""

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
    file: Annotated[Path, typer.Argument(help="The file.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would come in, and store nothing.")] = False,
    as_json: AsJson = False,
) -> None:
    """Read memories from a file, each once.

    An export of palimpsest, the official MCP memory server's JSONL, a mem0 history database or export, or a ChatGPT or
    Claude conversation export (.json or .zip). Turns are kept as they are; no model is asked.
    """

    async def work(memory: Memory) -> None:
        with progress("importing") as told:
            done = await memory.import_file(memory.scope, file, told, dry_run=dry_run)

        def text() -> None:
            would = "would bring" if dry_run else "brought"
            out.print(
                plain(f"{file} ({done.format}) {would} {_counted(done.came)}; known already: {_counted(done.known)}")
            )
            for example in done.examples:
                out.print(plain(f"  {example[:100]}"))
            show_notes(done.notes)

        show(as_json, _imported_json(done, dry_run=dry_run), text)

    with_memory(ctx, work)


def _counted(numbers: dict[str, int]) -> str:
    words = {"turn": "turns", "memory": "memories", "summary": "summaries"}
    return ", ".join(f"{numbers[kind]} {word}" for kind, word in words.items())


def _imported_json(done: Imported, *, dry_run: bool) -> dict[str, Any]:
    return {
        "format": done.format,
        "dry_run": dry_run,
        "new": done.came,
        "known": done.known,
        "examples": list(done.examples),
        "notes": list(done.notes),
    }
