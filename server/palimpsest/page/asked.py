"""What a request asks for: whose memory, which project, and how it may be changed."""

from __future__ import annotations

from typing import cast
from urllib.parse import parse_qsl, urlencode, urlsplit

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.routing import Match

from palimpsest.core.models import Scope
from palimpsest.memory import Memory
from palimpsest.page.access import Visitor
from palimpsest.server.session.lazy_memory import LazyMemory

CALLER = "page"
"""Who makes the edits of the page, in the history."""

DONE = "done"
"""The parameter that says what was done just before a page was opened."""


def visitor_of(request: Request) -> Visitor:
    """Return who sent a request. The middleware has let nobody else through."""
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


def place_of(request: Request) -> str:
    """Return the path and the query of the page that a request belongs to: of a part of a page, that of the page."""
    current = own_path(request, request.headers.get("hx-current-url", ""))
    own = _path_and_query(str(request.url))
    # A search as one types changes the address of its page only once it is answered.
    return own if not current or urlsplit(current).path == request.url.path else current


def own_path(request: Request, url: str) -> str:
    """Return the path and the query of a URL, or "" if this page shows nothing under its path.

    Nothing of a URL but these is used, so that nobody is led elsewhere.
    """
    path = _path_and_query(url)
    if not path.startswith("/") or path.startswith(("//", "/\\")) or not path.isprintable():
        return ""
    wanted = {"type": "http", "method": "GET", "path": urlsplit(path).path}
    routes = cast("Starlette", request.app).routes
    return path if any(route.matches(wanted)[0] is Match.FULL for route in routes) else ""


def _path_and_query(url: str) -> str:
    """Return the path and the query of a URL, without what was said to be done when it was opened."""
    try:
        parts = urlsplit(url)
    except ValueError:  # of an address that is none
        return ""
    query = [(name, value) for name, value in parse_qsl(parts.query) if name != DONE]
    return f"{parts.path}?{urlencode(query)}" if query else parts.path
