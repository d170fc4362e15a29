"""Administer: findings, backups, tokens, prompts, settings."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import partial
from http import HTTPStatus
from typing import Any, cast

import anyio.to_thread
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from palimpsest.admin.backup import back_up, inspect_backup, restore, stored_backups
from palimpsest.admin.configuration import (
    PromptInUse,
    prompt_in_use,
    prompts_in_use,
    reset_prompt,
    save_prompt,
    settings_in_effect,
)
from palimpsest.admin.doctor import examine
from palimpsest.core.clock import now
from palimpsest.core.errors import InputError, PromptError
from palimpsest.core.models import Scope
from palimpsest.core.validation import ScopeInput, scope_from
from palimpsest.page.import_export import may_import, settings_of, work_of
from palimpsest.page.page_context import (
    answered,
    in_project,
    is_part,
    memory_of,
    or_not_found,
    scope_of,
    shown,
    told_to,
    visitor_of,
)
from palimpsest.server import access_tokens
from palimpsest.server.access_tokens import token_findings
from palimpsest.server.session.lazy_memory import LazyMemory

# The first page of care: what is found about each part, and where the rest is.


async def care(request: Request) -> Response:
    """Show what can be looked after. The findings follow, because they take some seconds."""
    return shown(request, "care/care.html", may_import=may_import(visitor_of(request)), findings=None)


async def findings(request: Request) -> Response:
    """Examine every part, as `palimpsest doctor` does."""
    settings = await settings_of(request)
    async with work_of(request).examining:
        found = [*await examine(settings), *token_findings(settings)]
    return shown(
        request, "care/findings.html" if is_part(request) else "care/care.html", may_import=True, findings=found
    )


# Back up the ledger, and restore a backup. Both concern every user of this machine's ledger.


async def backups(request: Request) -> Response:
    """List the backups, the newest first."""
    listed = await anyio.to_thread.run_sync(stored_backups, await settings_of(request))
    done = "backed_up" if request.query_params.get("done") == "backed_up" else ""
    return shown(request, "care/backups.html", backups=listed, done=done)


async def make(request: Request) -> Response:
    """Make a backup now."""
    await anyio.to_thread.run_sync(back_up, await settings_of(request), None, now)
    return RedirectResponse(in_project("/care/backups?done=backed_up", scope_of(request)), HTTPStatus.SEE_OTHER)


async def ask(request: Request) -> Response:
    """Say what restoring a backup will do, and ask for it."""
    name = request.query_params.get("file", "")
    copy = await anyio.to_thread.run_sync(inspect_backup, await settings_of(request), name)
    return shown(request, "care/restore.html", name=name, copy=copy)


async def put_back(request: Request) -> Response:
    """Restore a backup. The ledger as it was is backed up first, and the answer leads back to it."""
    form = await request.form()
    if form.get("confirmed") != "on":
        raise InputError("restoring was not confirmed. Nothing was changed")
    if work_of(request).is_importing:
        raise InputError("an import is under way. Nothing was restored. Wait until it is done")
    name, settings = str(form.get("file", "")), await settings_of(request)
    opened = cast("LazyMemory", request.app.state.memory).opened
    if opened is not None:
        done = await opened.care.restore(name)
    else:  # the ledger is damaged, which is when a backup is needed most
        copy = await anyio.to_thread.run_sync(inspect_backup, settings, name)
        done = await anyio.to_thread.run_sync(restore, settings, copy.path, now)
    return answered(request, in_project("/care/backups/restored", scope_of(request)), {"restored": done})


async def restored(request: Request) -> Response:
    """Say what the restore did that led here, and how to go back."""
    if told := told_to(request):
        return shown(request, "care/restored.html", **told)
    return RedirectResponse(in_project("/care/backups", scope_of(request)), HTTPStatus.SEE_OTHER)


# Access tokens for HTTP: list them, create one, which is shown once, and revoke one.

MAX_DAYS = 36_500
"""The longest that a token may be valid, so that its end is a date: a hundred years."""


async def tokens(request: Request) -> Response:
    """List the access tokens, without their text."""
    return await _tokens_page(request)


async def create(request: Request) -> Response:
    """Create an access token and show it. It is shown only once, because only its hash is stored."""
    settings, form = await settings_of(request), await request.form()
    given = ScopeInput(user_id=str(form.get("user", "")) or None, project=str(form.get("project", "")) or None)
    scope = scope_from(Scope(settings.user_id), given)
    if given.project is not None and not scope.project:
        raise InputError("the project is white space. Name it, or leave it empty for a token of all projects")
    days = _days(str(form.get("days", "")).strip())
    unknown = ""
    if scope.project and form.get("anyway") != scope.project:
        unknown = await (await memory_of(request)).projects.unknown(scope.project, user_id=scope.user_id)
    if unknown:
        return await _tokens_page(request, unknown=unknown, given=dict(form))
    make = partial(
        access_tokens.create,
        settings.data_dir,
        scope.user_id,
        scope.project,
        now(),
        read_only=form.get("read_only") == "on",
        days=days,
        with_general=form.get("with_general") == "on",
    )
    text, token = await anyio.to_thread.run_sync(make)
    answer = {"created": text, "token_id": token.id}
    return answered(request, in_project("/care/tokens", scope_of(request)), answer)


async def revoke(request: Request) -> Response:
    """Revoke an access token. A running server refuses it from the next request on."""
    settings = await settings_of(request)
    await anyio.to_thread.run_sync(access_tokens.revoke, settings.data_dir, request.path_params["id"])
    return RedirectResponse(in_project("/care/tokens?done=revoked", scope_of(request)), HTTPStatus.SEE_OTHER)


async def _tokens_page(request: Request, unknown: str = "", given: Mapping[str, Any] | None = None) -> Response:
    """Return the page. The text of a token that was just created is shown once, and not when the page is reloaded.

    `unknown` is the question about a project that is not known, and `given` what the form said that named it.
    """
    settings = await settings_of(request)
    told = told_to(request, once=True)
    stored = await anyio.to_thread.run_sync(access_tokens.stored_tokens, settings.data_dir)
    return shown(
        request,
        "care/tokens.html",
        tokens=[(token, token.is_expired(now())) for token in stored],
        of_settings=settings.http.tokens,
        given={"user": settings.user_id, "project": "", "days": ""} | dict(given or {}),
        unknown=unknown,
        done="revoked" if request.query_params.get("done") == "revoked" else "",
        created=told.get("created", ""),
        token_id=told.get("token_id", ""),
    )


def _days(text: str) -> int | None:
    if not text:
        return None
    if not (text.isascii() and text.isdecimal() and 0 < int(text[:9]) <= MAX_DAYS):
        raise InputError(f"the days are a number from 1 to {MAX_DAYS:,}, or nothing. No token was created")
    return int(text)


# The prompts: each with its difference to the shipped one. An owner may write their own, and return to the shipped.

CHANGES = {"+": "added", "-": "removed", "@": "place"}
"""What the first character of a line of a difference means."""


async def prompts(request: Request) -> Response:
    """List the prompts, and which of them are one's own."""
    settings = await settings_of(request)
    listed = await anyio.to_thread.run_sync(prompts_in_use, settings)
    return shown(request, "care/prompts.html", prompts=listed, folder=settings.prompts_dir)


