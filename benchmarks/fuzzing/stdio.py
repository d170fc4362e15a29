"""Send inputs to a server over stdio and count its answers."""

from __future__ import annotations

import json
import queue
import time
from collections.abc import Callable, Sequence
from typing import Any

from fuzzing.calls import CAPABILITIES, Sent, call, encoded, in_envelope, initialize
from fuzzing.expected import Answers
from fuzzing.pipes import Pipes
from fuzzing.tally import Tally

LOG_LINES = 60
LIMIT = 30.0
"""Seconds that an answer may take."""


class StdioTarget:
    """A server over stdio. `reply` returns what the client replies when the server asks it."""

    def __init__(self, pipes: Pipes, tally: Tally, *, modern: bool) -> None:
        self.tally = tally
        self.reply: Callable[[], dict[str, Any]] = lambda: {"error": {"code": -32601, "message": "no"}}
        self._pipes = pipes
        self._modern = modern
        self.has_ended = False
        self._owed = Answers()
        self._before: Sequence[Sent] = ()
        self._fences = 0
        if not modern:
            self._ask(initialize(CAPABILITIES))
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

    def memory_ids(self, texts: Sequence[str]) -> list[str]:
        """Add memories and return their ids."""
        return [self._call("add_memory", {"text": text})["results"][0]["id"] for text in texts]

    def check_life(self, text: str) -> None:
        """Note a failure if the server does not answer, list its tools, or find what it has just added."""
        tools = self._ask({"jsonrpc": "2.0", "id": "tools", "method": "tools/list"})["result"]["tools"]
        (memory_id,) = self.memory_ids([text])
        hits = self._call("search_memories", {"query": text})["results"]
        if not tools or memory_id not in [hit["id"] for hit in hits]:
            self.tally.fail(f"the server does not find what it added: {text}", [])

    def _call(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        return self._ask(call(tool, arguments, f"{tool} of the run"))["result"]["structuredContent"]

    def _ask(self, message: dict[str, Any]) -> dict[str, Any]:
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


def outcome(answer: dict[str, Any]) -> str:
    """Return what kind of answer it is."""
    if "error" in answer:
        return f"error {answer['error']['code']}"
    if answer["result"].get("resultType") == "input_required":
        return "question"
    return "tool error" if answer["result"].get("isError") else "result"
