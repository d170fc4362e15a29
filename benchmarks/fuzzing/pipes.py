"""Speak to a server over stdio in bytes, so that anything can be sent."""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

TIMEOUT = 30
"""Seconds to wait for a line."""


class Pipes:
    """The pipes of a running server. `log` is what it wrote to stderr so far."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        if not (process.stdin and process.stdout and process.stderr):
            raise ValueError("the process was started without pipes")
        self.process = process
        self.log: list[bytes] = []
        self._stdin = process.stdin
        self._lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._threads = [
            threading.Thread(target=_pump, args=(process.stdout, self._lines), daemon=True),
            threading.Thread(target=self.log.extend, args=(process.stderr,), daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def send(self, *lines: bytes) -> None:
        """Write lines. Raises BrokenPipeError if the server has ended."""
        self._stdin.write(b"".join(line + b"\n" for line in lines))
        self._stdin.flush()

    def close(self, last: bytes = b"") -> None:
        """Write bytes without a line's end, and close the pipe to the server."""
        if not self._stdin.closed:
            with suppress(BrokenPipeError):
                self._stdin.write(last)
            with suppress(BrokenPipeError):
                self._stdin.close()

    def line(self, timeout: float = TIMEOUT) -> bytes:
        """Return the next line that the server writes. Raises queue.Empty if none comes in time."""
        return self._lines.get(timeout=max(0.0, timeout))

    def answer(self) -> dict[str, Any]:
        """Return the next message that the server writes. Raises queue.Empty if none comes in time."""
        return json.loads(self.line())

    def ask(self, message: dict[str, Any] | bytes) -> dict[str, Any]:
        """Send a message or a line, and return the next message that the server writes."""
        self.send(message if isinstance(message, bytes) else json.dumps(message).encode())
        return self.answer()

    def wait(self) -> None:
        """Wait until the server has ended and all it wrote was read."""
        self.process.wait(TIMEOUT)
        for thread in self._threads:
            thread.join(TIMEOUT)


def _pump(lines: Iterable[bytes], received: queue.SimpleQueue[bytes]) -> None:
    for line in lines:
        received.put(line)


@contextmanager
def stdio_server(folder: Path, environment: Mapping[str, str]) -> Generator[Pipes]:
    """Run a server over stdio until the block ends."""
    with subprocess.Popen(
        [sys.executable, "-m", "palimpsest"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        cwd=folder,
    ) as process:
        try:
            pipes = Pipes(process)
            yield pipes
            pipes.close()
            pipes.wait()
        finally:
            process.kill()
