"""Tell how every request ended, whoever refused or answered it. ASGI middleware."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from palimpsest.server.auth.caller import REQUEST_ID
from palimpsest.server.http.open_paths import HEALTH, METRICS, READY

PATHS = ("/mcp", "/sse", HEALTH, READY, METRICS)
"""The paths that are told apart. The others are told by their first part, or as `OTHER`."""

MESSAGES = "/messages"
OTHER = "other"

METHODS = ("GET", "HEAD", "POST", "DELETE", "OPTIONS", "PUT", "PATCH")


@dataclass(frozen=True, slots=True)
class RequestEnd:
    """How a request ended. A `status` of 0 means that nothing was answered, because the client had gone.

    `path` and `method` are among those that are told apart. `user_id` is "" without a valid access token.
    """

    method: str
    path: str
    status: int
    seconds: float
    user_id: str
    request_id: str


OnRequest: TypeAlias = Callable[[RequestEnd], None]


class ToldRequests:
    """Give each request an id, and tell how it ended. It is the outermost middleware."""

    def __init__(self, app: ASGIApp, on_request: Sequence[OnRequest]) -> None:
        self._app = app
        self._on_request = on_request

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = scope[REQUEST_ID] = secrets.token_hex(8)
        began, status = time.monotonic(), 0

        async def watch(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, watch)
        finally:
            method = scope["method"] if scope["method"] in METHODS else OTHER
            seconds = time.monotonic() - began
            end = RequestEnd(method, _told_path(scope["path"]), status, seconds, _user_of(scope), request_id)
            for tell in self._on_request:
                tell(end)


def _told_path(path: str) -> str:
    if path in PATHS:
        return path
    return MESSAGES if path.startswith(MESSAGES) else OTHER


def _user_of(scope: Scope) -> str:
    user = scope.get("user")
    return user.access_token.subject or "" if isinstance(user, AuthenticatedUser) else ""
