"""Who may look after what: the machine is its owner's, and export and import are every visitor's own.

What a visitor may not do does not exist for them: it has no link, and its path is not found.
"""

from __future__ import annotations

from typing import cast

import anyio
from starlette.exceptions import HTTPException
from starlette.requests import Request

from palimpsest.core.errors import PalimpsestError
from palimpsest.core.settings import Settings
from palimpsest.page.access import Visitor
from palimpsest.page.asked import visitor_of
from palimpsest.page.views.care.work import CareWork
from palimpsest.server.session.lazy_memory import LazyMemory


def require_owner(request: Request) -> None:
    """Raise HTTPException unless the visitor opened the page with `palimpsest ui`."""
    if not visitor_of(request).is_owner:
        raise HTTPException(404)


def require_settings_reader(request: Request) -> None:
    """Raise HTTPException unless the visitor may read settings and prompts."""
    if not visitor_of(request).sees_settings:
        raise HTTPException(404)


def may_import(visitor: Visitor) -> bool:
    """Return whether a visitor may import. A file may bring memories of any project, so no project may be given."""
    return not visitor.grant.read_only and not visitor.grant.project


def require_import(request: Request) -> None:
    """Raise HTTPException unless the visitor may import."""
    if visitor_of(request).grant.read_only:
        raise HTTPException(403)
    if not may_import(visitor_of(request)):
        raise HTTPException(404)


def work_of(request: Request) -> CareWork:
    """Return what the page does in the background."""
    return cast("CareWork", request.app.state.care)


async def settings_of(request: Request) -> Settings:
    """Return the settings, also those with which the memory could not be opened. Raises PalimpsestError."""
    memory = cast("LazyMemory", request.app.state.memory)
    try:
        return (await memory.get()).settings
    except PalimpsestError:
        with anyio.move_on_after(0):
            return await memory.settings()
        raise
