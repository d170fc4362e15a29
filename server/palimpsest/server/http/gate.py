"""What a request passes before it gets to MCP. Each step reads only what the steps before it have let through."""

from __future__ import annotations

import socket
from collections.abc import Sequence

from mcp.server.auth.middleware.auth_context import AuthContextMiddleware
from mcp.server.auth.middleware.bearer_auth import RequireAuthMiddleware
from mcp.server.auth.routes import build_resource_metadata_url
from pydantic import AnyHttpUrl, TypeAdapter
from starlette.middleware import Middleware
from starlette.middleware.authentication import AuthenticationMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from palimpsest.core.clock import now
from palimpsest.core.settings import Settings
from palimpsest.server.auth.access import READ
from palimpsest.server.auth.attempts import LimitedBearerAuth, refusal
from palimpsest.server.auth.bearer import AccessTokenVerifier
from palimpsest.server.auth.streams import EndWithToken
from palimpsest.server.http.bodies import BodyLimit
from palimpsest.server.http.hosts import HostCheck
from palimpsest.server.http.limits import RateLimit, UnfinishedLimit
from palimpsest.server.http.messages import MessageCheck
from palimpsest.server.http.open_paths import is_open
from palimpsest.server.http.sessions import Session, SessionLimit
from palimpsest.server.session.calls import Calls

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
ALL_ADDRESSES = ("0.0.0.0", "::")  # noqa: S104 - compared with, not bound to

URL: TypeAdapter[AnyHttpUrl] = TypeAdapter(AnyHttpUrl)


def gate(settings: Settings, host: str, calls: Calls, sessions: list[Session], *, protected: bool) -> list[Middleware]:
    """Return the steps, the first first. `protected`: whether requests need an access token, and callers have shares.

    Before these, `BoundedConnection` waits for the headers. After these, the SDK and our `Calls` answer the request.
    """
    identify, require = _token_steps(settings) if protected else ([], [])
    return [
        # Web pages of other sites are kept out (DNS rebinding).
        Middleware(HostCheck, names=_host_names(host, settings.http.allowed_hosts)),
        # The access token says who calls; without one it is the address. An address may try few wrong tokens.
        *identify,
        # Each caller sends so many requests a minute, and has so many unfinished.
        Middleware(RateLimit, per_minute=settings.http.requests_per_minute),
        Middleware(UnfinishedLimit),
        # Without a valid access token, it ends here: 401, and no body was read.
        *require,
        # The body is read, within its limits, and has to be a message.
        Middleware(BodyLimit, shares=calls.shares if protected else None),
        Middleware(MessageCheck, under_way=calls.under_way),
        # A new session may close an old one.
        Middleware(SessionLimit, sessions=sessions),
    ]


def _token_steps(settings: Settings) -> tuple[list[Middleware], list[Middleware]]:
    """Return the step that looks at the access token, and those that demand one and pass on what it allows."""
    verifier = AccessTokenVerifier(settings.http, settings.data_dir, now)
    return (
        [Middleware(AuthenticationMiddleware, backend=LimitedBearerAuth(verifier), on_error=refusal)],
        [
            Middleware(_RequireToken, audience=settings.http.audience),
            # A stream ends with its token.
            Middleware(EndWithToken, verifier=verifier),
            Middleware(AuthContextMiddleware),
        ],
    )


def _host_names(host: str, allowed_hosts: Sequence[str]) -> list[str]:
    """Return the hosts that requests may name, with any port."""
    bound = [] if host in ALL_ADDRESSES else [f"[{host}]" if ":" in host else host]
    return [*LOOPBACK, *bound, socket.gethostname(), *allowed_hosts]


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
