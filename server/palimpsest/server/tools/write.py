"""The tools that add and change memories."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

from mcp.server.mcpserver import Context
from mcp.types import CallToolResult, InputRequiredResult
from pydantic import Field, WithJsonSchema

from palimpsest.core import validation
from palimpsest.core.clock import parse_instant
from palimpsest.core.errors import InputError
from palimpsest.core.models import Scope
from palimpsest.core.validation import ConversationInput
from palimpsest.server.errors import TOOL, mcp_errors
from palimpsest.server.replies import render
from palimpsest.server.replies.models import AddReply, ChangeReply
from palimpsest.server.replies.notes import TOOLS, general_notes, left_out_notes
from palimpsest.server.session.context import is_home_open, memory_of, named_user, scope_of, state_of
from palimpsest.server.session.news import news
from palimpsest.server.session.notifications import notify_changed
from palimpsest.server.session.sampling import with_client_model
from palimpsest.server.tools.arguments import MemoryId, MessagesArgument, ScopeArgument
from palimpsest.server.tools.questions import with_answers
from palimpsest.server.tools.results import CALLER, tool_result

if TYPE_CHECKING:
    from palimpsest.learn.apply import WriteResult
    from palimpsest.memory import Memory

BARE_LIST_SINCE = "2026-07-28"
"""Since this protocol version structured content may be a list. Before, it has to be an object."""


@mcp_errors(TOOL, "Nothing was stored.")
async def add_memory(  # noqa: PLR0913, PLR0917 - the arguments of the tool, which clients pass by name
    ctx: Context[Any, Any],
    text: Annotated[str, Field(description="one fact in your own words; give text or messages")] = "",
    messages: MessagesArgument = None,
    at: Annotated[str, Field(description="said or true since, ISO 8601; default now")] = "",
    replaces: Annotated[list[str] | None, Field(description="ids of memories that text supersedes")] = None,
    relations: Annotated[
        list[list[str]] | None,
        WithJsonSchema(
            {
                "type": "array",
                "items": {"type": "array", "items": {"type": "string"}},
                "description": "what text states: [[source, name, destination]]",
            }
        ),
    ] = None,
    infer: Annotated[
        bool | None,
        Field(description="leave out; true: split text into facts; false: no model is asked"),
    ] = None,
    metadata: Annotated[
        dict[str, Any] | None, Field(description="stored with text, for filters; pinned=true heads every session")
    ] = None,
    scope: ScopeArgument = None,
) -> CallToolResult | InputRequiredResult:
    """Store one fact, or the facts of a conversation. The reply says what was added, changed or already known."""
    memory = await memory_of(ctx)
    write_scope = scope_of(ctx, memory, scope)
    has_text, moved_from = not validation.is_no_text(text), ""
    if has_text == bool(messages):
        problem = "text and messages were both given" if messages else "neither text nor messages was given"
        raise InputError(f"{problem}; give one of them. Nothing was stored.")
    if messages:
        if replaces or metadata or at or relations:
            raise InputError(
                "at, replaces, relations and metadata go with text; each of the messages has an at of its own. "
                "Nothing was stored."
            )
        conversation = validation.conversation_from(messages, write_scope, memory.engine.clock())
        work = _add_messages(conversation, infer=infer, stays_in_project=not is_home_open(scope))
    else:
        if infer and (replaces or metadata or relations):
            raise InputError(
                "infer=true extracts facts from text; leave out replaces, relations and metadata, or infer"
            )
        if is_home_open(scope):
            stated = validation.relations_from(relations or ())
            home = await memory.home_of(write_scope, validation.text_from(text), stated, replaces or ())
            write_scope, moved_from = home, write_scope.project if home != write_scope else ""
        said_at = parse_instant(at, "at", memory.zone) if at else None
        work = _add_text(write_scope, text, said_at, replaces or (), metadata, relations or (), infer=infer)
    result = await with_client_model(ctx, memory, work)
    if not isinstance(result, InputRequiredResult):
        result = await with_answers(ctx, memory, write_scope, result)
    if isinstance(result, InputRequiredResult):
        return result
    await notify_changed(state_of(ctx).subscribers, result.outcomes)
    notes = (
        *general_notes(moved_from, TOOLS, is_successor=bool(replaces)),
        *named_user(scope, write_scope),
        *await news(memory, write_scope),
    )
    result = replace(result, notes=(*result.notes, *notes))
    reply = AddReply.of(result, write_scope)
    reply_text = render.added_text(result, write_scope)
    if memory.settings.version == "v1.0":
        return tool_result(reply_text, _bare_list(reply, ctx.request_context.protocol_version))
    return tool_result(reply_text, reply)


def _bare_list(reply: AddReply, protocol_version: str) -> Any:
    """Return only the results, as Mem0 1.0 does."""
    results = reply.as_json()["results"]
    return results if protocol_version >= BARE_LIST_SINCE else {"result": results}


def _add_text(
    scope: Scope,
    text: str,
    said_at: datetime | None,
    replaces: Sequence[str],
    metadata: dict[str, Any] | None,
    relations: Sequence[Sequence[str]],
    *,
    infer: bool | None,
) -> Callable[[Memory], Awaitable[WriteResult]]:
    """Return the work of storing a text. Raises InputError if it, its metadata or relations are not valid."""
    checked_text, checked_metadata = validation.text_from(text), validation.metadata_from(metadata)
    checked_relations = validation.relations_from(relations)
    return lambda memory: memory.add_text(
        scope,
        checked_text,
        at=said_at,
        replaces=replaces,
        metadata=checked_metadata,
        relations=checked_relations,
        infer=infer,
        caller=CALLER,
    )


def _add_messages(
    conversation: ConversationInput, *, infer: bool | None, stays_in_project: bool
) -> Callable[[Memory], Awaitable[WriteResult]]:
    """Return the work of storing a conversation. Its result notes what was left out."""

    async def work(memory: Memory) -> WriteResult:
        result = await memory.add_messages(
            conversation.messages,
            context=conversation.context,
            infer=infer,
            caller=CALLER,
            stays_in_project=stays_in_project,
        )
        return replace(result, notes=(*result.notes, *left_out_notes(conversation.left_out)))

    return work


@mcp_errors(TOOL, "Nothing was changed.")
async def update_memory(
    ctx: Context[Any, Any],
    memory_id: MemoryId,
    text: Annotated[str, Field(description="the complete new text")] = "",
    metadata: Annotated[dict[str, Any] | None, Field(description="keys to set; null removes one")] = None,
    restore: Annotated[bool, Field(description="restore it after it was deleted")] = False,
    scope: ScopeArgument = None,
) -> CallToolResult:
    """Correct or complete a memory, or restore a deleted one. The old text stays in its history."""
    memory = await memory_of(ctx)
    write_scope = scope_of(ctx, memory, scope)
    if restore and (text or metadata):
        raise InputError("restore cannot be combined with text or metadata; restore first, then update")
    if restore:
        result = await memory.restore(write_scope, memory_id, caller=CALLER)
    else:
        has_text = not validation.is_no_text(text)
        if not has_text and not metadata:
            raise InputError("give text, metadata or restore=true")
        result = await memory.update(
            write_scope,
            memory_id,
            text=validation.text_from(text) if has_text else None,
            metadata=validation.metadata_from(metadata),
            caller=CALLER,
        )
    result = replace(result, notes=(*result.notes, *named_user(scope, write_scope)))
    reply_text = render.restored_text(result, write_scope) if restore else render.changed_text(result, write_scope)
    await notify_changed(state_of(ctx).subscribers, result.outcomes)
    return tool_result(reply_text, ChangeReply.of(result, write_scope))
