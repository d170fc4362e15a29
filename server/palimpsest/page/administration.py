"""Administer: findings, backups, tokens, prompts, settings."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any, cast

import anyio.to_thread
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from palimpsest.admin.backup import StoredBackup, back_up, inspect_backup, restore, stored_backups
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
from palimpsest.page.import_export import may_import, require_owner, require_settings_reader, settings_of, work_of
from palimpsest.page.page_context import (
    answered,
    in_project,
    is_part,
    memory_of,
    rendered,
    scope_of,
    told_to,
    visitor_of,
)
from palimpsest.server import access_tokens
from palimpsest.server.bearer import token_findings
from palimpsest.server.session.lazy_memory import LazyMemory

# The first page of care: what is found about each part, and where the rest is.


async def care(request: Request) -> Response:
    """Show what can be looked after. The findings follow, because they take some seconds."""
    visitor = visitor_of(request)
    values = {"scope": scope_of(request), "may_import": may_import(visitor), "findings": None}
    return rendered(request, "care/care.html", values)


async def findings(request: Request) -> Response:
    """Examine every part, as `palimpsest doctor` does."""
    require_owner(request)
    settings = await settings_of(request)
    async with work_of(request).examining:
        found = [*await examine(settings), *token_findings(settings)]
    values = {"scope": scope_of(request), "may_import": True, "findings": found}
    return rendered(request, "care/findings.html" if is_part(request) else "care/care.html", values)


# Back up the ledger, and restore a backup. Both concern every user of this machine's ledger.


async def backups(request: Request) -> Response:
    """List the backups, the newest first."""
    require_owner(request)
    listed = await anyio.to_thread.run_sync(stored_backups, await settings_of(request))
    done = "backed_up" if request.query_params.get("done") == "backed_up" else ""
    values = {"scope": scope_of(request), "backups": [_shown(backup) for backup in listed], "done": done}
    return rendered(request, "care/backups.html", values)


async def make(request: Request) -> Response:
    """Make a backup now."""
    require_owner(request)
    settings = await settings_of(request)
    await anyio.to_thread.run_sync(partial(back_up, settings, None, now))
    return RedirectResponse(in_project("/care/backups?done=backed_up", scope_of(request)), HTTPStatus.SEE_OTHER)


async def ask(request: Request) -> Response:
    """Say what restoring a backup will do, and ask for it."""
    require_owner(request)
    name = request.query_params.get("file", "")
    copy = await anyio.to_thread.run_sync(inspect_backup, await settings_of(request), name)
    return rendered(request, "care/restore.html", {"scope": scope_of(request), "name": name, "copy": copy})


async def put_back(request: Request) -> Response:
    """Restore a backup. The ledger as it was is backed up first, and the answer leads back to it."""
    require_owner(request)
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

        def work() -> Any:
            return restore(settings, inspect_backup(settings, name).path, now)

        done = await anyio.to_thread.run_sync(work)
    return answered(request, in_project("/care/backups/restored", scope_of(request)), {"restored": done})


async def restored(request: Request) -> Response:
    """Say what the restore did that led here, and how to go back."""
    require_owner(request)
    told, scope = told_to(request), scope_of(request)
    if not told:
        return RedirectResponse(in_project("/care/backups", scope), HTTPStatus.SEE_OTHER)
    return rendered(request, "care/restored.html", {"scope": scope, **told})


def _shown(backup: StoredBackup) -> dict[str, Any]:
    """Return a backup for the page. The occasion of a new schema names the old one."""
    occasion = "schema" if backup.occasion.startswith("schema-") else backup.occasion
    return {
        "name": backup.path.name,
        "made_at": backup.made_at,
        "word": f"backup_{occasion.replace('-', '_')}",
        "occasion": backup.occasion,
        "megabytes": backup.size / 1e6,
    }


# Access tokens for HTTP: list them, create one, which is shown once, and revoke one.

MAX_DAYS = 36_500
"""The longest that a token may be valid, so that its end is a date: a hundred years."""


async def tokens(request: Request) -> Response:
    """List the access tokens, without their text."""
    require_owner(request)
    return await _tokens_page(request)


async def create(request: Request) -> Response:
    """Create an access token and show it. It is shown only once, because only its hash is stored."""
    require_owner(request)
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
    require_owner(request)
    settings = await settings_of(request)
    await anyio.to_thread.run_sync(access_tokens.revoke, settings.data_dir, request.path_params["id"])
    return RedirectResponse(in_project("/care/tokens?done=revoked", scope_of(request)), HTTPStatus.SEE_OTHER)


async def _tokens_page(request: Request, unknown: str = "", given: Mapping[str, Any] | None = None) -> Response:
    """Return the page. The text of a token that was just created is shown once, and not when the page is reloaded.

    `unknown` is the question about a project that is not known, and `given` what the form said that named it.
    """
    settings = await settings_of(request)
    values: dict[str, Any] = {
        "scope": scope_of(request),
        "tokens": await anyio.to_thread.run_sync(_stored, settings.data_dir),
        "of_settings": settings.http.tokens,
        "given": {"user": settings.user_id, "project": "", "days": ""} | dict(given or {}),
        "unknown": unknown,
        "created": "",
        "token_id": "",
        "done": "revoked" if request.query_params.get("done") == "revoked" else "",
    }
    return rendered(request, "care/tokens.html", {**values, **told_to(request, once=True)})


def _stored(data_dir: Path) -> list[tuple[access_tokens.StoredToken, bool]]:
    """Return the tokens, each with whether it is no longer valid."""
    return [(token, token.is_expired(now())) for token in access_tokens.stored_tokens(data_dir)]


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
    return await _prompt_page(request, await _named(request))


async def save(request: Request) -> Response:
    """Write one's own prompt. A text that cannot be used is shown again, with the reason."""
    require_owner(request)
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
    require_owner(request)
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
    settings, name = await settings_of(request), request.path_params["name"]
    try:
        return await anyio.to_thread.run_sync(partial(prompt_in_use, settings, name))
    except PromptError as error:
        raise HTTPException(404) from error


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


# The settings in effect, and where each comes from.


async def settings(request: Request) -> Response:
    """List the settings. They can only be read here: some decide who may read the page."""
    require_settings_reader(request)
    effective = await settings_of(request)
    values = {"scope": scope_of(request), "settings": settings_in_effect(effective), "file": effective.config}
    return rendered(request, "care/settings.html", values)
