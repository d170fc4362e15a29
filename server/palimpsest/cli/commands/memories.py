"""Commands that add, search, list and show memories."""

from __future__ import annotations

from typing import Annotated

import typer

from palimpsest.cli.console import (
    CALLER,
    AsJson,
    with_memory,
)
from palimpsest.cli.options import MEMORIES
from palimpsest.cli.output import hits_table, print_result, search_parts, shortened_text
from palimpsest.core import validation
from palimpsest.core.clock import parse_instant, parse_until
from palimpsest.core.models import Message
from palimpsest.memory import Memory
from palimpsest.server.replies import render
from palimpsest.server.replies.history import HistoryReply
from palimpsest.server.replies.models import AddReply, PageReply, SearchReply, SummaryReply
from palimpsest.server.replies.notes import COMMANDS

app = typer.Typer()

Limit = Annotated[int, typer.Option(min=1, max=validation.MAX_LIMIT, help="The largest number of results.")]


@app.command(rich_help_panel=MEMORIES)
def add(
    ctx: typer.Context,
    text: Annotated[str, typer.Argument(help="One fact, as a sentence.")],
    at: Annotated[
        str, typer.Option(help="An ISO 8601 date or time: when it was said or holds from. Default: now.")
    ] = "",
    replaces: Annotated[
        list[str] | None, typer.Option(help="Id of a memory that it replaces. May be repeated.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Store one fact."""

    async def work(memory: Memory) -> None:
        scope = memory.scope
        said_at = parse_instant(at, "--at") if at else None
        result = await memory.add_text(
            scope, validation.text_from(text), at=said_at, replaces=replaces or (), caller=CALLER
        )
        reply = render.added_text(result, scope, COMMANDS)
        print_result(as_json, AddReply.of(result, scope, COMMANDS).as_json(), reply, done=reply)

    with_memory(ctx, work)


@app.command(rich_help_panel=MEMORIES)
def search(
    ctx: typer.Context,
    query: Annotated[str, typer.Argument(help="A question or keywords.")],
    limit: Limit = 10,
    as_of: Annotated[str, typer.Option(help="An ISO 8601 date or time. Search the memory as it was then.")] = "",
    explain: Annotated[bool, typer.Option(help="Show the parts of each hit's score.")] = False,
    as_json: AsJson = False,
) -> None:
    """Search memories and messages by meaning and by words."""

    async def work(memory: Memory) -> None:
        instant = parse_until(as_of, "--as-of") if as_of else None
        answer = await memory.search(
            memory.scope,
            validation.query_from(query),
            limit=limit,
            max_tokens=validation.MAX_TOKENS,
            as_of=instant,
            explain=explain or memory.settings.explain,
        )
        print_result(as_json, SearchReply.of(answer, memory.scope).as_json(), *search_parts(answer, query))

    with_memory(ctx, work)


@app.command("list", rich_help_panel=MEMORIES)
def list_(
    ctx: typer.Context,
    limit: Limit = 20,
    cursor: Annotated[str | None, typer.Option(help="The cursor that the previous page ended with.")] = None,
    deleted: Annotated[bool, typer.Option(help="List deleted memories instead.")] = False,
    as_json: AsJson = False,
) -> None:
    """List memories page by page, newest first."""

    async def work(memory: Memory) -> None:
        page = await memory.list(memory.scope, limit=limit, cursor=cursor, deleted=deleted)
        parts = [hits_table(page.hits, f"memories of {memory.scope}"), *shortened_text(page.hits)]
        if page.cursor:
            parts.append(f"more: --cursor {page.cursor}")
        print_result(as_json, PageReply.of(page, memory.scope).as_json(), *parts)

    with_memory(ctx, work)


@app.command(rich_help_panel=MEMORIES)
def history(ctx: typer.Context, memory_id: str, as_json: AsJson = False) -> None:
    """Show every version of a memory, or the whole text of a message."""

    async def work(memory: Memory) -> None:
        owner = await memory.get(memory.scope, memory_id)
        if isinstance(owner, Message):
            reply, text = HistoryReply.of_message(owner), render.whole_text(owner)
        else:
            stored, versions = await memory.history(memory.scope, owner.id)
            predecessors = await memory.predecessors(stored.id)
            reply = HistoryReply.of(stored, versions, predecessors)
            text = render.history_text(stored, versions, predecessors)
        print_result(as_json, reply.as_json(), text)

    with_memory(ctx, work)


@app.command(rich_help_panel=MEMORIES)
def summary(
    ctx: typer.Context,
    kind: Annotated[str, typer.Option(help="overall or recent.")] = "overall",
    refresh: Annotated[bool, typer.Option(help="Write it again first.")] = False,
    as_json: AsJson = False,
) -> None:
    """Summarize the memory in a paragraph."""

    async def work(memory: Memory) -> None:
        result = await memory.summary(memory.scope, kind, refresh=refresh, caller=CALLER)
        text = render.summary_text(result, memory.scope, COMMANDS)
        print_result(as_json, SummaryReply.of(result, memory.scope).as_json(), text)

    with_memory(ctx, work)
