"""Speak to the server over stdio in bytes, so that a test can send what no client would send."""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.environment import clean_environment

TIMEOUT = 30
"""Seconds to wait for a line."""

INITIALIZE: dict[str, Any] = {
    "jsonrpc": "2.0",
    "id": "first",
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
}


class RawStdio:
    """The pipes of a running server. `log` is what it wrote to stderr so far."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self.log: list[bytes] = []
        self._stdin = process.stdin
        self._lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        threading.Thread(target=_pump, args=(process.stdout, self._lines), daemon=True).start()
        self._logging = threading.Thread(target=self.log.extend, args=(process.stderr,), daemon=True)
        self._logging.start()

    def send(self, *lines: bytes) -> None:
        """Write lines."""
        self._stdin.write(b"".join(line + b"\n" for line in lines))
        self._stdin.flush()

    def close(self, last: bytes = b"") -> None:
        """Write bytes without a line's end, and close the pipe to the server."""
        if not self._stdin.closed:
            self._stdin.write(last)
            self._stdin.close()

    def wait_for_log(self) -> None:
        """Wait until the server has closed its log."""
        self._logging.join(TIMEOUT)

    def answer(self) -> dict[str, Any]:
        """Return the next line that the server writes. Raises queue.Empty if none comes in time."""
        return json.loads(self._lines.get(timeout=TIMEOUT))

    def ask(self, message: dict[str, Any] | bytes) -> dict[str, Any]:
        """Send a message or a line, and return the next line that the server writes."""
        self.send(message if isinstance(message, bytes) else json.dumps(message).encode())
        return self.answer()


def _pump(lines: Iterable[bytes], received: queue.SimpleQueue[bytes]) -> None:
    for line in lines:
        received.put(line)


@contextmanager
def raw_stdio(folder: Path, **settings: str) -> Generator[RawStdio]:
    """Run a server over stdio on the memory in folder/data until the block ends."""
    environment = clean_environment(folder, **settings)
    with subprocess.Popen(
        [sys.executable, "-m", "palimpsest"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        cwd=folder,
    ) as process:
        try:
            server = RawStdio(process)
            yield server
            server.close()
            assert process.wait(TIMEOUT) == 0
            server.wait_for_log()
        finally:
            process.kill()
