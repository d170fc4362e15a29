"""Commands that look after a memory: log, undo, purge, rebuild, doctor, fading, enrich."""

import typer

from palimpsest import __version__
from palimpsest.cli.console import CALLER, Memory, Reply, Settings, command, progress_bar
from palimpsest.cli.lazy import access_tokens, advice, catalog, installation, models, output, replies, validation
from palimpsest.cli.memory_commands import changed_reply
from palimpsest.core.clock import parse_instant, shown_date
from palimpsest.core.errors import InputError
from palimpsest.text.display import counted

# The commands that look after a memory: log, undo, purge, rebuild and doctor.

app = typer.Typer()

# Texts that purge shows before it asks.
SHOWN_TEXTS = 5


@command(app, "log")
async def log(memory: Memory, limit: int = 20, before: int | None = None) -> Reply:
    """List the edits, newest first, each with the number that undo takes."""
    edits = await memory.log(memory.scope, limit=limit, before=before)
    return Reply(replies.edits_json(edits), replies.edits_text(edits))


@command(app, "undo")
async def undo(memory: Memory, edit: int | None = None, since: str = "") -> Reply:
    """Undo the newest edit, one edit by its number, or every edit since a time. An undo can itself be undone."""
    if edit is not None and since:
        raise InputError("--edit and --since exclude each other. Nothing was undone. Give one of them")
    selection = models.Undo(edit, parse_instant(since, "--since", memory.zone) if since else None)
    return changed_reply(await memory.undo(memory.scope, selection, caller=CALLER), memory.scope)


@command(app, "purge")
async def purge(
    memory: Memory, ids: list[str] | None = None, everything: bool = False, backups: bool = False, yes: bool = False
) -> Reply:
    """Erase memories for good, with the messages they came from, and search the files to prove it.

    This cannot be undone.
    """
    if everything == bool(ids):
        raise InputError("give either ids or --all. Nothing was erased")
    owner_ids = None if everything else ids
    selection = await memory.care.purge_selection(memory.scope, owner_ids)
    if not yes:
        counts = output.counts(len(selection.memory_ids), len(selection.message_ids))
        examples = "".join(f"\n  {' '.join(text.split())[:100]}" for text in selection.texts[:SHOWN_TEXTS])
        output.confirm(f"Erase {counts} of {memory.scope} for good?{examples}\n")
    result = await memory.care.purge(memory.scope, owner_ids, and_backups=backups)
    erased = result.erased
    unexplained = [trace for trace in result.traces if not trace.explained and trace.file not in result.backups]
    outcome = counted(len(unexplained), "unexplained trace") if result.traces else "none was found"
    tables = f"{counted(result.tables, 'table')} and " if result.tables else ""
    counts = output.counts(len(erased.memory_ids), len(erased.message_ids))
    lines = [
        f"erased: {counts} with their history, and the summaries",
        f"searched {tables}{counted(result.files, 'file')} for {counted(len(erased.texts), 'text')}: {outcome}",
        *(f"STILL IN {trace.file}: {trace.piece}" for trace in unexplained),
        *sorted({f"{trace.piece}: {trace.explained}" for trace in result.traces if trace.explained}),
        *(f"STILL IN THE BACKUP {file}: delete it, or use purge --backups next time" for file in result.backups),
        *output.notes_text(result.notes),
    ]
    content = {
        **replies.picked(result, "memories=erased.memory_ids messages=erased.message_ids files"),
        "traces": [replies.picked(trace, "file text=piece explained") for trace in result.traces],
        "backups": list(map(str, result.backups)),
        **replies.picked(result, "clean notes"),
    }
    return Reply(content, "\n".join(lines), done=True, ok=result.clean)


@command(app, "rebuild")
async def rebuild(memory: Memory, graph: bool = False) -> Reply:
    """Rebuild the full text and the vector index from the ledger, or the graph database outside."""
    with progress_bar("rebuilding") as progress:
        if graph:
            place, nodes, edges = await memory.care.rebuild_graph(progress)
            content = {"address": place, "entities": nodes, "relations": edges}
            counts = f"{counted(nodes, 'entity')}, {counted(edges, 'relation')}"
        else:
            rows, vectors = await memory.care.rebuild(progress)
            place = str(memory.projection.folder or "memory")
            content = {"full_text_rows": rows, "vectors": vectors, "index": place}
            counts = f"{counted(rows, 'full-text row')}, {counted(vectors, 'vector')}"
    return Reply(content, f"rebuilt: {counts} in {place}", done=True)


