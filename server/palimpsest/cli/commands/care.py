"""The commands that look after a memory: log, undo, purge, rebuild and doctor."""

from __future__ import annotations

from collections.abc import Sized
from dataclasses import asdict
from typing import Annotated

import typer
from rich.text import Text

from palimpsest import __version__
from palimpsest.care.doctor import Finding, examine
from palimpsest.care.purge import PurgeResult
from palimpsest.care.verify import verify, verify_graph
from palimpsest.cli.clients.catalog import Folders
from palimpsest.cli.clients.overview import clients_finding
from palimpsest.cli.console import CALLER, AsJson, progress_bar, run_async, settings_of, with_memory
from palimpsest.cli.options import CARE, MEMORIES
from palimpsest.cli.output import plain, print_result, table
from palimpsest.core import validation
from palimpsest.core.clock import parse_instant
from palimpsest.core.errors import InputError
from palimpsest.core.models import Undo
from palimpsest.memory import Memory
from palimpsest.server.auth.findings import token_findings
from palimpsest.server.replies import render
from palimpsest.server.replies.history import EditsReply
from palimpsest.server.replies.models import ChangeReply
from palimpsest.server.replies.notes import COMMANDS
from palimpsest.text.control_characters import visible
from palimpsest.text.counting import counted

app = typer.Typer()

SHOWN_TEXTS = 5
"""Texts that purge shows before it asks."""


@app.command(rich_help_panel=MEMORIES)
def log(
    ctx: typer.Context,
    limit: Annotated[int, typer.Option(min=1, max=validation.MAX_LIMIT, help="The largest number of edits.")] = 20,
    before: Annotated[int | None, typer.Option(help="Only edits with a smaller number.")] = None,
    as_json: AsJson = False,
) -> None:
    """List the edits, newest first, each with the number that undo takes."""

    async def work(memory: Memory) -> None:
        edits = await memory.log(memory.scope, limit=limit, before=before)
        print_result(as_json, EditsReply.of(edits).as_json(), render.edits_text(edits))

    with_memory(ctx, work)


@app.command(rich_help_panel=MEMORIES)
def undo(
    ctx: typer.Context,
    change: Annotated[int | None, typer.Option(help="The number of the edit, from palimpsest log.")] = None,
    since: Annotated[str, typer.Option(help="An ISO 8601 date or time. Undo every edit since then.")] = "",
    as_json: AsJson = False,
) -> None:
    """Undo the newest edit, one edit by its number, or every edit since a time. An undo can itself be undone."""

    async def work(memory: Memory) -> None:
        if change is not None and since:
            raise InputError("--change and --since exclude each other. Nothing was undone. Give one of them")
        selection = Undo(change, parse_instant(since, "--since", memory.zone) if since else None)
        result = await memory.undo(memory.scope, selection, caller=CALLER)
        text = render.changed_text(result, memory.scope, COMMANDS)
        reply = ChangeReply.of(result, memory.scope, COMMANDS)
        print_result(as_json, reply.as_json(), text, done=text)

    with_memory(ctx, work)


