"""Serve the page: by itself for the person at this machine, or beside MCP over HTTP."""

from __future__ import annotations

import socket
import webbrowser
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.to_thread
import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import Mount

from palimpsest.core.clock import now
from palimpsest.core.errors import SettingsError
from palimpsest.core.settings import Settings
from palimpsest.page.routes import has_path, page_app
from palimpsest.page.sign_in import Visitor, Visits
from palimpsest.server.access_tokens import Grant
from palimpsest.server.bearer import AccessTokenVerifier
from palimpsest.server.http.http_server import Page
from palimpsest.server.http.middleware import HostCheck
from palimpsest.server.session.lazy_memory import LazyMemory

LOOPBACK = "127.0.0.1"
SHUTDOWN_SECONDS = 3
"""How long open streams may continue after the page is asked to stop."""


def serve_page(load_settings: Callable[[], Settings], port: int, say: Callable[[str], None], *, opens: bool) -> None:
    """Serve the page on this machine until the process is asked to stop. `port` 0 picks a free one.

    `say` is given its first URL, which `opens` also opens in the browser. Raises SettingsError.
    """
    settings = load_settings()
    visits = Visits(now)
    token = visits.invite(Visitor(Grant(settings.user_id), is_owner=True))
    memory = LazyMemory(load_settings, _tell_nobody, _tell_nobody)
    with _listen(port) as listener:
        host = f"{LOOPBACK}:{listener.getsockname()[1]}"
        url = f"http://{host}/enter?token={token}"
        say(url)
        page = page_app(memory, visits)
        app = Starlette(
            routes=[Mount("/", page)],
            middleware=[Middleware(HostCheck, names=[host])],
            lifespan=lambda _: _open_while_served(memory, page.state.care.run, url if opens else ""),
        )
        config = uvicorn.Config(
            app, log_level="warning", server_header=False, ws="none", timeout_graceful_shutdown=SHUTDOWN_SECONDS
        )
        server = uvicorn.Server(config)
        page.state.streams.end_when(lambda: server.should_exit)
        server.run(sockets=[listener])


def page_beside_mcp(memory: LazyMemory, settings: Settings, protected: bool) -> Page:  # noqa: FBT001 - a `BuildPage`
    """Return the page of an HTTP server.

    If the server needs access tokens, visitors sign in with one. Else the first URL holds a single-use token.
    """
    if protected:
        visits = Visits(now, AccessTokenVerifier(settings.http, settings.data_dir, now))
        app = page_app(memory, visits)
        return Page(app, has_path, "/", app.state.care.run, app.state.streams.end_when)
    visits = Visits(now)
    token = visits.invite(Visitor(Grant(settings.user_id), reads_settings=True))
    app = page_app(memory, visits)
    return Page(app, has_path, f"/enter?token={token}", app.state.care.run, app.state.streams.end_when)


@asynccontextmanager
async def _open_while_served(
    memory: LazyMemory, work: Callable[[], Coroutine[Any, Any, None]], url: str
) -> AsyncGenerator[None]:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(memory.run)
        tasks.start_soon(work)
        memory.start_opening()
        if url:
            tasks.start_soon(anyio.to_thread.run_sync, webbrowser.open, url)
        yield
        tasks.cancel_scope.cancel()


async def _tell_nobody(news: Sequence[object]) -> None:
    """Ignore what was learned or has changed."""


def _listen(port: int) -> socket.socket:
    try:
        return socket.create_server((LOOPBACK, port))
    except OSError as error:
        raise SettingsError(
            f"cannot listen on {LOOPBACK} port {port}: {error.strerror or error}. Choose another port with --port, "
            "or stop the program that uses it."
        ) from error
