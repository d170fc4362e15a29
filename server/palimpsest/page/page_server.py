"""The page as an ASGI application, and how it is served: alone, or beside MCP over HTTP."""

import webbrowser
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from typing import cast

import anyio.to_thread
import uvicorn
from sse_starlette import EventSourceResponse
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send

from palimpsest.core.clock import now
from palimpsest.core.errors import InputError, LedgerError, MemoryNotFoundError, PalimpsestError, Remedy
from palimpsest.core.settings import Settings
from palimpsest.core.threads import running
from palimpsest.learn.browsing import Changes, Look
from palimpsest.learn.engine import ignore
from palimpsest.page import administration, browse, memory_page
from palimpsest.page import page_context as context
from palimpsest.page.administration import CareWork
from palimpsest.server.access_tokens import AccessTokenVerifier, Grant
from palimpsest.server.http.http_server import SHUTDOWN_SECONDS, Page, listen
from palimpsest.server.http.middleware import check_host, while_valid
from palimpsest.server.session.context import LazyMemory
from palimpsest.server.session.rate_limits import address_of

# The page as an ASGI application: routes, security headers, and live events.

# Tell an open page that something has changed, in this process or another one, as server-sent events.

# How often a stream looks at the index log: what is added is shown at once, as people see it.
LOOK_SECONDS = 1.0

# How long a stream is silent at most, so that nothing on the way takes it for dead.
SAY_SECONDS = 15.0

# How many pages are told at once. A browser opens one stream for each tab that is seen.
MAX_STREAMS = 64


async def live(request: Request) -> Response:
    """Send the event `changed` whenever something of the visitor's user has changed, until the server stops."""
    memory, streams = await context.memory_of(request), cast("anyio.CapacityLimiter", request.app.state.streams)
    changes, user_id = Changes(memory.engine), context.visitor_of(request).grant.user_id
    if not streams.available_tokens:
        return Response("too many pages are open; this one is not told of changes", 503)
    number, _, epoch = request.headers.get("last-event-id", "").partition(" ")  # a browser that was cut off goes on
    last = Look(int(number), epoch) if number.isdecimal() and epoch else None

    async def events() -> AsyncGenerator[bytes]:
        """Yield server-sent events until the server stops, or the ledger cannot be read: the browser asks again."""
        async with streams:
            with suppress(LedgerError):
                look = last or await changes.look(user_id)
                yield f"retry: 3000\nid: {look.number} {look.epoch}\n\n".encode()
                while not is_ending.is_set():
                    if (look := await changes.look(user_id, look)).is_new:
                        yield f"event: changed\nid: {look.number} {look.epoch}\ndata: \n\n".encode()
                    await anyio.sleep(LOOK_SECONDS)

    is_ending = anyio.Event()
    return EventSourceResponse(
        events(), ping=SAY_SECONDS, shutdown_event=is_ending, shutdown_grace_period=2 * LOOK_SECONDS
    )


# Open the page, sign in and sign out.

# The parameter with which the form to sign in says that somebody has just signed out.
SIGNED_OUT = "signed_out"


def visits_of(request: Request) -> context.Visits:
    """Return who has opened the page."""
    return cast("context.Visits", request.app.state.visits)


async def enter(request: Request) -> Response:
    """Swap the single-use token of a first URL for a cookie."""
    if (cookie := visits_of(request).enter(request.query_params.get("token", ""))) is None:
        return context.rendered(request, "sign_in.html", 403, problem="link_used", signed_out=False)
    return _with_cookie(request, cookie)


async def sign_in(request: Request) -> Response:
    """Show the form for an access token, or swap one for a cookie."""
    if request.method != "POST":
        return context.rendered(request, "sign_in.html", problem="", signed_out=SIGNED_OUT in request.query_params)
    token = str((await request.form()).get("token", "")).strip()
    cookie, wait_seconds = await visits_of(request).sign_in(token, address_of(request.scope))
    if cookie:
        return _with_cookie(request, cookie)
    if not wait_seconds:
        return context.rendered(request, "sign_in.html", 403, problem="sign_in_failed", signed_out=False)
    response = context.rendered(request, "sign_in.html", 429, problem="too_many_tries", signed_out=False)
    response.headers["retry-after"] = str(wait_seconds)
    return response


async def sign_out(request: Request) -> Response:
    """Make the cookie invalid."""
    visits_of(request).leave(request.cookies.get(context.COOKIE, ""))
    response = context.redirect(f"/sign-in?{SIGNED_OUT}")
    response.delete_cookie(context.COOKIE, httponly=True, samesite="strict")
    return response


def _with_cookie(request: Request, cookie: str) -> Response:
    response = context.redirect("/")
    response.set_cookie(context.COOKIE, cookie, httponly=True, samesite="strict", secure=request.url.scheme == "https")
    return response


