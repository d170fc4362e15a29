"""Refuse requests that name another host or come from another site, which keeps out web pages (DNS rebinding)."""

from __future__ import annotations

import re
from collections.abc import Iterable

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

HOST = re.compile(r"(?P<name>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::[0-9]{1,5})?", re.ASCII)
"""A host as RFC 3986 writes it, with or without a port. Nothing may stand before or after it."""

SCHEMES = ("http://", "https://")


class HostCheck:
    """Answer 421 to a request for another host, and 403 to one from another origin. ASGI middleware.

    `names` are hosts without a port, IPv6 addresses in brackets; or hosts with the only port that is allowed.
    """

    def __init__(self, app: ASGIApp, names: Iterable[str]) -> None:
        self._app = app
        self._names = frozenset(name.lower() for name in names)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        if scope["type"] == "http":
            refusal = self._refusal(Headers(scope=scope))
            if refusal is not None:
                await refusal(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _refusal(self, headers: Headers) -> Response | None:
        origin = headers.get("origin")
        if not self._is_ours(headers.get("host", "")):
            return PlainTextResponse("the Host header does not name this server; nothing was done", 421)
        if origin and not self._is_our_origin(origin):
            return PlainTextResponse("the Origin header names another site; nothing was done", 403)
        return None

    def _is_our_origin(self, origin: str) -> bool:
        scheme = next((scheme for scheme in SCHEMES if origin.lower().startswith(scheme)), None)
        return scheme is not None and self._is_ours(origin[len(scheme) :])

    def _is_ours(self, host: str) -> bool:
        match = HOST.fullmatch(host.lower())
        return match is not None and (match["name"] in self._names or match[0] in self._names)
