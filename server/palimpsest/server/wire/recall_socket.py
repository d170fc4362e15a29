"""Answer hooks: what the memory knows about a prompt. One connection is one request, a line of JSON each way.

It never makes a call wait: it has threads of its own, and answers at once while the memory is not open yet.
"""

from __future__ import annotations

import hmac
import json
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, cast

import anyio
from anyio.abc import SocketStream

from palimpsest.core.errors import PalimpsestError
from palimpsest.server.wire.private_socket import PrivateSocket, is_own_peer, open_private_socket

if TYPE_CHECKING:
    from palimpsest.brief.answer import RecallRequest
    from palimpsest.core.settings import Settings
    from palimpsest.memory import Memory

logger = logging.getLogger(__name__)

VERSION = 1
MAX_REQUEST_BYTES = 256 * 1024
"""The longest request. A hook cuts what it sends; the ids of a long session take a part of it."""

READ_SECONDS = 1.0
"""How long a hook may take to send its request. It ends itself after 300 ms."""

ANSWER_SECONDS = 5.0
"""How long a request may take. No hook waits as long; the first search loads the embedder."""

MAX_CONNECTIONS = 8
"""How many hooks are answered at once; more are closed. One person's sessions rarely ask at the same time."""

MAX_TEXT_CHARS = 4_096
"""How long a name, a folder or an id may be."""

MAX_SHOWN = 5_000
"""Of how many ids a request may say that they were shown."""

NOT_READY: dict[str, Any] = {"ids": [], "text": "", "is_ready": False}
"""The answer of a server that cannot know: its memory is not open yet, or is another user's. Another may be asked."""

NOTHING: dict[str, Any] = {"ids": [], "text": ""}


async def serve_prompts(settings: Callable[[], Awaitable[Settings]], opened: Callable[[], Memory | None]) -> None:
    """Answer hooks until cancelled, unless the settings turn it off. `opened` returns the memory if it is open."""
    loaded = await settings()
    if loaded.hooks not in ("on", "recall"):
        return
    try:
        async with open_private_socket(str(loaded.data_dir)) as private_socket:
            server = _PromptServer(private_socket, loaded.user_id, opened)
            await private_socket.listener.serve(server.handle)
    except OSError as error:
        logger.warning("hooks get no memories for prompts, because a socket could not be opened: %s", error)


class _PromptServer:
    """Answers the requests of one socket."""

    def __init__(self, private_socket: PrivateSocket, user: str, opened: Callable[[], Memory | None]) -> None:
        self._token = private_socket.token
        self._user = user
        self._opened = opened
        self._connections = 0

    async def handle(self, stream: SocketStream) -> None:
        """Answer one request. Whatever happens, only this connection ends."""
        async with stream:
            if self._connections >= MAX_CONNECTIONS or not is_own_peer(stream):
                return
            self._connections += 1
            try:
                with anyio.move_on_after(ANSWER_SECONDS):
                    reply = await self._reply(await _line(stream))
                    await stream.send(json.dumps(reply).encode() + b"\n")
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                pass  # the hook did not wait
            finally:
                self._connections -= 1

    async def _reply(self, line: bytes) -> dict[str, Any]:
        request = _parsed(line)
        if request is None or not hmac.compare_digest(str(request.get("token", "")).encode(), self._token.encode()):
            return NOTHING
        memory = self._opened()
        if memory is None or request.get("user") not in ("", self._user):
            return NOT_READY
        try:
            answer = await memory.briefs.answer(_recall_request(request))
        except (OSError, PalimpsestError) as error:
            logger.warning("a prompt was given no memories: %s", error)
            return NOTHING
        return {"ids": list(answer.ids), "text": answer.text}


async def _line(stream: SocketStream) -> bytes:
    """Return the first line that a client sends, or "" if it is too long or takes too long."""
    received = bytearray()
    with anyio.move_on_after(READ_SECONDS):
        while b"\n" not in received and len(received) <= MAX_REQUEST_BYTES:
            try:
                received += await stream.receive()
            except anyio.EndOfStream:
                return b""
        return bytes(received.partition(b"\n")[0]) if len(received) <= MAX_REQUEST_BYTES else b""
    return b""


def _parsed(line: bytes) -> dict[str, Any] | None:
    try:
        request: Any = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(request, dict):
        return None
    fields = cast("dict[str, Any]", request)
    return fields if fields.get("v") == VERSION else None


def _recall_request(fields: dict[str, Any]) -> RecallRequest:
    """Return a request; what is not of the right type counts as left out."""
    from palimpsest.brief.answer import RecallRequest  # noqa: PLC0415 - it imports the search, which is loaded by now

    shown: Any = fields.get("shown")
    ids = cast("list[Any]", shown)[-MAX_SHOWN:] if isinstance(shown, list) else []
    prompt: Any = fields.get("prompt")
    return RecallRequest(
        prompt=prompt if isinstance(prompt, str) else "",
        user=_text(fields, "user"),
        client=_text(fields, "client"),
        session=_text(fields, "session"),
        folder=_text(fields, "cwd"),
        shown=frozenset(name for name in ids if isinstance(name, str)),
    )


def _text(fields: dict[str, Any], name: str) -> str:
    value: Any = fields.get(name)
    return value if isinstance(value, str) and len(value) <= MAX_TEXT_CHARS else ""
