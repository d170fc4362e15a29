"""Keep an index on a server in step with the ledger, from any number of processes and hosts.

One process at a time writes to the index: the one that holds a lock of the ledger's database, for the time of one
operation. The others do not wait for it. They query what is there, and take what the index has not applied yet from
the index log, as with every index. The checkpoint is on the server. Each query reads it first, so a query knows what
the index holds at that moment, whoever has written to it, and also after the server has lost its data or has been
restored from an older copy.

A process that loses the lock while it writes, such as one whose connection to the database broke, notices before its
next batch that the checkpoint is not the one it stored.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import NoReturn

from palimpsest.core.errors import VectorIndexError
from palimpsest.core.protocols import Progress, Vector, VectorIndex
from palimpsest.index.checkpoint import Checkpoint
from palimpsest.index.shared.collections import ReplacedError, SharedBuild, SharedIndex, StoredState
from palimpsest.index.shared.condition import Condition, condition
from palimpsest.index.shared.connection import REPLY_SECONDS, RefusalError
from palimpsest.index.sync import IndexHits, Projection
from palimpsest.store.ledger import Ledger
from palimpsest.store.queries import index_log as log_queries

logger = logging.getLogger(__name__)

BATCH = 500
"""Rows in one write. The server holds no lock of this interpreter. Measured with 384 dimensions: 500 rows a second in
batches of 50, and 800 in batches of 500."""

TURN_SECONDS = 2 * REPLY_SECONDS
"""How long a rebuild or an erasure waits for the process that writes."""

POLL_SECONDS = 0.05
"""How often they look whether it is their turn. Set by hand."""


class SharedProjection(Projection):
    """A projection onto an index that several processes share.

    `open_shared` connects to the server. `root` is the folder of indexes that this machine may have had before.
    """

    shared = True
    batch = BATCH

    def __init__(
        self, ledger: Ledger, embedder: str, open_shared: Callable[[], SharedIndex], root: Path, *, layout: str
    ) -> None:
        super().__init__(ledger, embedder, _refuse_folder, root, layout=layout)
        self._open_shared = open_shared
        self._server: SharedIndex | None = None
        self._written: StoredState | None = None
        self._seen: tuple[StoredState, SharedBuild] | None = None

    def open(self, progress: Progress | None = None) -> None:
        """Connect, and build the index or catch up unless another process is writing.

        Raises VectorIndexError and LedgerError.
        """
        with self._operation():
            self.state = "building"
            self._connect()
            self._work_if_alone(progress, is_counted=True)

    def rebuild(self, progress: Progress | None = None) -> int:
        """Replace the index with a new one built from the ledger, and return how many vectors it holds.

        It waits for the process that is writing. Raises VectorIndexError and LedgerError.
        """
        with self._our_turn(), self._operation():
            self._connect()
            self._build(progress)
            return self._required_index().count()

    def catch_up(self, progress: Progress | None = None) -> None:
        """Apply the rest of the index log, or build the index anew, unless another process is writing.

        Raises VectorIndexError and LedgerError.
        """
        with self._operation():
            if self._server is not None and self.state != "broken":
                self._work_if_alone(progress)

    def erase(self) -> None:
        """Erase every vector that was stored before the last purge. The next round builds the index anew.

        It waits for the process that is writing, unless that one has erased them. Raises VectorIndexError and
        LedgerError.
        """
        with (
            closing(self._open_shared()) as server,
            self._our_turn(unless=lambda: self._is_erased(server)) as is_our_turn,
        ):
            if is_our_turn:
                server.begin(self._epoch())
        self._changes_seen = True

    def inspect(self, examine: Callable[[VectorIndex], str]) -> str:
        """Return what `examine` reports of the index when it has caught up. It waits for the process that is writing.

        Raises VectorIndexError and LedgerError.
        """
        with self._our_turn(), self._operation():
            self._follow(None)
            return examine(self._required_index())

    def query(self, user_id: str, vector: Vector, limit: int) -> IndexHits | None:
        """Return the nearest entries that the index has, or None if it cannot be queried now.

        Call it with no ledger connection open. Entries that changed after `log_number` may be missing or out of
        date; `changed_since` returns them.
        """
        server = self._server
        if server is None or self.state == "broken":
            return None
        try:
            if (seen := self._look(server)) is None:
                return self._nothing()
            checkpoint, build = seen
            try:
                entries = build.query(user_id, vector, limit)
            except RefusalError:  # a collection that is being deleted refuses in other words than one that is gone
                if self._look(server) == seen:
                    raise
                return self._nothing()
            # A user without a collection has no vectors, or the build was deleted meanwhile.
            if not entries and self._look(server) != seen:
                return self._nothing()
            return IndexHits(tuple(entries), checkpoint.log_number)
        except ReplacedError:
            return self._nothing()
        except VectorIndexError as error:
            if server is self._server:  # else it was closed
                self.state, self.fault = "broken", str(error)
                logger.warning("the vector index failed, so the ledger's vectors are scanned instead: %s", error)
            return None

    def condition(self) -> Condition:
        """Return what condition the index is in. Nothing is changed. Raises VectorIndexError and LedgerError."""
        with closing(self._open_shared()) as server:
            return condition(self._ledger, server, self.initial_checkpoint)

    def close(self) -> None:
        """Close the connections."""
        with self._lock:
            self._disconnect()
            self.state = "closed"

    def _nothing(self) -> None:
        """Let the background look what is the matter with the index."""
        self._changes_seen = True

    def _look(self, server: SharedIndex) -> tuple[Checkpoint, SharedBuild] | None:
        """Return the checkpoint that the index has now, and its vectors. Return None if it is not complete or valid."""
        state = server.read(is_search=True)
        if state is None or state.checkpoint is None:
            return None
        seen = self._seen
        if seen is None or seen[0] != state:
            with self._ledger.read() as conn:
                if not state.checkpoint.is_valid(self.initial_checkpoint, conn):
                    return None
            is_known = seen is not None and seen[0].build == state.build
            seen = state, seen[1] if seen is not None and is_known else server.open(state.build)
            self._seen = seen
        return state.checkpoint, seen[1]

    def _work_if_alone(self, progress: Progress | None, *, is_counted: bool = False) -> None:
        """Bring the index up to date unless another process is writing to it, and say whether it can be queried."""
        server = self._required_server()
        try:
            with self._ledger.alone_at("index") as is_our_turn:
                if is_our_turn:
                    self._follow(progress, is_counted=is_counted)
        except ReplacedError as error:
            logger.info("%s", error)
        seen = self._look(server)
        if seen is not None:
            self._index = seen[1]
        self.state, self.fault = "building" if seen is None else "ready", ""

    def _follow(self, progress: Progress | None, *, is_counted: bool = False) -> None:
        """Apply the rest of the index log, or build the index anew. It must be our turn."""
        server = self._required_server()
        self._written = server.read()
        if (seen := self._look(server)) is not None:
            checkpoint, self._index = seen
            if self._follow_from(checkpoint, progress) and (not is_counted or self._is_complete()):
                return
        self._build(progress)

    def _begin_build(self) -> None:
        server = self._required_server()
        self._written = server.begin(self._epoch())
        self._index = server.open(self._written.build)

    def _epoch(self) -> str:
        with self._ledger.read() as conn:
            return log_queries.epoch(conn)

    def _is_erased(self, server: SharedIndex) -> bool:
        """Return whether what is on the server was begun after the last purge."""
        state = server.read()
        return state is not None and state.epoch == self._epoch()

    def _save_checkpoint(self, reached: Checkpoint) -> None:
        if self._written is None:
            raise ReplacedError
        self._written = self._required_server().save(self._written, reached)
        self._checkpoint = reached

    def _may_go_on(self) -> bool:
        """Return whether this process is to write another batch. Raises ReplacedError if another process writes."""
        if not super()._may_go_on():
            return False
        if self._required_server().read() != self._written:
            raise ReplacedError
        return True

    @property
    def log_number(self) -> int:
        """Return the last row of the index log that this process knows to be applied."""
        seen = self._seen
        return 0 if seen is None or seen[0].checkpoint is None else seen[0].checkpoint.log_number

    @contextmanager
    def _our_turn(self, unless: Callable[[], bool] = lambda: False) -> Generator[bool]:
        """Wait until no other process writes, and keep the others from it. Give False if `unless` holds before."""
        end = time.monotonic() + TURN_SECONDS
        while True:
            with self._ledger.alone_at("index") as is_our_turn:
                if is_our_turn or unless():
                    yield is_our_turn
                    return
            if self._stopping.wait(POLL_SECONDS) or time.monotonic() > end:
                raise VectorIndexError(
                    "another process is writing to the index on the Chroma server, and has not finished within "
                    f"{TURN_SECONDS:g} s. Nothing was done; try again later"
                )

    def _connect(self) -> None:
        """Connect anew. What is there is read, so that a server that does not answer is noticed."""
        self._disconnect()
        with ExitStack() as stack:
            server = self._open_shared()
            stack.callback(server.close)
            server.read(is_search=True)
            stack.pop_all()
            self._server = server

    def _disconnect(self) -> None:
        if self._server is not None:
            self._server.close()
        self._server = self._index = self._written = self._seen = None

    def _required_server(self) -> SharedIndex:
        if self._server is None:
            raise VectorIndexError(f"the index is {self.state}")
        return self._server


def _refuse_folder(folder: Path) -> NoReturn:
    raise VectorIndexError(f"the index is on a Chroma server, and not in {folder}")
