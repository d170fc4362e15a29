"""The tools that only read: search, list, summary, history."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

from mcp.server.mcpserver import Context
from mcp.types import CallToolResult, InputRequiredResult
from pydantic import Field

from palimpsest.core import validation
from palimpsest.core.clock import parse_until
from palimpsest.core.models import Message
from palimpsest.core.search.hits import probable
from palimpsest.server.auth.access import may_write
from palimpsest.server.errors import TOOL, mcp_errors
from palimpsest.server.replies import render
from palimpsest.server.replies.history import HistoryReply
from palimpsest.server.replies.models import PageReply, SearchReply, SummaryReply
from palimpsest.server.replies.notes import (
    IN_OTHER_PROJECT,
    LIST_TOKENS,
    TOOLS,
    elsewhere_notes,
    other_project,
    unlisted_notes,
)
from palimpsest.server.session.context import (
    client_name,
    goes_through_projects,
    is_home_open,
    memory_of,
    named_user,
    scope_of,
)
from palimpsest.server.session.news import news
from palimpsest.server.session.sampling import with_client_model
from palimpsest.server.tools.arguments import FiltersArgument, MemoryId, ScopeArgument, SearchScopeArgument
from palimpsest.server.tools.results import CALLER, tool_result


@mcp_errors(TOOL)
async def search_memories(
    ctx: Context[Any, Any],
    query: Annotated[str, Field(description="a question or keywords")],
    limit: Annotated[int, Field(description="1 to 100 hits")] = 10,
    max_tokens: Annotated[int, Field(description="size of all hits together, 50 to 20000")] = 800,
    filters: FiltersArgument = None,
    as_of: Annotated[str, Field(description="ISO 8601: what was believed then")] = "",
    scope: SearchScopeArgument = None,
) -> CallToolResult:
    """Search memories and messages by meaning and by words, best first. relevance: chance that a hit answers."""
    memory = await memory_of(ctx)
    search_scope = scope_of(ctx, memory, scope)
    result = await memory.search(
        search_scope,
        validation.query_from(query),
        limit=validation.bounded("limit", limit, 1, validation.MAX_LIMIT),
        max_tokens=validation.bounded("max_tokens", max_tokens, 50, validation.MAX_TOKENS),
        filters=filters,
        as_of=parse_until(as_of, "as_of", memory.zone) if as_of else None,
        explain=memory.settings.explain,
        all_projects=goes_through_projects(scope),
        is_use=may_write(),
        caller=client_name(ctx),
    )
    if not result.hits and (search_scope.agent_id or search_scope.run_id):
        note = f"only what was stored for {search_scope} was searched; leave agent_id and run_id out to search more"
        result = replace(result, notes=(*result.notes, note))
    if not probable(result.hits) and is_home_open(None) and not goes_through_projects(scope):
        when = parse_until(as_of, "as_of", memory.zone) if as_of else None
        projects = await memory.projects_that_answer(search_scope, query, filters=filters, as_of=when)
        result = replace(result, notes=(*result.notes, *elsewhere_notes(projects, TOOLS)))
    if any(other_project(hit, search_scope) for hit in result.hits):
        result = replace(result, notes=(*result.notes, IN_OTHER_PROJECT))
    result = replace(result, notes=(*result.notes, *named_user(scope, search_scope), *await news(memory, search_scope)))
    return tool_result(render.search_text(result, search_scope), SearchReply.of(result, search_scope))


@mcp_errors(TOOL)
async def list_memories(
    ctx: Context[Any, Any],
    filters: FiltersArgument = None,
    limit: Annotated[int, Field(description="1 to 100")] = 20,
    cursor: Annotated[str, Field(description="from the previous page")] = "",
    deleted: Annotated[bool, Field(description="list deleted ones instead")] = False,
    scope: ScopeArgument = None,
) -> CallToolResult:
    """List memories in pages, newest first; messages with filters={"kind": "message"}."""
    memory = await memory_of(ctx)
    list_scope = scope_of(ctx, memory, scope)
    page = await memory.list(
        list_scope,
        limit=validation.bounded("limit", limit, 1, validation.MAX_LIMIT),
        max_tokens=LIST_TOKENS,
        cursor=cursor or None,
        deleted=deleted,
        filters=filters,
    )
    page = replace(
        page,
        notes=(*page.notes, *unlisted_notes(page), *named_user(scope, list_scope), *await news(memory, list_scope)),
    )
    return tool_result(render.page_text(page, list_scope), PageReply.of(page, list_scope))


@mcp_errors(TOOL)
async def get_summary(
    ctx: Context[Any, Any],
    kind: Annotated[
        str,
        Field(
            description="overall, recent (two weeks), profile, project, procedures, session (the last; session:ID), "
            "day:2026-11-21, about:NAME"
        ),
    ] = "overall",
    refresh: Annotated[bool, Field(description="rewrite it first")] = False,
    scope: ScopeArgument = None,
) -> CallToolResult | InputRequiredResult:
    """Read a short summary of what is known."""
    memory = await memory_of(ctx)
    summary_scope = scope_of(ctx, memory, scope)
    summary = await with_client_model(
        ctx, memory, lambda memory: memory.summary(summary_scope, kind, refresh=refresh, caller=CALLER)
    )
    if isinstance(summary, InputRequiredResult):
        return summary
    summary = replace(
        summary, notes=(*summary.notes, *named_user(scope, summary_scope), *await news(memory, summary_scope))
    )
    return tool_result(render.summary_text(summary, summary_scope), SummaryReply.of(summary, summary_scope))


@mcp_errors(TOOL)
async def get_history(ctx: Context[Any, Any], memory_id: MemoryId, scope: ScopeArgument = None) -> CallToolResult:
    """Read every version of a memory: what changed, when, and from which messages; or a message."""
    memory = await memory_of(ctx)
    read_scope = scope_of(ctx, memory, scope)
    owner = await memory.get(read_scope, memory_id)
    if isinstance(owner, Message):
        return tool_result(render.whole_text(owner), HistoryReply.of_message(owner))
    stored, versions = await memory.history(read_scope, owner.id)
    relatives = await memory.predecessors(read_scope, stored.id), await memory.linked(read_scope, stored)
    return tool_result(render.history_text(stored, versions, *relatives), HistoryReply.of(stored, versions, *relatives))
