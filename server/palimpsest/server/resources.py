"""What a client can read, subscribe to and complete: `memory://…`, `entity://…`, `conversation://…`, `document://…`."""

from __future__ import annotations

from typing import Any

from mcp.server.mcpserver import Context, ResourceSecurity
from mcp.types import CompleteRequestParams, CompleteResult, Completion, ResourceTemplateReference

from palimpsest.core.errors import InputError
from palimpsest.server.errors import REQUEST, RESOURCE, mcp_errors
from palimpsest.server.mcp_server import MemoryServer
from palimpsest.server.replies import documents, graph, render
from palimpsest.server.replies.conversation import conversation_text
from palimpsest.server.replies.documents import DOCUMENT_SCHEME
from palimpsest.server.replies.notes import LIST_TOKENS, framed
from palimpsest.server.session.context import memory_of, scope_of
from palimpsest.server.session.notifications import ENTITIES, RECENT, SUMMARY
from palimpsest.server.session.roots import RequestContext
from palimpsest.server.session.subscriptions import CONVERSATION_SCHEME, ENTITY_SCHEME

MAX_SHOWN = 20
"""Memories in `memory://recent`, and ids or names in a completion."""

PAGE_MESSAGES, PAGE_TOKENS = 200, 6_000
"""The size of one page of a conversation. Set by hand: about ten pages of print, which is more than most have."""

MAX_ENTITIES = 100
"""Entities in `memory://entities`, a line each. Set by hand: about as many tokens as a long list of memories."""

MAX_PAGE_DIGITS = 6

COMPLETED = ("id", "name", "document")
"""The variables of resources that are completed."""


def add_resources(server: MemoryServer) -> None:
    """Register the resources on the server, and the completion of ids and names."""
    server.resource(
        "memory://{id}",
        name="memory",
        title="A memory",
        description="A memory or message with its whole text, by its id or the first 8 characters of it",
        mime_type="text/plain",
    )(read_memory)
    server.resource(
        "memory://{id}/history",
        name="memory-history",
        title="History of a memory",
        description="Every version of a memory, oldest first, and what changed it",
        mime_type="text/plain",
    )(read_history)
    server.resource(
        f"{ENTITY_SCHEME}{{name}}",
        name="entity",
        title="A person, place or thing",
        description="What is known about somebody or something, by name: what holds, what held, and connections",
        mime_type="text/plain",
        security=ResourceSecurity(exempt_params={"name"}),  # a name may be a path, and is never opened as one
    )(read_entity)
    for rest, description in (
        ("", "A conversation in order, with speakers, dates and ids, by its id or that of a message of it"),
        ("/{after}", "The next page of a long conversation, as the page before it names it"),
    ):
        server.resource(
            f"{CONVERSATION_SCHEME}{{id}}{rest}",
            name="conversation-page" if rest else "conversation",
            title="The next page of a conversation" if rest else "A conversation",
            description=description,
            mime_type="text/plain",
        )(read_conversation_page if rest else read_conversation)
    server.resource(
        f"{DOCUMENT_SCHEME}{{document}}",
        name="document",
        title="A document",
        description="A document that was learned: a line with the gist of each page",
        mime_type="text/plain",
    )(read_document)
    server.resource(
        f"{DOCUMENT_SCHEME}{{document}}/{{page}}",
        name="document-page",
        title="A page of a document",
        description="One page of a document, whole, as a search names it",
        mime_type="text/plain",
    )(read_page)
    server.add_request_handler("completion/complete", CompleteRequestParams, complete)


@mcp_errors(RESOURCE)
async def read_memory(id: str, ctx: Context[Any, Any]) -> str:  # noqa: A002 - its name in the template
    """Return a memory or message with its whole text, or one of the resources that always exist."""
    memory = await memory_of(ctx)
    scope = scope_of(ctx, memory)
    if id == SUMMARY:
        return framed(render.summary_text(await memory.summary(scope), scope))
    if id == RECENT:
        return framed(render.page_text(await memory.list(scope, limit=MAX_SHOWN, max_tokens=LIST_TOKENS), scope))
    if id == ENTITIES:
        listed = await memory.graph.entities(scope, limit=MAX_ENTITIES + 1)
        return framed(graph.entities_text(listed, scope, MAX_ENTITIES))
    return framed(render.whole_text(await memory.get(scope, id)))


