"""A process that follows a ledger with an index on a Chroma server.

What it is told pauses if its last word is "save", before each checkpoint, or "batch", after each batch.
"""

from __future__ import annotations

from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING

from palimpsest.core.settings import load_settings
from palimpsest.index.chroma_server import LAYOUT, SharedIndex, SharedProjection, StoredState
from palimpsest.index.sync import Checkpoint
from palimpsest.store.ledger import open_ledger
from tests.support.memory import StoppedClock
from tests.support.projections import EMBEDDER, add
from tests.support.remote import PAUSED, Remote, pause

if TYPE_CHECKING:
    from tests.support.chroma_server import ChromaProcess

# How many rows it applies at a time, so that few make more than one batch.
BATCH = 20


class SharedIndexProcess(Remote):
    """A process that shares an index with others."""

    def __init__(self, data_dir: Path, server: ChromaProcess) -> None:
        super().__init__(_Follower, data_dir, server.port)

    def do(self, command: str) -> str:
        """Do something, and return the state of the index, and what was found."""
        return self.call("do", command)

    def pause_at(self, command: str) -> None:
        """Begin to do something, and wait until the process pauses in the midst of it."""
        assert self.do(command) == PAUSED


class _PausingIndex(SharedIndex):
    pipe: Connection | None = None

    def save(self, state: StoredState, checkpoint: Checkpoint) -> StoredState:
        if self.pipe is not None:
            pause(self.pipe)
        return super().save(state, checkpoint)


class _Follower:
    def __init__(self, pipe: Connection, data_dir: Path, port: int) -> None:
        settings = load_settings(None, data_dir=data_dir, vector_store={"config": {"host": "127.0.0.1", "port": port}})
        self._pipe, self._ledger = pipe, open_ledger(settings.ledger_path, StoppedClock())
        connect = partial(_PausingIndex, settings.vector_store.config, f"palimpsest-{self._ledger.id[:8]}")
        self._projection = SharedProjection(self._ledger, EMBEDDER, connect, settings.index_dir, layout=LAYOUT)
        self._projection.batch = BATCH

    def do(self, command: str) -> str:
        verb, _, rest = command.partition(" ")
        _PausingIndex.pipe = self._pipe if rest == "save" else None
        found: object = ""
        if verb == "add":
            add(self._ledger, rest)
        else:
            found = getattr(self._projection, verb)(self._pause if rest == "batch" else None) or ""
        return f"{self._projection.state} {found}".strip()

    def _pause(self, _done: int, _total: int) -> None:
        pause(self._pipe)
