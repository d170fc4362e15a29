"""Run a process that exchanges lines of JSON over its pipes: an MCP server, or a worker around a library."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

OWN_PREFIXES = ("PALIMPSEST_", "OPENAI_", "MEM0_", "CHROMA_", "MEMORY_FILE_PATH", "PYTHONPATH", "PYTHONHOME")
"""The prefixes of environment variables that would change what is measured."""

TIMEOUT = 600.0  # seconds after which a process that has not answered is killed
EXIT_TIMEOUT = 15.0  # seconds in which a process must end after its input is closed
INITIALIZE = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "compare-benchmark", "version": "1"},
}


class PeerError(RuntimeError):
    """A peer cannot be installed or run, or it answered with an error."""


class Child:
    """A process whose home and working directory is `home`. Every call waits for the answer."""

    def __init__(self, command: Sequence[str], home: Path, variables: Mapping[str, str] | None = None) -> None:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(OWN_PREFIXES)}
        env = inherited | {"HOME": str(home), "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"} | dict(variables or {})
        pipe = subprocess.PIPE
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        self._started = time.perf_counter()
        try:
            self._process = subprocess.Popen(
                command, bufsize=0, stdin=pipe, stdout=pipe, stderr=self._errors, cwd=home, env=env
            )
        except OSError as error:
            raise PeerError(f"{Path(command[0]).name} could not be started: {error.strerror}") from error
        self._input = cast("io.RawIOBase", self._process.stdin)
        self._lines = io.BufferedReader(cast("io.RawIOBase", self._process.stdout))
        self._last_id = 0
        self._deadline: float | None = None
        self._closed = threading.Event()
        threading.Thread(target=self._watch, daemon=True).start()

    @property
    def pid(self) -> int:
        """Return the id of the process."""
        return self._process.pid

    def age(self) -> float:
        """Return the seconds since the process was spawned."""
        return time.perf_counter() - self._started

    def line(self) -> dict[str, Any]:
        """Return the next line of output as JSON. Raises PeerError if the process has ended."""
        self._deadline = time.monotonic() + TIMEOUT
        raw = self._lines.readline()
        self._deadline = None
        if not raw:
            raise PeerError(f"the process ended instead of answering{self._last_error_line()}")
        try:
            return cast("dict[str, Any]", json.loads(raw))
        except ValueError as error:
            raise PeerError(f"the process wrote a line that is not JSON: {raw[:200]!r}") from error

    def call(self, operation: str, **arguments: Any) -> dict[str, Any]:
        """Call an operation of a worker and return its answer. Raises PeerError if that is an error."""
        self.send({"op": operation, **arguments})
        answer = self.line()
        if "error" in answer:
            raise PeerError(f"{operation}: {_without_paths(answer['error'])}")
        return answer

    def notify(self, method: str) -> None:
        """Send an MCP notification."""
        self.send({"jsonrpc": "2.0", "method": method})

    def request(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """Send an MCP request and return its result. Other messages are ignored. Raises PeerError."""
        self._last_id += 1
        self.send({"jsonrpc": "2.0", "id": self._last_id, "method": method, "params": params})
        while True:
            message = self.line()
            if message.get("id") == self._last_id and "method" not in message:
                break
        if "error" in message:
            raise PeerError(f"{method}: {message['error']}")
        return cast("dict[str, Any]", message["result"])

    def tool(self, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Call an MCP tool and return its result. Raises PeerError if that is an error."""
        result = self.request("tools/call", {"name": name, "arguments": arguments})
        if result.get("isError"):
            raise PeerError(f"{name}: {json.dumps(result.get('content'))[:300]}")
        return result

    def send(self, message: Mapping[str, Any]) -> None:
        """Write one line. If the process has ended, reading its answer reports it."""
        with suppress(BrokenPipeError):
            rest = memoryview(json.dumps(message).encode() + b"\n")
            while rest:  # a raw pipe may accept only a part of a long line
                rest = rest[self._input.write(rest) or 0 :]

    def close(self) -> None:
        """Close the input, wait for the process to end, and kill it if it does not."""
        with suppress(OSError):
            self._input.close()
        try:
            self._process.wait(EXIT_TIMEOUT)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._closed.set()
        self._lines.close()
        self._errors.close()

    def _last_error_line(self) -> str:
        # `pread` does not move the offset at which the process goes on writing.
        lines = os.pread(self._errors.fileno(), 1_000_000, 0).decode(errors="replace").strip().splitlines()
        return f"; the last line on stderr: {' '.join(_without_paths(lines[-1]).split())[:300]}" if lines else ""

    def _watch(self) -> None:
        # Reading a pipe has no timeout. It ends when the process ends.
        while not self._closed.wait(1.0):
            if self._deadline is not None and time.monotonic() > self._deadline:
                self._process.kill()
                return


def _without_paths(text: str) -> str:
    """Return a text without the paths and addresses of this machine, because it may be written into the figures."""
    return re.sub(r"\w+://\S+|(?<![\w.])/[\w.@+/-]{3,}", "…", text)


def resident_bytes(pid: int) -> int | None:
    """Return the resident memory of a process and its descendants in bytes, or None if there is no /proc."""
    parents: dict[int, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError, IndexError):
            parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
    family, size = {pid}, 0
    while size != len(family):
        size = len(family)
        family |= {child for child, parent in parents.items() if parent in family}
    kilobytes: list[int] = []
    for member in family:
        with suppress(OSError):
            status = (Path("/proc") / str(member) / "status").read_text()
            kilobytes += [int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:")]
    return sum(kilobytes) * 1024 if kilobytes else None
