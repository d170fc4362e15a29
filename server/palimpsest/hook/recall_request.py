"""The question to a running server, over its socket: a line of JSON each way, one connection a request."""

from __future__ import annotations

import json
import socket
import sys
import time

from palimpsest.hook.json_values import parsed_object, read_object, texts_in
from palimpsest.hook.session import Injection
from palimpsest.hook.texts import is_block

VERSION = 1
MAX_ANSWER_BYTES = 64 * 1024
"""A server answers with at most 300 tokens."""
MAX_ID_CHARS = 64


def ask(servers: list[str], request: dict[str, object], deadline: float) -> Injection | None:
    """Return what a running server says about a prompt; None if there is no server or it has nothing to say.

    `servers` are the files of `session.find_servers`; the first that can know is asked, not one that is starting or
    another user's. `request` has the keys user, client, session, cwd, prompt and shown. `deadline` is a time of
    `time.monotonic`. Raises OSError, TimeoutError among them, and ValueError for an answer that is none.
    """
    for path in servers:
        try:
            connection, token = _connect(path, deadline)
        except (OSError, ValueError):
            continue  # a server that has gone, or one that is just starting
        with connection:
            line = json.dumps({"v": VERSION, "token": token, **request})
            _send(connection, f"{line}\n".encode(), deadline)
            reply = parsed_object(_receive_line(connection, deadline))
        if reply.get("is_ready") is not False:
            return _recalled(reply)
    return None


def _connect(path: str, deadline: float) -> tuple[socket.socket, str]:
    """Return a connection to a server and the token that it wants, "" for a Unix socket."""
    if sys.platform == "win32":
        place = read_object(path)
        port, token = place.get("port"), place.get("token")
        if not isinstance(port, int) or not isinstance(token, str):
            raise ValueError("no port and token")
        return socket.create_connection(("127.0.0.1", port), timeout=_left(deadline)), token
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(_left(deadline))
        connection.connect(path)
    except OSError:
        connection.close()
        raise
    return connection, ""


def _send(connection: socket.socket, line: bytes, deadline: float) -> None:
    connection.settimeout(_left(deadline))
    connection.sendall(line)


def _receive_line(connection: socket.socket, deadline: float) -> bytes:
    """Return what a server sends up to the end of the line or of the connection."""
    received = b""
    while b"\n" not in received:
        if len(received) > MAX_ANSWER_BYTES:
            raise ValueError("the answer is too long")
        connection.settimeout(_left(deadline))
        part = connection.recv(MAX_ANSWER_BYTES)
        if not part:
            break
        received += part
    return received.partition(b"\n")[0]


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _recalled(reply: dict[str, object]) -> Injection | None:
    text, ids = reply.get("text"), texts_in(reply.get("ids"))
    if not isinstance(text, str) or not is_block(text):
        return None
    return Injection(
        text, [name for name in ids if name.isascii() and name.isprintable() and len(name) <= MAX_ID_CHARS]
    )
