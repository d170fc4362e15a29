"""Verify the access token of a request, and end its streams when the token ends."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import TokenVerifier
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

# End what is still being answered when the access token behind it is revoked or expires.

CHECK_SECONDS = 2.0
"""How often it is checked that a caller may still see an answer that takes long: a thousand streams then
take a seventh of a CPU. Nothing of a stream is sent without a check in any case."""

FRESH_SECONDS = 1.0
"""How long the check with which a call began counts for its answer: most calls are answered by then."""

STREAM = "text/event-stream"


class EndWithToken:
    """End answers that take long once their access token is no longer valid. ASGI middleware."""

    def __init__(self, app: ASGIApp, verifier: TokenVerifier) -> None:
        self._app = app
        self._verifier = verifier

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, and end its answer in time."""
        user = scope.get("user")
        if not isinstance(user, AuthenticatedUser):
            await self._app(scope, receive, send)
            return
        token = user.access_token.token

        async def is_valid() -> bool:
            return await self._verifier.verify_token(token) is not None

        await while_valid(self._app, is_valid, scope, receive, send)


async def while_valid(
    app: ASGIApp, is_valid: Callable[[], Awaitable[bool]], scope: Scope, receive: Receive, send: Send
) -> None:
    """Answer a request as long as its caller may see the answer.

    After that a stream ends, a request without an answer gets 401, and for `app` its client is gone. An answer of a
    known length that has begun is sent to its end.
    """
    answer = _Answer(is_valid, scope, receive, send)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(answer.watch)
        await app(scope, answer.receive, answer.send)
        tasks.cancel_scope.cancel()


class _Answer:
    """An answer that is under way, and whether it was ended."""

    def __init__(self, is_valid: Callable[[], Awaitable[bool]], scope: Scope, receive: Receive, send: Send) -> None:
        self._is_valid, self._scope, self._receive, self._send = is_valid, scope, receive, send
        self._is_begun = self._is_stream = self._is_done = False
        self._fresh_until = anyio.current_time() + (FRESH_SECONDS if scope["method"] == "POST" else 0)
        self._ended = anyio.Event()

    async def watch(self) -> None:
        """End the answer as soon as it is seen that its caller may no longer see it."""
        while not self._ended.is_set():
            await anyio.sleep(CHECK_SECONDS)
            if not await self._is_valid():
                await self._end()

    async def receive(self) -> Message:
        """Return the next message of the client, or that it is gone."""
        message: Message = {"type": "http.disconnect"}
        async with anyio.create_task_group() as race:

            async def wait() -> None:
                await self._ended.wait()
                race.cancel_scope.cancel()

            race.start_soon(wait)
            if not self._ended.is_set():
                message = await self._receive()
            race.cancel_scope.cancel()
        return message

    async def send(self, message: Message) -> None:
        """Send a part of the answer, unless it was ended."""
        if message["type"] == "http.response.start":
            content_type = Headers(raw=message["headers"]).get("content-type", "")
            is_stream = content_type.startswith(STREAM)
        else:
            is_stream = self._is_stream
            is_checked = not is_stream or not message.get("body") or anyio.current_time() < self._fresh_until
            if not is_checked and not self._ended.is_set() and not await self._is_valid():
                await self._end()
        if self._ended.is_set():
            return
        self._is_begun, self._is_stream = True, is_stream
        self._is_done = message["type"] == "http.response.body" and not message.get("more_body", False)
        await self._send(message)

    async def _end(self) -> None:
        if self._ended.is_set() or self._is_done or (self._is_begun and not self._is_stream):
            return
        self._ended.set()
        if self._is_begun:
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})
        else:
            refusal = PlainTextResponse("the access token is no longer valid; what was stored by now is kept", 401)
            await refusal(self._scope, self._receive, self._send)
