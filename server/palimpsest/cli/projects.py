"""The commands that list projects, and move what is in one to another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from palimpsest.cli.console import CALLER, AsJson, with_memory
from palimpsest.cli.output import Part, plain, print_result, table
from palimpsest.core.clock import iso, shown_date
from palimpsest.core.git_project import Project
from palimpsest.facade.projects import MoveResult
from palimpsest.memory import Memory
from palimpsest.text.counting import counted

app = typer.Typer()

DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say what would be moved.")]


@app.callback(invoke_without_command=True)
def projects(ctx: typer.Context, as_json: AsJson = False) -> None:
    """List projects, rename one, or merge two. Without a command: list them."""
    if ctx.invoked_subcommand is not None:
        return

    async def work(memory: Memory) -> None:
        found = await memory.projects.list()
        part = _table(found) if found else "there are no projects; memories of no project are in palimpsest list"
        print_result(as_json, {"projects": [_as_json(project) for project in found]}, part)

    with_memory(ctx, work)


@app.command()
def move(
    ctx: typer.Context,
    old: Annotated[str, typer.Argument(help="The name of a project.")],
    new: Annotated[str, typer.Argument(help="A name that no project has.")],
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Give a project another name. A backup is made first."""

    async def work(memory: Memory) -> None:
        result = await memory.projects.move(old, new, caller=CALLER, dry_run=dry_run)
        _print(as_json, result)

    with_memory(ctx, work)


@app.command()
def merge(
    ctx: typer.Context,
    old: Annotated[str, typer.Argument(help="The project that ends.")],
    new: Annotated[str, typer.Argument(help="The project that it becomes part of.")],
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Move everything in one project into another. A backup is made first."""

    async def work(memory: Memory) -> None:
        result = await memory.projects.merge(old, new, caller=CALLER, dry_run=dry_run)
        _print(as_json, result)

    with_memory(ctx, work)


def _table(found: Sequence[Project]) -> Part:
    rows = table("project", "memories", "messages", "last used", "known by")
    for project in found:
        used_at = shown_date(project.used_at) if project.used_at else ""
        aliases = "\n".join(f"{alias.kind} {alias.alias}" for alias in project.aliases)
        rows.add_row(plain(project.name), str(project.memories), str(project.messages), used_at, plain(aliases))
    return rows


def _as_json(project: Project) -> dict[str, Any]:
    return {
        "name": project.name,
        "aliases": [{"kind": alias.kind, "alias": alias.alias} for alias in project.aliases],
        "memories": project.memories,
        "messages": project.messages,
        "last_used": iso(project.used_at) if project.used_at else None,
    }


def _print(as_json: bool, result: MoveResult) -> None:  # noqa: FBT001 - the option's value
    move, backup = result.move, result.backup
    what = f"{counted(move.memories, 'memory')} and {counted(move.messages, 'message')}, deleted ones included"
    lines = [f"{'moved' if backup else 'would move'} from {move.old} to {move.new}: {what}"]
    if move.same_memories or move.same_messages:
        same = f"{counted(move.same_memories, 'memory')} and {counted(move.same_messages, 'message')}"
        lines.append(
            f"of these, {same} {'were' if backup else 'are'} in both projects; one of each stays, no text is lost"
        )
    if backup:
        lines.append(
            f'palimpsest undo cannot take this back; palimpsest restore "{backup}" brings back what was before'
        )
    content = {
        "from": move.old,
        "to": move.new,
        "memories": move.memories,
        "messages": move.messages,
        "memories_in_both": move.same_memories,
        "messages_in_both": move.same_messages,
        "backup": str(backup) if backup else None,
    }
    print_result(as_json, content, *lines, done="\n".join(lines) if backup else "", soft_wrap=True)
