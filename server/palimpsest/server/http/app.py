"""The server over HTTP: streamable HTTP at /mcp and SSE at /sse, on one port, over one open memory.

Whoever comes has to name a host that is this server's, which keeps web pages of others out (DNS rebinding), and where
tokens are wanted, to show one; then the token's user is the scope.
"""

from __future__ import annotations

import ipaddress
import socket
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Literal, TypeAlias, cast

import anyio
import uvicorn
from mcp.server.auth.middleware.auth_context import AuthContextMiddleware
from mcp.server.auth.middleware.bearer_auth import BearerAuthBackend, RequireAuthMiddleware
from mcp.server.auth.routes import build_resource_metadata_url, create_protected_resource_routes
from mcp.server.transport_security import TransportSecurityMiddleware, TransportSecuritySettings
from pydantic import AnyHttpUrl, TypeAdapter
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.authentication import AuthenticationMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from palimpsest import __version__
from palimpsest.core.clock import now
from palimpsest.core.errors import SettingsError
from palimpsest.core.settings import Settings
from palimpsest.server.app import Shared, start
from palimpsest.server.app import settings as settings_of_start
from palimpsest.server.auth import tokens as access_tokens
from palimpsest.server.auth.access import READ, WRITE
from palimpsest.server.auth.bearer import BearerTokens
from palimpsest.server.http.limits import MAX_BODY_BYTES, BoundedBody, RateLimit
from palimpsest.server.session.lazy_memory import LazyMemory
from palimpsest.server.tools import mcp

Transport: TypeAlias = Literal["http", "sse", "all"]

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
OPEN_PATHS = ("/health", "/.well-known/")
"""What needs no token: whether the server lives, and where tokens are had."""

SHUTDOWN_SECONDS = 3
"""How long open streams may go on after the server was told to end."""

CALL_SECONDS = 300.0
"""After so long a call over HTTP is given up; what it had stored is kept."""

URL: TypeAdapter[AnyHttpUrl] = TypeAdapter(AnyHttpUrl)


def serve(transport: Transport, host: str | None, port: int | None) -> None:
    """Serve until the process is told to end. Raises SettingsError where the address cannot be served as it is."""
    settings = settings_of_start()
    host = settings.http.host if host is None else host
    port = settings.http.port if port is None else port
    protected = wants_tokens(settings)
    refuse_open(host, protected=protected)
    with _listening(host, port) as listener:
        port = listener.getsockname()[1]
        start.call_seconds = CALL_SECONDS
        config = uvicorn.Config(
            application(settings, transport, host, protected=protected),
            log_level="warning",
            server_header=False,
            http="h11",  # takes the blanks around a header's value away, as RFC 9110 has it; httptools does not
            timeout_graceful_shutdown=SHUTDOWN_SECONDS,
        )
        named = f"[{host}]" if ":" in host else host
        paths = {"http": ["mcp"], "sse": ["sse"], "all": ["mcp", "sse"]}[transport]
        told = " and ".join(f"http://{named}:{port}/{path}" for path in paths)
        print(f"palimpsest: {told}{', with a token' if protected else ''}", file=sys.stderr, flush=True)  # noqa: T201 - for who started it
        uvicorn.Server(config).run(sockets=[listener])


def wants_tokens(settings: Settings) -> bool:
    """Say whether a token is wanted of whoever comes: where there are any. Raises SettingsError."""
    return bool(settings.http.tokens or settings.http.issuer or access_tokens.stored(settings.data_dir))


def refuse_open(host: str, *, protected: bool) -> None:
    """Raise SettingsError where others than this machine's users could come in without a token."""
    if not protected and not is_loopback(host):
        raise SettingsError(
            f"{host} is open to other machines, and no token is wanted of them. Make one (palimpsest token create), "
            "or set http.tokens or http.issuer; or serve on 127.0.0.1."
        )


def is_loopback(host: str) -> bool:
    """Say whether only this machine reaches an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def application(settings: Settings, transport: Transport, host: str, *, protected: bool) -> Starlette:
    """Return the ASGI application; it opens the memory when it starts and closes it when it ends."""
    here = start.shared = Shared(LazyMemory(settings_of_start))
    security = _security(host, settings.http.allowed_hosts)
    routes: list[BaseRoute] = [Route("/health", _Health(here.memory_opener, security))]
    if transport != "sse":
        app = mcp.streamable_http_app(transport_security=security, host=host, max_request_body_size=MAX_BODY_BYTES)
        routes += app.routes
    if transport != "http":
        routes += mcp.sse_app(transport_security=security, host=host, max_request_body_size=MAX_BODY_BYTES).routes
    middleware = [Middleware(RateLimit, per_minute=settings.http.requests_per_minute), Middleware(BoundedBody)]
    if protected:
        routes += _metadata(settings)
        verifier = BearerTokens(settings.http, settings.data_dir, now)
        middleware += [
            Middleware(AuthenticationMiddleware, backend=BearerAuthBackend(verifier)),
            Middleware(AuthContextMiddleware),
            Middleware(_Guard, audience=settings.http.audience),
        ]

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncGenerator[None]:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(here.keep)
            here.memory_opener.knock()
            if transport == "sse":
                yield
            else:
                async with mcp.session_manager.run():
                    yield
            tasks.cancel_scope.cancel()

    return Starlette(routes=routes, middleware=middleware, lifespan=lifespan)


def _listening(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        raise SettingsError(
            f"{host} port {port} cannot be served: {error.strerror or error}. Choose another with --port, "
            "or end what is there."
        ) from error


def _security(host: str, allowed: Sequence[str]) -> TransportSecuritySettings:
    """Return the hosts and origins that requests may name, with any port."""
    own = [] if host in ("0.0.0.0", "::") else [f"[{host}]" if ":" in host else host]  # noqa: S104 - compared, not bound
    names = list(dict.fromkeys([*LOOPBACK, *own, socket.gethostname(), *allowed]))
    hosts = [form for name in names for form in (name, f"{name}:*")]
    return TransportSecuritySettings(
        allowed_hosts=hosts, allowed_origins=[f"{scheme}://{each}" for scheme in ("http", "https") for each in hosts]
    )


def _metadata(settings: Settings) -> list[Route]:
    """Return where clients learn which OAuth server gives tokens (RFC 9728)."""
    if not settings.http.issuer:
        return []
    return create_protected_resource_routes(
        resource_url=URL.validate_python(settings.http.audience),
        authorization_servers=[URL.validate_python(settings.http.issuer)],
        scopes_supported=[READ, WRITE],
    )


class _Guard:
    """Let nobody in without a good token, but to what is open."""

    def __init__(self, app: ASGIApp, audience: str) -> None:
        where = build_resource_metadata_url(URL.validate_python(audience)) if audience else None
        self._open = app
        self._guarded = RequireAuthMiddleware(app, [READ], where)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer 401 or 403."""
        if scope["type"] != "http" or cast("str", scope["path"]).startswith(OPEN_PATHS):
            await self._open(scope, receive, send)
        else:
            await self._guarded(scope, receive, send)


class _Health:
    """Say how the server is, and nothing of what it holds: 200 where it works, 503 where it cannot."""

    def __init__(self, memory_opener: LazyMemory, security: TransportSecuritySettings) -> None:
        self._door = memory_opener
        self._security = TransportSecurityMiddleware(security)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer."""
        refused = await self._security.validate_request(Request(scope))
        await (refused or await self._answer())(scope, receive, send)

    async def _answer(self) -> Response:
        found: dict[str, Any] = {"version": __version__, **await self._door.health()}
        return JSONResponse(found, 200 if found["status"] != "failed" else 503)
