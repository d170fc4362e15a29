"""Bound the number of open sessions. ASGI middleware."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from mcp.types.version import HANDSHAKE_PROTOCOL_VERSIONS
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from palimpsest.server.auth.caller import caller_of

MAX_SESSIONS = 1_000
"""An idle session takes some 40 KB."""

MAX_SESSIONS_PER_CALLER = 200
"""More than one person's agents have. Set by hand."""

SESSION_ID = "mcp-session-id"
PROTOCOL_VERSION = "mcp-protocol-version"


@dataclass(eq=False, slots=True)
class Session:
    """A session that its caller opened with the request `opening`. It is in use while it has unfinished requests.

    `id` is "" until the opening request is answered; over SSE it stays "", because the request lasts as long as the
    session.
    """

    caller: str
    opening: Scope
    id: str = ""
    requests: int = 0


class SessionLimit:
    """Close the session that was idle longest when another one is opened and there are too many.

    Its client gets 404 at its next request and opens a new session, as MCP demands. If none is idle, answer 503.
    Of too many in all, one of the caller with the most is closed. Open ones stand in `sessions`.
    """

    def __init__(
        self,
        app: ASGIApp,
        max_sessions: int = MAX_SESSIONS,
        max_per_caller: int = MAX_SESSIONS_PER_CALLER,
        sessions: list[Session] | None = None,
    ) -> None:
        self._app = app
        self._max_sessions = max_sessions
        self._max_per_caller = max_per_caller
        self._sessions: list[Session] = [] if sessions is None else sessions  # the one that was used last stands last

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on. If it opens a session, make room for it first, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        session_id, caller = Headers(scope=scope).get(SESSION_ID, ""), caller_of(scope)
        if _opens_session(scope, session_id):
            if not await self._has_room(caller):
                text = f"{self._max_per_caller} of your sessions are in use; nothing was done. Close one and try again."
                await PlainTextResponse(text, 503, headers={"retry-after": "1"})(scope, receive, send)
                return
            session = Session(caller, scope)
            self._sessions.append(session)
        else:
            session = next((s for s in self._sessions if s.id and (s.id, s.caller) == (session_id, caller)), None)
        if session is None:
            await self._app(scope, receive, send)
        else:
            with self._in_use(session):
                await self._app(scope, receive, _watching(session, scope["method"], send))

    @contextmanager
    def _in_use(self, session: Session) -> Generator[None]:
        """Count a request of a session. Forget the session if it has no id after that, because it was not opened."""
        session.requests += 1
        try:
            yield
        finally:
            session.requests -= 1
            if session in self._sessions:
                self._sessions.remove(session)
                if session.id:
                    self._sessions.append(session)

    async def _has_room(self, caller: str) -> bool:
        """Return whether a caller may open a session, after closing the one that was idle longest if need be."""
        callers = Counter(session.caller for session in self._sessions)
        if callers[caller] < self._max_per_caller:
            if len(self._sessions) < self._max_sessions:
                return True
            caller = callers.most_common(1)[0][0]
        idle = (session for session in self._sessions if session.caller == caller and not session.requests)
        session = next(idle, None)
        if session is None:
            return False
        self._sessions.remove(session)
        await self._app(_closing(session), _no_body, _nowhere)
        return True


def _opens_session(scope: Scope, session_id: str) -> bool:
    """Return whether a request may open a session. Clients since protocol 2026-07-28 have none."""
    if scope["path"] == "/sse":
        return True
    version = Headers(scope=scope).get(PROTOCOL_VERSION)
    return scope["path"] == "/mcp" and not session_id and (version is None or version in HANDSHAKE_PROTOCOL_VERSIONS)


def _watching(session: Session, method: str, send: Send) -> Send:
    """Return a `send` that gives a session its id once it is opened, and takes it away once it is closed."""

    async def watch(message: Message) -> None:
        if message["type"] == "http.response.start":
            succeeded = message["status"] < 400  # noqa: PLR2004 - the first status of an error
            if message["status"] == 404 or (method == "DELETE" and succeeded):  # noqa: PLR2004 - Not Found
                session.id = ""
            elif not session.id and succeeded:
                session.id = Headers(raw=message["headers"]).get(SESSION_ID, "")
        await send(message)

    return watch


def _closing(session: Session) -> Scope:
    """Return the request with which a client closes its session."""
    headers = [(SESSION_ID.encode(), session.id.encode())]
    return {**session.opening, "method": "DELETE", "headers": headers}


async def _no_body() -> dict[str, Any]:
    return {"type": "http.request", "body": b"", "more_body": False}


async def _nowhere(_: Message) -> None:
    """Drop a message."""
