"""Entities: the list of them, one with what is known of it, and the graph that they are."""

from __future__ import annotations

from typing import Any, cast

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from palimpsest.core.entities import ENTITY_TYPES, EntityType, name_key
from palimpsest.core.errors import InputError
from palimpsest.core.models import Scope
from palimpsest.facade.page.entity_graph import MAX_NODES, Entities, EntityGraph
from palimpsest.memory import Memory
from palimpsest.page.asked import memory_of, scope_of
from palimpsest.page.rendering import in_project, is_part, rendered

LIMIT = 60
"""How many entities are listed at once."""

NEIGHBOURS = 60
"""How many others the drawing of a neighbourhood has. Set by hand: with more, names cover each other."""

SHOWN = 30
"""How many memories and relations of an entity are listed. Set by hand."""


async def entities(request: Request) -> Response:
    """List entities, the one mentioned last first, by type and by a part of their name."""
    memory, scope, asked = await memory_of(request), scope_of(request), request.query_params
    type_ = cast("EntityType", asked.get("type")) if asked.get("type") in ENTITY_TYPES else None
    part = asked.get("name", "").strip()
    found = await memory.graph.entities(scope, type=type_, limit=MAX_NODES if part else LIMIT + 1)
    named = [each for each in found if name_key(part) in name_key(each.entity.name)]
    values = {
        "scope": scope,
        "entities": named[:LIMIT],
        "has_more": len(named) > LIMIT,
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
