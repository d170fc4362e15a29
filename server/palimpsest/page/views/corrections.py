"""Correct what is stored: every action is one edit, and its answer offers to undo it."""

from __future__ import annotations

from http import HTTPStatus

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from palimpsest.core.errors import MemoryNotFoundError
from palimpsest.core.models import PINNED, Undo
from palimpsest.page.asked import CALLER, DONE, memory_of, own_path, writable_scope_of
from palimpsest.page.rendering import in_project
from palimpsest.page.views.correct.outcome import done_by
from palimpsest.page.views.memories import memory_page


async def reword(request: Request) -> Response:
    """Give a memory another text."""
    memory, scope, form = await memory_of(request), writable_scope_of(request), await request.form()
    memory_id = request.path_params["id"]
    result = await memory.update(scope, memory_id, text=str(form.get("text", "")), caller=CALLER)
    return await memory_page(request, memory_id, done=done_by(result), edit=result.edit)


async def tag(request: Request) -> Response:
    """Give a memory other tags."""
    memory, scope, form = await memory_of(request), writable_scope_of(request), await request.form()
    memory_id = request.path_params["id"]
    result = await memory.set_tags(scope, memory_id, str(form.get("tags", "")).split(","), caller=CALLER)
    return await memory_page(request, memory_id, done=done_by(result), edit=result.edit)


async def date(request: Request) -> Response:
    """Say since when a memory holds, and when it ends."""
    memory, scope, form = await memory_of(request), writable_scope_of(request), await request.form()
    memory_id = request.path_params["id"]
    since, until = str(form.get("since", "")), str(form.get("until", ""))
    result = await memory.corrections.set_validity(scope, memory_id, since=since, until=until, caller=CALLER)
    return await memory_page(request, memory_id, done=done_by(result), edit=result.edit)


async def pin(request: Request) -> Response:
    """Pin a memory, or take it from the pinned ones."""
    memory, scope, form = await memory_of(request), writable_scope_of(request), await request.form()
    memory_id = request.path_params["id"]
    pinned = True if form.get("pinned") == "on" else None
    result = await memory.update(scope, memory_id, metadata={PINNED: pinned}, caller=CALLER)
    return await memory_page(request, memory_id, done=done_by(result), edit=result.edit)


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
    back = own_path(request, str(form.get("back", ""))) or in_project("/edits", scope)
    return RedirectResponse(f"{back}{'&' if '?' in back else '?'}{DONE}=undone", HTTPStatus.SEE_OTHER)
