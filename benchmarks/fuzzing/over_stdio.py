"""Speak to a server over stdio in bytes, so that anything can be sent, and count its answers."""

from __future__ import annotations

import json
import queue
import subprocess
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from fuzzing.judge import LIMIT, Answers, Tally, Target, outcome
from fuzzing.messages import CAPABILITIES, Sent, encoded, in_envelope, initialize
from harness import PALIMPSEST, pump

LOG_LINES = 60


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
            threading.Thread(target=pump, args=(process.stdout, self._lines), daemon=True),
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

    def line(self, timeout: float = LIMIT) -> bytes:
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
        self.process.wait(LIMIT)
        for thread in self._threads:
            thread.join(LIMIT)


@contextmanager
def stdio_server(folder: Path, environment: Mapping[str, str]) -> Generator[Pipes]:
    """Run a server over stdio until the block ends."""
    with subprocess.Popen(
        PALIMPSEST,
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


class StdioTarget(Target):
    """A server over stdio. `reply` returns what the client replies when the server asks it."""

    def __init__(self, pipes: Pipes, tally: Tally, *, modern: bool) -> None:
        super().__init__(tally)
        self.reply: Callable[[], dict[str, Any]] = lambda: {"error": {"code": -32601, "message": "no"}}
        self._pipes = pipes
        self._modern = modern
        self.has_ended = False
        self._owed = Answers()
        self._before: Sequence[Sent] = ()
        self._fences = 0
        if not modern:
            self.ask(initialize(CAPABILITIES))
            pipes.send(b'{"jsonrpc": "2.0", "method": "notifications/initialized"}')

    def send(self, batch: Sequence[Sent]) -> None:
        """Send inputs, wait for all their answers, and note what is missing, too much or not a message."""
        lines = [
            Sent(sent.kind, line) for sent in batch for line in sent.data.split(b"\n") if not line.isspace() and line
        ]
        for sent in lines:
            self.tally.sent[sent.kind] += 1
            self._owed.expect(sent.data)
        started = time.perf_counter()
        try:
            self._pipes.send(*(sent.data for sent in lines))
            while not self._owed.complete:
                self._receive(lines, started, LIMIT - (time.perf_counter() - started))
        except queue.Empty:
            self.tally.fail(f"no answer: {self._owed.missing}", lines)
            self._forget()
        except BrokenPipeError:
            self._end(lines)
            return
        self._fence(lines)
        if self.has_ended:
            return
        self._forget()
        self._before = lines
        self.tally.measure(self._pipes.process.pid)

    def _forget(self) -> None:
        """Wait no longer for the answers to a batch. Those to cancelled requests may still come within their time."""
        now = time.perf_counter()
        self._owed = self._owed.after(now, now + LIMIT)

    def _end(self, lines: Sequence[Sent]) -> None:
        """Note that the server has ended, with what was sent last."""
        self.has_ended = True
        log = b"".join(self._pipes.log[-LOG_LINES:]).decode(errors="replace")
        self.tally.fail(f"the server has ended:\n{log}", [*self._before, *lines])

    def ask(self, message: dict[str, Any]) -> dict[str, Any]:
        """Send a request when no other is unanswered, and return its answer. Raises queue.Empty."""
        self._pipes.send(encoded(in_envelope(message, {}) if self._modern else message))
        while True:
            answer = self._message(LIMIT)
            if answer.get("id") == message["id"] and "method" not in answer:
                return answer

    def _fence(self, lines: Sequence[Sent]) -> None:
        """Ask once more, to read everything that was written before the answer."""
        self._fences += 1
        fence = f"fence {self._fences}"
        message = {"jsonrpc": "2.0", "id": fence, "method": "tools/list"}
        self._owed.expect(encoded(message))
        try:
            self._pipes.send(encoded(in_envelope(message, {}) if self._modern else message))
            while not self._owed.complete:
                self._receive(lines, time.perf_counter(), LIMIT)
        except queue.Empty:
            self.tally.fail("no answer to the request after these", lines)
        except BrokenPipeError:
            self._end(lines)

    def _receive(self, lines: Sequence[Sent], started: float, timeout: float) -> None:
        answer = self._message(timeout)
        if "method" in answer:
            return
        seconds = time.perf_counter() - started
        self.tally.answers[outcome(answer)] += 1
        self.tally.took(seconds, ", ".join(sorted({sent.kind for sent in lines})))
        if fault := self._owed.receive(answer):
            self.tally.fail(f"{fault}: {str(answer)[:300]}", [*self._before, *lines])

    def _message(self, timeout: float) -> dict[str, Any]:
        """Return the next message of the server, and reply to it if it is a request. Raises queue.Empty."""
        line = self._pipes.line(timeout)
        try:
            message = json.loads(line)
        except ValueError:
            self.tally.fail(f"stdout has a line that is not JSON: {line[:300]!r}", [])
            return {"method": "none"}
        if "method" in message and "id" in message:
            self.tally.sent["replies to the server"] += 1
            self._pipes.send(encoded({"jsonrpc": "2.0", "id": message["id"], **self.reply()}))
        return message