@app.command(rich_help_panel=MEMORIES)
def purge(
    ctx: typer.Context,
    ids: Annotated[list[str] | None, typer.Argument(help="Ids of memories and messages, deleted or not.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Erase everything stored in the scope.")] = False,
    backups: Annotated[bool, typer.Option("--backups", help="Also delete the backups that contain any of it.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    as_json: AsJson = False,
) -> None:
    """Erase memories for good, with the messages they came from, and search the files to prove it.

    This cannot be undone.
    """

    async def work(memory: Memory) -> None:
        if everything == bool(ids):
            raise InputError("give either ids or --all. Nothing was erased")
        owner_ids = None if everything else ids
        selection = await memory.care.purge_selection(memory.scope, owner_ids)
        if not yes:
            counts = f"{_counted(selection.memory_ids, selection.message_ids)} of {memory.scope}"
            examples = "".join(f"\n  {' '.join(text.split())[:100]}" for text in selection.texts[:SHOWN_TEXTS])
            typer.confirm(visible(f"Erase {counts} for good?{examples}\n"), abort=True, err=True)
        result = await memory.care.purge(memory.scope, owner_ids, and_backups=backups)
        text = _purge_text(result)
        print_result(as_json, _purge_json(result), text, done=text)
        if not result.clean:
            raise typer.Exit(1)

    with_memory(ctx, work)


def _purge_text(result: PurgeResult) -> str:
    erased = result.erased
    unexplained = [trace for trace in result.traces if not trace.explained and trace.file not in result.backups]
    outcome = counted(len(unexplained), "unexplained trace") if result.traces else "none was found"
    tables = f"{counted(result.tables, 'table')} and " if result.tables else ""
    lines = [
        f"erased: {_counted(erased.memory_ids, erased.message_ids)} with their history, and the summaries",
        f"searched {tables}{counted(result.files, 'file')} for {counted(len(erased.texts), 'text')}: {outcome}",
        *(f"STILL IN {trace.file}: {trace.piece}" for trace in unexplained),
        *sorted({f"{trace.piece}: {trace.explained}" for trace in result.traces if trace.explained}),
        *(f"STILL IN THE BACKUP {file}: delete it, or use purge --backups next time" for file in result.backups),
        *(f"note: {note}" for note in result.notes),
    ]
    return "\n".join(lines)


def _counted(memory_ids: Sized, message_ids: Sized) -> str:
    return f"{counted(len(memory_ids), 'memory')} and {counted(len(message_ids), 'message')}"


def _purge_json(result: PurgeResult) -> dict[str, object]:
    return {
        "memories": list(result.erased.memory_ids),
        "turns": list(result.erased.message_ids),
        "files": result.files,
        "traces": [
            {"file": str(trace.file), "text": trace.piece, "explained": trace.explained} for trace in result.traces
        ],
        "backups": [str(file) for file in result.backups],
        "clean": result.clean,
        "notes": list(result.notes),
    }


@app.command(rich_help_panel=CARE)
def rebuild(
    ctx: typer.Context,
    graph: Annotated[bool, typer.Option("--graph", help="Rebuild the graph database outside instead.")] = False,
    as_json: AsJson = False,
) -> None:
    """Rebuild the full text and the vector index from the ledger, or the graph database outside."""

    async def rebuild_graph(memory: Memory) -> None:
        with progress_bar("rebuilding") as progress:
            address, nodes, edges = await memory.care.rebuild_graph(progress)
        content = {"address": address, "entities": nodes, "relations": edges}
        text = f"rebuilt: {counted(nodes, 'entity')}, {counted(edges, 'relation')} in {address}"
        print_result(as_json, content, text, done=text)

    async def work(memory: Memory) -> None:
        with progress_bar("rebuilding") as progress:
            rows, vectors = await memory.care.rebuild(progress)
        folder = str(memory.projection.folder or "memory")
        content = {"full_text_rows": rows, "vectors": vectors, "index": folder}
        text = f"rebuilt: {counted(rows, 'full-text row')}, {counted(vectors, 'vector')} in {folder}"
        print_result(as_json, content, text, done=text)

    with_memory(ctx, rebuild_graph if graph else work)


@app.command(rich_help_panel=CARE)
def doctor(
    ctx: typer.Context,
    deep: Annotated[
        bool, typer.Option("--deep", help="Compare the ledger, the full text and the index row by row.")
    ] = False,
    repair: Annotated[bool, typer.Option("--repair", help="With --deep: rebuild what differs.")] = False,
    as_json: AsJson = False,
) -> None:
    """Examine every part. Exit with 1 if one is degraded."""

    async def all_findings() -> list[Finding]:
        if repair and not deep:
            raise InputError("--repair needs --deep. Nothing was repaired")
        settings = settings_of(ctx)
        findings = await examine(settings)
        if deep:
            with progress_bar("comparing") as progress:
                findings += verify(settings, progress, repair=repair)
                findings += await verify_graph(settings, progress, repair=repair)
        return [*findings, *token_findings(settings), clients_finding(Folders.of_this_machine())]

    findings = run_async(all_findings)
    ok = all(finding.ok for finding in findings)
    rows = table("part", "", "finding")
    for finding in findings:
        state = Text("ok", "green") if finding.ok else Text("degraded", "red")
        rows.add_row(finding.part, state, plain(finding.text))
    content = {"ok": ok, "version": __version__, "findings": [asdict(finding) for finding in findings]}
    print_result(as_json, content, rows)
    if not ok:
        raise typer.Exit(1)