# The page as an ASGI application: its routes, and what a request passes before it gets to one.
#
# The page reads and writes through the facade alone. Nothing of it is open without a cookie but the form to sign in.

# What anybody may request: the form to sign in, and files that hold nothing of a memory.
OPEN_PATHS = ("/enter", "/sign-in", context.STATIC)


def _only_for(may_use: Callable[[context.Visitor], bool], *routes: Route) -> list[Route]:
    """Return routes that do not exist for other visitors: forbidden actions are hidden and answer 404."""

    async def check_first(endpoint: Callable[[Request], Awaitable[Response]], request: Request) -> Response:
        if not may_use(context.visitor_of(request)):
            raise HTTPException(404)
        return await endpoint(request)

    return [Route(route.path, partial(check_first, route.endpoint), methods=route.methods) for route in routes]


ROUTES = (
    Route("/", browse.search),
    Route("/deleted", browse.deleted),
    Route("/captured", browse.captured),
    # Those of many memories come before those of one.
    *(Route(f"/memories/{action}", memory_page.correct_many, methods=["POST"]) for action in memory_page.ACTIONS),
    Route("/memories/{id}", memory_page.memory_page),
    Route("/memories/{id}/edit", memory_page.form),
    Route("/memories/{id}/edit", memory_page.save_hit, methods=["POST"]),
    Route("/memories/{id}/hit", memory_page.hit),
    *(Route(f"/memories/{{id}}/{action}", memory_page.correct, methods=["POST"]) for action in memory_page.EDITS),
    Route("/duplicates", memory_page.duplicates),
    Route("/duplicates/merge", memory_page.merge, methods=["POST"]),
    Route("/conflicts", memory_page.conflicts),
    Route("/conflicts/settle", memory_page.settle, methods=["POST"]),
    Route("/done", memory_page.done),
    Route("/edits", memory_page.edits),
    Route("/edits/{number:int}/undo", memory_page.undo, methods=["POST"]),
    Route("/timeline", browse.time_line),
    Route("/activity", browse.activity),
    Route("/conversations", browse.conversations),
    Route("/conversations/{id}", browse.conversation),
    Route("/documents", browse.documents),
    Route("/documents/{id}", browse.document),
    Route("/entities", browse.entities),
    Route("/entities/graph", browse.graph),
    Route("/entities/graph.json", browse.whole_graph),
    Route("/entities/{id}", browse.entity),
    Route("/entities/{id}/graph.json", browse.neighbourhood),
    Route("/summaries", browse.summaries),
    Route("/summaries/refresh", browse.refresh, methods=["POST"]),
    Route("/live", live),
    Route("/enter", enter),
    Route("/sign-in", sign_in, methods=["GET", "POST"]),
    Route("/sign-out", sign_out, methods=["POST"]),
    Route("/care", administration.care),
    Route("/care/export", administration.export),
    *_only_for(
        # Who may only read gets 403.
        lambda visitor: visitor.grant.read_only or visitor.may_import,
        Route(context.UPLOAD_PATH, administration.import_),
        Route(context.UPLOAD_PATH, administration.upload, methods=["POST"]),
        Route("/care/import/start", administration.start_or_discard, methods=["POST"]),
        Route("/care/import/discard", administration.start_or_discard, methods=["POST"]),
    ),
    *_only_for(
        lambda visitor: visitor.is_owner,
        Route("/care/findings", administration.findings),
        Route("/care/backups", administration.backups),
        Route("/care/backups", administration.make, methods=["POST"]),
        Route("/care/backups/restore", administration.ask),
        Route("/care/backups/restore", administration.put_back, methods=["POST"]),
        Route("/care/tokens", administration.tokens),
        Route("/care/tokens", administration.create, methods=["POST"]),
        Route("/care/tokens/{id}/revoke", administration.revoke, methods=["POST"]),
        Route("/care/prompts/{name}", administration.save, methods=["POST"]),
    ),
    *_only_for(
        lambda visitor: visitor.is_owner or visitor.reads_settings,
        Route("/care/settings", administration.settings),
        Route("/care/prompts", administration.prompts),
        Route("/care/prompts/{name}", administration.prompt),
    ),
    Mount("/static", StaticFiles(packages=[("palimpsest.page", "static")])),
)

FIRST_PARTS = frozenset(route.path.split("/")[1] for route in ROUTES)


def has_path(path: str) -> bool:
    """Return whether a path is one of the page, by its first part."""
    return path.startswith("/") and path.split("/")[1] in FIRST_PARTS


