"""The question to a running server, over its socket: a line of JSON each way, one connection a request."""

from __future__ import annotations

import json
import os
import socket
import sys
import time

from palimpsest.hook import paths
from palimpsest.hook.json_values import parsed_object, read_object, texts_in
from palimpsest.hook.private_files import is_private_folder
from palimpsest.hook.session import Injection
from palimpsest.hook.texts import is_block

VERSION = 1
MAX_ANSWER_BYTES = 64 * 1024
"""A server answers with at most 300 tokens."""
MAX_SOCKETS = 8
"""So many servers are tried, the newest first. Those that were killed refuse at once."""
MAX_ID_CHARS = 64


def ask(data_dir: str, request: dict[str, object], deadline: float) -> Injection | None:
    """Return what a running server says about a prompt; None if there is no server or it has nothing to say.

    `request` has the keys user, client, session, cwd, prompt and shown. `deadline` is a time of `time.monotonic`. The
    first server that accepts the connection is asked. Raises OSError, TimeoutError among them, and ValueError for an
    answer that is none.
    """
    for path in _newest_first(paths.sockets_dir(data_dir)):
        try:
            connection, token = _connect(path, deadline)
        except (OSError, ValueError):
            continue  # a server that has gone, or one that is just starting
        with connection:
            line = json.dumps({"v": VERSION, "token": token, **request})
            _send(connection, f"{line}\n".encode(), deadline)
            return _recalled(parsed_object(_receive_line(connection, deadline)))
    return None


def _newest_first(folder: str) -> list[str]:
    """Return the sockets in a folder that is ours alone."""
    if not is_private_folder(folder):
        return []
    with os.scandir(folder) as entries:
        found = [(entry.stat(follow_symlinks=False).st_mtime, entry.path) for entry in entries if _is_socket(entry)]
    return [path for _, path in sorted(found, reverse=True)[:MAX_SOCKETS]]


def _is_socket(entry: os.DirEntry[str]) -> bool:
    return entry.name.endswith(paths.SOCKET_SUFFIX)


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
