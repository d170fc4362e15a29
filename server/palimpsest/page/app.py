"""The page as an ASGI application: its routes, and what a request passes before it gets to one.

The page reads and writes through the facade alone. Nothing of it is open without a cookie but the form to sign in.
"""

from __future__ import annotations

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
from palimpsest.page.access import COOKIE, Visits
from palimpsest.page.rendering import is_part, rendered
from palimpsest.page.safety import Safety
<<<<<<< HEAD
from palimpsest.page.views import conversations, corrections, edits, memories, search, visits
from palimpsest.page.views.correct import routes as correct
=======
from palimpsest.page.views import corrections, edits, memories, search, visits
from palimpsest.page.views.around import activity, conversations, documents, entities, live, summaries, time_line
>>>>>>> ec36b8d (Page: a time line, what was believed then, people and things as lists and graphs, conversations, documents, summaries, jobs, growth, and changes as they happen)
from palimpsest.server.session.lazy_memory import LazyMemory

OPEN_PATHS = ("/enter", "/sign-in", "/static/")
"""What anybody may request: the form to sign in, and files that hold nothing of a memory."""

PATHS = frozenset(
    {
        *("activity", "conversations", "documents", "edits", "enter", "entities", "live", "memories", "sign-in"),
        *("sign-out", "static", "summaries", "timeline"),
    }
)
"""What the paths of the page begin with, but for the first one."""


def has_path(path: str) -> bool:
    """Return whether a path is one of the page."""
<<<<<<< HEAD
    return path == "/" or path.startswith((*PATHS, *correct.PATHS))
=======
    return path == "/" or path.split("/")[1] in PATHS
>>>>>>> ec36b8d (Page: a time line, what was believed then, people and things as lists and graphs, conversations, documents, summaries, jobs, growth, and changes as they happen)


def page_app(memory: LazyMemory, visits_: Visits) -> Starlette:
    """Return the page over a memory, for the visitors that `visits_` knows."""
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
            *_around(),
            Route("/edits", edits.edits, methods=["GET"]),
            Route("/edits/{number:int}/undo", corrections.undo, methods=["POST"]),
            Route("/enter", visits.enter, methods=["GET"]),
            Route("/sign-in", visits.sign_in, methods=["GET", "POST"]),
            Route("/sign-out", visits.sign_out, methods=["POST"]),
            Mount("/static", static),
        ],
        middleware=[Middleware(Safety), Middleware(_Access)],
        exception_handlers={HTTPException: _refused, PalimpsestError: _failed},
    )
    app.state.memory, app.state.visits, app.state.streams = memory, visits_, live.Streams()
    return app


def _around() -> list[Route]:
    """Return the routes of what there is to look around."""
    return [
        Route("/timeline", time_line.time_line, methods=["GET"]),
        Route("/entities", entities.entities, methods=["GET"]),
        Route("/entities/graph", entities.graph, methods=["GET"]),
        Route("/entities/graph.json", entities.whole_graph, methods=["GET"]),
        Route("/entities/{id}", entities.entity, methods=["GET"]),
        Route("/entities/{id}/graph.json", entities.neighbourhood, methods=["GET"]),
        Route("/conversations", conversations.conversations, methods=["GET"]),
        Route("/conversations/{id}", conversations.conversation, methods=["GET"]),
        Route("/documents", documents.documents, methods=["GET"]),
        Route("/documents/{id}", documents.document, methods=["GET"]),
        Route("/summaries", summaries.summaries, methods=["GET"]),
        Route("/summaries/refresh", summaries.refresh, methods=["POST"]),
        Route("/activity", activity.activity, methods=["GET"]),
        Route("/live", live.live, methods=["GET"]),
    ]


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
            request.state.visitor = visitor
        await self._app(scope, receive, send)


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
