"""Browse conversations, documents, entities and summaries."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, cast

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response

from palimpsest.core.errors import InputError
from palimpsest.core.models import ENTITY_TYPES, EntityType, Scope, name_key
from palimpsest.learn.browsing import cursor_before
from palimpsest.learn.entity_graph import MAX_NODES, Entities, EntityGraph
from palimpsest.learn.summaries.summary_writer import KEPT_KIND_NAMES, Summaries
from palimpsest.memory import Memory
from palimpsest.page.page_context import CALLER, in_project, is_part, memory_of, rendered, scope_of, writable_scope_of

# Conversations: the list of them, and one of them message by message.

LISTED_CONVERSATIONS = 30
"""How many conversations are listed at once."""

SHOWN_MESSAGES = 200
"""How many messages are shown at once."""

CONTEXT = 20
"""How many messages before the one that is asked for are shown with it: some screens of talk."""


async def conversations(request: Request) -> Response:
    """List the conversations, the one with the newest message first."""
    memory, scope = await memory_of(request), scope_of(request)
    page = await memory.conversations.list(
        scope, limit=LISTED_CONVERSATIONS, cursor=request.query_params.get("cursor") or None
    )
    return rendered(request, "around/conversations.html", {"scope": scope, "page": page})


async def conversation(request: Request) -> Response:
    """Show a conversation, named by its id or by that of a message in it; then it begins a little before that one."""
    memory, scope = await memory_of(request), scope_of(request)
    named = request.path_params["id"]
    cursor = request.query_params.get("cursor") or await cursor_before(memory.engine, scope, named, CONTEXT)
    try:
        page = await memory.conversations.read(scope, named, limit=SHOWN_MESSAGES, cursor=cursor)
    except InputError as error:
        raise HTTPException(404) from error
    if page.about is None and page.messages:
        target = in_project(f"/documents/{page.id}?message={named}", scope)
        return RedirectResponse(f"{target}#m-{named}", HTTPStatus.SEE_OTHER)
    values = {"scope": scope, "page": page, "named": named, "has_earlier": cursor is not None}
    return rendered(request, "around/conversation.html", values)


# Documents: the list of them, and one of them page by page.

LISTED_DOCUMENTS = 50
"""How many documents are listed at once."""

SHOWN_PAGES = 20
"""How many pages of a document are shown at once. A page has about two thousand characters."""


async def documents(request: Request) -> Response:
    """List the documents, the one that was learned last first."""
    memory, scope = await memory_of(request), scope_of(request)
    start = _number(request, "from")
    found = await memory.documents.list(scope)
    values = {
        "scope": scope,
        "documents": found[start : start + LISTED_DOCUMENTS],
        "following": start + LISTED_DOCUMENTS if len(found) > start + LISTED_DOCUMENTS else None,
    }
    return rendered(request, "around/documents.html", values)


async def document(request: Request) -> Response:
    """Show pages of a document, by default the first ones; or those from the one on that a message is."""
    memory, scope = await memory_of(request), scope_of(request)
    try:
        found, pages = await memory.documents.pages(scope, request.path_params["id"])
    except InputError as error:
        raise HTTPException(404) from error
    asked = request.query_params.get("message", "")
    place = next((number for number, page in enumerate(pages) if page.message.id == asked), None)
    start = _number(request, "from") if place is None else place
    values = {
        "scope": scope,
        "document": found,
        "pages": pages[start : start + SHOWN_PAGES],
        "start": start,
        "previous": max(start - SHOWN_PAGES, 0),
        "following": start + SHOWN_PAGES if len(pages) > start + SHOWN_PAGES else None,
    }
    return rendered(request, "around/document.html", values)


def _number(request: Request, name: str) -> int:
    """Return a number of a query, 0 if it is none."""
    text = request.query_params.get(name, "")
    return int(text) if text.isdecimal() and len(text) < len("1000000") else 0


# Entities: the list of them, one with what is known of it, and the graph that they are.

LISTED_ENTITIES = 60
"""How many entities are listed at once."""

NEIGHBOURS = 60
"""How many others the drawing of a neighbourhood has: with more, names cover each other."""

SHOWN = 30
"""How many memories and relations of an entity are listed."""


async def entities(request: Request) -> Response:
    """List entities, the one mentioned last first, by type and by a part of their name."""
    memory, scope, asked = await memory_of(request), scope_of(request), request.query_params
    type_ = cast("EntityType", asked.get("type")) if asked.get("type") in ENTITY_TYPES else None
    part = asked.get("name", "").strip()
    found = await memory.graph.entities(scope, type=type_, limit=MAX_NODES if part else LISTED_ENTITIES + 1)
    named = [each for each in found if name_key(part) in name_key(each.entity.name)]
    values = {
        "scope": scope,
        "entities": named[:LISTED_ENTITIES],
        "has_more": len(named) > LISTED_ENTITIES,
        "types": ENTITY_TYPES,
        "type": type_ or "",
        "name": part,
    }
    return rendered(request, "around/entity_list.html" if is_part(request) else "around/entities.html", values)


async def entity(request: Request) -> Response:
    """Show what is known about an entity."""
    memory, scope = await memory_of(request), scope_of(request)
    dossier = await _dossier(memory, scope, request.path_params["id"])
    values = {"scope": scope, "dossier": dossier, "shown": SHOWN, "hops": _hops(request)}
    return rendered(request, "around/entity.html", values)


async def neighbourhood(request: Request) -> Response:
    """Return an entity and what is near it, as nodes and links in JSON."""
    memory, scope = await memory_of(request), scope_of(request)
    dossier = await _dossier(memory, scope, request.path_params["id"])
    near = await Entities(memory.engine).around(scope, dossier.entity, _hops(request), NEIGHBOURS)
    return JSONResponse(_drawing(near, scope, dossier.entity.id))


async def graph(request: Request) -> Response:
    """Show the page that draws all entities."""
    await memory_of(request)
    return rendered(request, "around/graph.html", {"scope": scope_of(request), "most": MAX_NODES})


async def whole_graph(request: Request) -> Response:
    """Return all entities, as nodes and links in JSON."""
    memory, scope = await memory_of(request), scope_of(request)
    return JSONResponse(_drawing(await Entities(memory.engine).whole(scope), scope, ""))


async def _dossier(memory: Memory, scope: Scope, entity_id: str) -> Any:
    try:
        (dossier,) = await memory.graph.dossiers(scope, entity_id)
    except (InputError, ValueError) as error:
        raise HTTPException(404) from error
    return dossier


def _hops(request: Request) -> int:
    return 2 if request.query_params.get("hops") == "2" else 1


def _drawing(found: EntityGraph, scope: Scope, centre: str) -> dict[str, Any]:
    """Return a graph as `graph.js` reads it: nodes with the paths that they lead to, and links."""
    return {
        "centre": centre,
        "nodes": [
            {
                "id": node.entity.id,
                "name": node.entity.name,
                "type": node.entity.type,
                "memories": node.memories,
                "path": in_project(f"/entities/{node.entity.id}", scope),
            }
            for node in found.nodes
        ],
        "links": [
            {"source": edge.source_id, "target": edge.destination_id, "name": edge.name, "memories": edge.memories}
            for edge in found.edges
        ],
    }


# Summaries and the profile, each with what it rests on.

SOURCES = 100
"""How many of the memories and messages that a summary rests on are shown."""

DAYS = 14
"""How many of the last days have a link to their summary."""

WITHOUT_ARGUMENT = tuple(kind for kind in KEPT_KIND_NAMES if kind not in {"session", "day"})


async def summaries(request: Request) -> Response:
    """Show a summary, by default the overall one, and links to the others."""
    memory, scope = await memory_of(request), scope_of(request)
    kind = request.query_params.get("kind", "overall")
    try:
        kept = await Summaries(memory.engine).kept(scope, kind, SOURCES)
    except InputError as error:
        raise HTTPException(404) from error
    values = {
        "scope": scope,
        "kind": kept.result.kind,
        "kinds": [name for name in WITHOUT_ARGUMENT if name != "project" or scope.project],
        "days": await memory.last_days(scope, DAYS),
        "kept": kept,
        "has_model": memory.engine.own_model is not None,
    }
    return rendered(request, "around/summaries.html", values)


async def refresh(request: Request) -> Response:
    """Let the model write a summary again."""
    memory, scope, form = await memory_of(request), writable_scope_of(request), await request.form()
    kind = str(form.get("kind", ""))
    result = await memory.summary(scope, kind, refresh=True, caller=CALLER)
    return RedirectResponse(in_project(f"/summaries?kind={result.kind}", scope), HTTPStatus.SEE_OTHER)
