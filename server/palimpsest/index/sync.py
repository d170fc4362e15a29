"""The vector index as a projection of the ledger: leased, caught up by checkpoint, rebuilt when in doubt.

A process leases `index/0`, `index/1`, … by a lock of the operating system, so that no two ever share a Chroma
folder. The index only proposes candidates; what changed after its checkpoint is proposed besides. Without an
index (opening, rebuilding, broken) the caller scans the ledger's vectors exactly.
"""

from __future__ import annotations

import logging
import shutil
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np
from filelock import FileLock, Timeout
from sqlalchemy import Connection

from palimpsest.core.errors import LedgerError, VectorIndexError
from palimpsest.core.files import file_lock
from palimpsest.core.protocols import Progress, Vector, VectorIndex
from palimpsest.index import checkpoint
from palimpsest.index.checkpoint import Checkpoint
from palimpsest.store.ledger import Ledger
from palimpsest.store.queries import entries as entry_queries
from palimpsest.store.queries import memories as memory_queries

logger = logging.getLogger(__name__)

BATCH = 50
"""Vectors in one write: a Chroma write holds the interpreter, about a millisecond a vector."""

MAX_TAIL = 500
"""With more units changed since the checkpoint than this, an exact scan is cheaper than reading them."""

MAX_LEASES = 64

OpenIndex: TypeAlias = Callable[[Path], VectorIndex]
State: TypeAlias = Literal["closed", "building", "ready", "broken"]


@dataclass(frozen=True, slots=True)
class IndexHits:
    """Entry numbers that an index returned, nearest first, and the last row of the index log it had applied."""

    entries: tuple[int, ...]
    log_number: int


