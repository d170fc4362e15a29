"""The tools: search, list, summary, history, add, update, delete."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from inspect import getdoc
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
from pydantic import BaseModel, Field

from palimpsest.core import validation
from palimpsest.core.clock import parse_instant, parse_until
from palimpsest.core.errors import InputError
from palimpsest.core.models import ABOUT_THE_PAST, SURE, ForgetQuestion, Message, Scope, best_score
from palimpsest.core.validation import HintsInput, ScopeInput, SearchScopeInput
from palimpsest.server import advice, replies
from palimpsest.server.access_tokens import current_user, may_write
from palimpsest.server.advice import TOOLS, framed
from palimpsest.server.mcp_server import TOOL, catalog, mcp_errors
from palimpsest.server.session import context
from palimpsest.server.session.context import named_project, named_user, news, request_of, state_of, with_client_model
from palimpsest.server.session.continuations import ClientReply, Continuation
from palimpsest.server.session.subscriptions import notify_changed
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
    if not result.questions or not context.can_ask_user(ctx):
        return result
    if not context.asks_between_requests(ctx):
        return await _answered(memory, scope, result, lambda form: _ask_during_call(ctx, form))

    async def work(continuation: Continuation) -> WriteResult:
        return await _answered(memory, scope, result, lambda form: continuation.ask(ElicitRequest(params=form)))

    continuations, user = state_of(ctx).continuations, current_user()
    if not continuations.has_room(user):
        return result
    return await context.result_or_question(ctx, continuations.begin(user, work))


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
async def search_memories(  # noqa: PLR0913 - the arguments of the tool, which clients pass by name
    ctx: Context[Any, Any],
    query: str,
    also: list[str] | str | None = None,
    limit: int = 10,
    max_tokens: int = 800,
    filters: dict[str, Any] | None = None,
    as_of: str = "",
    held_at: str = "",
    scope: SearchScopeInput | None = None,
) -> CallToolResult:
    """Search memories and messages by meaning and by words, best first. A near miss may stand first: judge it.

    Example: {"query": "who led billing in spring 2024", "held_at": "2024-03/2024-05",
    "also": ["… leads billing", "billing lead, owner of invoices"]}
    """
    memory, search_scope = await request_of(ctx, scope)
    wordings = validation.also_from([also] if isinstance(also, str) else also)
    unknown = await named_project(memory, scope, search_scope)
    result = await memory.search(
        search_scope,
        validation.query_from(query),
        also=wordings,
        limit=validation.bounded("limit", limit, 1, validation.MAX_LIMIT),
        max_tokens=validation.bounded("max_tokens", max_tokens, 50, validation.MAX_TOKENS),
        filters=filters,
        as_of=parse_until(as_of, "as_of", memory.zone) if as_of else None,
        held_at=held_at,
        explain=memory.settings.explain,
        all_projects=context.goes_through_projects(scope),
        is_use=may_write(),
        caller=context.client_name(ctx),
    )
    if not result.hits and (search_scope.agent_id or search_scope.run_id):
        note = f"only what was stored for {search_scope} was searched; leave agent_id and run_id out to search more"
        result = replace(result, notes=(*result.notes, note))
    best = best_score(result.hits)
    if best < SURE and context.is_home_open(None) and not context.goes_through_projects(scope):
        when = parse_until(as_of, "as_of", memory.zone) if as_of else None
        projects = await memory.projects_that_answer(
            search_scope, query, best, also=wordings, filters=filters, as_of=when
        )
        result = replace(result, notes=(*result.notes, *advice.elsewhere_notes(projects, TOOLS)))
    if any(advice.other_project(hit, search_scope) for hit in result.hits):
        result = replace(result, notes=(*result.notes, advice.IN_OTHER_PROJECT))
    notes = (*unknown, *named_user(scope, search_scope), *await news(memory, search_scope))
    result = replace(result, notes=(*result.notes, *notes))
    text = replies.search_text(result, search_scope, has_wordings=bool(wordings))
    return tool_result(text, replies.search_json(result, search_scope))


@mcp_errors(TOOL)
async def list_memories(
    ctx: Context[Any, Any],
    filters: dict[str, Any] | None = None,
    limit: int = 20,
    cursor: str = "",
    *,
    deleted: bool = False,
    scope: ScopeInput | None = None,
) -> CallToolResult:
    """List memories in pages, newest first; messages with filters={"kind": "message"}."""
    memory, list_scope = await request_of(ctx, scope)
    page = await memory.list(
        list_scope,
        limit=validation.bounded("limit", limit, 1, validation.MAX_LIMIT),
        max_tokens=advice.LIST_TOKENS,
        cursor=cursor or None,
        deleted=deleted,
        filters=filters,
    )
    about_scope = (*await named_project(memory, scope, list_scope), *named_user(scope, list_scope))
    page = replace(
        page, notes=(*page.notes, *advice.unlisted_notes(page), *about_scope, *await news(memory, list_scope))
    )
    return tool_result(replies.page_text(page, list_scope), replies.page_json(page, list_scope))


@mcp_errors(TOOL)
async def get_summary(
    ctx: Context[Any, Any],
    kind: str = "overall",
    *,
    refresh: bool = False,
    scope: ScopeInput | None = None,
) -> CallToolResult | InputRequiredResult:
    """Read a short summary of what is known."""
    memory, summary_scope = await request_of(ctx, scope)
    summary = await with_client_model(
        ctx, memory, lambda memory: memory.summary(summary_scope, kind, refresh=refresh, caller=CALLER)
    )
    if isinstance(summary, InputRequiredResult):
        return summary
    summary = replace(
        summary, notes=(*summary.notes, *named_user(scope, summary_scope), *await news(memory, summary_scope))
    )
    return tool_result(replies.summary_text(summary, summary_scope), replies.summary_json(summary, summary_scope))


@mcp_errors(TOOL)
async def get_history(ctx: Context[Any, Any], memory_id: str, scope: ScopeInput | None = None) -> CallToolResult:
    """Read every version of a memory and its sources, or a message."""
    memory, read_scope = await request_of(ctx, scope)
    owner = await memory.get(read_scope, memory_id)
    if isinstance(owner, Message):
        return tool_result(replies.whole_text(owner), replies.message_history_json(owner))
    stored, versions = await memory.history(read_scope, owner.id)
    relatives = await memory.predecessors(read_scope, stored.id), await memory.linked(read_scope, stored)
    return tool_result(
        replies.history_text(stored, versions, *relatives), replies.history_json(stored, versions, *relatives)
    )


# The tools that add and change memories.

BARE_LIST_SINCE = "2026-07-28"
"""Since this protocol version structured content may be a list. Before, it has to be an object."""


async def _announced(
    ctx: Context[Any, Any], given: ScopeInput | None, scope: Scope, result: WriteResult, *notes: str
) -> WriteResult:
    """Notify subscribers of what a write changed. Return its result with notes, one on the user that the call names."""
    await notify_changed(state_of(ctx).subscribers, result.outcomes)
    return replace(result, notes=(*result.notes, *notes, *named_user(given, scope)))


@mcp_errors(TOOL, "Nothing was stored.")
async def add_memory(  # noqa: PLR0913 - the arguments of the tool, which clients pass by name
    ctx: Context[Any, Any],
    text: str = "",
    messages: list[Any] | None = None,
    at: str = "",
    since: str = "",
    until: str = "",
    hints: HintsInput | None = None,
    replaces: list[str] | None = None,
    relations: list[list[str]] | None = None,
    *,
    infer: bool | None = None,
    metadata: dict[str, Any] | None = None,
    scope: ScopeInput | None = None,
) -> CallToolResult | InputRequiredResult:
    """Store one fact, or the facts of a conversation.

    Example: {"text": "Lena Brandt leads billing since May 2026", "since": "2026-05",
    "relations": [["Lena Brandt", "leads", "billing"]], "hints": {"asks": ["Who is in charge of invoices?",
    "whom do I ask about payments"], "words": ["owner"]}}
    """
    memory, write_scope = await request_of(ctx, scope)
    unknown = await named_project(memory, scope, write_scope)
    has_text, moved_from = not validation.is_no_text(text), ""
    if has_text == bool(messages):
        problem = "text and messages were both given" if messages else "neither text nor messages was given"
        raise InputError(f"{problem}; give one of them. Nothing was stored.")
    if messages:
        if replaces or metadata or at or since or until or relations or hints:
            raise InputError(
                "at, since, until, replaces, hints, relations and metadata go with text; each of the messages has an "
                "at of its own. Nothing was stored."
            )
        conversation = validation.conversation_from(messages, write_scope, memory.engine.clock())
        left_out, stays = tuple(advice.left_out_notes(conversation.left_out)), not context.is_home_open(scope)

        async def work(memory: Memory) -> WriteResult:
            said, texts = conversation.messages, conversation.context
            result = await memory.add_messages(said, context=texts, infer=infer, caller=CALLER, stays_in_project=stays)
            return replace(result, notes=(*result.notes, *left_out))

    else:
        if infer and (replaces or metadata or relations or hints or since or until):
            raise InputError(
                "infer=true extracts facts from text; leave out since, until, replaces, hints, relations and metadata, "
                "or infer"
            )
        stated, checked_text = validation.relations_from(relations or ()), validation.text_from(text)
        keywords = validation.hints_from(hints)
        if context.is_home_open(scope):
            home = await memory.home_of(write_scope, checked_text, stated, replaces or ())
            write_scope, moved_from = home, write_scope.project if home != write_scope else ""
        metadata = validation.metadata_from(metadata)
        said_at = parse_instant(at, "at", memory.zone) if at else None

        async def work(memory: Memory) -> WriteResult:
            return await memory.add_text(
                write_scope,
                checked_text,
                at=said_at,
                replaces=replaces or (),
                metadata=metadata,
                relations=stated,
                hints=keywords,
                since=since,
                until=until,
                infer=infer,
                caller=CALLER,
            )

    result = await with_client_model(ctx, memory, work)
    if not isinstance(result, InputRequiredResult):
        result = await with_answers(ctx, memory, write_scope, result)
    if isinstance(result, InputRequiredResult):
        return result
    moved = advice.general_notes(moved_from, TOOLS, is_successor=bool(replaces))
    result = await _announced(ctx, scope, write_scope, result, *moved, *unknown)
    result = replace(result, notes=(*result.notes, *await news(memory, write_scope)))
    reply = replies.added_json(result, write_scope)
    reply_text = replies.added_text(result, write_scope)
    if memory.settings.version == "v1.0":
        # Only the results, as Mem0 1.0 gives them.
        is_list = ctx.request_context.protocol_version >= BARE_LIST_SINCE
        results: Any = reply["results"] if is_list else {"result": reply["results"]}
        return CallToolResult(content=[TextContent(type="text", text=framed(reply_text))], structured_content=results)
    return tool_result(reply_text, reply)


@mcp_errors(TOOL, "Nothing was changed.")
async def update_memory(
    ctx: Context[Any, Any],
    memory_id: str,
    text: str = "",
    metadata: dict[str, Any] | None = None,
    hints: HintsInput | None = None,
    *,
    restore: bool = False,
    scope: ScopeInput | None = None,
) -> CallToolResult:
    """Correct or complete a memory, or restore a deleted one; its history stays."""
    memory, write_scope = await request_of(ctx, scope)
    if restore and (text or metadata or hints):
        raise InputError("restore cannot be combined with text, metadata or hints; restore first, then update")
    if restore:
        result = await memory.restore(write_scope, memory_id, caller=CALLER)
    else:
        has_text = not validation.is_no_text(text)
        if not has_text and not metadata and hints is None:
            raise InputError("give text, metadata, hints or restore=true")
        result = await memory.update(
            write_scope,
            memory_id,
            text=validation.text_from(text) if has_text else None,
            metadata=validation.metadata_from(metadata),
            hints=None if hints is None else validation.hints_from(hints),
            caller=CALLER,
        )
    result = await _announced(ctx, scope, write_scope, result)
    text_of = replies.restored_text if restore else replies.changed_text
    return tool_result(text_of(result, write_scope), replies.changed_json(result, write_scope))


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
    if not all or confirm or not context.can_ask_user(ctx):
        return NOT_ASKED
    memory, delete_scope = await request_of(ctx, scope)
    stored = await memory.scope_contents(delete_scope)
    if not stored.memories and not stored.messages:
        return NOT_ASKED
    return Elicit(f"Delete {stored} stored for {delete_scope}?", DeleteAllForm)


@mcp_errors(TOOL, NOTHING_DELETED)
async def delete_memory(
    ctx: Context[Any, Any],
    memory_ids: list[str] | None = None,
    *,
    all: bool = False,  # noqa: A002 - its name in the schema
    confirm: str = "",
    scope: ScopeInput | None = None,
    answer: Annotated[ElicitationResult[DeleteAllForm], Resolve(ask_before_delete_all)],
) -> CallToolResult:
    """Delete memories or messages. update_memory(restore=true) restores them."""
    memory, delete_scope = await request_of(ctx, scope)
    if all == bool(memory_ids):
        raise InputError("give either memory_ids or all=true; nothing was deleted")
    if not all:
        ids = memory_ids or []
        validation.bounded("the number of memory_ids", len(ids), 1, validation.MAX_IDS)
        result = await memory.delete(delete_scope, ids, caller=CALLER)
        result = await _announced(ctx, scope, delete_scope, result)
        return tool_result(replies.changed_text(result, delete_scope), replies.changed_json(result, delete_scope))
    if not (isinstance(answer, AcceptedElicitation) and (answer.data.delete or answer.data is NOT_ASKED)):
        raise InputError("the user was asked and said no; nothing was deleted. Do not call again unless they ask")
    user_agreed = answer.data.delete
    stored = await memory.scope_contents(delete_scope)
    confirmation = f"delete {stored}"
    if (stored.memories or stored.messages) and confirm != confirmation and not user_agreed:
        raise InputError(replies.confirm_delete_all_text(stored, delete_scope, confirmation))
    result = await memory.delete_all(delete_scope, caller=CALLER)
    result = await _announced(ctx, scope, delete_scope, result)
    return tool_result(replies.all_deleted_text(result, delete_scope), replies.deleted_all_json(result))


# Register the tools on a server.

READING_TOOLS = tuple(name for name, form in catalog()["tools"].items() if form["annotations"]["readOnlyHint"])


def add_tools(server: MCPServer[Any]) -> None:
    """Register all tools on the server. They build their results themselves, so they have no output schema."""
    for function in (
        add_memory,
        search_memories,
        list_memories,
        update_memory,
        delete_memory,
        get_summary,
        get_history,
    ):
        form = catalog()["tools"][function.__name__]
        hints = ToolAnnotations.model_validate(form["annotations"])
        server.add_tool(
            function, title=form["title"], description=getdoc(function), annotations=hints, structured_output=False
        )
