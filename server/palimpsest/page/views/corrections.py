"""Correct what is stored: every action is one edit, and its answer offers to undo it."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from http import HTTPStatus

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from palimpsest.core.errors import ChangedMeanwhileError, InputError, MemoryNotFoundError, StaleDecisionError
from palimpsest.core.models import PINNED, Undo
from palimpsest.learn.apply import WriteResult
from palimpsest.page.asked import CALLER, DONE, answered, memory_of, own_path, scope_of, writable_scope_of
from palimpsest.page.rendering import in_project
from palimpsest.page.views.correct.in_place import fields_of, memory_named, revision_of
from palimpsest.page.views.correct.outcome import done_by
from palimpsest.page.views.memories import memory_page


async def reword(request: Request) -> Response:
    """Give a memory another text."""
    memory, scope, form = await memory_of(request), writable_scope_of(request), await request.form()
    memory_id, given = request.path_params["id"], {"text": str(form.get("text", ""))}
    saving = memory.update(scope, memory_id, text=given["text"], caller=CALLER, revision=revision_of(form))
    return await _saved(request, given, saving)


async def tag(request: Request) -> Response:
    """Give a memory other tags."""
    memory, scope, form = await memory_of(request), writable_scope_of(request), await request.form()
    memory_id, given = request.path_params["id"], {"tags": str(form.get("tags", ""))}
    saving = memory.set_tags(scope, memory_id, given["tags"].split(","), caller=CALLER, revision=revision_of(form))
    return await _saved(request, given, saving)


async def date(request: Request) -> Response:
    """Say since when a memory holds, and when it ends."""
    memory, scope, form = await memory_of(request), writable_scope_of(request), await request.form()
    memory_id, given = request.path_params["id"], {name: str(form.get(name, "")) for name in ("since", "until")}
    saving = memory.corrections.set_validity(scope, memory_id, **given, caller=CALLER, revision=revision_of(form))
    return await _saved(request, given, saving)


async def _saved(request: Request, given: Mapping[str, str], saving: Awaitable[WriteResult]) -> Response:
    """Lead to the page of the memory that was saved. What cannot be saved is shown again, with the reason."""
    try:
        result = await saving
    except (ChangedMeanwhileError, StaleDecisionError):
        stored = await memory_named(request)
        if given.items() <= fields_of(stored).items():  # it was sent twice
            return _done(request, "unchanged", 0)
        return await memory_page(request, given, "changed_by_another", HTTPStatus.CONFLICT)
    except InputError as error:
        await memory_named(request)
        return await memory_page(request, given, str(error), HTTPStatus.BAD_REQUEST)
    return _done(request, done_by(result), result.edit)


def _done(request: Request, done: str, edit: int) -> Response:
    """Lead to the page of a memory, which says what was done to it."""
    path = in_project(f"/memories/{request.path_params['id']}", scope_of(request))
    return answered(request, path, {"done": done, "edit": edit})


async def pin(request: Request) -> Response:
    """Pin a memory, or take it from the pinned ones."""
    memory, scope, form = await memory_of(request), writable_scope_of(request), await request.form()
    pinned = True if form.get("pinned") == "on" else None
    result = await memory.update(scope, request.path_params["id"], metadata={PINNED: pinned}, caller=CALLER)
    return _done(request, done_by(result), result.edit)


async def delete(request: Request) -> Response:
    """Delete a memory. It can be restored."""
    memory, scope, memory_id = await memory_of(request), writable_scope_of(request), request.path_params["id"]
    result = await memory.delete(scope, [memory_id], caller=CALLER)
    return _done(request, "deleted", result.edit)


async def restore(request: Request) -> Response:
    """Restore a deleted or replaced memory."""
    memory, scope, memory_id = await memory_of(request), writable_scope_of(request), request.path_params["id"]
    result = await memory.restore(scope, memory_id, caller=CALLER)
    return _done(request, "restored", result.edit)


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
