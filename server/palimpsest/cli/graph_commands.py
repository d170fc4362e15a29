"""Commands on entities and the graph."""

from __future__ import annotations

from typing import Any

import typer

from palimpsest.cli.console import CALLER, AsJson, Commands, Memory, Reply, command
from palimpsest.cli.lazy import advice, dossier, entity_graph, output, replies, validation
from palimpsest.core.clock import parse_range, parse_until, shown_date
from palimpsest.core.models import EntityType, GraphForm

# Commands on entities: list them, show what is known about one, and say who is the same as whom.

# The command of `entity` that need not be named.
SHOW = "show"


class EntityCommands(Commands):
    """The commands of `entity`. A call that names none of them shows an entity: `palimpsest entity Ana`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the command that need not be named before the arguments."""
        if args and args[0] not in self.commands and args[0] not in ctx.help_option_names:
            args = [SHOW, *args]
        return super().parse_args(ctx, args)


app = typer.Typer()
entity = typer.Typer(
    cls=EntityCommands, no_args_is_help=True, help="Show what is known about somebody or something, and correct it."
)
app.add_typer(entity, name="entity")


@command(app, "entities")
async def entities(memory: Memory, kind: EntityType | None = None, limit: int = 20) -> Reply:
    """List the people, places and things that memories mention, the one mentioned last first."""
    listed = await memory.graph.entities(memory.scope, type=kind, limit=limit)
    rows = output.Rows("id", "type", "memories", "last", "name")
    for item in listed:
        known = item.entity
        name = f"{known.name} (the user)" if known.is_user else known.name
        rows.add_row(advice.short(known.id), known.type, item.mentions, shown_date(item.mentioned_at), name)
    nothing = f"no {kind} is known yet" if kind else replies.NO_ENTITIES
    return Reply(replies.entities_json(listed), rows if listed else nothing)


@command(entity, "entity show")
async def show(memory: Memory, name: str, as_of: str = "", held_at: str = "") -> Reply:
    """Show what is known about somebody or something. The word show can be left out."""
    instant = parse_until(as_of, "--as-of", memory.zone) if as_of else None
    span = parse_range(held_at, "--held-at", memory.zone) if held_at else None
    found = await memory.graph.dossiers(memory.scope, name, as_of=instant, held_at=span)
    texts = ["\n".join(lines) for lines in dossier.lines_of(found, validation.MAX_TOKENS)]
    return Reply({"entities": [replies.dossier_json(dossier) for dossier in found]}, "\n\n".join(texts))


@command(entity, "entity merge")
async def merge(memory: Memory, name: str, into: str) -> Reply:
    """Say that two entities are one."""
    return _edited(await memory.graph.merge(memory.scope, name, into, caller=CALLER))


@command(entity, "entity split")
async def split(memory: Memory, name: str, memory_ids: list[str], new_name: str = "") -> Reply:
    """Say that some memories are about another one of the name."""
    return _edited(await memory.graph.split(memory.scope, name, memory_ids, new_name=new_name, caller=CALLER))


@command(entity, "entity rename")
async def rename(memory: Memory, name: str, new_name: str, kind: EntityType | None = None) -> Reply:
    """Give an entity another name, and a type if one is given."""
    return _edited(await memory.graph.rename(memory.scope, name, new_name, type=kind, caller=CALLER))


def _edited(edited: entity_graph.EntityEdited) -> Reply:
    return Reply(replies.edited_json(edited), replies.edited_text(edited), done=True)


# The command that writes the graph as a drawing, or as data for other programs.


@command(app, "graph")
async def graph(
    memory: Memory,
    form: GraphForm = "mermaid",
    about: str = "",
    limit: int = 100,
    as_of: str = "",
    held_at: str = "",
    as_json: AsJson = False,
) -> None:
    """Draw how people, places and things are connected now, or were at a time. --json is --format json."""
    instant = parse_until(as_of, "--as-of", memory.zone) if as_of else None
    span = parse_range(held_at, "--held-at", memory.zone) if held_at else None
    found = await memory.graph.subgraph(memory.scope, about=about, limit=limit, as_of=instant, held_at=span)
    with output.printing():
        output.print_file([entity_graph.written(found, "json" if as_json else form)])
    if not found.relations:
        output.print_note("no relation is known here; a language model states them, or who adds a text with relations")
    elif len(found.relations) == limit:
        output.print_note(f"these are the newest {limit:,} relations; a larger --limit shows more")
