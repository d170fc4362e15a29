"""The command that shows what is learned in the background."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from palimpsest.cli.console import AsJson, with_memory
from palimpsest.cli.options import CARE
from palimpsest.cli.output import Part, plain, print_result, table
from palimpsest.core.clock import iso, local_iso
from palimpsest.learn.background import model_use
from palimpsest.learn.background.reports import JobReport, shown_fact
from palimpsest.memory import Memory
from palimpsest.text.counting import counted

app = typer.Typer()


@app.command(rich_help_panel=CARE)
def jobs(
    ctx: typer.Context,
    retry: Annotated[bool, typer.Option("--retry", help="Work now on what waits or has failed.")] = False,
    as_json: AsJson = False,
) -> None:
    """List the work in the background: what waits and for what, what failed, and how often a model was asked."""

    async def work(memory: Memory) -> None:
        done = ""
        if retry:
            done = f"due at once: {counted(await memory.care.retry_jobs(), 'job')}"
        reports, use, settings = await memory.care.jobs(), await memory.care.model_use(), memory.settings
        values = {"jobs": [_as_json(report) for report in reports], "model": model_use.as_values(use, settings)}
        parts: list[Part] = [*([done] if done else []), _table(reports) if reports else "there are no jobs"]
        print_result(as_json, values, *parts, f"model: {model_use.in_words(use, settings)}", done=done)

    with_memory(ctx, work)


def _table(reports: Sequence[JobReport]) -> Part:
    rows = table("job", "scope", "since", "state", "failures", "result")
    for report in reports:
        job = report.job
        since, failures = local_iso(job.created_at), str(job.attempts or "")
        rows.add_row(_what(report), plain(str(job.scope)), since, job.state, failures, plain(_result(report)))
    return rows


def _what(report: JobReport) -> str:
    """Return the kind of a job and what it is about."""
    job = report.job
    about = [(len(job.message_ids), "message"), (len(job.memory_ids), "memory")]
    counts = " and ".join(counted(number, name) for number, name in about if number)
    return f"{job.kind} from {counts}" if counts else job.kind


def _result(report: JobReport) -> str:
    texts = [shown_fact(memory) for memory in report.memories]
    return "\n".join([*texts, *report.job.notes, *filter(None, (report.job.error, report.waits_for))])


def _as_json(report: JobReport) -> dict[str, Any]:
    job = report.job
    return {
        "kind": job.kind,
        "scope": str(job.scope),
        "state": job.state,
        "messages": list(job.message_ids),
        "memories": list(job.memory_ids),
        "created_at": iso(job.created_at),
        "due_at": iso(job.due_at),
        "finished_at": iso(job.finished_at) if job.finished_at else None,
        "failures": job.attempts,
        "error": job.error,
        "waits_for": report.waits_for,
        "learned": [
            {"id": memory.id, "memory": memory.text, "holds": memory.deleted_at is None} for memory in report.memories
        ],
        "notes": list(job.notes),
    }
