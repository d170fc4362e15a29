"""Export a user's memory: as JSON lines without loss, or as Markdown for reading. Blocking."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Literal, TextIO

from palimpsest.care.transfer.export_format import header_of, line_of
from palimpsest.core.errors import InputError
from palimpsest.core.files import replace_file
from palimpsest.core.models import Scope
from palimpsest.core.protocols import Progress
from palimpsest.core.validation import one_line
from palimpsest.learn.engine import Engine
from palimpsest.store.queries import memories as memory_queries
from palimpsest.store.queries import summaries as summary_queries
from palimpsest.store.writes import transfer as transfer_writes
from palimpsest.text.control_characters import visible


def export(
    engine: Engine,
    scope: Scope,
    out: Path | TextIO,
    form: Literal["jsonl", "markdown"],
    progress: Progress,
    *,
    one_project: bool = False,
) -> int:
    """Write a user's memory to a new file (mode 0600) or to a stream, and return the number of items. Blocking.

    "jsonl" holds everything: all projects, history and deleted memories. "markdown" holds the current memories, for
    reading; with `one_project` only those that the scope's project sees. Raises InputError if the file exists or cannot
    be written; then no file is left.
    """
    if one_project and form == "jsonl":
        raise InputError("an export as JSON lines holds all projects. Nothing was exported. Export Markdown")
    write = _write_lines if form == "jsonl" else partial(_write_markdown, one_project=one_project)
    if not isinstance(out, Path):
        return write(engine, scope, out, progress)
    if out.exists():
        raise InputError(f"{out} already exists. Nothing was written. Name a new file, or use - for standard output")
    try:
        with replace_file(out) as file:
            return write(engine, scope, file, progress)
    except OSError as error:
        raise InputError(f"{out} cannot be written: {error}. Nothing was exported") from error


def _write_lines(engine: Engine, scope: Scope, out: TextIO, progress: Progress) -> int:
    with engine.ledger.read() as conn:
        total = transfer_writes.count(conn, scope.user_id)
        out.write(line_of(header_of(scope.user_id)))
        for number, item in enumerate(transfer_writes.export_items(conn, scope.user_id), 1):
            out.write(line_of(item))
            progress(number, total)
    return total


def _write_markdown(engine: Engine, scope: Scope, out: TextIO, progress: Progress, *, one_project: bool) -> int:
    zone = engine.ledger.zones.of(scope.user_id)
    with engine.ledger.read() as conn:
        projects = memory_queries.projects_of(conn, scope.user_id)
        if one_project:
            projects = [project for project in projects if project in (scope.beside, scope.project)]
        out.write(f"# Memories of {scope.user_id}\n")
        total = 0
        for number, project in enumerate(projects, 1):
            memories = memory_queries.memories_of(conn, Scope(scope.user_id, project))
            of_project = Scope(scope.user_id, project, with_general=scope.with_general)
            summary = summary_queries.current_summary(conn, of_project, "overall")
            out.write(f"\n## {f'Project {project}' if project else 'Global'}\n\n")
            if summary is not None:
                out.write(f"{visible(summary.text)}\n\n")
            out.writelines(
                f"- {memory.in_zone(zone).date} {visible(one_line(memory.text))} `{memory.id[:8]}`\n"
                for memory in memories
            )
            total += len(memories)
            progress(number, len(projects))
    return total