@command(app, "doctor")
async def doctor(settings: Settings, deep: bool = False, repair: bool = False) -> Reply:
    """Examine every part. Exit with 1 if one is degraded."""
    if repair and not deep:
        raise InputError("--repair needs --deep. Nothing was repaired")
    from palimpsest.admin import doctor as checks  # noqa: PLC0415 - it imports the memory

    findings = await checks.examine(settings)
    if deep:
        with progress_bar("comparing") as progress:
            findings += checks.verify(settings, progress, repair=repair)
    findings += access_tokens.token_findings(settings)
    findings.append(installation.clients_finding(catalog.Folders.of_this_machine()))
    ok = all(finding.ok for finding in findings)
    rows = output.Rows("part", "", "finding")
    for finding in findings:
        state = output.Text("ok", "green") if finding.ok else output.Text("degraded", "red")
        rows.add_row(finding.part, state, finding.text)
    return Reply({"ok": ok, "version": __version__, "findings": findings}, rows, ok=ok)


# The commands that give old memories hints, and show what fades.


@command(app, "enrich")
async def enrich(memory: Memory, limit: int | None = None, dry_run: bool = False) -> Reply:
    """Let the language model write hints for memories that have none, in the background.

    Hints are questions that a memory answers, and other words for it, by which it is found.
    """
    found = await memory.care.enrich(limit, dry_run=dry_run)
    content = {**replies.picked(found, "without_hints=without chosen calls"), "edit": found.edit or None}
    lines = [f"{counted(found.without, 'memory')} of {memory.scope} {'has' if found.without == 1 else 'have'} no hints"]
    if found.chosen:
        work = f"{counted(found.chosen, 'memory')} in about {counted(found.calls, 'call')} of the model"
        lines.append(f"queued: {work}, within the daily limit" if found.edit else f"would be queued: {work}")
    if found.edit:
        lines.append("A server that runs does it in the background, palimpsest jobs --retry does it now.")
        lines.append(f"palimpsest undo --edit {found.edit} takes the hints back.")
    return Reply(content, "\n".join(lines), done=True)


@command(app, "fading")
async def fading(memory: Memory, limit: int = 20) -> Reply:
    """Show which memories fade, what is forgotten first, and why."""
    report = await memory.fading.report(memory.scope)
    content = {
        **replies.picked(report, "forgetting=forgetting.mode bound=forgetting.bound"),
        "memories": len(report.fading),
        **replies.picked(report, "faded never_fade=kept"),
        "results": [
            {
                **replies.picked(item, "id=memory.id memory=memory.text"),
                "retention": round(item.fading.retention, 4),
                **replies.picked(item.fading, "strength days tag last_at used_at fades_at"),
            }
            for item in report.fading[:limit]
        ],
    }
    bound, total = report.forgetting.bound, len(report.fading)
    parts: list[output.Part] = [f"forgetting = {report.forgetting.mode}"]
    rows = output.Rows("id", "R", "fades on", "last", "S", "days", "tag", "what", title="what is forgotten first")
    for item in report.fading[:limit]:
        fading, last = item.fading, shown_date(item.fading.last_at)
        fades_at = shown_date(fading.fades_at) if fading.fades_at is not None else "never"
        numbers = (f"{fading.retention:.2f}", fades_at, last, fading.strength, f"{fading.days:g}")
        rows.add_row(advice.short(item.memory.id), *numbers, fading.tag, validation.one_line(item.memory.text))
    parts += [rows] if report.fading else []
    parts.append(f"below {bound:g}: {report.faded} of {counted(total, 'memory')} that may fade")
    if report.kept:
        parts.append("never fade: " + ", ".join(f"{count} {reason}" for reason, count in report.kept.items()))
    return Reply(content, *parts)
