"""Serve MCP over HTTP: streamable HTTP at /mcp and SSE at /sse, on one port, with one open memory.

`gate` says how a request is checked before it gets there.
"""

from __future__ import annotations

import logging
import socket
import sys
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import anyio
import uvicorn
from mcp.server.auth.routes import create_protected_resource_routes
from mcp.server.transport_security import TransportSecuritySettings
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Lifespan
from uvicorn.config import LOGGING_CONFIG

from palimpsest.core.configuration.endpoints import is_loopback
from palimpsest.core.errors import SettingsError
from palimpsest.core.settings import Settings
from palimpsest.server.app import LoadSettings, build_server
from palimpsest.server.auth import tokens as access_tokens
from palimpsest.server.auth.access import READ, WRITE
from palimpsest.server.http.connections import BoundedConnection
from palimpsest.server.http.gate import URL, gate
from palimpsest.server.http.open_paths import HEALTH, READY
from palimpsest.server.http.operations.log import log_as_json
from palimpsest.server.http.operations.observing import observers
from palimpsest.server.http.operations.probes import Health, Ready
from palimpsest.server.http.operations.stopping import DrainingServer
from palimpsest.server.http.sessions import Session
from palimpsest.server.http.short_pauses import keep_pauses_short
from palimpsest.server.http.split import PageSplit
from palimpsest.server.mcp_server import MemoryServer
from palimpsest.server.session.calls import UnderWay
from palimpsest.server.session.lazy_memory import LazyMemory
from palimpsest.server.wire.json_text import MAX_MESSAGE_BYTES

logger = logging.getLogger(__name__)

Transport: TypeAlias = Literal["http", "sse", "all"]


@dataclass(frozen=True, slots=True)
class Page:
    """The page of a memory: its application, which paths it has, and the path of its first URL.

    `run` is what it does in the background while it is served. `end_streams_when` is given a function that says whether
    the server is asked to stop; the streams of the page then end by themselves.
    """

    app: ASGIApp
    has_path: Callable[[str], bool]
    first_path: str
    run: Callable[[], Coroutine[Any, Any, None]]
    end_streams_when: Callable[[Callable[[], bool]], None]


@dataclass(frozen=True, slots=True)
class Served:
    """What is served: the whole application, the page in it, and how many of its calls are under way."""

    app: ASGIApp
    page: Page
    under_way: UnderWay


BuildPage: TypeAlias = Callable[[LazyMemory, Settings, bool], Page]
"""Returns the page over a memory; the last argument says whether requests need an access token."""

PATHS = {"http": ("mcp",), "sse": ("sse",), "all": ("mcp", "sse")}

SHUTDOWN_SECONDS = 3
"""How long open streams may continue when the server stops and its calls have ended."""

CALL_SECONDS = 300.0
"""How long a tool call over HTTP may take. What it had stored by then is kept."""

SWITCH_SECONDS = 0.001
"""How long a thread computes before another may. With Python's own 5 ms, each step of a call waits for the calls of
others. Set by hand."""


def serve(
    load_settings: LoadSettings, transport: Transport, host: str | None, port: int | None, build_page: BuildPage
) -> None:
    """Serve until the process is asked to stop. Raises SettingsError if the address cannot be served like this."""
    settings = load_settings()
    host = settings.http.host if host is None else host
    port = settings.http.port if port is None else port
    protected = needs_tokens(settings)
    refuse_unprotected(host, protected=protected)
    sys.setswitchinterval(SWITCH_SECONDS)
    with _listen(host, port) as listener:
        port = listener.getsockname()[1]
        served = application(
            load_settings, settings, transport, host, build_page, lambda: server.is_draining, protected=protected
        )
        if settings.http.log == "json":  # after the SDK has set up the log in its own way
            log_as_json()
        config = uvicorn.Config(
            served.app,
            log_config=LOGGING_CONFIG if settings.http.log == "text" else None,
            log_level="warning",
            server_header=False,
            ws="none",
            http=BoundedConnection,
            proxy_headers=bool(settings.http.trusted_proxies),
            forwarded_allow_ips=[str(network) for network in settings.http.trusted_proxies],
            timeout_graceful_shutdown=SHUTDOWN_SECONDS,
        )
        url_host = f"[{host}]" if ":" in host else host
        urls = " and ".join(f"http://{url_host}:{port}/{path}" for path in PATHS[transport])
        _say_where(settings, urls, f"http://{url_host}:{port}{served.page.first_path}", protected=protected)
        server = DrainingServer(config, served.under_way, settings.http.drain_seconds)
        served.page.end_streams_when(lambda: server.should_exit)
        server.run(sockets=[listener])


