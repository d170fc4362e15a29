"""Documents: the list of them, and one of them page by page."""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from palimpsest.core.errors import InputError, MemoryNotFoundError
from palimpsest.page.asked import memory_of, scope_of
from palimpsest.page.rendering import rendered

LISTED = 50
"""How many documents are listed at once."""

LIMIT = 20
"""How many pages of a document are shown at once. A page has about two thousand characters."""


async def documents(request: Request) -> Response:
    """List the documents, the one that was learned last first."""
    memory, scope = await memory_of(request), scope_of(request)
    start = _number(request, "from")
    found = await memory.documents.list(scope)
    values = {
        "scope": scope,
        "documents": found[start : start + LISTED],
        "following": start + LISTED if len(found) > start + LISTED else None,
    }
    return rendered(request, "around/documents.html", values)


async def document(request: Request) -> Response:
    """Show pages of a document, by default the first ones; or those from the one on that a message is."""
    memory, scope = await memory_of(request), scope_of(request)
    try:
        found, pages = await memory.documents.pages(scope, request.path_params["id"])
    except (MemoryNotFoundError, InputError) as error:
        raise HTTPException(404) from error
    asked = request.query_params.get("message", "")
    place = next((number for number, page in enumerate(pages) if page.message.id == asked), None)
    start = _number(request, "from") if place is None else place
    values = {
        "scope": scope,
        "document": found,
        "pages": pages[start : start + LIMIT],
        "start": start,
        "previous": max(start - LIMIT, 0),
        "following": start + LIMIT if len(pages) > start + LIMIT else None,
    }
    return rendered(request, "around/document.html", values)


def _number(request: Request, name: str) -> int:
    """Return a number of a query, 0 if it is none."""
    text = request.query_params.get(name, "")
    return int(text) if text.isdecimal() and len(text) < len("1000000") else 0
