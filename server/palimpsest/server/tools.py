"""The MCP tools: validate, call the facade, shape the reply."""

from __future__ import annotations

import signal
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

from mcp.server.elicitation import AcceptedElicitation, ElicitationResult
from mcp.server.mcpserver import Context, Elicit, Resolve
from mcp.types import CallToolResult, InputRequiredResult, ToolAnnotations
from pydantic import BaseModel, Field, WithJsonSchema

from palimpsest.core import validation
from palimpsest.core.clock import now, parse_until
from palimpsest.core.errors import InputError
from palimpsest.core.validation import ConversationInput, MessageInput, ScopeInput
from palimpsest.server import prompts, render
from palimpsest.server.app import can_ask, mcp, opened, reply, scope_of, told
from palimpsest.server.resources import announce
from palimpsest.server.sampling import with_model

if TYPE_CHECKING:
    from palimpsest.learn.apply import WriteResult
    from palimpsest.memory import Memory

CALLER = "mcp"

BARE_LIST_SINCE = "2026-07-28"
"""From this protocol version on structured content may be a list; before, it is an object."""

ScopeArgument = Annotated[
    ScopeInput | None,
    WithJsonSchema({"type": "object", "description": "leave out unless told; user_id project agent_id run_id"}),
]
FiltersArgument = Annotated[
    dict[str, Any] | None,
    Field(
        description='{"topic": "x", "at": {"gte": "2026-01-01"}}: gt gte lt lte ne in nin on at, created_at, role, '
        "kind, tags, metadata keys; AND OR NOT nest"
    ),
]


@mcp.tool(
    title="Remember",
    annotations=ToolAnnotations(read_only_hint=False, destructive_hint=False, open_world_hint=False),
    structured_output=False,
)
async def add_memory(
    ctx: Context[Any, Any],
    text: Annotated[str, Field(description="one fact, in your words; or give messages")] = "",
    messages: Annotated[list[MessageInput] | None, Field(description="turns of a conversation, oldest first")] = None,
    replaces: Annotated[list[str] | None, Field(description="ids of memories that text supersedes")] = None,
    infer: Annotated[
        bool | None,
        Field(description="leave out; true: split text into facts; false: no model is asked"),
    ] = None,
    metadata: Annotated[dict[str, Any] | None, Field(description="kept with text, for filters")] = None,
    scope: ScopeArgument = None,
) -> CallToolResult | InputRequiredResult:
    """Learn one fact, or what a conversation holds. The reply says what was added, changed or already known."""
    async with told("Nothing was stored."):
        memory = await opened(ctx)
        where = scope_of(memory, scope)
        if bool(text.strip()) == bool(messages):
            both = "text and messages were both given" if messages else "neither text nor messages was given"
            raise InputError(f"{both}; give one of them. Nothing was stored.")
        if messages:
            if replaces or metadata:
                raise InputError("replaces and metadata go with text, not with messages; nothing was stored")
            done = await with_model(ctx, memory, _learning(validation.conversation_from(messages, where, now()), infer))
        else:
            if infer and (replaces or metadata):
                raise InputError("with infer=true facts are extracted; leave out replaces and metadata, or infer")
            fact, about = validation.text_from(text), validation.metadata_from(metadata)
            done = await with_model(
                ctx,
                memory,
                lambda lent: lent.add_text(
                    where, fact, replaces=replaces or (), metadata=about, infer=infer, caller=CALLER
                ),
            )
        if isinstance(done, InputRequiredResult):
            return done
        await announce(ctx, done.outcomes)
        content: Any = render.done_json(done, done.notes, where)
        if memory.settings.version == "v1.0":
            bare = content["results"]
            content = bare if ctx.request_context.protocol_version >= BARE_LIST_SINCE else {"result": bare}
        return reply(render.done_text(done, done.notes, where), content)


def _learning(turns: ConversationInput, infer: bool | None) -> Callable[[Memory], Awaitable[WriteResult]]:  # noqa: FBT001 - the tool's argument
    """Return the work of learning from turns; those without text are told of."""

    async def work(memory: Memory) -> WriteResult:
        done = await memory.add_messages(turns.messages, context=turns.context, infer=infer, caller=CALLER)
        skipped = [f"{turns.skipped} messages without text skipped"] if turns.skipped else []
        return replace(done, notes=(*done.notes, *skipped))

    return work


