"""Open the page, sign in and sign out."""

from __future__ import annotations

from http import HTTPStatus
from typing import cast

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from palimpsest.page.access import COOKIE, Visits
from palimpsest.page.rendering import rendered
from palimpsest.server.auth.caller import address_of

SIGNED_OUT = "signed_out"
"""The parameter with which the form to sign in says that somebody has just signed out."""


async def enter(request: Request) -> Response:
    """Swap the single-use token of a first URL for a cookie."""
    cookie = _visits(request).enter(request.query_params.get("token", ""))
    if cookie is None:
        return rendered(request, "sign_in.html", {"problem": "link_used", "signed_out": False}, 403)
    return _with_cookie(request, cookie)


async def sign_in(request: Request) -> Response:
    """Show the form for an access token, or swap one for a cookie."""
    if request.method != "POST":
        return rendered(request, "sign_in.html", {"problem": "", "signed_out": SIGNED_OUT in request.query_params})
    token = str((await request.form()).get("token", "")).strip()
    outcome = await _visits(request).sign_in(token, address_of(request.scope))
    if outcome.cookie:
        return _with_cookie(request, outcome.cookie)
    problem, status = ("too_many_tries", 429) if outcome.wait_seconds else ("sign_in_failed", 403)
    response = rendered(request, "sign_in.html", {"problem": problem, "signed_out": False}, status)
    if outcome.wait_seconds:
        response.headers["retry-after"] = str(outcome.wait_seconds)
    return response


async def sign_out(request: Request) -> Response:
    """Make the cookie invalid."""
    _visits(request).leave(request.cookies.get(COOKIE, ""))
    response = RedirectResponse(f"/sign-in?{SIGNED_OUT}", HTTPStatus.SEE_OTHER)
    response.delete_cookie(COOKIE, httponly=True, samesite="strict")
    return response


def _visits(request: Request) -> Visits:
    return cast("Visits", request.app.state.visits)


def _with_cookie(request: Request, cookie: str) -> Response:
    response = RedirectResponse("/", HTTPStatus.SEE_OTHER)
    response.set_cookie(COOKIE, cookie, httponly=True, samesite="strict", secure=request.url.scheme == "https")
    return response
