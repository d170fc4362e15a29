"""Answer hooks: what the memory knows about a prompt, and what the agent is asked at the end of its turn.

One connection is one request, a line of JSON each way. It never makes a call wait: it has threads of its own, and
answers at once while the memory is not open yet.
"""

from __future__ import annotations

import errno
import hmac
import json
import logging
import os
import secrets
import socket
import stat
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import anyio
import anyio.to_thread
from anyio.abc import Listener, SocketAttribute, SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream

from palimpsest.core.errors import PalimpsestError
from palimpsest.core.validation import list_of, object_of
from palimpsest.hooks import spool
from palimpsest.hooks.spool import make_private_folder, write_new_file

if TYPE_CHECKING:
    from palimpsest.core.settings import Settings
    from palimpsest.hooks.brief import RecallRequest
    from palimpsest.memory import Memory


# A socket that only programs of the same user can use, and that no killed server leaves behind for long.
#
# On Windows, which has no Unix sockets in Python, it is a port of this machine alone, and a file that only the owner
# can read has a random token that every request must bring.

BACKLOG = 16
LOOPBACK = "127.0.0.1"

# How long a server may take to accept a connection before it is left alone. A killed one refuses at once.
CONNECT_SECONDS = 1.0

# What accepts connections, and the token that a request must bring, "" for a socket that only its owner can open.
PrivateSocket: TypeAlias = tuple[Listener[SocketStream], str]


@asynccontextmanager
async def open_private_socket(data_dir: str) -> AsyncGenerator[PrivateSocket]:
    """Open a socket in the folder of sockets, and remove it at the end. Raises OSError.

    Sockets of killed servers are removed first.
    """
    folder = Path(spool.sockets_dir(data_dir))
    make_private_folder(str(folder))
    await anyio.to_thread.run_sync(remove_stale_sockets, folder)
    path = folder / f"{secrets.token_hex(16)}{spool.SOCKET_SUFFIX}"
    try:
        if sys.platform == "win32":
            listener, token = await open_port(path)
        else:
            listener, token = await anyio.create_unix_listener(path, mode=0o600, backlog=BACKLOG), ""
        async with listener:
            yield listener, token
    finally:
        with suppress(OSError):  # somebody has removed it already
            path.unlink()


async def open_port(path: Path) -> PrivateSocket:
    """Open a port of this machine alone, and write its number and a token to a file that only the owner can read."""
    token = secrets.token_urlsafe(32)
    listener = (await anyio.create_tcp_listener(local_host=LOOPBACK, local_port=0, backlog=BACKLOG)).listeners[0]
    port = listener.extra(SocketAttribute.local_port)  # noqa: S610 - not Django's
    try:
        write_new_file(str(path), json.dumps({"port": port, "token": token}).encode())
    except OSError:
        await listener.aclose()
        raise
    return listener, token


def remove_stale_sockets(folder: Path) -> None:
    """Remove the sockets of servers that were killed: they are ours, and refuse connections. Blocking."""
    for path in [entry for entry in folder.iterdir() if entry.suffix == spool.SOCKET_SUFFIX]:
        with suppress(OSError, ValueError):  # it has gone, or it is none, or it cannot be removed and refuses again
            if _is_stale(path):
                path.unlink()


def _is_stale(path: Path) -> bool:
    """Return whether nobody accepts connections at a socket. Raises OSError and ValueError."""
    if sys.platform == "win32":
        family, address = socket.AF_INET, (LOOPBACK, int(json.loads(path.read_bytes())["port"]))
    else:
        family, address, status = socket.AF_UNIX, str(path), path.lstat()
        if not stat.S_ISSOCK(status.st_mode) or status.st_uid != os.getuid():
            return False
    with socket.socket(family, socket.SOCK_STREAM) as connection:
        connection.settimeout(CONNECT_SECONDS)
        return connection.connect_ex(address) == errno.ECONNREFUSED


logger = logging.getLogger(__name__)

VERSION = 1

