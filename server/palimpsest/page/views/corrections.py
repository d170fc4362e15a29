"""Correct what is stored: every action is one edit, and its answer offers to undo it."""

from __future__ import annotations

from http import HTTPStatus

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from palimpsest.core.errors import InputError, MemoryNotFoundError
from palimpsest.core.models import PINNED, Undo
from palimpsest.page.asked import CALLER, memory_of, writable_scope_of
from palimpsest.page.rendering import in_project, rendered
from palimpsest.page.views.memories import memory_page

MAX_CHOSEN = 500
"""How many memories one action may change. Set by hand: more than a page shows."""


async def reword(request: Request) -> Response:
    """Give a memory another text."""
    memory, scope, form = await memory_of(request), writable_scope_of(request), await request.form()
    memory_id = request.path_params["id"]
    result = await memory.update(scope, memory_id, text=str(form.get("text", "")), caller=CALLER)
    return await memory_page(request, memory_id, done="changed", edit=result.edit)


async def tag(request: Request) -> Response:
    """Give a memory other tags."""
    memory, scope, form = await memory_of(request), writable_scope_of(request), await request.form()
    memory_id = request.path_params["id"]
    result = await memory.set_tags(scope, memory_id, str(form.get("tags", "")).split(","), caller=CALLER)
    return await memory_page(request, memory_id, done="changed", edit=result.edit)


async def pin(request: Request) -> Response:
    """Pin a memory, or take it from the pinned ones."""
    memory, scope, form = await memory_of(request), writable_scope_of(request), await request.form()
    memory_id = request.path_params["id"]
    pinned = True if form.get("pinned") == "on" else None
    result = await memory.update(scope, memory_id, metadata={PINNED: pinned}, caller=CALLER)
    return await memory_page(request, memory_id, done="changed", edit=result.edit)


async def delete(request: Request) -> Response:
    """Delete a memory. It can be restored."""
    memory, scope, memory_id = await memory_of(request), writable_scope_of(request), request.path_params["id"]
    result = await memory.delete(scope, [memory_id], caller=CALLER)
    return await memory_page(request, memory_id, done="deleted", edit=result.edit)


async def restore(request: Request) -> Response:
    """Restore a deleted or replaced memory."""
    memory, scope, memory_id = await memory_of(request), writable_scope_of(request), request.path_params["id"]
    result = await memory.restore(scope, memory_id, caller=CALLER)
    return await memory_page(request, memory_id, done="restored", edit=result.edit)


async def delete_chosen(request: Request) -> Response:
    """Delete several memories and messages as one edit, all or none."""
    memory, scope, form = await memory_of(request), writable_scope_of(request), await request.form()
    chosen = [str(value) for value in form.getlist("id")]
    if not 0 < len(chosen) <= MAX_CHOSEN:
        raise InputError(f"choose 1 to {MAX_CHOSEN} memories; nothing was deleted")
    result = await memory.delete(scope, chosen, caller=CALLER)
    values = {"scope": scope, "done": "deleted", "edit": result.edit, "back": in_project("/", scope)}
    return rendered(request, "done.html", values)


async def undo(request: Request) -> Response:
    """Undo an edit by its number, or all edits from one on."""
    memory, scope, form = await memory_of(request), writable_scope_of(request), await request.form()
    number = request.path_params["number"]
    if form.get("since") == "on":
        (edit,) = [entry for entry in await memory.log(scope, limit=1, before=number + 1) if entry.number == number]
        what = Undo(since=edit.made_at)
    else:
        what = Undo(edit=number)
    try:
        await memory.undo(scope, what, caller=CALLER)
    except MemoryNotFoundError as error:
        raise HTTPException(404) from error
    return RedirectResponse(in_project("/edits?done=undone", scope), HTTPStatus.SEE_OTHER)
