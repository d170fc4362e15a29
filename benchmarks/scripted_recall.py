"""A server that answers the hook's questions as one says, on a socket where the hook looks for servers."""

from __future__ import annotations

import json
import shutil
import socket
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from palimpsest.hooks import spool
from palimpsest.hooks.spool import make_private_folder

# Seconds after which the end of a server is no longer waited for.
TIMEOUT = 60

Answer = Callable[[socket.socket, dict[str, Any]], None]


def says(text: str, *ids: str) -> Answer:
    """Return a server's way to answer: a text and the ids in it."""
    return sends(json.dumps({"ids": ids, "text": text}).encode() + b"\n")


def sends(line: bytes) -> Answer:
    """Return a server's way to answer: some bytes."""

    def answer(connection: socket.socket, _request: dict[str, Any]) -> None:
        connection.sendall(line)

    return answer


@contextmanager
def answering(data_dir: Path, answer: Answer, name: str = "server") -> Generator[list[dict[str, Any]]]:
    """Answer the hook's questions until the block ends. It yields the requests as they come.

    An answer that returns closes the connection.
    """
    folder = spool.sockets_dir(str(data_dir))
    make_private_folder(folder)
    requests: list[dict[str, Any]] = []
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(f"{folder}/{name}{spool.SOCKET_SUFFIX}")
        listener.listen()

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:  # the block has ended
                    return
                with connection, connection.makefile("rb") as lines:
                    line = lines.readline()
                    if not line:
                        continue
                    requests.append(json.loads(line))
                    try:
                        answer(connection, requests[-1])
                    except OSError:  # the hook has gone
                        continue

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield requests
        finally:
            listener.shutdown(socket.SHUT_RDWR)
    thread.join(TIMEOUT)
    if not folder.startswith(str(data_dir)):  # pytest does not remove what lies outside of its own folder
        shutil.rmtree(folder)
