"""Check requests before MCP gets them: hosts, paths, access tokens that end, bodies, sessions, slow connections."""

import asyncio
import re
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, cast

import anyio
import h11
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import TokenVerifier
from mcp.server.streamable_http import MCP_SESSION_ID_HEADER
from mcp.shared.inbound import MCP_PROTOCOL_VERSION_HEADER
from mcp.types import INVALID_REQUEST
from mcp.types.version import HANDSHAKE_PROTOCOL_VERSIONS
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from palimpsest.core.threads import CpuShares, running
from palimpsest.server.jsonrpc import MAX_MESSAGE_BYTES, Refused, fault_of_body, unparsed_id
from palimpsest.server.session.rate_limits import BODY_SIZE, BodyBudget, caller_of, is_open, refused, switch_paths

# Refuse requests that name another host or come from another site, which keeps out web pages (DNS rebinding).

# A host as RFC 3986 writes it, in lower case, with or without a port. Nothing may stand before or after it.
HOST = re.compile(r"(?P<name>\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::[0-9]{1,5})?", re.ASCII)


def check_host(app: ASGIApp, names: Iterable[str]) -> ASGIApp:
    """Answer 421 to a request for another host, and 403 to one from another origin. ASGI middleware.

    `names` are hosts without a port, IPv6 addresses in brackets; or hosts with the only port that is allowed.
    """
    known = frozenset(name.lower() for name in names)

    def is_ours(host: str) -> bool:
        match = HOST.fullmatch(host.lower())
        return match is not None and (match["name"] in known or match[0] in known)

    def is_our_origin(origin: str) -> bool:
        scheme, _, host = origin.partition("://")
        return scheme.lower() in ("http", "https") and is_ours(host)

    async def check(scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        if not is_ours(headers.get("host", "")):
            answer = PlainTextResponse("the Host header does not name this server; nothing was done", 421)
        elif (origin := headers.get("origin")) and not is_our_origin(origin):
            answer = PlainTextResponse("the Origin header names another site; nothing was done", 403)
        else:
            answer = app
        await answer(scope, receive, send)

    return switch_paths(app, check)


# End what is still being answered when the access token behind it is revoked or expires.

# How often it is checked that a caller may still see an answer that takes long: a thousand streams then take a seventh
# of a CPU. Nothing of a stream is sent without a check in any case.
CHECK_SECONDS = 2.0

# How long the check with which a call began counts for its answer: most calls are answered by then.
FRESH_SECONDS = 1.0

STREAM = "text/event-stream"


def end_with_token(app: ASGIApp, verifier: TokenVerifier) -> ASGIApp:
    """End answers that take long once their access token is no longer valid. ASGI middleware."""

    async def end_in_time(scope: Scope, receive: Receive, send: Send) -> None:
        user = scope.get("user")
        if isinstance(user, AuthenticatedUser):
            token = user.access_token.token
            await while_valid(app, lambda: verifier.verify_token(token), scope, receive, send)
        else:
            await app(scope, receive, send)

    return end_in_time


async def while_valid(
    app: ASGIApp, find_caller: Callable[[], Awaitable[object | None]], scope: Scope, receive: Receive, send: Send
) -> None:
    """Answer a request as long as its caller may see the answer: as `find_caller` does not return None.

    After that a stream ends, a request without an answer gets 401, and `app` is cancelled. An answer of a known length
    that has begun is sent to its end.
    """
    is_begun = is_stream = is_done = False
    fresh_until = anyio.current_time() + (FRESH_SECONDS if scope["method"] == "POST" else 0)

    async def end_if_invalid() -> bool:
        """End the answer if its caller may no longer see it, and it can be ended. Return whether it is ended."""
        nonlocal is_done
        if await find_caller() is not None or is_done or (is_begun and not is_stream):
            return is_done
        is_done = True
        if is_begun:
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        else:
            refusal = PlainTextResponse("the access token is no longer valid; what was stored by now is kept", 401)
            await refusal(scope, receive, send)
        tasks.cancel_scope.cancel()
        return True

    async def watch() -> None:
        while not is_done:
            await anyio.sleep(CHECK_SECONDS)
            await end_if_invalid()

    async def send_checked(message: Message) -> None:
        nonlocal is_begun, is_stream, is_done
        if message["type"] == "http.response.start":
            is_begun = True
            is_stream = Headers(raw=message["headers"]).get("content-type", "").startswith(STREAM)
        elif is_stream and message.get("body") and anyio.current_time() >= fresh_until and await end_if_invalid():
            return
        if not is_done:
            is_done = message["type"] == "http.response.body" and not message.get("more_body", False)
            await send(message)

    async with running(watch) as tasks:
        await app(scope, receive, send_checked)


# Limits for the body of a request: its size, and how long it takes to arrive.

# How long a client may take to send its request.
BODY_SECONDS = 20.0

# What a body costs of its sender's share of the CPU: parsing the longest, twice, takes some 50 ms.
SECONDS_PER_BYTE = 50e-3 / (4 * 1024 * 1024)

# How much of a declared length is read. It is more than any length has.
MAX_DIGITS = 20


def limit_bodies(app: ASGIApp, budget: BodyBudget, shares: CpuShares | None = None) -> ASGIApp:
    """Read the body of a request before passing it on. ASGI middleware.

    Answer 413 if it is too long, 408 if it takes too long, and 503 if the unfinished requests hold too much already.
    What is not to be parsed gets 413 or 400, with a JSON-RPC error, and so does a call whose id another call of its
    session has that is not answered yet. With `shares`, its sender's share of the CPU pays for parsing it.
    """
    unanswered: set[tuple[str, str] | None] = set()

    async def limit(scope: Scope, receive: Receive, send: Send) -> None:
        caller = caller_of(scope)
        if shares is not None:
            await shares.wait(caller)
        with budget.share(caller) as take:
            body = await _body(scope, receive, take)
            if isinstance(body, bytearray):
                if shares is not None:
                    shares.use(caller, len(body) * SECONDS_PER_BYTE)
                scope[BODY_SIZE] = len(body)
                body = await answer(body, scope, receive, send)
            if body is not None:
                await body(scope, receive, send)

    async def answer(body: bytearray, scope: Scope, receive: Receive, send: Send) -> Response | None:
        """Pass the request on, or return the response that refuses it.

        Of two calls with one id the SDK answers the last, and the other would wait forever. To the SDK, 1 and "1" are
        one id. A call without a session has no others.
        """
        session, request_id = Headers(scope=scope).get(MCP_SESSION_ID_HEADER, ""), unparsed_id(body)
        call = (session, str(request_id)) if session and request_id is not None else None
        refused = fault_of_body(body)
        if refused is None and call in unanswered:
            reason = f"another call of this session with the id {request_id!r} is not answered yet"
            refused = Refused(INVALID_REQUEST, reason, request_id)
        if refused is not None:
            content = refused.as_error().model_dump_json(exclude_unset=True)
            return Response(content, 413 if refused.too_large else 400, media_type="application/json")
        unanswered.update({call} - {None})
        try:
            await app(scope, _receive_once(body, receive), send)
        finally:
            unanswered.discard(call)
        return None

    return switch_paths(app, limit, lambda path: not is_open(path))


async def _body(scope: Scope, receive: Receive, take: Callable[[int], bool]) -> bytearray | Response | None:
    """Return the body, the response that refuses it, or None if the client disconnected."""
    body, more_body = bytearray(), True
    declared = Headers(scope=scope).get("content-length", "")[:MAX_DIGITS]
    size = int(declared) if declared.isascii() and declared.isdecimal() else 0
    with anyio.move_on_after(BODY_SECONDS):
        while True:
            if size > MAX_MESSAGE_BYTES:
                return _refusal(413, f"the request is longer than {MAX_MESSAGE_BYTES} bytes; nothing was done")
            if not take(size):
                text = "too many long requests at once; nothing was done. Send it again in a second."
                return _refusal(503, text, {"retry-after": "1"})
            if not more_body:
                return body
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            body += message.get("body", b"")
            size, more_body = len(body), message.get("more_body", False)
    return _refusal(408, f"the request took longer than {BODY_SECONDS:g} seconds to arrive; nothing was done")


def _receive_once(body: bytearray, receive: Receive) -> Receive:
    """Return a `receive` that gives the body once and does not keep it."""
    unread: list[bytearray] = [body]

    async def receive_body() -> Message:
        return {"type": "http.request", "body": bytes(unread.pop()), "more_body": False} if unread else await receive()

    return receive_body


def _refusal(status: int, text: str, headers: dict[str, str] | None = None) -> PlainTextResponse:
    """Return a response that closes the connection, because the rest of the body is not read."""
    return PlainTextResponse(text, status, headers={"connection": "close", **(headers or {})})


# Bound the number of open sessions.

# An idle session takes some 40 KB.
MAX_SESSIONS = 1_000

# More than one person's agents have.
MAX_SESSIONS_PER_CALLER = 200


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


def limit_sessions(app: ASGIApp, sessions: list[Session]) -> ASGIApp:
    """Close the session that was idle longest when another one is opened and there are too many. ASGI middleware.

    Its client gets 404 at its next request and opens a new session, as MCP demands. If none is idle, answer 503.
    Of too many in all, one of the caller with the most is closed. Open ones stand in `sessions`, and the one that was
    used last stands last.
    """

    async def limit(scope: Scope, receive: Receive, send: Send) -> None:
        headers, caller = Headers(scope=scope), caller_of(scope)
        session_id = headers.get(MCP_SESSION_ID_HEADER, "")
        session = next((s for s in sessions if s.id and (s.id, s.caller) == (session_id, caller)), None)
        # Clients since protocol 2026-07-28 have no sessions.
        has_sessions = headers.get(MCP_PROTOCOL_VERSION_HEADER) in (None, *HANDSHAKE_PROTOCOL_VERSIONS)
        if scope["path"] == "/sse" or (scope["path"] == "/mcp" and not session_id and has_sessions):
            if not await _has_room(app, sessions, caller):
                text = f"{MAX_SESSIONS_PER_CALLER} of your sessions are in use; nothing was done. Close one first."
                await refused(503, text)(scope, receive, send)
                return
            session = Session(caller, scope)
            sessions.append(session)
        if session is None:
            await app(scope, receive, send)
            return

        async def watch(message: Message) -> None:
            """Give the session its id once it is opened, and take it away once it is closed."""
            if message["type"] == "http.response.start":
                succeeded = message["status"] < HTTPStatus.BAD_REQUEST
                if message["status"] == HTTPStatus.NOT_FOUND or (scope["method"] == "DELETE" and succeeded):
                    session.id = ""
                elif not session.id and succeeded:
                    session.id = Headers(raw=message["headers"]).get(MCP_SESSION_ID_HEADER, "")
            await send(message)

        session.requests += 1
        try:
            await app(scope, receive, watch)
        finally:
            session.requests -= 1
            if session in sessions:
                sessions.remove(session)
                if session.id:  # else it was not opened
                    sessions.append(session)

    return switch_paths(app, limit)


async def _has_room(app: ASGIApp, sessions: list[Session], caller: str) -> bool:
    """Return whether a caller may open a session, after closing the one that was idle longest if need be."""
    callers = Counter(session.caller for session in sessions)
    if callers[caller] < MAX_SESSIONS_PER_CALLER:
        if len(sessions) < MAX_SESSIONS:
            return True
        caller = callers.most_common(1)[0][0]
    session = next((each for each in sessions if each.caller == caller and not each.requests), None)
    if session is None:
        return False
    sessions.remove(session)
    headers = [(MCP_SESSION_ID_HEADER.encode(), session.id.encode())]
    await app({**session.opening, "method": "DELETE", "headers": headers}, _no_body, _nowhere)
    return True


async def _no_body() -> Message:
    return {"type": "http.request", "body": b"", "more_body": False}


async def _nowhere(_: Message) -> None:
    """Drop a message."""


# Connections on which nothing happens: how long one may stay open, and how many connections there may be.

# A process may often open 1,024 files, and the ledger, the index and the log need some of them.
MAX_CONNECTIONS = 900

# How long a connection may take from its start, or from its last response, to the end of a request's headers.
REQUEST_SECONDS = 10.0

# How long a client may take to read anything of a response, while some of it waits to be sent.
READ_SECONDS = 60.0


class BoundedConnection(H11Protocol):
    """A connection of uvicorn's. It is closed if it waits too long, or longest while there are too many.

    It waits while no request of it is being answered: for headers, or for the rest of a body that nobody reads. It is
    based on h11, which strips whitespace around header values, as RFC 9110 demands; httptools does not.
    """

    # When it began to wait, by the monotonic clock, in seconds; None while it is being answered.
    #
    # The event loop's own time may be too coarse to say which of two connections waits longer.
    waiting_since: float | None = None

    _request_timer: asyncio.TimerHandle | None = None
    _read_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Accept the connection. If there are too many, close the one that waits longest; it may be this one."""
        super().connection_made(_LingeringTransport(transport, self._is_client_sending))  # pyright: ignore[reportArgumentType] - it has all of a transport
        self._await_request()
        if len(self.connections) > MAX_CONNECTIONS:
            connections = cast("set[BoundedConnection]", self.connections)
            waiting = {each.waiting_since: each for each in connections if each.waiting_since is not None}
            longest = waiting[min(waiting)]  # the newest waits too, so there is one
            self.connections.discard(longest)
            longest.transport.abort()

    def data_received(self, data: bytes) -> None:
        """Handle what the client sends. Drop it once the connection is closing."""
        if self.transport.is_closing():
            return
        super().data_received(data)
        if self._is_answering():
            self._stop_waiting()

    def on_response_complete(self) -> None:
        """Drop what nobody has read of the body, and wait for the next request."""
        self.cycle.body.clear()
        super().on_response_complete()
        if not self._is_answering():
            self._await_request()

    def pause_writing(self) -> None:
        """Note that the client does not read as fast as the server writes."""
        super().pause_writing()
        self._read_timer = self.loop.call_later(READ_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        """Note that the client reads again."""
        super().resume_writing()
        self._read_timer = _cancelled(self._read_timer)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        super().connection_lost(exc)
        self._stop_waiting()
        self._read_timer = _cancelled(self._read_timer)

    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete  # pyright: ignore[reportUnnecessaryComparison] - it is None before the first request

    def _await_request(self) -> None:
        self._stop_waiting()
        self.waiting_since = time.monotonic()
        self._request_timer = self.loop.call_later(REQUEST_SECONDS, self._close)

    def _stop_waiting(self) -> None:
        self.waiting_since = None
        self._request_timer = _cancelled(self._request_timer)

    def _close(self) -> None:
        """Close the connection once the client has read the last response, or has taken too long for it."""
        self.transport.close()
        self._request_timer = self.loop.call_later(READ_SECONDS, self.transport.abort)

    def _is_client_sending(self) -> bool:
        """Return whether the client may be in the middle of a request."""
        return self.conn.their_state in {h11.SEND_BODY, h11.ERROR}


class _LingeringTransport:
    """A transport that closes only its own direction at first, if the client may still be sending.

    A socket that is closed with unread bytes resets the connection, and the client may lose a response that it has
    not read yet (RFC 9112, section 9.6). The second call of `close` closes it wholly.
    """

    def __init__(self, transport: Any, is_client_sending: Callable[[], bool]) -> None:
        self._transport = transport
        self._is_client_sending = is_client_sending
        self._is_lingering = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def close(self) -> None:
        if self.is_closing() or not self._is_client_sending():
            self._transport.close()
            return
        self._is_lingering = True
        self._transport.write_eof()
        self._transport.resume_reading()

    def is_closing(self) -> bool:
        return self._is_lingering or self._transport.is_closing()


def _cancelled(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()
