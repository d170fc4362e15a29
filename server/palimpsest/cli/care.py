"""The commands that look after a memory: what was changed, take it back, erase it, examine and rebuild it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer
from rich.table import Table

from palimpsest import __version__
from palimpsest.care.doctor import Finding, examine
from palimpsest.care.purge import Purged
from palimpsest.care.verify import examine_deeply
from palimpsest.cli.console import CALLER, AsJson, out, plain, progress, run, settings_of, show, with_memory
from palimpsest.core import validation
from palimpsest.core.clock import parse_instant
from palimpsest.core.errors import InputError
from palimpsest.core.models import Undo
from palimpsest.memory import Memory
from palimpsest.server.replies import render
from palimpsest.server.replies.models import ChangeReply, EditsReply

app = typer.Typer()

SHOWN_TEXTS = 5


@app.command()
def log(
    ctx: typer.Context,
    limit: Annotated[int, typer.Option(min=1, max=validation.MAX_LIMIT, help="How many at most.")] = 20,
    before: Annotated[int | None, typer.Option(help="Only changes below this number.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show what was changed, newest first, each change under the number that undo takes."""

    async def work(memory: Memory) -> None:
        edits = await memory.log(memory.scope, limit=limit, before=before)
        show(as_json, EditsReply.of(edits).as_json(), lambda: out.print(plain(render.edits_text(edits))))

    with_memory(ctx, work)


@app.command()
def undo(
    ctx: typer.Context,
    change: Annotated[int | None, typer.Option(help="The number of the change, from palimpsest log.")] = None,
    since: Annotated[str, typer.Option(help="ISO 8601: everything since then.")] = "",
    as_json: AsJson = False,
) -> None:
    """Take back the newest change, one by its number, or all since a time. That is a change too, and can be undone."""

    async def work(memory: Memory) -> None:
        if change is not None and since:
            raise InputError("give either --change or --since; nothing was done")
        wanted = Undo(change, parse_instant(since, "--since") if since else None)
        done = await memory.undo(memory.scope, wanted, caller=CALLER)
        text = render.changed_text(done, memory.scope)
        show(as_json, ChangeReply.of(done, memory.scope).as_json(), lambda: out.print(plain(text)))

    with_memory(ctx, work)


@app.command()
def purge(
    ctx: typer.Context,
    ids: Annotated[list[str] | None, typer.Argument(help="Memories and turns, by id; deleted ones too.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Everything stored in the scope.")] = False,
    backups: Annotated[bool, typer.Option("--backups", help="Delete the backups that hold any of it too.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: AsJson = False,
) -> None:
    """Erase for good, with the turns it was learnt from, and search the files to prove it. There is no way back."""

    async def work(memory: Memory) -> None:
        if everything == bool(ids):
            raise InputError("give either ids or --all; nothing was erased")
        chosen = None if everything else ids
        going = await memory.purge_selection(memory.scope, chosen)
        if not yes:
            counted = f"{len(going.memory_ids)} memories and {len(going.message_ids)} turns of {memory.scope}"
            shown = "".join(f"\n  {' '.join(text.split())[:100]}" for text in going.texts[:SHOWN_TEXTS])
            typer.confirm(f"Erase {counted} for good?{shown}\n", abort=True, err=True)
        done = await memory.purge(memory.scope, chosen, and_backups=backups)
        show(as_json, _purged_json(done), lambda: out.print(plain(_purged_text(done))))
        if not done.clean:
            raise typer.Exit(1)

    with_memory(ctx, work)


def _purged_text(done: Purged) -> str:
    lines = [
        f"erased: {len(done.erased.memory_ids)} memories and {len(done.erased.message_ids)} turns, with their history, "
        "and the summaries"
    ]
    looked = f"searched {done.files} files for {len(done.erased.texts)} texts"
    unexplained = [trace for trace in done.traces if not trace.explained and trace.file not in done.backups]
    lines.append(f"{looked}: {'found in none' if not done.traces else f'{len(unexplained)} unexplained traces'}")
    lines += [f"STILL THERE in {trace.file}: {trace.piece}" for trace in unexplained]
    lines += sorted({f"{trace.piece}: {trace.explained}" for trace in done.traces if trace.explained})
    lines += [f"backup that still holds it: {file} (purge with --backups deletes such)" for file in done.backups]
    return "\n".join([*lines, *(f"note: {note}" for note in done.notes)])


def _purged_json(done: Purged) -> dict[str, object]:
    return {
        "memories": list(done.erased.memory_ids),
        "turns": list(done.erased.message_ids),
        "files": done.files,
        "traces": [{"file": str(each.file), "text": each.piece, "explained": each.explained} for each in done.traces],
        "backups": [str(file) for file in done.backups],
        "clean": done.clean,
        "notes": list(done.notes),
    }


@app.command()
def rebuild(ctx: typer.Context, as_json: AsJson = False) -> None:
    """Make the full text and the vector index anew from the ledger."""

    async def work(memory: Memory) -> None:
        with progress("rebuilding") as told:
            rows, vectors = await memory.rebuild(told)
        folder = str(memory.projection.folder or "memory")
        content = {"full_text_rows": rows, "vectors": vectors, "index": folder}
        show(as_json, content, lambda: out.print(f"rebuilt: {rows} full-text rows, {vectors} vectors in {folder}"))

    with_memory(ctx, work)


@app.command()
def doctor(
    ctx: typer.Context,
    deep: Annotated[bool, typer.Option("--deep", help="Compare ledger, full text and index row by row.")] = False,
    repair: Annotated[bool, typer.Option("--repair", help="With --deep: make anew what does not agree.")] = False,
    as_json: AsJson = False,
) -> None:
    """Name every part and what is degraded; exit with 1 when something is."""

    async def looked() -> list[Finding]:
        if repair and not deep:
            raise InputError("--repair goes with --deep; nothing was done")
        settings = settings_of(ctx)
        findings = await examine(settings)
        if deep:
            with progress("comparing") as told:
                findings += examine_deeply(settings, told, repair=repair)
        return findings

    findings = run(looked)
    well = all(finding.ok for finding in findings)

    def table() -> None:
        shown = Table("part", "", "what was found", box=None)
        for finding in findings:
            shown.add_row(finding.part, "[green]ok[/]" if finding.ok else "[red]degraded[/]", plain(finding.text))
        out.print(shown)

    show(as_json, {"ok": well, "version": __version__, "findings": [asdict(each) for each in findings]}, table)
    if not well:
        raise typer.Exit(1)
