"""A replica of a soak: a server process that one client writes to and searches in, one call after the other."""

from __future__ import annotations

import random
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from clients import TOPICS, environment_of
from network import Network
from replicas.record import PLAIN, Record, Write
from startup import INITIALIZE, Server

SENT_AGAIN = 0.5
"""The share of the adds that are sent again after an error. The others show whether the error told the truth."""

NEWEST = 30
"""How many memories back updates, deletions and searches go."""

COMMAND = (sys.executable, "-m", "palimpsest", "serve")


class ReplyError(Exception):
    """A tool answered with an error."""


@dataclass
class Replica:
    """A server over a database with a data directory of its own, and its client. `url` leads over `network`."""

    name: str
    user: str
    home: Path
    url: str
    network: Network
    record: Record
    rng: random.Random
    own: list[str] = field(default_factory=list[str])
    _server: Server | None = None
    _process: subprocess.Popen[bytes] | None = None
    _stderr: IO[bytes] | None = None
    _again: Write | None = None
    _killed: threading.Event = field(default_factory=threading.Event)

    def start(self) -> None:
        """Start the server, and wait until it answers."""
        self.home.mkdir(parents=True, exist_ok=True)
        environment = {
            **environment_of(self.home, self.user),
            "PALIMPSEST_LEDGER_URL": self.url,
            "PALIMPSEST_EMBEDDER__PROVIDER": "static",
        }
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - `close` closes it
        pipe = subprocess.PIPE
        self._killed.clear()
        began = time.perf_counter()
        self._process = subprocess.Popen(
            COMMAND, bufsize=0, stdin=pipe, stdout=pipe, stderr=self._stderr, cwd=self.home, env=environment
        )
        self._server = Server(self._process, self._stderr, began)
        self._server.request("initialize", INITIALIZE)
        self._server.notify("notifications/initialized")

    def kill(self) -> None:
        """Kill the server, as the operating system would."""
        if self._process is not None:
            self._killed.set()
            self._process.kill()

    def close(self) -> None:
        """Close the connection to the server, wait until it has ended, and write down what it had to say."""
        if self._process is None or self._process.stdin is None or self._stderr is None:
            return
        self._process.stdin.close()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._stderr.seek(0)
        with (self.home / "stderr.log").open("ab") as log:
            log.write(self._stderr.read())
        self._stderr.close()
        self._process = None

    def work(self, kind: str, until: threading.Event) -> int:
        """Write and search until an event, and return how many calls were answered well since it began."""
        answered = 0
        while not until.is_set():
            operation = self.rng.choice((self._add, self._add, self._update, self._delete, self._search, self._search))
            try:
                operation(kind)
                answered += 1
            except ReplyError:
                until.wait(self.rng.uniform(0, 0.2))  # a client would not try again at once
            except RuntimeError as error:
                if not self._killed.is_set():
                    self.record.fault("ended", f"{self.name}: {error}")
                self.close()
                self.start()
        return answered

    def find(self, text: str, kind: str) -> int:
        """Search for a text and return how often it is found."""
        arguments = {"query": text, "limit": 20, "max_tokens": 3000}
        hits = self._call("search_memories", arguments, kind)["results"]
        with self.record.lock:
            self.record.searches += 1
        return sum(hit["text"] == text for hit in hits)

    def _add(self, kind: str) -> None:
        """Add a text. After an error it may be sent again, which must not store it twice."""
        write = self._again or Write(self.user, self._text())
        self._again = write if self.rng.random() < SENT_AGAIN else None
        self._write("add_memory", {"text": write.text}, write, kind)
        self._again = None
        self.own.append(write.memory_id)

    def _update(self, kind: str) -> None:
        memory_id, _ = self._one_of_own()
        if memory_id:
            write = Write(self.user, self._text(), memory_id)
            self._write("update_memory", {"memory_id": memory_id, "text": write.text}, write, kind)

    def _delete(self, kind: str) -> None:
        memory_id, text = self._one_of_own()
        if memory_id:
            self.own.remove(memory_id)
            write = Write(self.user, text, memory_id, deletes=True)
            self._write("delete_memory", {"memory_ids": [memory_id]}, write, kind)

    def _search(self, kind: str) -> None:
        """Search for what any replica was told to be stored. It counts unless it was changed meanwhile."""
        settled = self.record.settled(self.user)
        if not settled:
            return
        memory_id = self.rng.choice(list(settled)[-NEWEST:])
        found = self.find(settled[memory_id][0], kind)
        if found != 1 and self.record.settled(self.user).get(memory_id) == settled[memory_id]:
            self.record.fault("not_found", f"{self.name} found '{settled[memory_id][0]}' {found} times")

    def _one_of_own(self) -> tuple[str, str]:
        """Return the id and the text of a memory that only this replica changes, or empty ones."""
        settled = self.record.settled(self.user)
        certain = [memory_id for memory_id in self.own[-NEWEST:] if memory_id in settled]
        chosen = self.rng.choice(certain) if certain else ""
        return chosen, settled[chosen][0] if chosen else ""

    def _write(self, tool: str, arguments: dict[str, Any], write: Write, kind: str) -> None:
        self.record.begin(write)
        try:
            reply = self._call(tool, arguments, kind)
        except ReplyError as error:
            self.record.fail(write, str(error))
            raise
        except RuntimeError:
            self.record.fail(write, "")
            raise
        self.record.acknowledge(write, write.memory_id or reply["results"][0]["id"])

    def _call(self, tool: str, arguments: dict[str, Any], kind: str) -> dict[str, Any]:
        """Call a tool. Raises ReplyError for an error, and RuntimeError if the server has ended."""
        if self._server is None:
            raise RuntimeError("the server was not started")
        began = time.monotonic()
        result = self._server.request("tools/call", {"name": tool, "arguments": arguments})
        self.record.note_time(kind, time.monotonic() - began)
        if not result.get("isError"):
            return result["structuredContent"]
        error = " ".join(block.get("text", "") for block in result["content"])
        self.record.note_error(error)
        if not PLAIN.search(error):
            self.record.fault("unclear", f"{tool}: {error}")
        raise ReplyError(error)

    def _text(self) -> str:
        return f"{self.rng.choice(TOPICS)}, note q{uuid.UUID(int=self.rng.getrandbits(128)).hex[:10]}"