def _say_where(settings: Settings, urls: str, page: str, *, protected: bool) -> None:
    """Tell whoever starts the server where it is. A log does not name the page, whose URL may let somebody in."""
    if settings.http.log == "json":
        logger.warning("serving", extra={"fields": {"urls": urls, "with_token": protected}})
        return
    for line in (f"{urls}{', with a token' if protected else ''}", f"page: {page}"):
        print(f"palimpsest: {line}", file=sys.stderr, flush=True)  # noqa: T201 - for the person who starts the server


def needs_tokens(settings: Settings) -> bool:
    """Return whether requests need an access token: if any is defined, or an issuer is. Raises SettingsError."""
    return bool(settings.http.tokens or settings.http.issuer or access_tokens.stored_tokens(settings.data_dir))


def refuse_unprotected(host: str, *, protected: bool) -> None:
    """Raise SettingsError if other machines could use the server without an access token."""
    if not protected and not is_loopback(host):
        raise SettingsError(
            f"{host} can be reached from other machines, and no access token is required. Create one "
            "(palimpsest token create), set http.tokens or http.issuer, or serve on 127.0.0.1."
        )


def application(
    load_settings: LoadSettings,
    settings: Settings,
    transport: Transport,
    host: str,
    build_page: BuildPage,
    is_draining: Callable[[], bool],
    *,
    protected: bool,
) -> Served:
    """Return what is served. It opens the memory at startup and closes it at shutdown."""
    server = build_server(lambda: load_settings().learning_in_background(), run_state=False, call_seconds=CALL_SECONDS)
    # The gate checks hosts. The SDK's own check takes anything after a name's colon for a port.
    security = TransportSecuritySettings(enable_dns_rebinding_protection=False)
    memory, calls = server.state.memory, server.state.calls
    routes: list[BaseRoute] = [
        Route(HEALTH, Health(memory), methods=["GET"]),
        Route(READY, Ready(memory, is_draining), methods=["GET"]),
    ]
    if transport != "sse":
        app = server.streamable_http_app(
            transport_security=security, host=host, max_request_body_size=MAX_MESSAGE_BYTES
        )
        routes += app.routes
    if transport != "http":
        routes += server.sse_app(transport_security=security, host=host, max_request_body_size=MAX_MESSAGE_BYTES).routes
    page = build_page(memory, settings, protected)
    sessions: list[Session] = []
    told = observers(settings.http, memory, lambda: len(sessions), lambda: calls.under_way.number, protected=protected)
    server.on_call = told.of_calls()
    check, *steps = gate(settings, host, calls, sessions, protected=protected)
    app = Starlette(
        routes=[*routes, *(_oauth_metadata(settings) if protected else [])],
        middleware=[check, *told.steps, Middleware(PageSplit, page=page.app, is_page=page.has_path), *steps],
        lifespan=_lifespan(server, transport, page),
    )
    return Served(told.around(app), page, calls.under_way)


def _lifespan(server: MemoryServer, transport: Transport, page: Page) -> Lifespan[Starlette]:
    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncGenerator[None]:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(server.state.run)
            tasks.start_soon(page.run)
            tasks.start_soon(keep_pauses_short)
            server.state.memory.start_opening()
            if transport == "sse":
                yield
            else:
                async with server.session_manager.run():
                    yield
            tasks.cancel_scope.cancel()

    return lifespan


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        raise SettingsError(
            f"cannot listen on {host} port {port}: {error.strerror or error}. Choose another port with --port, "
            "or stop the program that uses it."
        ) from error


def _oauth_metadata(settings: Settings) -> list[Route]:
    """Return the routes where clients learn which OAuth server issues access tokens (RFC 9728)."""
    if not settings.http.issuer:
        return []
    return create_protected_resource_routes(
        resource_url=URL.validate_python(settings.http.audience),
        authorization_servers=[URL.validate_python(settings.http.issuer)],
        scopes_supported=[READ, WRITE],
    )