class Projection:
    """Keep one vector index behind the ledger. Blocking; safe to use from several threads.

    Without a `root` folder the index lives in memory only. `shared` says that it lies on a server and that several
    processes take turns at writing to it.
    """

    def __init__(
        self,
        ledger: Ledger,
        embedder: str,
        open_index: OpenIndex,
        root: Path | None,
        *,
        form: str,
        shared: bool = False,
    ) -> None:
        self._ledger = ledger
        self._wanted = Checkpoint(ledger.id, embedder, form)
        self._open_index = open_index
        self.root = root
        self.shared = shared
        self._turn = threading.Lock()
        self._lease: FileLock | None = None
        self._stopping = threading.Event()
        self._folder: Path | None = None
        self._index: VectorIndex | None = None
        self._checkpoint = self._wanted
        self._lags = False
        self.state: State = "closed"
        self.fault = ""

    @property
    def embedder(self) -> str:
        """Return the fingerprint of the vectors this index holds."""
        return self._wanted.embedder

    @property
    def folder(self) -> Path | None:
        """Return the leased folder."""
        return self._folder

    @property
    def wanted(self) -> Checkpoint:
        """Return the checkpoint that an index of this ledger and embedder starts from."""
        return self._wanted

    def open_in(self, folder: Path) -> VectorIndex:
        """Open the index in a folder that the caller has leased. Raises VectorIndexError."""
        return self._open_index(folder)

    def stop(self) -> None:
        """Make the work under way end after its present batch; what is done is kept."""
        self._stopping.set()

    def stopping(self) -> bool:
        """Say whether `stop` was called."""
        return self._stopping.is_set()

    def open(self, progress: Progress | None = None) -> None:
        """Lease a folder, open its index or make one anew, and catch up. Raises VectorIndexError and LedgerError."""
        with self._working():
            self.state = "building"
            self._close_index()
            self._take_lease()
            with self._my_turn():
                if not self._reopened(progress):
                    self._build_anew(progress)

    def rebuild(self, progress: Progress | None = None) -> int:
        """Set the index aside, build it anew from the ledger and return how many vectors it holds."""
        with self._working():
            self._take_lease()
            with self._my_turn():
                self._build_anew(progress)
            return self._opened.count()

    def catch_up(self, progress: Progress | None = None) -> None:
        """Bring the index up to the change log; build it anew where it turns out to follow another ledger."""
        with self._working():
            if self.state == "ready":
                with self._my_turn():
                    found = self._stored_checkpoint()
                    if found is None:
                        self._build_anew(progress)
                    else:
                        self._checkpoint = found
                        self._follow(progress)

    def count(self) -> int:
        """Return how many vectors the index holds. Raises VectorIndexError."""
        with self._turn:
            return self._opened.count()

    def compared(self, compare: Callable[[VectorIndex], str]) -> str:
        """Return what a comparison says of the open index, while nobody writes to it. Raises VectorIndexError."""
        with self._working(), self._my_turn():
            return compare(self._opened)

    def query(self, user_id: str, vector: Vector, limit: int) -> IndexHits | None:
        """Return the nearest entries the index knows of, or None if it cannot be queried now.

        The index may be on a server, so call this with no ledger connection open. Entries that changed after
        `log_number` are missing or out of date; `changed_since` returns them.
        """
        index, log_number = self._index, self._checkpoint.seq
        if index is None or self.state != "ready":
            return None
        try:
            return IndexHits(tuple(index.query(user_id, vector, limit)), log_number)
        except VectorIndexError as error:
            self.state, self.fault = "broken", str(error)
            logger.warning("searching the ledger's vectors instead: %s", error)
            return None

    def changed_since(self, conn: Connection, user_id: str, log_number: int) -> list[int] | None:
        """Return a user's entries that the index log names after a row, or None if there are too many to read.

        If there are too many, scan the ledger's vectors instead.
        """
        changed = entry_queries.tail(conn, user_id, log_number, MAX_TAIL + 1)
        self._lags = bool(changed)
        return None if len(changed) > MAX_TAIL else changed

    def nearest(self, conn: Connection, user_id: str, vector: Vector, limit: int) -> list[int] | None:
        """Return the nearest entries and all that changed since the checkpoint; None without a usable index."""
        hits = self.query(user_id, vector, limit)
        changed = None if hits is None else self.changed_since(conn, user_id, hits.log_number)
        return None if hits is None or changed is None else [*hits.entries, *changed]

    def lags(self) -> bool:
        """Say whether the last search met changes the index has not followed, or no index that works."""
        return self._lags or self.state in ("closed", "broken")

    def close(self) -> None:
        """Close the index and give the folder back."""
        with self._turn:
            self._close_index()
            if self._lease is not None:
                self._lease.release()
                self._lease = None
            self._folder = None
            self.state = "closed"

    @property
    def _opened(self) -> VectorIndex:
        if self._index is None:
            raise VectorIndexError(f"the index is {self.state}")
        return self._index

    def _opened_index(self) -> VectorIndex:
        return self._open_index(self._folder or Path())

    def _stored_checkpoint(self) -> Checkpoint | None:
        """Return the checkpoint in the folder, if it stands on this ledger as it is; in memory, the one in memory."""
        found = self._checkpoint if self._folder is None else Checkpoint.read(self._folder)
        with self._ledger.read() as conn:
            return found if found is not None and found.fits(self._wanted, conn) else None

    def _take_lease(self) -> None:
        """Take a folder that no other process has, unless one is taken. Raises VectorIndexError."""
        if self.root is None or self._folder is not None:
            return
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name in ["server"] if self.shared else map(str, range(MAX_LEASES)):
            lease = file_lock(self.root / f"{name}.lock")
            if not self.shared:
                try:
                    lease.acquire(timeout=0)
                except Timeout:
                    continue
            self._lease = lease
            self._folder = self.root / name
            self._folder.mkdir(mode=0o700, exist_ok=True)
            return
        raise VectorIndexError(f"all {MAX_LEASES} index folders in {self.root} are in use by other processes")

    @contextmanager
    def _my_turn(self) -> Generator[None]:
        """Wait, where the index is shared, for the turn to write; elsewhere the lease is turn enough."""
        if self.shared and self._lease is not None:
            with self._lease:
                yield
        else:
            yield

    @contextmanager
    def _working(self) -> Generator[None]:
        """Let one thread work at a time, and note a failure as the state, for the doctor and the next search."""
        with self._turn:
            try:
                yield
            except (VectorIndexError, LedgerError) as error:
                self.state, self.fault = "broken", str(error)
                raise
            except OSError as error:
                self.state, self.fault = "broken", str(error)
                raise VectorIndexError(f"the index folder {self._folder} cannot be used: {error}") from error

    def _reopened(self, progress: Progress | None) -> bool:
        """Open the index that is there and catch up; say whether it can be used."""
        found = self._stored_checkpoint()
        if found is None or self._folder is None:
            return False
        try:
            self._index = self._opened_index()
            self._checkpoint = found
            self._follow(progress)
            if self._is_whole():
                self.state, self.fault = "ready", ""
                return True
        except VectorIndexError as error:
            logger.warning("the index in %s is rebuilt: %s", self._folder, error)
        return False

    def _follow(self, progress: Progress | None) -> None:
        """Apply the change log from the checkpoint on."""
        with self._ledger.read() as conn:
            total = memory_queries.head(conn) - self._checkpoint.seq
        done = 0
        while not self._stopping.is_set():
            with self._ledger.read() as conn:
                entries = entry_queries.log_after(conn, self._checkpoint.seq, BATCH)
                keys = entry_queries.keys(conn, self.embedder, [entry.entry_seq for entry in entries])
            if not entries:
                return
            for user_id in {entry.user_id for entry in entries}:
                mine = sorted({entry.entry_seq for entry in entries if entry.user_id == user_id})
                self._write(user_id, [seq for seq in mine if seq in keys], keys)
                if gone := [seq for seq in mine if seq not in keys]:
                    self._opened.delete(user_id, gone)
            self._advance(entries[-1].seq)
            done += len(entries)
            if progress is not None:
                progress(done, max(total, done))

    def _build_anew(self, progress: Progress | None) -> None:
        """Put every vector of the ledger into an empty index, then follow the log from where that began."""
        self.state = "building"
        self._close_index()
        if self.shared and self._folder is not None:
            checkpoint.remove(self._folder)
            self._index = self._opened_index()
            self._index.clear()
        else:
            self._set_aside()
            self._index = self._opened_index()
        self._fill(progress)
        if not self._stopping.is_set():
            self.state, self.fault = "ready", ""

    def _fill(self, progress: Progress | None) -> None:
        with self._ledger.read() as conn:
            start = memory_queries.head(conn)
            total = entry_queries.count_indexed(conn, self.embedder)
        done, last = 0, 0
        while not self._stopping.is_set():
            with self._ledger.read() as conn:
                batch = entry_queries.indexed(conn, self.embedder, last, BATCH)
            if not batch:
                break
            keys = {seq: key for seq, _, key in batch}
            for user_id in {user_id for _, user_id, _ in batch}:
                self._write(user_id, [seq for seq, owner, _ in batch if owner == user_id], keys)
            last = batch[-1][0]
            done += len(batch)
            if progress is not None:
                progress(done, max(total, done))
        if self._stopping.is_set():
            return
        self._checkpoint = self._wanted
        self._advance(start)
        self._follow(None)

    def _write(self, user_id: str, seqs: list[int], keys: dict[int, Vector]) -> None:
        if seqs:
            self._opened.upsert(user_id, seqs, np.stack([keys[seq] for seq in seqs]))

    def _advance(self, seq: int) -> None:
        with self._ledger.read() as conn:
            self._checkpoint = self._checkpoint.at(seq, conn)
        if self._folder is not None:
            self._checkpoint.write(self._folder)

    def _is_whole(self) -> bool:
        """Say whether an index that has caught up holds as many vectors as the ledger."""
        with self._ledger.read() as conn:
            wanted, head = entry_queries.count_indexed(conn, self.embedder), memory_queries.head(conn)
        if head != self._checkpoint.seq or wanted == self._opened.count():
            return True  # behind by a write of just now: the next catch-up follows it
        logger.warning("the index in %s does not hold what the ledger holds; it is rebuilt", self._folder)
        return False

    def _set_aside(self) -> None:
        """Begin an empty folder; what it held is moved away, the last one so moved is kept.

        What is of before a purge or a restore of this ledger is deleted: it must not outlive that.
        """
        if self._folder is None or not any(self._folder.iterdir()):
            return
        found = Checkpoint.read(self._folder)
        with self._ledger.read() as conn:
            erased = found is not None and found.is_of_earlier_epoch(self._wanted, conn)
        if erased:
            shutil.rmtree(self._folder)
        else:
            aside = self._folder.with_suffix(".aside")
            shutil.rmtree(aside, ignore_errors=True)
            self._folder.rename(aside)
        self._folder.mkdir(mode=0o700)

    def _close_index(self) -> None:
        if self._index is not None:
            self._index.close()
            self._index = None