def page_app(memory: LazyMemory, visits_: context.Visits) -> Starlette:
    """Return the page over a memory, for the visitors that `visits_` knows.

    Whoever serves it also runs `state.care.run`, which works in the background.
    """
    app = Starlette(
        routes=ROUTES,
        middleware=[Middleware(context.keep_safe), Middleware(_let_in)],
        exception_handlers={HTTPException: _problem, PalimpsestError: _problem},
    )
    app.state.memory, app.state.visits, app.state.streams = memory, visits_, anyio.CapacityLimiter(MAX_STREAMS)
    app.state.told, app.state.care = context.Told(), CareWork(memory.get)
    return app


def _let_in(app: ASGIApp) -> ASGIApp:
    """Let requests with a valid cookie through, and send all others to the form to sign in. ASGI middleware."""

    async def let_in(scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope)
        known, cookie = visits_of(request), request.cookies.get(context.COOKIE, "")
        visitor = request.state.visitor = await known.visitor(cookie)
        is_open = request.url.path.startswith(OPEN_PATHS)
        if visitor is not None:
            if visitor.grant.project and not is_open:
                request.state.visitor = await _in_present_project(request, visitor)
            await while_valid(app, lambda: known.visitor(cookie, is_use=False), scope, receive, send)
        elif is_open:
            await app(scope, receive, send)
        else:
            answer = Response(status_code=401, headers={"hx-redirect": "/sign-in"})
            if request.method == "GET" and not context.is_part(request):  # a part of a page has no place for a form
                answer = context.redirect("/sign-in")
            await answer(scope, receive, send)

    return let_in


async def _in_present_project(request: Request, visitor: context.Visitor) -> context.Visitor:
    """Return a visitor with the project of their access token under the name that it has now."""
    with suppress(PalimpsestError):  # the page that is asked for reports it
        memory = await cast("LazyMemory", request.app.state.memory).get()
        project = await memory.projects.current_name(visitor.grant.project, user_id=visitor.grant.user_id)
        return replace(visitor, grant=replace(visitor.grant, project=project))
    return visitor


async def _problem(request: Request, error: Exception) -> Response:
    """Say that there is no such thing or that it may not be changed, or what did not work.

    A memory of the visitor's own that is not living any more is no secret. The texts of our errors say what was kept
    and what to do.
    """
    is_unknown = isinstance(error, MemoryNotFoundError) and error.remedy is not Remedy.RESTORE
    if is_unknown or isinstance(error, HTTPException):
        status = error.status_code if isinstance(error, HTTPException) else HTTPStatus.NOT_FOUND
        problem = "read_only" if status == HTTPStatus.FORBIDDEN else "not_found"
        return context.rendered(request, "problem.html", status, problem=problem, reason="")
    status = HTTPStatus.BAD_REQUEST if isinstance(error, InputError) else HTTPStatus.SERVICE_UNAVAILABLE
    return context.rendered(request, "problem.html", status, problem="failed", reason=str(error))


# Serve the page: by itself for the person at this machine, or beside MCP over HTTP.

LOOPBACK = "127.0.0.1"


def serve_page(load_settings: Callable[[], Settings], port: int, say: Callable[[str], None], *, opens: bool) -> None:
    """Serve the page on this machine until the process is asked to stop. `port` 0 picks a free one.

    `say` is given its first URL, which `opens` also opens in the browser. Raises SettingsError.
    """
    settings = load_settings()
    visits = context.Visits(now)
    token = visits.invite(context.Visitor(Grant(settings.user_id), is_owner=True))
    memory = LazyMemory(load_settings, ignore, ignore)
    with listen(LOOPBACK, port) as listener:
        host = f"{LOOPBACK}:{listener.getsockname()[1]}"
        url = f"http://{host}/enter?token={token}"
        say(url)
        page = page_app(memory, visits)

        @asynccontextmanager
        async def lifespan(_: Starlette) -> AsyncGenerator[None]:
            async with running(memory.run, page.state.care.run) as tasks:
                memory.start_opening()
                if opens:
                    tasks.start_soon(anyio.to_thread.run_sync, webbrowser.open, url)
                yield

        app = Starlette(routes=[Mount("/", page)], middleware=[Middleware(check_host, names=[host])], lifespan=lifespan)
        config = uvicorn.Config(
            app, log_level="warning", server_header=False, ws="none", timeout_graceful_shutdown=SHUTDOWN_SECONDS
        )
        uvicorn.Server(config).run(sockets=[listener])


def page_beside_mcp(memory: LazyMemory, settings: Settings, protected: bool) -> Page:  # noqa: FBT001 - a `BuildPage`
    """Return the page of an HTTP server.

    If the server needs access tokens, visitors sign in with one. Else the first URL holds a single-use token.
    """
    verifier = AccessTokenVerifier(settings.http, settings.data_dir, now) if protected else None
    visits, first = context.Visits(now, verifier), "/"
    if not protected:
        first = f"/enter?token={visits.invite(context.Visitor(Grant(settings.user_id), reads_settings=True))}"
    app = page_app(memory, visits)
    return Page(app, has_path, first, app.state.care.run)
