"""Serve MCP over HTTP: streamable HTTP at /mcp and SSE at /sse, on one port, with one open memory.

A request has to name a host of this server, which keeps out web pages of other sites (DNS rebinding). If there are
access tokens, it has to carry one. Its user is then the scope of the request.
"""

from __future__ import annotations

import ipaddress
import socket
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Literal, TypeAlias

import anyio
import uvicorn
from mcp.server.auth.middleware.auth_context import AuthContextMiddleware
from mcp.server.auth.middleware.bearer_auth import RequireAuthMiddleware
from mcp.server.auth.routes import build_resource_metadata_url, create_protected_resource_routes
from mcp.server.transport_security import TransportSecuritySettings
from pydantic import AnyHttpUrl, TypeAdapter
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.authentication import AuthenticationMiddleware
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Lifespan, Receive, Scope, Send

from palimpsest import __version__
from palimpsest.core.clock import now
from palimpsest.core.errors import SettingsError
from palimpsest.core.settings import Settings
from palimpsest.server.app import LoadSettings, build_server
from palimpsest.server.auth import tokens as access_tokens
from palimpsest.server.auth.access import READ, WRITE
from palimpsest.server.auth.attempts import LimitedBearerAuth, refusal
from palimpsest.server.auth.bearer import AccessTokenVerifier
from palimpsest.server.http.bodies import BodyLimit
from palimpsest.server.http.hosts import HostCheck
from palimpsest.server.http.limits import RateLimit
from palimpsest.server.http.messages import MessageCheck
from palimpsest.server.http.open_paths import HEALTH, is_open
from palimpsest.server.mcp_server import MemoryServer
from palimpsest.server.session.lazy_memory import LazyMemory
from palimpsest.server.wire.json_text import MAX_MESSAGE_BYTES

Transport: TypeAlias = Literal["http", "sse", "all"]

PATHS = {"http": ("mcp",), "sse": ("sse",), "all": ("mcp", "sse")}

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
ALL_ADDRESSES = ("0.0.0.0", "::")  # noqa: S104 - compared with, not bound to

SHUTDOWN_SECONDS = 3
"""How long open streams may continue after the server is asked to stop."""

CALL_SECONDS = 300.0
"""How long a tool call over HTTP may take. What it had stored by then is kept."""

SWITCH_SECONDS = 0.001
"""How long a thread computes before another may. With Python's own 5 ms, each step of a call waits for the calls of
others. Set by hand."""

URL: TypeAdapter[AnyHttpUrl] = TypeAdapter(AnyHttpUrl)


def serve(load_settings: LoadSettings, transport: Transport, host: str | None, port: int | None) -> None:
    """Serve until the process is asked to stop. Raises SettingsError if the address cannot be served like this."""
    settings = load_settings()
    host = settings.http.host if host is None else host
    port = settings.http.port if port is None else port
    protected = needs_tokens(settings)
    refuse_unprotected(host, protected=protected)
    sys.setswitchinterval(SWITCH_SECONDS)
    with _listen(host, port) as listener:
        port = listener.getsockname()[1]
        config = uvicorn.Config(
            application(load_settings, settings, transport, host, protected=protected),
            log_level="warning",
            server_header=False,
            ws="none",
            http="h11",  # strips whitespace around header values, as RFC 9110 demands; httptools does not
            timeout_graceful_shutdown=SHUTDOWN_SECONDS,
        )
        url_host = f"[{host}]" if ":" in host else host
        urls = " and ".join(f"http://{url_host}:{port}/{path}" for path in PATHS[transport])
        print(f"palimpsest: {urls}{', with a token' if protected else ''}", file=sys.stderr, flush=True)  # noqa: T201 - for the person who starts the server
        uvicorn.Server(config).run(sockets=[listener])


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


def is_loopback(host: str) -> bool:
    """Return whether an address can only be reached from this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def application(
    load_settings: LoadSettings, settings: Settings, transport: Transport, host: str, *, protected: bool
) -> Starlette:
    """Return the ASGI application. It opens the memory at startup and closes it at shutdown."""
    server = build_server(load_settings, run_state=False, call_seconds=CALL_SECONDS)
    # `HostCheck` stands before everything. The SDK's own check takes anything after a name's colon for a port.
    security = TransportSecuritySettings(enable_dns_rebinding_protection=False)
    routes: list[BaseRoute] = [Route(HEALTH, _Health(server.state.memory), methods=["GET"])]
    if transport != "sse":
        app = server.streamable_http_app(
            transport_security=security, host=host, max_request_body_size=MAX_MESSAGE_BYTES
        )
        routes += app.routes
    if transport != "http":
        routes += server.sse_app(transport_security=security, host=host, max_request_body_size=MAX_MESSAGE_BYTES).routes
    return Starlette(
        routes=[*routes, *(_oauth_metadata(settings) if protected else [])],
        middleware=_middleware(settings, _host_names(host, settings.http.allowed_hosts), protected=protected),
        lifespan=_lifespan(server, transport),
    )


def _middleware(settings: Settings, host_names: Sequence[str], *, protected: bool) -> list[Middleware]:
    """Return what stands before the routes, the first first. Bodies are read last, when it is known who sends them."""
    limits = [Middleware(RateLimit, per_minute=settings.http.requests_per_minute)]
    if protected:
        verifier = AccessTokenVerifier(settings.http, settings.data_dir, now)
        limits = [
            Middleware(AuthenticationMiddleware, backend=LimitedBearerAuth(verifier), on_error=refusal),
            *limits,
            Middleware(AuthContextMiddleware),
            Middleware(_RequireToken, audience=settings.http.audience),
        ]
    return [Middleware(HostCheck, names=host_names), *limits, Middleware(BodyLimit), Middleware(MessageCheck)]


def _lifespan(server: MemoryServer, transport: Transport) -> Lifespan[Starlette]:
    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncGenerator[None]:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(server.state.run)
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


def _host_names(host: str, allowed_hosts: Sequence[str]) -> list[str]:
    """Return the hosts that requests may name, with any port."""
    bound = [] if host in ALL_ADDRESSES else [f"[{host}]" if ":" in host else host]
    return [*LOOPBACK, *bound, socket.gethostname(), *allowed_hosts]


def _oauth_metadata(settings: Settings) -> list[Route]:
    """Return the routes where clients learn which OAuth server issues access tokens (RFC 9728)."""
    if not settings.http.issuer:
        return []
    return create_protected_resource_routes(
        resource_url=URL.validate_python(settings.http.audience),
        authorization_servers=[URL.validate_python(settings.http.issuer)],
        scopes_supported=[READ, WRITE],
    )


class _RequireToken:
    """Answer 401 or 403 to requests without a valid access token, except on open paths. ASGI middleware."""

    def __init__(self, app: ASGIApp, audience: str) -> None:
        metadata_url = build_resource_metadata_url(URL.validate_python(audience)) if audience else None
        self._app = app
        self._protected_app = RequireAuthMiddleware(app, [READ], metadata_url)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        if scope["type"] != "http" or is_open(scope):
            await self._app(scope, receive, send)
        else:
            await self._protected_app(scope, receive, send)


class _Health:
    """The health check: 200 if the server works, 503 if it does not, and nothing about what it stores. ASGI app."""

    def __init__(self, memory: LazyMemory) -> None:
        self._memory = memory

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request."""
        await (await self._response())(scope, receive, send)

    async def _response(self) -> Response:
        content: dict[str, Any] = {"version": __version__, **await self._memory.health()}
        return JSONResponse(content, 200 if content["status"] != "failed" else 503)
