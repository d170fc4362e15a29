"""The prompts: each with its difference to the shipped one. An owner may write their own, and return to the shipped."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import partial
from http import HTTPStatus

import anyio.to_thread
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from palimpsest.care.own_prompts import PromptInUse, prompt_in_use, prompts_in_use, return_to_shipped, save_prompt
from palimpsest.core.errors import PromptError
from palimpsest.page.asked import answered, scope_of, told_to, visitor_of
from palimpsest.page.rendering import in_project, rendered
from palimpsest.page.views.care.rights import require_owner, require_settings_reader, settings_of

CHANGES = {"+": "added", "-": "removed", "@": "place"}
"""What the first character of a line of a difference means."""


async def prompts(request: Request) -> Response:
    """List the prompts, and which of them are one's own."""
    require_settings_reader(request)
    settings = await settings_of(request)
    values = {
        "scope": scope_of(request),
        "prompts": await anyio.to_thread.run_sync(prompts_in_use, settings),
        "folder": settings.prompts_dir,
    }
    return rendered(request, "care/prompts.html", values)


async def prompt(request: Request) -> Response:
    """Show a prompt, and how it differs from the shipped one."""
    require_settings_reader(request)
    return await _page(request, await _named(request))


async def save(request: Request) -> Response:
    """Write one's own prompt. A text that cannot be used is shown again, with the reason."""
    require_owner(request)
    found, form = await _named(request), await request.form()
    text, read = str(form.get("text", "")), form.get("read")
    if read is not None and read != _digest(found.text) and _plain(text) != _plain(found.text):
        return await _page(request, found, draft=text, changed=True, status=409)
    try:
        copy = await anyio.to_thread.run_sync(save_prompt, await settings_of(request), found.name, text)
    except PromptError as error:
        return await _page(request, found, draft=text, problem=str(error), status=400)
    return _done(request, "prompt_saved", copy.name if copy else "")


async def return_(request: Request) -> Response:
    """Use the shipped prompt again, and keep one's own beside it."""
    require_owner(request)
    found = await _named(request)
    if not found.is_own:
        return RedirectResponse(in_project(f"/care/prompts/{found.name}", scope_of(request)), HTTPStatus.SEE_OTHER)
    copy = await anyio.to_thread.run_sync(return_to_shipped, await settings_of(request), found.name)
    return _done(request, "prompt_returned", copy.name)


def _done(request: Request, done: str, kept: str) -> Response:
    """Lead to the prompt, which says what was done with it, and what the file is called now that it had."""
    path = in_project(f"/care/prompts/{request.path_params['name']}", scope_of(request))
    return answered(request, path, {"done": done, "kept": kept})


async def _named(request: Request) -> PromptInUse:
    """Return the prompt that a path names. Raises HTTPException if there is none."""
    settings, name = await settings_of(request), request.path_params["name"]
    try:
        return await anyio.to_thread.run_sync(partial(prompt_in_use, settings, name))
    except PromptError as error:
        raise HTTPException(404) from error


async def _page(
    request: Request,
    found: PromptInUse,
    *,
    draft: str = "",
    problem: str = "",
    changed: bool = False,
    status: int = 200,
) -> Response:
    settings, told = await settings_of(request), told_to(request)
    values = {
        "scope": scope_of(request),
        "prompt": found,
        "lines": _lines(found.difference),
        "draft": draft or found.text,
        "problem": problem,
        "changed": changed,
        "read": _digest(found.text),
        "done": told.get("done", ""),
        "kept": told.get("kept", ""),
        "may_write": visitor_of(request).is_owner and settings.prompts_dir is not None,
    }
    return rendered(request, "care/prompt.html", values, status)


def _digest(text: str) -> str:
    """Return what tells a text of a prompt from another one. Browsers change the ends of its lines."""
    return hashlib.sha256(_plain(text).encode()).hexdigest()


def _plain(text: str) -> str:
    return "\n".join(text.splitlines()).strip()


def _lines(difference: Sequence[str]) -> list[tuple[str, str]]:
    """Return the lines of a difference, each with what it means: "added", "removed", "place" or ""."""
    return [(CHANGES.get(line[:1], ""), line if line[:1] == "@" else line[1:]) for line in difference]
