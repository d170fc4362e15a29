"""The page as an ASGI application: its routes, and what a request passes before it gets to one.

The page reads and writes through the facade alone. Nothing of it is open without a cookie but the form to sign in.
"""

from __future__ import annotations

from dataclasses import replace
from http import HTTPStatus
from typing import cast

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send

from palimpsest.core.errors import InputError, PalimpsestError
from palimpsest.page.access import COOKIE, Visitor, Visits
from palimpsest.page.asked import Told
from palimpsest.page.rendering import is_part, rendered
from palimpsest.page.safety import STATIC, Safety
from palimpsest.page.views import corrections, edits, memories, search, visits
from palimpsest.page.views.around import routes as around
from palimpsest.page.views.around.live import Streams
from palimpsest.page.views.care import routes as care
from palimpsest.page.views.care.work import CareWork
from palimpsest.page.views.correct import outcome
from palimpsest.page.views.correct import routes as correct
from palimpsest.server.auth.streams import while_valid
from palimpsest.server.session.lazy_memory import LazyMemory

OPEN_PATHS = ("/enter", "/sign-in", STATIC)
"""What anybody may request: the form to sign in, and files that hold nothing of a memory."""

PATHS = ("/memories/", "/edits", "/done", "/enter", "/sign-in", "/sign-out", STATIC)
"""What the paths of the page begin with, but for the first one."""


def has_path(path: str) -> bool:
    """Return whether a path is one of the page."""
    return path == "/" or path.startswith((*PATHS, *around.PATHS, *correct.PATHS, *care.PATHS))


def page_app(memory: LazyMemory, visits_: Visits) -> Starlette:
    """Return the page over a memory, for the visitors that `visits_` knows.

    Whoever serves it also runs `state.care.run`, which works in the background.
    """
    static = StaticFiles(packages=[("palimpsest.page", "static")])
    app = Starlette(
        routes=[
            Route("/", search.search, methods=["GET"]),
            *correct.ROUTES,
            Route("/memories/{id}", memories.memory, methods=["GET"]),
            Route("/memories/{id}/text", corrections.reword, methods=["POST"]),
            Route("/memories/{id}/tags", corrections.tag, methods=["POST"]),
            Route("/memories/{id}/dates", corrections.date, methods=["POST"]),
            Route("/memories/{id}/pinned", corrections.pin, methods=["POST"]),
            Route("/memories/{id}/delete", corrections.delete, methods=["POST"]),
            Route("/memories/{id}/restore", corrections.restore, methods=["POST"]),
            *around.ROUTES,
            Route("/done", outcome.done, methods=["GET"]),
            Route("/edits", edits.edits, methods=["GET"]),
            Route("/edits/{number:int}/undo", corrections.undo, methods=["POST"]),
            Route("/enter", visits.enter, methods=["GET"]),
            Route("/sign-in", visits.sign_in, methods=["GET", "POST"]),
            Route("/sign-out", visits.sign_out, methods=["POST"]),
            *care.ROUTES,
            Mount("/static", static),
        ],
        middleware=[Middleware(Safety), Middleware(_Access)],
        exception_handlers={HTTPException: _refused, PalimpsestError: _failed},
    )
    app.state.memory, app.state.visits, app.state.streams = memory, visits_, Streams()
    app.state.told = Told()
    app.state.care = CareWork(memory.get)
    return app


class _Access:
    """Let requests with a valid cookie through, and send all others to the form to sign in. ASGI middleware."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on with its visitor, or refuse it."""
        if scope["type"] == "http":
            request = Request(scope)
            known = cast("Visits", request.app.state.visits)
            visitor = await known.visitor(request.cookies.get(COOKIE, ""))
            if visitor is None and not request.url.path.startswith(OPEN_PATHS):
                await _unknown(request)(scope, receive, send)
                return
            if visitor is not None and visitor.grant.project and not request.url.path.startswith(OPEN_PATHS):
                visitor = await _in_present_project(request, visitor)
            request.state.visitor = visitor
            if visitor is not None:
                cookie = request.cookies.get(COOKIE, "")
                await while_valid(self._app, lambda: known.is_valid(cookie), scope, receive, send)
                return
        await self._app(scope, receive, send)


async def _in_present_project(request: Request, visitor: Visitor) -> Visitor:
    """Return a visitor with the project of their access token under the name that it has now."""
    try:
        memory = await cast("LazyMemory", request.app.state.memory).get()
        project = await memory.projects.current_name(visitor.grant.project, user_id=visitor.grant.user_id)
    except PalimpsestError:  # the page that is asked for reports it
        return visitor
    return replace(visitor, grant=replace(visitor.grant, project=project))


def _unknown(request: Request) -> Response:
    """Return the answer to a request without a valid cookie. A part of a page has no place for a form."""
    if request.method == "GET" and not is_part(request):
        return RedirectResponse("/sign-in", HTTPStatus.SEE_OTHER)
    return Response(status_code=401, headers={"hx-redirect": "/sign-in"})


async def _refused(request: Request, error: Exception) -> Response:
    """Say that there is no such thing, or that it may not be changed."""
    status = error.status_code if isinstance(error, HTTPException) else HTTPStatus.NOT_FOUND
    problem = "read_only" if status == HTTPStatus.FORBIDDEN else "not_found"
    return rendered(request, "problem.html", {"problem": problem, "reason": ""}, status)


async def _failed(request: Request, error: Exception) -> Response:
    """Say what did not work. The texts of our errors say what was kept and what to do."""
    status = 400 if isinstance(error, InputError) else 503
    return rendered(request, "problem.html", {"problem": "failed", "reason": str(error)}, status)
