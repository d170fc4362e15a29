"""Correct a hit where it stands in a list. Without JavaScript a link leads to the page of the memory instead."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from starlette.datastructures import FormData
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from palimpsest.core.errors import ChangedMeanwhileError, InputError, MemoryNotFoundError, StaleDecisionError
from palimpsest.core.models import EXPIRES_AT, PINNED, Memory, Scope
from palimpsest.page.asked import CALLER, answered, memory_of, place_of, scope_of, writable_scope_of
from palimpsest.page.rendering import in_project, is_part, rendered
from palimpsest.page.views.correct.outcome import done_by
from palimpsest.recall.hits import memory_hit

MAX_REVISION_DIGITS = 12


async def form(request: Request) -> Response:
    """Return a hit as a form."""
    scope = writable_scope_of(request)
    stored = await memory_named(request)
    if not is_part(request):
        return RedirectResponse(in_project(f"/memories/{stored.id}", scope), HTTPStatus.SEE_OTHER)
    fields = fields_of(stored)
    return _form(request, stored, {"text": fields["text"], "tags": fields["tags"], "pinned": _is_pinned(stored)})


async def hit(request: Request) -> Response:
    """Return a hit as it is, in place of its form."""
    scope = scope_of(request)
    return _hit(request, scope, await memory_named(request), "", 0)


async def save(request: Request) -> Response:
    """Correct a memory, and return it as a hit with its undo, or the form again with what is wrong."""
    memory, scope, sent = await memory_of(request), writable_scope_of(request), await request.form()
    stored = await memory_named(request)
    text, tags, pinned = str(sent.get("text", "")), str(sent.get("tags", "")), sent.get("pinned") == "on"
    given = {"text": text, "tags": tags, "pinned": pinned}
    try:
        result = await memory.corrections.correct(
            scope, stored.id, text=text, tags=tags.split(","), pinned=pinned, caller=CALLER, revision=revision_of(sent)
        )
    except (ChangedMeanwhileError, StaleDecisionError):
        stored = await memory_named(request)
        if given.items() <= (fields_of(stored) | {"pinned": _is_pinned(stored)}).items():  # it was sent twice
            return _hit(request, scope, stored, "unchanged", 0)
        return _form(request, stored, given, "changed_by_another")
    except (InputError, MemoryNotFoundError) as error:
        return _form(request, stored, given, str(error))
    (outcome,) = result.outcomes
    kept = await memory_named(request, outcome.duplicate_of or outcome.memory.id)
    if not is_part(request):
        told = {"done": done_by(result), "edit": result.edit}
        return answered(request, in_project(f"/memories/{kept.id}", scope), told)
    return _hit(request, scope, kept, done_by(result), result.edit)


async def memory_named(request: Request, memory_id: str = "") -> Memory:
    """Return the memory that a path names, living or deleted, or another. Raises HTTPException if there is none."""
    memory = await memory_of(request)
    try:
        stored = await memory.get(scope_of(request), memory_id or request.path_params["id"])
    except MemoryNotFoundError as error:
        raise HTTPException(404) from error
    if not isinstance(stored, Memory):
        raise HTTPException(404)
    return stored


def fields_of(stored: Memory) -> dict[str, Any]:
    """Return what the forms of a memory show of it."""
    until = str(stored.metadata.get(EXPIRES_AT) or "")
    return {"text": stored.text, "tags": ", ".join(stored.tags), "since": stored.since, "until": until}


def revision_of(sent: FormData) -> int | None:
    """Return the revision of the memory that a form was made of."""
    revision = str(sent.get("revision", ""))
    return int(revision) if revision.isdecimal() and len(revision) <= MAX_REVISION_DIGITS else None


def _is_pinned(stored: Memory) -> bool:
    return bool(stored.metadata.get(PINNED))


def _form(request: Request, stored: Memory, fields: Mapping[str, Any], problem: str = "") -> Response:
    values = {"scope": scope_of(request), "memory": stored, "problem": problem, **fields}
    return rendered(request, "correct/hit_form.html", values)


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
