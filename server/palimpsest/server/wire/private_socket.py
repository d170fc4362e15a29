"""A socket that only programs of the same user can use, and that no killed server leaves behind for long.

On Windows, which has no Unix sockets in Python, it is a port of this machine alone, and a file that only the owner can
read has a random token that every request must bring.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import stat
import struct
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
from anyio.abc import Listener, SocketAttribute, SocketStream

from palimpsest.hook import paths
from palimpsest.hook.private_files import make_private_folder, write_new_file

UNFINISHED_SUFFIX = ".part"
"""A socket that does not accept connections yet, so that no other server takes it for one of a killed server."""

BACKLOG = 16
LOOPBACK = "127.0.0.1"
CONNECT_SECONDS = 1.0
"""How long a server may take to accept a connection before it is left alone. A killed one refuses at once."""

_LOCAL_PEERCRED = 1
"""The option of a Unix socket on macOS that says who connected (`sys/un.h`); its value begins with version and uid."""


@dataclass(frozen=True, slots=True)
class PrivateSocket:
    """A socket that accepts connections. A request must bring `token`, "" where the system tells who connected."""

    listener: Listener[SocketStream]
    token: str = ""


@asynccontextmanager
async def open_private_socket(data_dir: str) -> AsyncGenerator[PrivateSocket]:
    """Open a socket in the folder of sockets, and remove it at the end. Raises OSError.

    Sockets of killed servers are removed first.
    """
    folder = Path(paths.sockets_dir(data_dir))
    make_private_folder(str(folder))
    await anyio.to_thread.run_sync(remove_stale_sockets, folder)
    path = folder / f"{secrets.token_hex(16)}{paths.SOCKET_SUFFIX}"
    opened = open_port(path) if sys.platform == "win32" else _open_unix_socket(path)
    try:
        async with opened as private_socket:
            yield private_socket
    finally:
        with suppress(OSError):  # somebody has removed it already
            path.unlink()


@asynccontextmanager
async def _open_unix_socket(path: Path) -> AsyncGenerator[PrivateSocket]:
    unfinished = path.with_suffix(UNFINISHED_SUFFIX)
    async with await anyio.create_unix_listener(unfinished, mode=0o600, backlog=BACKLOG) as listener:
        unfinished.rename(path)
        yield PrivateSocket(listener)


@asynccontextmanager
async def open_port(path: Path) -> AsyncGenerator[PrivateSocket]:
    """Open a port of this machine alone, and write its number and a token to a file that only the owner can read."""
    token = secrets.token_urlsafe(32)
    multi = await anyio.create_tcp_listener(local_host=LOOPBACK, local_port=0, backlog=BACKLOG)
    async with multi.listeners[0] as listener:
        port = listener.extra(SocketAttribute.local_port)  # noqa: S610 - not Django's
        write_new_file(str(path), json.dumps({"port": port, "token": token}).encode())
        yield PrivateSocket(listener, token)


def is_own_peer(stream: SocketStream) -> bool:
    """Return whether a program of this user connected. Where the system does not tell, the token decides."""
    raw: socket.socket = stream.extra(SocketAttribute.raw_socket)  # noqa: S610 - not Django's
    if sys.platform == "linux":
        _, uid, _ = struct.unpack("3i", raw.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
        return uid == os.getuid()
    if sys.platform == "darwin":
        _, uid = struct.unpack("2I", raw.getsockopt(0, _LOCAL_PEERCRED, struct.calcsize("2I")))
        return uid == os.getuid()
    return True


def remove_stale_sockets(folder: Path) -> None:
    """Remove the sockets of servers that were killed: they are ours, and refuse connections. Blocking."""
    for path in [entry for entry in folder.iterdir() if entry.suffix == paths.SOCKET_SUFFIX]:
        with suppress(OSError, ValueError):  # it has gone, or it is none, or it cannot be removed and refuses again
            if _is_stale(path):
                path.unlink()


def _is_stale(path: Path) -> bool:
    """Return whether nobody accepts connections at a socket. Raises OSError and ValueError."""
    if sys.platform == "win32":
        return _refuses(socket.AF_INET, (LOOPBACK, int(json.loads(path.read_bytes())["port"])))
    status = path.lstat()
    is_own = stat.S_ISSOCK(status.st_mode) and status.st_uid == os.getuid()
    return is_own and _refuses(socket.AF_UNIX, str(path))


def _refuses(family: int, address: Any) -> bool:
    with socket.socket(family, socket.SOCK_STREAM) as connection:
        connection.settimeout(CONNECT_SECONDS)
        try:
            connection.connect(address)
        except ConnectionRefusedError:
            return True
        except OSError:
            return False
    return False
