"""What a request asks for: whose memory, which project, and how it may be changed."""

from __future__ import annotations

from typing import cast

from starlette.exceptions import HTTPException
from starlette.requests import Request

from palimpsest.core.models import Scope
from palimpsest.memory import Memory
from palimpsest.page.access import Visitor
from palimpsest.server.session.lazy_memory import LazyMemory

CALLER = "page"
"""Who makes the edits of the page, in the history."""


def visitor_of(request: Request) -> Visitor:
    """Return who sent a request. `PageAccess` has let nobody else through."""
    return cast("Visitor", request.state.visitor)


async def memory_of(request: Request) -> Memory:
    """Return the open memory. Raises PalimpsestError if it cannot be opened."""
    return await cast("LazyMemory", request.app.state.memory).get()


def scope_of(request: Request) -> Scope:
    """Return the visitor's memory, with the project that the request names. Raises HTTPException for another's."""
    grant = visitor_of(request).grant
    project = request.query_params.get("project", "") or grant.project
    if not grant.sees(project):
        raise HTTPException(404)
    return Scope(grant.user_id, project)


def writable_scope_of(request: Request) -> Scope:
    """Return the scope of a write. Raises HTTPException if the visitor may only read."""
    if visitor_of(request).grant.read_only:
        raise HTTPException(403)
    return scope_of(request)
