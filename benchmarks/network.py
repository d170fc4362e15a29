"""A network between a program and a server on this machine, which can be cut and can fall silent."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress

HERE = "127.0.0.1"

# The option of a socket whose end is a reset, as a lost connection ends, in place of an orderly goodbye.
RESET = struct.pack("ii", 1, 0)


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind((HERE, 0))
        return int(probe.getsockname()[1])


class Network:
    """A port whose connections lead to another port. `port` is the one to connect to."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._listening = socket.create_server((HERE, 0))
        self.port = int(self._listening.getsockname()[1])
        self._flows = threading.Event()
        self._flows.set()
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Reset all connections. New ones can be made."""
        with self._lock:
            for end in self._open:
                _reset(end)
            self._open.clear()

    def freeze(self) -> None:
        """Let nothing through, in either direction. Connections stay open, and new ones seem to be made."""
        self._flows.clear()

    def thaw(self) -> None:
        """Let everything through again, also what was sent meanwhile."""
        self._flows.set()

    def close(self) -> None:
        """Reset all connections and refuse new ones."""
        _reset(self._listening)
        self.thaw()
        self.cut()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:  # the port is closed
                return
            self._connect(client)

    def _connect(self, client: socket.socket) -> None:
        try:
            server = socket.create_connection((HERE, self._target))
        except OSError:
            _reset(client)
            return
        for end in (client, server):
            with suppress(OSError):  # whoever is at that end has left, which the threads notice
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with self._lock:
            self._open |= {client, server}
        for source, sink in ((client, server), (server, client)):
            threading.Thread(target=self._carry, args=(source, sink), daemon=True).start()

    def _carry(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):  # it was cut
            while data := source.recv(65_536):
                self._flows.wait()
                sink.sendall(data)
        with self._lock:
            for end in (source, sink):
                if end in self._open:
                    self._open.remove(end)
                    _close(end)


def _reset(end: socket.socket) -> None:
    with suppress(OSError):  # the other side was quicker
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    _close(end)


def _close(end: socket.socket) -> None:
    with suppress(OSError):  # the other side was quicker
        end.shutdown(socket.SHUT_RDWR)  # it wakes threads that read
    end.close()


@contextmanager
def network_to(port: int) -> Generator[Network]:
    """Give a port that leads to another one on this machine until the block ends."""
    network = Network(port)
    try:
        yield network
    finally:
        network.close()