@mcp_errors(RESOURCE)
async def read_history(id: str, ctx: Context[Any, Any]) -> str:  # noqa: A002 - its name in the template
    """Return every version of a memory."""
    memory = await memory_of(ctx)
    scope = scope_of(ctx, memory)
    stored, versions = await memory.history(scope, id)
    predecessors, linked = await memory.predecessors(scope, stored.id), await memory.linked(scope, stored)
    return framed(render.history_text(stored, versions, predecessors, linked))


@mcp_errors(RESOURCE)
async def read_entity(name: str, ctx: Context[Any, Any]) -> str:
    """Return the lines of the ledger on an entity. No model is asked."""
    memory = await memory_of(ctx)
    scope = scope_of(ctx, memory)
    return framed(graph.lines_text(await memory.graph.lines(scope, name), scope))


@mcp_errors(RESOURCE)
async def read_conversation(id: str, ctx: Context[Any, Any]) -> str:  # noqa: A002 - its name in the template
    """Return the first page of a conversation."""
    return await _conversation(ctx, id, None)


@mcp_errors(RESOURCE)
async def read_conversation_page(id: str, after: str, ctx: Context[Any, Any]) -> str:  # noqa: A002 - as above
    """Return a further page of a conversation."""
    return await _conversation(ctx, id, after)


async def _conversation(ctx: Context[Any, Any], conversation_id: str, cursor: str | None) -> str:
    memory = await memory_of(ctx)
    page = await memory.conversations.read(
        scope_of(ctx, memory), conversation_id, limit=PAGE_MESSAGES, cursor=cursor, max_tokens=PAGE_TOKENS
    )
    return conversation_text(page, f"{CONVERSATION_SCHEME}{page.id}/{page.cursor}")


@mcp_errors(RESOURCE)
async def read_document(document: str, ctx: Context[Any, Any]) -> str:
    """Return a document with the gists of its pages."""
    memory = await memory_of(ctx)
    return documents.pages_text(*await memory.documents.pages(scope_of(ctx, memory), document))


@mcp_errors(RESOURCE)
async def read_page(document: str, page: str, ctx: Context[Any, Any]) -> str:
    """Return one page of a document."""
    memory = await memory_of(ctx)
    if not page.isdecimal() or len(page) > MAX_PAGE_DIGITS:
        raise InputError(f"'{page[:80]}' is not the number of a page. Pages are counted from 1")
    return documents.page_text(*await memory.documents.page(scope_of(ctx, memory), document, int(page)))


@mcp_errors(REQUEST)
async def complete(ctx: RequestContext, params: CompleteRequestParams) -> CompleteResult:
    """Complete the id of a memory, a conversation or a document, the newest first, or the name of an entity."""
    if not isinstance(params.ref, ResourceTemplateReference) or params.argument.name not in COMPLETED:
        return CompleteResult(completion=Completion(values=[]))
    memory = await memory_of(ctx)
    scope, beginning = scope_of(ctx, memory), params.argument.value.strip()
    if params.argument.name == "name":
        found = list(await memory.graph.names(scope, beginning, MAX_SHOWN + 1))
    elif params.ref.uri.startswith(CONVERSATION_SCHEME):
        found = list(await memory.conversations.ids(scope, beginning.lower(), MAX_SHOWN + 1))
    elif params.argument.name == "document":
        found = list(await memory.documents.ids(scope, beginning.lower(), MAX_SHOWN + 1))
    else:
        found = list(await memory.ids(scope, beginning.lower(), MAX_SHOWN + 1))
    has_more = len(found) > MAX_SHOWN
    completion = Completion(values=found[:MAX_SHOWN], total=None if has_more else len(found), has_more=has_more)
    return CompleteResult(completion=completion)
