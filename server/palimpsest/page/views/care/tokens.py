"""Access tokens for HTTP: list them, create one, which is shown once, and revoke one."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any

import anyio.to_thread
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from palimpsest.core.clock import now
from palimpsest.core.errors import InputError
from palimpsest.core.models import Scope
from palimpsest.core.validation import ScopeInput, scope_from
from palimpsest.page.asked import answered, memory_of, scope_of, told_to
from palimpsest.page.rendering import in_project, rendered
from palimpsest.page.views.care.rights import require_owner, settings_of
from palimpsest.server.auth import tokens as access_tokens

MAX_DAYS = 36_500
"""The longest that a token may be valid, so that its end is a date. Set by hand: a hundred years."""


async def tokens(request: Request) -> Response:
    """List the access tokens, without their text."""
    require_owner(request)
    return await _page(request)


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
        return await _page(request, unknown=unknown, given=dict(form))
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


async def _page(request: Request, unknown: str = "", given: Mapping[str, Any] | None = None) -> Response:
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
