"""Check the message in the body of a request before the SDK reads it. ASGI middleware."""

from __future__ import annotations

import anyio
from mcp.types import INVALID_REQUEST, JSONRPCRequest
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from palimpsest.server.http.open_paths import is_open
from palimpsest.server.session.calls import UnderWay
from palimpsest.server.wire.messages import Refused, read_message

SESSION = "mcp-session-id"
RESERVED_IDS = ("_GET_stream",)
"""What the SDK calls a session's own stream among the streams of its requests, which it keeps by their ids."""

ENDING_SECONDS = 1.0
"""How long to wait for a request whose id comes again. Its client may have the answer before the request has ended."""


class MessageCheck:
    """Answer a body that is no message, or a request whose id is in use, with 400, or 413, and a JSON-RPC error.

    Over stdio the same faults get the same errors. The SDK keeps the answers of a session by the ids of its requests,
    with 1 the same as "1", so the first of two unfinished ones with the same id would never be answered. Calls are
    counted in `under_way` until they are answered.
    """

    def __init__(self, app: ASGIApp, under_way: UnderWay | None = None) -> None:
        self.app = app
        self._under_way = under_way or UnderWay()
        self._unfinished: dict[tuple[str, str], anyio.Event] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it. It has to have its whole body in one piece."""
        if scope["type"] != "http" or scope["method"] != "POST" or is_open(scope):
            await self.app(scope, receive, send)
            return
        request = await receive()
        if request["type"] == "http.disconnect":
            return
        message = read_message(request["body"])
        if isinstance(message, Refused):
            await _answer(message)(scope, receive, send)
            return
        session = Headers(scope=scope).get(SESSION)
        key = (session, str(message.id)) if session and isinstance(message, JSONRPCRequest) else None
        method = message.method if isinstance(message, JSONRPCRequest) else ""
        del message
        receive_again = _receive_again(request, receive)
        del request
        if key is None:
            await self._pass_on(method, scope, receive_again, send)
        elif key[1] in RESERVED_IDS or not await self._is_free(key):
            refused = Refused(INVALID_REQUEST, "an unfinished request of the session has the same id")
            await _answer(refused)(scope, receive, send)
        else:
            self._unfinished[key] = anyio.Event()
            try:
                await self._pass_on(method, scope, receive_again, send)
            finally:
                self._unfinished.pop(key).set()

    async def _pass_on(self, method: str, scope: Scope, receive: Receive, send: Send) -> None:
        """Have a request answered. It is under way until its answer was sent, and not only until there is one."""
        with self._under_way.counted(method):
            await self.app(scope, receive, send)

    async def _is_free(self, key: tuple[str, str]) -> bool:
        """Wait for the request that has an id in a session. Return whether no request has it any more."""
        with anyio.move_on_after(ENDING_SECONDS):
            while key in self._unfinished:
                await self._unfinished[key].wait()
        return key not in self._unfinished


def _answer(refused: Refused) -> Response:
    content = refused.as_error().model_dump_json(exclude_unset=True)
    return Response(content, 413 if refused.too_large else 400, media_type="application/json")


def _receive_again(request: Message, receive: Receive) -> Receive:
    """Return a `receive` that gives a request once more and does not keep it."""
    unread = [request]

    async def receive_request() -> Message:
        return unread.pop() if unread else await receive()

    return receive_request
