"""One process that speaks lines of JSON over its pipes: an MCP server, or a worker around a library."""

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
"""Beginnings of environment variables that would change what is measured."""

TIMEOUT = 600.0  # seconds after which a process that owes an answer is ended
LEAVING = 15.0  # seconds a process has to end by itself once its input is closed
INITIALIZE = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "compare-benchmark", "version": "1"},
}


class PeerError(RuntimeError):
    """Say that a peer cannot be installed, cannot be run, or gave an error for an answer."""


class Child:
    """Run a process whose home and working directory is `home`; every answer is waited for."""

    def __init__(self, command: Sequence[str], home: Path, variables: Mapping[str, str] | None = None) -> None:
        plain = {name: value for name, value in os.environ.items() if not name.startswith(OWN_PREFIXES)}
        env = plain | {"HOME": str(home), "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"} | dict(variables or {})
        pipe = subprocess.PIPE
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
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
        self._gone = threading.Event()
        threading.Thread(target=self._watch, daemon=True).start()

    @property
    def pid(self) -> int:
        """Return the process's id."""
        return self._process.pid

    def age(self) -> float:
        """Return the seconds since the process was spawned."""
        return time.perf_counter() - self._started

    def line(self) -> dict[str, Any]:
        """Return the next line of output as JSON. Raises PeerError when the process has ended."""
        self._deadline = time.monotonic() + TIMEOUT
        raw = self._lines.readline()
        self._deadline = None
        if not raw:
            raise PeerError(f"the process ended instead of answering{self._last_words()}")
        try:
            return cast("dict[str, Any]", json.loads(raw))
        except ValueError as error:
            raise PeerError(f"the process wrote a line that is no JSON: {raw[:200]!r}") from error

    def call(self, operation: str, **given: Any) -> dict[str, Any]:
        """Ask a worker for an operation and return its answer. Raises PeerError."""
        self.send({"op": operation, **given})
        answer = self.line()
        if "error" in answer:
            raise PeerError(f"{operation}: {_plain(answer['error'])}")
        return answer

    def notify(self, method: str) -> None:
        """Send an MCP notification."""
        self.send({"jsonrpc": "2.0", "method": method})

    def request(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """Send an MCP request and return its result, passing over what else comes. Raises PeerError."""
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
        """Call an MCP tool and return its result. Raises PeerError where that is an error."""
        result = self.request("tools/call", {"name": name, "arguments": arguments})
        if result.get("isError"):
            raise PeerError(f"{name}: {json.dumps(result.get('content'))[:300]}")
        return result

    def send(self, message: Mapping[str, Any]) -> None:
        """Write one line; a process already gone shows when its answer is read."""
        with suppress(BrokenPipeError):
            rest = memoryview(json.dumps(message).encode() + b"\n")
            while rest:  # a raw pipe may take a part of a long line
                rest = rest[self._input.write(rest) or 0 :]

    def close(self) -> None:
        """Close the input, wait for the end, and end what does not end."""
        with suppress(OSError):
            self._input.close()
        try:
            self._process.wait(LEAVING)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._gone.set()
        self._lines.close()
        self._errors.close()

    def _last_words(self) -> str:
        # Read at a place of its own: the process goes on writing where it is.
        said = os.pread(self._errors.fileno(), 1_000_000, 0).decode(errors="replace").strip().splitlines()
        return f"; its last words: {' '.join(_plain(said[-1]).split())[:300]}" if said else ""

    def _watch(self) -> None:
        # Reading a pipe knows no time-out; the end of the process ends it.
        while not self._gone.wait(1.0):
            if self._deadline is not None and time.monotonic() > self._deadline:
                self._process.kill()
                return


def _plain(said: str) -> str:
    """Return what a process said without this machine's paths and addresses: it may come among the figures."""
    return re.sub(r"\w+://\S+|(?<![\w.])/[\w.@+/-]{3,}", "…", said)


def resident_bytes(pid: int) -> int | None:
    """Return the resident memory of a process and its descendants, None where there is no /proc."""
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
            said = (Path("/proc") / str(member) / "status").read_text()
            kilobytes += [int(line.split()[1]) for line in said.splitlines() if line.startswith("VmRSS:")]
    return sum(kilobytes) * 1024 if kilobytes else None
