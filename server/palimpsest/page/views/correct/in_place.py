"""Correct a hit where it stands in a list. Without JavaScript a link leads to the page of the memory instead."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from palimpsest.core.errors import InputError, MemoryNotFoundError
from palimpsest.core.models import PINNED, Memory, Scope
from palimpsest.page.asked import CALLER, memory_of, place_of, scope_of, writable_scope_of
from palimpsest.page.rendering import in_project, is_part, rendered
from palimpsest.page.views.correct.outcome import done_by
from palimpsest.recall.hits import memory_hit


async def form(request: Request) -> Response:
    """Return a hit as a form."""
    scope = writable_scope_of(request)
    stored = await _stored(request, scope, request.path_params["id"])
    if not is_part(request):
        return RedirectResponse(in_project(f"/memories/{stored.id}", scope), HTTPStatus.SEE_OTHER)
    values = {"text": stored.text, "tags": ", ".join(stored.tags), "pinned": bool(stored.metadata.get(PINNED))}
    return rendered(request, "correct/hit_form.html", {"scope": scope, "id": stored.id, "problem": "", **values})


async def hit(request: Request) -> Response:
    """Return a hit as it is, in place of its form."""
    scope = scope_of(request)
    return _hit(request, scope, await _stored(request, scope, request.path_params["id"]), "", 0)


async def save(request: Request) -> Response:
    """Correct a memory, and return it as a hit with its undo, or the form again with what is wrong."""
    memory, scope, sent = await memory_of(request), writable_scope_of(request), await request.form()
    stored = await _stored(request, scope, request.path_params["id"])
    text, tags, pinned = str(sent.get("text", "")), str(sent.get("tags", "")), sent.get("pinned") == "on"
    try:
        result = await memory.corrections.correct(
            scope, stored.id, text=text, tags=tags.split(","), pinned=pinned, caller=CALLER
        )
    except (InputError, MemoryNotFoundError) as error:
        values = {"id": stored.id, "text": text, "tags": tags, "pinned": pinned, "problem": str(error)}
        return rendered(request, "correct/hit_form.html", {"scope": scope, **values})
    (outcome,) = result.outcomes
    kept = await _stored(request, scope, outcome.duplicate_of or outcome.memory.id)
    return _hit(request, scope, kept, done_by(result), result.edit)


async def _stored(request: Request, scope: Scope, memory_id: str) -> Memory:
    """Return a memory, living or deleted. Raises HTTPException if there is none."""
    memory = await memory_of(request)
    try:
        stored = await memory.get(scope, memory_id)
    except MemoryNotFoundError as error:
        raise HTTPException(404) from error
    if not isinstance(stored, Memory):
        raise HTTPException(404)
    return stored


def _hit(request: Request, scope: Scope, stored: Memory, done: str, edit: int) -> Response:
    values: dict[str, Any] = {
        "scope": scope,
        "hit": memory_hit(stored, stored.text, (), 0.0),
        "question": "",
        "explain": False,
        "done": done,
        "edit": edit,
        "back": place_of(request),
    }
    return rendered(request, "correct/hit.html", values)
