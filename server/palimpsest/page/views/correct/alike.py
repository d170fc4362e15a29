"""Merge memories that say nearly the same, and settle which of several is true now."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Any

from starlette.datastructures import FormData
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from palimpsest.core.errors import InputError, MemoryNotFoundError, Remedy
from palimpsest.core.models import Memory as StoredMemory
from palimpsest.learn.apply import WriteResult
from palimpsest.learn.facts.alike import AlikePage
from palimpsest.page.asked import CALLER, memory_of, scope_of, writable_scope_of
from palimpsest.page.rendering import rendered
from palimpsest.page.views.correct.outcome import outcome_page

MAX_MERGED = 50
"""How many memories are merged, or closed in favour of one, at once. Set by hand: more than a page offers."""

LISTED = 30
"""How many conflicts are listed at once."""

NOT_COMPARED = AlikePage((), 0, None)
"""What further contradictions of relations are shown with: those between texts stand on pages of their own."""

MAX_ROW_DIGITS = 18
"""The number of a row is below 10^18 as a 64-bit integer."""


async def duplicates(request: Request) -> Response:
    """List groups of memories that say nearly the same."""
    memory, scope = await memory_of(request), scope_of(request)
    before = _number(request, "cursor")
    page = await memory.corrections.duplicates(scope, before)
    values = {"scope": scope, "page": page, "is_first": before is None}
    return rendered(request, "correct/duplicates.html", values)


async def conflicts(request: Request) -> Response:
    """List relations with several values, and memories that a newer one probably replaces."""
    memory, scope = await memory_of(request), scope_of(request)
    before, after = _number(request, "cursor"), _number(request, "after") or 0
    named = await memory.corrections.conflicts(scope)
    of_named = [{each.id for value in conflict.values for each in value.memories} for conflict in named]
    page = NOT_COMPARED if after else await memory.corrections.contradictions(scope, before)
    groups = [
        group
        for group in page.groups
        if not any({each.id for each in group.memories} <= ids for ids in of_named)  # it is named above
    ]
    following = after + LISTED
    values: dict[str, Any] = {
        "scope": scope,
        "conflicts": named[after:following] if before is None else (),
        "all_conflicts": len(named),
        "following": following if before is None and len(named) > following else None,
        "page": replace(page, groups=tuple(groups)),
        "is_first": before is None,
    }
    return rendered(request, "correct/conflicts.html", values)


async def merge_with(request: Request) -> Response:
    """List the memories nearest to one, to merge it with some of them."""
    memory, scope = await memory_of(request), writable_scope_of(request)
    try:
        stored, nearest = await memory.corrections.nearest(scope, request.path_params["id"])
    except MemoryNotFoundError as error:
        raise _not_found(error) from error
    return rendered(request, "correct/merge_with.html", {"scope": scope, "memory": stored, "nearest": nearest})


async def merge(request: Request) -> Response:
    """Close memories in favour of one that says the same, which takes over what they know."""
    return await _in_favour(request, "merged", (await memory_of(request)).corrections.merge)


async def settle(request: Request) -> Response:
    """Close memories in favour of the one that is true now, or delete those that never were."""
    settle_, were_true = (await memory_of(request)).corrections.settle, (await request.form()).get("never") != "on"
    return await _in_favour(request, "settled" if were_true else "settled_never", partial(settle_, were_true=were_true))


async def _in_favour(request: Request, done: str, close: Callable[..., Awaitable[WriteResult]]) -> Response:
    """Close the memories that a form names in favour of the one that it keeps."""
    memory, scope, form = await memory_of(request), writable_scope_of(request), await request.form()
    kept, others = _chosen(form)
    try:
        result = await close(scope, kept, others, caller=CALLER)
        stored = await memory.get(scope, kept)
    except MemoryNotFoundError as error:
        raise _not_found(error) from error
    return outcome_page(request, scope, form, result, done, kept=stored if isinstance(stored, StoredMemory) else None)


def _chosen(form: FormData) -> tuple[str, list[str]]:
    """Return the memory to keep, and those to close in its favour. Raises InputError."""
    kept = str(form.get("kept", ""))
    others = [str(value) for value in form.getlist("id") if value != kept]
    if not kept or not 0 < len(others) <= MAX_MERGED:
        raise InputError(f"choose the memory to keep, and 1 to {MAX_MERGED} others; nothing was changed")
    return kept, others


def _number(request: Request, name: str) -> int | None:
    value = request.query_params.get(name, "")
    return int(value) if value.isdecimal() and len(value) <= MAX_ROW_DIGITS else None


def _not_found(error: MemoryNotFoundError) -> Exception:
    """Return the error for a memory that is not there. One's own that is not living any more is no secret."""
    return error if error.remedy is Remedy.RESTORE else HTTPException(404)