@mcp.tool(
    title="Recall",
    annotations=ToolAnnotations(read_only_hint=True, open_world_hint=False),
    structured_output=False,
)
async def search_memories(
    ctx: Context[Any, Any],
    query: Annotated[str, Field(description="what you want to know, as a question or key words")],
    limit: Annotated[int, Field(description="1 to 100 hits")] = 10,
    max_tokens: Annotated[int, Field(description="50 to 20000: room for all hits together")] = 800,
    filters: FiltersArgument = None,
    as_of: Annotated[str, Field(description="ISO 8601: what was believed by then")] = "",
    scope: ScopeArgument = None,
) -> CallToolResult:
    """Find memories and turns of conversations by meaning and by words, best first; the last may be off the point."""
    async with told():
        memory = await opened(ctx)
        where = scope_of(memory, scope)
        answer = await memory.search(
            where,
            validation.query_from(query),
            limit=validation.bounded("limit", limit, 1, validation.MAX_LIMIT),
            max_tokens=validation.bounded("max_tokens", max_tokens, 50, validation.MAX_TOKENS),
            filters=filters,
            as_of=parse_until(as_of, "as_of") if as_of else None,
            explain=memory.settings.explain,
        )
        if not answer.hits and (where.agent_id or where.run_id):
            narrow = (
                f"only what was stored for {where} was searched; without agent_id and run_id in scope there is more"
            )
            answer = replace(answer, notes=(*answer.notes, narrow))
        return reply(render.answer_text(answer, where), render.answer_json(answer, where))


@mcp.tool(
    title="List memories",
    annotations=ToolAnnotations(read_only_hint=True, open_world_hint=False),
    structured_output=False,
)
async def list_memories(
    ctx: Context[Any, Any],
    filters: FiltersArgument = None,
    limit: Annotated[int, Field(description="1 to 100")] = 20,
    cursor: Annotated[str, Field(description="from the last page")] = "",
    deleted: Annotated[bool, Field(description="list what was deleted instead")] = False,
    scope: ScopeArgument = None,
) -> CallToolResult:
    """Page through the memories (not the turns), newest first."""
    async with told():
        memory = await opened(ctx)
        where = scope_of(memory, scope)
        page = await memory.list(
            where,
            limit=validation.bounded("limit", limit, 1, validation.MAX_LIMIT),
            cursor=cursor or None,
            deleted=deleted,
            filters=filters,
        )
        return reply(render.page_text(page, where), render.page_json(page, where))


@mcp.tool(
    title="Correct a memory",
    annotations=ToolAnnotations(
        read_only_hint=False, destructive_hint=False, idempotent_hint=True, open_world_hint=False
    ),
    structured_output=False,
)
async def update_memory(
    ctx: Context[Any, Any],
    memory_id: Annotated[str, Field(description="id, or its first 8 characters or more")],
    text: Annotated[str, Field(description="the whole new text")] = "",
    metadata: Annotated[dict[str, Any] | None, Field(description="keys to set; null removes one")] = None,
    restore: Annotated[bool, Field(description="bring a deleted one back")] = False,
    scope: ScopeArgument = None,
) -> CallToolResult:
    """Correct or complete a memory, or bring a deleted one back. The old text stays in its history."""
    async with told("Nothing was changed."):
        memory = await opened(ctx)
        where = scope_of(memory, scope)
        if restore and (text or metadata):
            raise InputError("restore goes alone; restore first, then update. Nothing was done.")
        if restore:
            done = await memory.restore(where, memory_id, caller=CALLER)
            await announce(ctx, done.outcomes)
            return reply(render.restored_text(done, where), render.changes_json(done, where))
        if not text.strip() and not metadata:
            raise InputError("give text, metadata or restore=true; nothing was done")
        done = await memory.update(
            where,
            memory_id,
            text=validation.text_from(text) if text.strip() else None,
            metadata=validation.metadata_from(metadata),
            caller=CALLER,
        )
        await announce(ctx, done.outcomes)
        return reply(render.changes_text(done, where), render.changes_json(done, where))


class Deletion(BaseModel):
    """What the user is asked before everything is deleted."""

    delete: bool = Field(title="Delete all of it", description="It leaves every search, and can be brought back")


NOT_ASKED = Deletion(delete=False)


