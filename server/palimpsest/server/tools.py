"""The tools: search, list, summary, history, add, update, delete."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from mcp import MCPError
from mcp.server import MCPServer
from mcp.server.elicitation import AcceptedElicitation, ElicitationResult, render_elicitation_schema
from mcp.server.mcpserver import Context, Elicit, Resolve
from mcp.types import (
    CallToolResult,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitResult,
    InputRequiredResult,
    TextContent,
    ToolAnnotations,
)
from pydantic import BaseModel, Field, WithJsonSchema

from palimpsest.core import validation
from palimpsest.core.clock import parse_instant, parse_until
from palimpsest.core.errors import InputError
from palimpsest.core.models import ABOUT_THE_PAST, ForgetQuestion, Message, Scope, probable
from palimpsest.core.validation import ConversationInput, ScopeInput
from palimpsest.server.access_tokens import current_user, may_write
from palimpsest.server.mcp_server import TOOL, mcp_errors
from palimpsest.server.replies import plain_text
from palimpsest.server.replies.advice import (
    IN_OTHER_PROJECT,
    LIST_TOKENS,
    TOOLS,
    elsewhere_notes,
    framed,
    general_notes,
    left_out_notes,
    other_project,
    unlisted_notes,
)
from palimpsest.server.replies.json_replies import (
    added_json,
    changed_json,
    deleted_all_json,
    history_json,
    message_history_json,
    page_json,
    search_json,
    summary_json,
)
from palimpsest.server.session.context import (
    asks_between_requests,
    can_ask_user,
    client_name,
    goes_through_projects,
    is_home_open,
    memory_of,
    named_project,
    named_user,
    news,
    result_or_question,
    scope_of,
    state_of,
    with_client_model,
)
from palimpsest.server.session.continuations import ClientReply, Continuation
from palimpsest.server.session.subscriptions import notify_changed
from palimpsest.server.tool_schemas import (
    FiltersArgument,
    MemoryId,
    MessagesArgument,
    ScopeArgument,
    SearchScopeArgument,
)
from palimpsest.text.intents import FORGOTTEN, question_note, quoted_texts

if TYPE_CHECKING:
    from palimpsest.learn.commit import WriteResult
    from palimpsest.memory import Memory


# The results that tools return.

CALLER = "mcp"
"""Who made a change, in the history of memories."""


def tool_result(text: str, content: Mapping[str, Any]) -> CallToolResult:
    """Return a result with the same content as text and as JSON, because clients show their model only one of them.

    Both say that memories are information and not instructions.
    """
    structured = {**content, "notes": [*content.get("notes", ()), ABOUT_THE_PAST]}
    return CallToolResult(content=[TextContent(type="text", text=framed(text))], structured_content=structured)


# Ask the user before much is forgotten (MCP elicitation).
#
# If the client cannot ask, its reply says how to confirm it.


class ForgetForm(BaseModel):
    """The form that the user is shown before much is forgotten."""

    forget: bool = Field(title="Forget it", description="It disappears from search and can be restored")


_Ask: TypeAlias = Callable[[ElicitRequestFormParams], Awaitable[ClientReply]]


async def with_answers(
    ctx: Context[Any, Any], memory: Memory, scope: Scope, result: WriteResult
) -> WriteResult | InputRequiredResult:
    """Return a result after its questions were asked and what the user agreed to was forgotten, or the next question.

    The result is returned as it is if the client cannot ask.
    """
    if not result.questions or not can_ask_user(ctx):
        return result
    if not asks_between_requests(ctx):
        return await _answered(memory, scope, result, lambda form: _ask_during_call(ctx, form))

    async def work(continuation: Continuation) -> WriteResult:
        return await _answered(memory, scope, result, lambda form: continuation.ask(ElicitRequest(params=form)))

    continuations, user = state_of(ctx).continuations, current_user()
    if not continuations.has_room(user):
        return result
    return await result_or_question(ctx, continuations.begin(user, work))


async def _ask_during_call(ctx: Context[Any, Any], form: ElicitRequestFormParams) -> ElicitResult:
    return await ctx.session.elicit_form(form.message, form.requested_schema, related_request_id=ctx.request_id)


async def _answered(memory: Memory, scope: Scope, result: WriteResult, ask: _Ask) -> WriteResult:
    """Ask the questions of a result one after the other, and forget what the user agrees to."""
    for question in result.questions:
        agreed = await _agrees(question, ask)
        if agreed is None:  # the note that says how to confirm it stays
            continue
        notes = tuple(note for note in result.notes if note != question_note(question))
        if not agreed:
            notes = (*notes, f"not forgotten, because the user said no: {question.what}")
            result = replace(result, notes=notes)
            continue
        forgotten = await memory.forget(scope, question.ids, what=question.what, caller=CALLER)
        quoted = "; ".join(f'"{text}"' for text in question.texts)
        notes = (*notes, f"{FORGOTTEN}({question.what}): {quoted}", *forgotten.notes)
        result = replace(result, notes=notes, outcomes=(*result.outcomes, *forgotten.outcomes))
    return replace(result, questions=())


async def _agrees(question: ForgetQuestion, ask: _Ask) -> bool | None:
    """Return whether the user agrees; None if the client did not ask."""
    message = f"Forget this ({question.what})? It is what was asked, as a model understood it: {quoted_texts(question)}"
    form = ElicitRequestFormParams(message=message, requested_schema=render_elicitation_schema(ForgetForm))
    try:
        reply = await ask(form)
    except MCPError:
        return None
    if not isinstance(reply, ElicitResult) or reply.action == "cancel":
        return None
    return reply.action == "accept" and (reply.content or {}).get("forget") is True


# The tools that only read: search, list, summary, history.


@mcp_errors(TOOL)
async def search_memories(
    ctx: Context[Any, Any],
    query: Annotated[str, Field(description="a question or keywords")],
    limit: Annotated[int, Field(description="1 to 100 hits")] = 10,
    max_tokens: Annotated[int, Field(description="size of all hits together, 50 to 20000")] = 800,
    filters: FiltersArgument = None,
    as_of: Annotated[str, Field(description="ISO 8601: what was recorded by then")] = "",
    scope: SearchScopeArgument = None,
) -> CallToolResult:
    """Search memories and messages by meaning and by words, best first. relevance: chance that a hit answers."""
    memory = await memory_of(ctx)
    search_scope = scope_of(ctx, memory, scope)
    unknown = await named_project(memory, scope, search_scope)
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
    notes = (*unknown, *named_user(scope, search_scope), *await news(memory, search_scope))
    result = replace(result, notes=(*result.notes, *notes))
    return tool_result(plain_text.search_text(result, search_scope), search_json(result, search_scope))


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
    about_scope = (*await named_project(memory, scope, list_scope), *named_user(scope, list_scope))
    page = replace(page, notes=(*page.notes, *unlisted_notes(page), *about_scope, *await news(memory, list_scope)))
    return tool_result(plain_text.page_text(page, list_scope), page_json(page, list_scope))


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
    return tool_result(plain_text.summary_text(summary, summary_scope), summary_json(summary, summary_scope))


@mcp_errors(TOOL)
async def get_history(ctx: Context[Any, Any], memory_id: MemoryId, scope: ScopeArgument = None) -> CallToolResult:
    """Read every version of a memory: what changed, when, and from which messages; or a message."""
    memory = await memory_of(ctx)
    read_scope = scope_of(ctx, memory, scope)
    owner = await memory.get(read_scope, memory_id)
    if isinstance(owner, Message):
        return tool_result(plain_text.whole_text(owner), message_history_json(owner))
    stored, versions = await memory.history(read_scope, owner.id)
    relatives = await memory.predecessors(read_scope, stored.id), await memory.linked(read_scope, stored)
    return tool_result(
        plain_text.history_text(stored, versions, *relatives), history_json(stored, versions, *relatives)
    )


# The tools that add and change memories.

BARE_LIST_SINCE = "2026-07-28"
"""Since this protocol version structured content may be a list. Before, it has to be an object."""


@mcp_errors(TOOL, "Nothing was stored.")
async def add_memory(  # noqa: PLR0913 - the arguments of the tool, which clients pass by name
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
    unknown = await named_project(memory, scope, write_scope)
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
        *unknown,
        *named_user(scope, write_scope),
        *await news(memory, write_scope),
    )
    result = replace(result, notes=(*result.notes, *notes))
    reply = added_json(result, write_scope)
    reply_text = plain_text.added_text(result, write_scope)
    if memory.settings.version == "v1.0":
        # Only the results, as Mem0 1.0 gives them.
        is_list = ctx.request_context.protocol_version >= BARE_LIST_SINCE
        results: Any = reply["results"] if is_list else {"result": reply["results"]}
        return CallToolResult(content=[TextContent(type="text", text=framed(reply_text))], structured_content=results)
    return tool_result(reply_text, reply)


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
    reply_text = (
        plain_text.restored_text(result, write_scope) if restore else plain_text.changed_text(result, write_scope)
    )
    await notify_changed(state_of(ctx).subscribers, result.outcomes)
    return tool_result(reply_text, changed_json(result, write_scope))


# The tool that deletes memories and messages, and the question to the user before everything is deleted.

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
        return tool_result(plain_text.changed_text(result, delete_scope), changed_json(result, delete_scope))
    if not (isinstance(answer, AcceptedElicitation) and (answer.data.delete or answer.data is NOT_ASKED)):
        raise InputError("the user was asked and said no; nothing was deleted. Do not call again unless they ask")
    user_agreed = answer.data.delete
    stored = await memory.scope_contents(delete_scope)
    confirmation = f"delete {stored}"
    if (stored.memories or stored.messages) and confirm != confirmation and not user_agreed:
        raise InputError(plain_text.confirm_delete_all_text(stored, delete_scope, confirmation))
    result = await memory.delete_all(delete_scope, caller=CALLER)
    result = replace(result, notes=(*result.notes, *named_user(scope, delete_scope)))
    await notify_changed(state_of(ctx).subscribers, result.outcomes)
    return tool_result(plain_text.all_deleted_text(result, delete_scope), deleted_all_json(result))


# Register the tools on a server.

READ = ToolAnnotations(read_only_hint=True, open_world_hint=False)
ADD = ToolAnnotations(read_only_hint=False, destructive_hint=False, open_world_hint=False)
UPDATE = ToolAnnotations(read_only_hint=False, destructive_hint=False, idempotent_hint=True, open_world_hint=False)
DELETE = ToolAnnotations(read_only_hint=False, destructive_hint=True, idempotent_hint=True, open_world_hint=False)

REGISTERED = (
    (add_memory, "Add a memory", ADD),
    (search_memories, "Search memories", READ),
    (list_memories, "List memories", READ),
    (update_memory, "Update a memory", UPDATE),
    (delete_memory, "Delete memories", DELETE),
    (get_summary, "Summary", READ),
    (get_history, "History", READ),
)
"""Each tool with its title and annotations, in the order that clients list them."""

READING_TOOLS = tuple(function.__name__ for function, _, hints in REGISTERED if hints is READ)


def add_tools(server: MCPServer[Any]) -> None:
    """Register all tools on the server. They build their results themselves, so they have no output schema."""
    for function, title, hints in REGISTERED:
        server.add_tool(function, title=title, annotations=hints, structured_output=False)