# The longest request. A hook cuts what it sends; the ids of a long session take a part of it.
MAX_REQUEST_BYTES = 256 * 1024

# How long a hook may take to send its request. It ends itself after 300 ms.
READ_SECONDS = 1.0

# How long a request may take. No hook waits as long; the first search loads the embedder.
ANSWER_SECONDS = 5.0

# How many hooks are answered at once; more are closed. One person's sessions rarely ask at the same time.
MAX_CONNECTIONS = 8

# How long a name, a folder or an id may be.
MAX_TEXT_CHARS = 4_096

# Of how many ids a request may say that they were shown.
MAX_SHOWN = 5_000

# The answer of a server that cannot know: its memory is not open yet, or is another user's. Another may be asked.
NOT_READY: dict[str, Any] = {"ids": [], "text": "", "is_ready": False}

NOTHING: dict[str, Any] = {"ids": [], "text": ""}


async def serve_prompts(settings: Callable[[], Awaitable[Settings]], opened: Callable[[], Memory | None]) -> None:
    """Answer hooks until cancelled, unless the settings turn it off. `opened` returns the memory if it is open."""
    loaded = await settings()
    if loaded.hooks not in ("on", "recall"):
        return
    slots = anyio.CapacityLimiter(MAX_CONNECTIONS)

    async def handle(stream: SocketStream) -> None:
        """Answer one request. Whatever happens, only this connection ends."""
        async with stream:
            if not slots.available_tokens:
                return
            async with slots:
                with (
                    anyio.move_on_after(ANSWER_SECONDS),
                    suppress(anyio.BrokenResourceError, anyio.ClosedResourceError),  # the hook did not wait
                ):
                    reply = await _reply(await _line(stream), token, loaded.user_id, opened)
                    await stream.send(json.dumps(reply).encode() + b"\n")

    try:
        async with open_private_socket(str(loaded.data_dir)) as (listener, token):
            await listener.serve(handle)
    except OSError as error:
        logger.warning("hooks get no memories for prompts, because a socket could not be opened: %s", error)


async def _line(stream: SocketStream) -> bytes:
    """Return the first line that a client sends, or "" if it is too long or takes too long."""
    buffered = BufferedByteReceiveStream(stream)
    with anyio.move_on_after(READ_SECONDS), suppress(anyio.EndOfStream, anyio.IncompleteRead, anyio.DelimiterNotFound):
        return await buffered.receive_until(b"\n", MAX_REQUEST_BYTES)
    return b""


async def _reply(line: bytes, token: str, user: str, opened: Callable[[], Memory | None]) -> dict[str, Any]:
    request: dict[str, Any] = {}
    with suppress(ValueError, RecursionError):
        request = object_of(json.loads(line))
    is_allowed = hmac.compare_digest(str(request.get("token", "")).encode(), token.encode())
    if request.get("v") != VERSION or not is_allowed:
        return NOTHING
    memory = opened()
    if memory is None or request.get("user") not in ("", user):
        return NOT_READY
    try:
        answer = await memory.briefs.answer(_recall_request(request))
    except (OSError, PalimpsestError) as error:
        logger.warning("a hook was given nothing: %s", error)
        return NOTHING
    return {"ids": list(answer.ids), "text": answer.text}


def _recall_request(fields: dict[str, Any]) -> RecallRequest:
    """Return a request; what is not of the right type counts as left out."""
    from palimpsest.hooks.brief import RecallRequest  # noqa: PLC0415 - it imports the search, which is loaded by now

    texts = {name: value for name, value in fields.items() if isinstance(value, str)}
    short = {name: text for name, text in texts.items() if len(text) <= MAX_TEXT_CHARS}
    return RecallRequest(
        texts.get("prompt", ""),
        *(short.get(name, "") for name in ("user", "client", "session", "cwd")),
        shown=frozenset(name for name in list_of(fields.get("shown"))[-MAX_SHOWN:] if isinstance(name, str)),
        transcript=short.get("transcript", ""),
    )