async def ask_before_all(
    ctx: Context[Any, Any],
    all: bool,  # noqa: A002, FBT001 - the tool's argument, by its name
    confirm: str,
    scope: ScopeInput | None,
) -> Elicit[Deletion] | Deletion:
    """Return the question to the user where the client can ask it; elsewhere the agent brings the confirmation."""
    if not all or confirm or not can_ask(ctx):
        return NOT_ASKED
    async with told():
        memory = await opened(ctx)
        where = scope_of(memory, scope)
        there = await memory.stored(where)
    return Elicit(f"Delete {there} stored for {where}?", Deletion) if there.memories or there.messages else NOT_ASKED


@mcp.tool(
    title="Forget",
    annotations=ToolAnnotations(
        read_only_hint=False, destructive_hint=True, idempotent_hint=True, open_world_hint=False
    ),
    structured_output=False,
)
async def delete_memory(
    ctx: Context[Any, Any],
    memory_ids: Annotated[list[str] | None, Field(description="ids, or their first 8 characters or more")] = None,
    all: Annotated[bool, Field(description="every memory of the scope; ask the user first")] = False,  # noqa: A002 - its name in the schema
    confirm: Annotated[str, Field(description="with all: what the first reply asks for")] = "",
    scope: ScopeArgument = None,
    *,
    answer: Annotated[ElicitationResult[Deletion], Resolve(ask_before_all)],
) -> CallToolResult:
    """Forget memories or turns. They leave every search and can be brought back with update_memory(restore=true)."""
    async with told("Nothing was deleted."):
        memory = await opened(ctx)
        where = scope_of(memory, scope)
        if all == bool(memory_ids):
            raise InputError("give either memory_ids or all=true; nothing was deleted")
        if not all:
            ids = memory_ids or []
            validation.bounded("the number of memory_ids", len(ids), 1, validation.MAX_IDS)
            done = await memory.delete(where, ids, caller=CALLER)
            await announce(ctx, done.outcomes)
            return reply(render.changes_text(done, where), render.changes_json(done, where))
        if not (isinstance(answer, AcceptedElicitation) and (answer.data.delete or answer.data is NOT_ASKED)):
            raise InputError("the user was asked and said no; nothing was deleted. Do not call again unless they ask")
        agreed = answer.data.delete
        there = await memory.stored(where)
        wanted = f"delete {there}"
        if (there.memories or there.messages) and confirm != wanted and not agreed:
            raise InputError(render.would_delete_text(there, where, wanted))
        done = await memory.delete_all(where, caller=CALLER)
        await announce(ctx, done.outcomes)
        return reply(render.all_deleted_text(done, where), {"deleted": len(done.outcomes), "notes": list(done.notes)})


@mcp.tool(
    title="Summary",
    annotations=ToolAnnotations(read_only_hint=True, open_world_hint=False),
    structured_output=False,
)
async def get_summary(
    ctx: Context[Any, Any],
    kind: Annotated[str, Field(description="'overall': who the user is; 'recent': the last two weeks")] = "overall",
    refresh: Annotated[bool, Field(description="write it anew first")] = False,
    scope: ScopeArgument = None,
) -> CallToolResult | InputRequiredResult:
    """Read what is known, in a paragraph."""
    async with told():
        memory = await opened(ctx)
        where = scope_of(memory, scope)
        found = await with_model(ctx, memory, lambda lent: lent.summary(where, kind, refresh=refresh, caller=CALLER))
        if isinstance(found, InputRequiredResult):
            return found
        return reply(render.summary_text(found, where), render.summary_json(found, where))


@mcp.tool(
    title="History",
    annotations=ToolAnnotations(read_only_hint=True, open_world_hint=False),
    structured_output=False,
)
async def get_history(
    ctx: Context[Any, Any],
    memory_id: Annotated[str, Field(description="id, or its first 8 characters or more")],
    scope: ScopeArgument = None,
) -> CallToolResult:
    """Read every version of a memory: what changed it, when, from which messages."""
    async with told():
        memory = await opened(ctx)
        found, entries = await memory.history(scope_of(memory, scope), memory_id)
        return reply(render.history_text(found, entries), render.history_json(found, entries))


prompts.add_to(mcp)


def run_stdio() -> None:
    """Serve over stdin and stdout until stdin ends, or the process is interrupted, which ends it at once.

    Nothing is lost by that: what was acknowledged is committed. Python's own handling of an interrupt would wait for
    the thread that reads stdin.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    mcp.run("stdio")
