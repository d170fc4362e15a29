"""Commands that change one memory or delete it: edit, delete, undelete."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from palimpsest.cli.arguments import edited, metadata_from_words, text_given
from palimpsest.cli.console import CALLER, AsJson, exit_on_error, run_async, settings_of, with_memory
from palimpsest.cli.options import MEMORIES
from palimpsest.cli.output import print_note, print_result
from palimpsest.core import models, validation
from palimpsest.core.errors import InputError
from palimpsest.learn.edit import ScopeContents, deleted_error
from palimpsest.memory import Memory, open_memory
from palimpsest.server.replies import render
from palimpsest.server.replies.models import ChangeReply, DeleteAllReply
from palimpsest.server.replies.notes import COMMANDS
from palimpsest.text.control_characters import visible

app = typer.Typer()

MemoryId = Annotated[str, typer.Argument(metavar="ID", help="The id, or its first 8 characters or more.")]


@app.command(rich_help_panel=MEMORIES)
def edit(
    ctx: typer.Context,
    memory_id: MemoryId,
    text: Annotated[
        str | None,
        typer.Argument(
            metavar="TEXT", help="The complete new text; - reads standard input. Default: an editor opens it."
        ),
    ] = None,
    metadata: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="Metadata to set; KEY= removes a key. May be repeated."),
    ] = None,
    editor: Annotated[
        str, typer.Option(metavar="PROGRAM", envvar=["VISUAL", "EDITOR"], help="The program that opens the text.")
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Give a memory another text or other metadata. The history keeps the old ones."""
    changes = exit_on_error(lambda: metadata_from_words(metadata or (), may_remove=True))
    file: Path | None = None
    before: models.Memory | None = None
    if text is not None:
        given = text
        text = exit_on_error(lambda: text_given(given))
    elif not changes:
        opened = before = _memory_to_edit(ctx, memory_id)
        text, file = exit_on_error(lambda: edited(opened.text, editor))

    async def work(memory: Memory) -> None:
        if before is not None and await memory.get(memory.scope, before.id) != before:
            raise InputError(f"memory '{before.id[:8]}' was changed while you edited it. Nothing was changed")
        result = await memory.update(
            memory.scope,
            memory_id,
            text=validation.text_from(text) if text is not None else None,
            metadata=validation.metadata_from(changes),
            caller=CALLER,
        )
        if file is not None:
            file.unlink(missing_ok=True)
        reply = render.changed_text(result, memory.scope, COMMANDS)
        print_result(as_json, ChangeReply.of(result, memory.scope, COMMANDS).as_json(), reply, done=reply)

    try:
        with_memory(ctx, work)
    finally:
        if file is not None and file.exists():
            print_note(f"your text is kept in {file}")


def _memory_to_edit(ctx: typer.Context, memory_id: str) -> models.Memory:
    """Return the memory to open in an editor, whose ledger is closed meanwhile. Exits as `exit_on_error` does."""

    async def read() -> models.Memory:
        async with open_memory(settings_of(ctx), background=False) as memory:
            found, _ = await memory.history(memory.scope, memory_id)
        if found.deleted_at is not None:
            raise deleted_error(found)
        return found

    return run_async(read)


@app.command(rich_help_panel=MEMORIES)
def delete(
    ctx: typer.Context,
    ids: Annotated[
        list[str] | None,
        typer.Argument(metavar="ID...", help="Ids of memories and messages, or their first 8 characters or more."),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Delete everything stored in the scope.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="With --all: do not ask for confirmation.")] = False,
    as_json: AsJson = False,
) -> None:
    """Delete memories and messages. They are no longer found, and can be restored with undelete or undo."""

    async def work(memory: Memory) -> None:
        scope = memory.scope
        if everything == bool(ids):
            raise InputError("give either ids or --all. Nothing was deleted")
        if ids:
            result = await memory.delete(scope, ids, caller=CALLER)
            text = render.changed_text(result, scope, COMMANDS)
            print_result(as_json, ChangeReply.of(result, scope, COMMANDS).as_json(), text, done=text)
            return
        stored = await memory.scope_contents(scope)
        if not yes and (stored.memories or stored.messages):
            typer.confirm(visible(_question(stored, scope)), abort=True, err=True)
        result = await memory.delete_all(scope, caller=CALLER)
        text = render.all_deleted_text(result, scope, COMMANDS)
        print_result(as_json, DeleteAllReply.of(result).as_json(), text, done=text)

    with_memory(ctx, work)


def _question(stored: ScopeContents, scope: models.Scope) -> str:
    kept = "what is outside the project stays" if scope.project else "what belongs to projects stays"
    return f"Delete {stored} of {scope} ({kept})?"


@app.command(rich_help_panel=MEMORIES)
def undelete(ctx: typer.Context, memory_id: MemoryId, as_json: AsJson = False) -> None:
    """Restore a deleted or replaced memory, or a deleted message. palimpsest list --deleted has their ids."""

    async def work(memory: Memory) -> None:
        result = await memory.restore(memory.scope, memory_id, caller=CALLER)
        text = render.restored_text(result, memory.scope)
        print_result(as_json, ChangeReply.of(result, memory.scope, COMMANDS).as_json(), text, done=text)

    with_memory(ctx, work)
