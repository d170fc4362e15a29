"""The command that shows what fades."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from palimpsest.cli.console import AsJson, with_memory
from palimpsest.cli.options import CARE
from palimpsest.cli.output import Part, plain, print_result, table
from palimpsest.core import validation
from palimpsest.core.clock import iso, shown_date
from palimpsest.core.validation import one_line
from palimpsest.facade.recall.forgetting import FadingMemory, FadingReport
from palimpsest.memory import Memory
from palimpsest.server.replies.notes import short
from palimpsest.text.counting import counted

app = typer.Typer()

MODES = {
    "off": "Forgetting is off: all of this is found as ever, and no use is noted, so only age counts here.",
    "rank": "Forgetting is on: what is remembered better comes first of what answers alike.",
    "archive": "Forgetting archives: a search without the filter faded=true leaves out what is below the bound.",
}


@app.command(rich_help_panel=CARE)
def fading(
    ctx: typer.Context,
    limit: Annotated[
        int,
        typer.Option(min=1, max=validation.MAX_LIMIT, metavar="NUMBER", help="How many memories to show, 1 to 100."),
    ] = 20,
    as_json: AsJson = False,
) -> None:
    """Show which memories fade, what is forgotten first, and why."""

    async def work(memory: Memory) -> None:
        report = await memory.fading.report(memory.scope)
        print_result(as_json, _as_json(report, limit), *_parts(report, limit))

    with_memory(ctx, work)


def _parts(report: FadingReport, limit: int) -> list[Part]:
    bound, total = report.forgetting.bound, len(report.fading)
    parts: list[Part] = [MODES[report.forgetting.mode]]
    if report.fading:
        parts.append(_table(report.fading[:limit]))
    parts.append(f"{report.faded} of {counted(total, 'memory')} that may fade {_are(report.faded)} below {bound:g}")
    if report.kept:
        reasons = ", ".join(f"{count} {reason}" for reason, count in report.kept.items())
        parts.append(f"{counted(sum(report.kept.values()), 'memory')} never {_fade(report)}: {reasons}")
    return parts


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def _fade(report: FadingReport) -> str:
    return "fades" if sum(report.kept.values()) == 1 else "fade"


def _table(items: tuple[FadingMemory, ...]) -> Part:
    rows = table("id", "R", "fades on", "last", "S", "days", "tag", "what", title="what is forgotten first")
    for item in items:
        fading, last = item.fading, shown_date(item.fading.last_at)
        fades_at = shown_date(fading.fades_at) if fading.fades_at is not None else "never"
        numbers = (f"{fading.retention:.2f}", fades_at, last, str(fading.strength), f"{fading.days:g}")
        rows.add_row(short(item.memory.id), *numbers, plain(fading.tag), plain(one_line(item.memory.text)))
    return rows


def _as_json(report: FadingReport, limit: int) -> dict[str, Any]:
    return {
        "forgetting": report.forgetting.mode,
        "bound": report.forgetting.bound,
        "memories": len(report.fading),
        "faded": report.faded,
        "never_fade": dict(report.kept),
        "results": [_item_as_json(item) for item in report.fading[:limit]],
    }


def _item_as_json(item: FadingMemory) -> dict[str, Any]:
    fading = item.fading
    return {
        "id": item.memory.id,
        "memory": item.memory.text,
        "retention": round(fading.retention, 4),
        "strength": fading.strength,
        "days": fading.days,
        "tag": fading.tag,
        "last_at": iso(fading.last_at),
        "used_at": iso(fading.used_at) if fading.used_at is not None else None,
        "fades_at": iso(fading.fades_at) if fading.fades_at is not None else None,
    }
