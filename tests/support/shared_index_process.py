"""A process that follows a ledger with an index on a Chroma server, and does what a test tells it, line by line.

    python -m tests.support.shared_index_process DATA_DIR PORT

It reads `open`, `catch_up`, `rebuild`, `add TEXT` and `search TEXT`. It answers each with the state of the index, and
what was found. With ` save` or ` batch` behind a command it pauses before each checkpoint or after each batch: it says
so, and goes on with the next line of its input.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import IO, TYPE_CHECKING, cast

from palimpsest.core.errors import VectorIndexError
from palimpsest.core.settings import load_settings
from palimpsest.index.chroma_server import LAYOUT, SharedIndex, SharedProjection, StoredState
from palimpsest.index.sync import Checkpoint
from tests.support.projections import EMBEDDER, add, ledger_in, nearest

if TYPE_CHECKING:  # it needs a module of the benchmarks, which only pytest finds
    from tests.support.chroma_server import ChromaProcess

PAUSED = "paused"

BATCH = 20
"""How many rows it applies at a time, so that few make more than one batch."""


class SharedIndexProcess:
    """A process that shares an index with others."""

    def __init__(self, data_dir: Path, server: ChromaProcess) -> None:
        command = [sys.executable, "-m", "tests.support.shared_index_process", str(data_dir), str(server.port)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._read() == "started"

    def do(self, command: str) -> str:
        """Do something, and return the state of the index, and what was found."""
        self._write(command)
        return self._read()

    def pause_at(self, command: str) -> None:
        """Begin to do something, and wait until the process pauses in the midst of it."""
        self._write(command)
        assert self._read() == PAUSED

    def go_on(self) -> str:
        """Let a paused process go on to the end, and return what it answers then."""
        answer = PAUSED
        while answer == PAUSED:
            self._write("")
            answer = self._read()
        return answer

    def kill(self) -> None:
        """End the process as a crash would (SIGKILL)."""
        self._process.kill()
        self._process.communicate()

    def _write(self, line: str) -> None:
        stdin = cast("IO[str]", self._process.stdin)
        stdin.write(f"{line}\n")
        stdin.flush()

    def _read(self) -> str:
        return cast("IO[str]", self._process.stdout).readline().strip()


class _PausingIndex(SharedIndex):
    """An index that waits for a line of the input before it stores a checkpoint, if it is told to."""

    is_pausing = False

    def save(self, state: StoredState, checkpoint: Checkpoint) -> StoredState:
        if self.is_pausing:
            _pause()
        return super().save(state, checkpoint)


def _pause(*_progress: int) -> None:
    _answer(PAUSED)
    sys.stdin.readline()


def _answer(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _serve(data_dir: Path, port: int) -> None:
    settings = load_settings(None, data_dir=data_dir, vector_store={"config": {"host": "127.0.0.1", "port": port}})
    with ledger_in(settings.ledger_path) as ledger:

        def connect() -> _PausingIndex:
            return _PausingIndex(settings.vector_store.config, f"palimpsest-{ledger.id[:8]}")

        projection = SharedProjection(ledger, EMBEDDER, connect, settings.index_dir, layout=LAYOUT)
        projection.batch = BATCH
        _answer("started")
        for line in sys.stdin:
            command, _, rest = line.strip().partition(" ")
            _PausingIndex.is_pausing = rest == "save"
            progress = _pause if rest == "batch" else None
            found: object = ""
            try:
                match command:
                    case "open":
                        projection.open(progress)
                    case "catch_up":
                        projection.catch_up(progress)
                    case "rebuild":
                        found = projection.rebuild(progress)
                    case "add":
                        add(ledger, rest)
                    case _:
                        found = nearest(ledger, projection, rest)
            except VectorIndexError as error:
                found = error
            _answer(f"{projection.state} {found}".strip())


if __name__ == "__main__":
    _serve(Path(sys.argv[1]), int(sys.argv[2]))
