"""The command that writes the graph as a drawing, or as data for other programs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from palimpsest.cli.commands.graph.entities import AsOf, Hops
from palimpsest.cli.console import AsJson, with_memory
from palimpsest.cli.options import GRAPH
from palimpsest.cli.output import print_file, print_note, print_text, printing
from palimpsest.core.clock import parse_until
from palimpsest.core.errors import InputError
from palimpsest.core.files import replace_file
from palimpsest.facade.graph.formats import GraphForm, Subgraph, written
from palimpsest.memory import Memory
from palimpsest.text.counting import counted

app = typer.Typer()


@app.command(rich_help_panel=GRAPH)
def graph(
    ctx: typer.Context,
    form: Annotated[GraphForm, typer.Option("--format", help="What to write.")] = "mermaid",
    about: Annotated[str, typer.Option(metavar="NAME", help="Only what is near this one.")] = "",
    hops: Hops = 1,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="How many relations at most, the newest.")] = 100,
    as_of: AsOf = "",
    output: Annotated[Path | None, typer.Option(metavar="FILE", help="A new file. Default: it is printed.")] = None,
    as_json: AsJson = False,
) -> None:
    """Draw how people, places and things are connected now, or were at a time. --json is --format json."""

    async def work(memory: Memory) -> None:
        instant = parse_until(as_of, "--as-of", memory.zone) if as_of else None
        scope = memory.scope
        found = await memory.graph.subgraph(scope, about=about, hops=hops, limit=limit, as_of=instant)
        _write(found, "json" if as_json else form, output)
        if not found.relations:
            print_note("no relation is known here; a language model states them, or whoever adds a text with relations")
        elif len(found.relations) == limit:
            print_note(f"these are the newest {limit:,} relations; a larger --limit shows more")

    with_memory(ctx, work)


def _write(found: Subgraph, form: GraphForm, output: Path | None) -> None:
    text = written(found, form)
    if output is None:
        with printing():
            print_file([text])
        return
    if output.exists():
        raise InputError(f"{output} already exists. Nothing was written. Name a new file")
    try:
        with replace_file(output) as file:
            file.write(text)
    except OSError as error:
        raise InputError(f"{output} cannot be written: {error}") from error
    counts = f"{counted(len(found.entities), 'entity')} and {counted(len(found.relations), 'relation')}"
    done = f"wrote {counts} to {output}"
    print_text(done, done=done, soft_wrap=True)
