"""The tool that deletes memories and messages, and the question to the user before everything is deleted."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

from mcp.server.elicitation import AcceptedElicitation, ElicitationResult
from mcp.server.mcpserver import Context, Elicit, Resolve
from mcp.types import CallToolResult
from pydantic import BaseModel, Field

from palimpsest.core import validation
from palimpsest.core.errors import InputError
from palimpsest.core.validation import ScopeInput
from palimpsest.server.errors import TOOL, mcp_errors
from palimpsest.server.replies import render
from palimpsest.server.replies.models import ChangeReply, DeleteAllReply
from palimpsest.server.session.context import can_ask_user, memory_of, named_user, scope_of, state_of
from palimpsest.server.session.notifications import notify_changed
from palimpsest.server.tools.arguments import ScopeArgument
from palimpsest.server.tools.results import CALLER, tool_result

NOTHING_DELETED = "Nothing was deleted."


class DeleteAllForm(BaseModel):
    """The form that the user is shown before everything is deleted."""

    delete: bool = Field(title="Delete everything", description="It disappears from search and can be restored")


NOT_ASKED = DeleteAllForm(delete=False)


@mcp_errors(TOOL, NOTHING_DELETED)
async def ask_before_delete_all(
    ctx: Context[Any, Any],
    all: bool,  # noqa: A002, FBT001 - the tool's argument, found by its name
    confirm: str,
    scope: ScopeInput | None,
) -> Elicit[DeleteAllForm] | DeleteAllForm:
    """Return the question to the user, or `NOT_ASKED` if there is nothing to ask or the client cannot ask.

    A client that cannot ask its user has to send `confirm` instead.
    """
    if not all or confirm or not can_ask_user(ctx):
        return NOT_ASKED
    memory = await memory_of(ctx)
    delete_scope = scope_of(ctx, memory, scope)
    stored = await memory.scope_contents(delete_scope)
    if not stored.memories and not stored.messages:
        return NOT_ASKED
    return Elicit(f"Delete {stored} stored for {delete_scope}?", DeleteAllForm)


@mcp_errors(TOOL, NOTHING_DELETED)
async def delete_memory(
    ctx: Context[Any, Any],
    memory_ids: Annotated[list[str] | None, Field(description="ids, or their first 8 characters or more")] = None,
    all: Annotated[bool, Field(description="everything in the scope; ask the user first")] = False,  # noqa: A002 - its name in the schema
    confirm: Annotated[str, Field(description="with all: what the first reply asks for")] = "",
    scope: ScopeArgument = None,
    *,
    answer: Annotated[ElicitationResult[DeleteAllForm], Resolve(ask_before_delete_all)],
) -> CallToolResult:
    """Delete memories or messages. update_memory(restore=true) restores them."""
    memory = await memory_of(ctx)
    delete_scope = scope_of(ctx, memory, scope)
    if all == bool(memory_ids):
        raise InputError("give either memory_ids or all=true; nothing was deleted")
    if not all:
        ids = memory_ids or []
        validation.bounded("the number of memory_ids", len(ids), 1, validation.MAX_IDS)
        result = await memory.delete(delete_scope, ids, caller=CALLER)
        result = replace(result, notes=(*result.notes, *named_user(scope, delete_scope)))
        await notify_changed(state_of(ctx).subscribers, result.outcomes)
        return tool_result(render.changed_text(result, delete_scope), ChangeReply.of(result, delete_scope))
    if not (isinstance(answer, AcceptedElicitation) and (answer.data.delete or answer.data is NOT_ASKED)):
        raise InputError("the user was asked and said no; nothing was deleted. Do not call again unless they ask")
    user_agreed = answer.data.delete
    stored = await memory.scope_contents(delete_scope)
    confirmation = f"delete {stored}"
    if (stored.memories or stored.messages) and confirm != confirmation and not user_agreed:
        raise InputError(render.confirm_delete_all_text(stored, delete_scope, confirmation))
    result = await memory.delete_all(delete_scope, caller=CALLER)
    result = replace(result, notes=(*result.notes, *named_user(scope, delete_scope)))
    await notify_changed(state_of(ctx).subscribers, result.outcomes)
    return tool_result(render.all_deleted_text(result, delete_scope), DeleteAllReply.of(result))
