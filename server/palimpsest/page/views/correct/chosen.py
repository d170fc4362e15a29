"""Correct several memories at once. Each action is one edit, and changes all of them or none."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeAlias

from starlette.datastructures import FormData
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from palimpsest.core.errors import InputError, MemoryNotFoundError, Remedy
from palimpsest.core.models import Scope
from palimpsest.learn.apply import WriteResult
from palimpsest.memory import Memory
from palimpsest.page.asked import CALLER, memory_of, writable_scope_of
from palimpsest.page.views.correct.outcome import outcome_page

MAX_CHOSEN = 500
"""How many memories one action may change. Set by hand: more than a page shows."""

Action: TypeAlias = Callable[[Memory, Scope, list[str], FormData], Awaitable[WriteResult]]


async def delete(request: Request) -> Response:
    """Delete the chosen memories and messages."""
    return await _answer(request, "deleted", lambda memory, scope, ids, _: memory.delete(scope, ids, caller=CALLER))


async def restore(request: Request) -> Response:
    """Restore the chosen memories and messages."""
    return await _answer(
        request, "restored", lambda memory, scope, ids, _: memory.corrections.restore(scope, ids, caller=CALLER)
    )


async def add_tag(request: Request) -> Response:
    """Give the chosen memories one more tag."""
    return await _answer(
        request,
        "changed",
        lambda memory, scope, ids, form: memory.corrections.add_tag(scope, ids, _tag(form), caller=CALLER),
    )


async def remove_tag(request: Request) -> Response:
    """Take a tag from the chosen memories."""
    return await _answer(
        request,
        "changed",
        lambda memory, scope, ids, form: memory.corrections.remove_tag(scope, ids, _tag(form), caller=CALLER),
    )


async def pin(request: Request) -> Response:
    """Pin the chosen memories."""
    return await _answer(request, "changed", partial(_pin, pinned=True))


async def unpin(request: Request) -> Response:
    """Take the chosen memories from the pinned ones."""
    return await _answer(request, "changed", partial(_pin, pinned=False))


async def _pin(memory: Memory, scope: Scope, ids: list[str], form: FormData, *, pinned: bool) -> WriteResult:
    del form
    return await memory.corrections.pin(scope, ids, pinned=pinned, caller=CALLER)


async def confirm(request: Request) -> Response:
    """Confirm what was captured: it counts as said to be remembered from then on."""
    return await _answer(
        request, "changed", lambda memory, scope, ids, _: memory.corrections.confirm(scope, ids, caller=CALLER)
    )


def _tag(form: FormData) -> str:
    return str(form.get("tag", ""))


async def _answer(request: Request, done: str, action: Action) -> Response:
    """Do something with what a form chose, or with all that it showed. Raises HTTPException for another's ids."""
    memory, scope, form = await memory_of(request), writable_scope_of(request), await request.form()
    chosen = [str(value) for value in form.getlist("shown" if form.get("all") == "on" else "id")]
    if not 0 < len(chosen) <= MAX_CHOSEN:
        raise InputError(f"choose 1 to {MAX_CHOSEN} memories; nothing was changed")
    try:
        result = await action(memory, scope, chosen, form)
    except MemoryNotFoundError as error:
        if error.remedy is Remedy.RESTORE:  # a memory of one's own that is not living any more
            raise
        raise HTTPException(404) from error
    return outcome_page(request, scope, form, result, done)