async def prompt(request: Request) -> Response:
    """Show a prompt, and how it differs from the shipped one."""
    return await _prompt_page(request, await _named(request))


async def save(request: Request) -> Response:
    """Write one's own prompt. A text that cannot be used is shown again, with the reason."""
    found, form = await _named(request), await request.form()
    text, read = str(form.get("text", "")), form.get("read")
    if read is not None and read != _digest(found.text) and _plain(text) != _plain(found.text):
        return await _prompt_page(request, found, draft=text, changed=True, status=409)
    try:
        copy = await anyio.to_thread.run_sync(save_prompt, await settings_of(request), found.name, text)
    except PromptError as error:
        return await _prompt_page(request, found, draft=text, problem=str(error), status=400)
    return _done(request, "prompt_saved", copy.name if copy else "")


async def return_(request: Request) -> Response:
    """Use the shipped prompt again, and keep one's own beside it."""
    found = await _named(request)
    if not found.is_own:
        return RedirectResponse(in_project(f"/care/prompts/{found.name}", scope_of(request)), HTTPStatus.SEE_OTHER)
    copy = await anyio.to_thread.run_sync(reset_prompt, await settings_of(request), found.name)
    return _done(request, "prompt_returned", copy.name)


def _done(request: Request, done: str, kept: str) -> Response:
    """Lead to the prompt, which says what was done with it, and what the file is called now that it had."""
    path = in_project(f"/care/prompts/{request.path_params['name']}", scope_of(request))
    return answered(request, path, {"done": done, "kept": kept})


async def _named(request: Request) -> PromptInUse:
    """Return the prompt that a path names. Raises HTTPException if there is none."""
    settings = await settings_of(request)
    with or_not_found():
        return await anyio.to_thread.run_sync(prompt_in_use, settings, request.path_params["name"])


async def _prompt_page(
    request: Request,
    found: PromptInUse,
    *,
    draft: str = "",
    problem: str = "",
    changed: bool = False,
    status: int = 200,
) -> Response:
    settings, told = await settings_of(request), told_to(request)
    difference = [(CHANGES.get(line[:1], ""), line if line[:1] == "@" else line[1:]) for line in found.difference]
    return shown(
        request,
        "care/prompt.html",
        status,
        prompt=found,
        lines=difference,
        draft=draft or found.text,
        problem=problem,
        changed=changed,
        read=_digest(found.text),
        done=told.get("done", ""),
        kept=told.get("kept", ""),
        may_write=visitor_of(request).is_owner and settings.prompts_dir is not None,
    )


def _digest(text: str) -> str:
    """Return what tells a text of a prompt from another one. Browsers change the ends of its lines."""
    return hashlib.sha256(_plain(text).encode()).hexdigest()


def _plain(text: str) -> str:
    return "\n".join(text.splitlines()).strip()


# The settings in effect, and where each comes from.


async def settings(request: Request) -> Response:
    """List the settings. They can only be read here: some decide who may read the page."""
    effective = await settings_of(request)
    return shown(request, "care/settings.html", settings=settings_in_effect(effective), file=effective.config)
