"""Keep what searches ask in step with the ledger: a vector index in a folder, or the keys of users in memory."""

from __future__ import annotations

import json
import logging
import shutil
import threading
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, NoReturn, TypeAlias

import numpy as np
import numpy.typing as npt
from filelock import FileLock, Timeout
from sqlalchemy import Connection

from palimpsest.core.errors import LedgerError, VectorIndexError, logged, raised_as
from palimpsest.core.files import file_lock, replace_file
from palimpsest.core.protocols import Progress, Vector, VectorIndex, unseen
from palimpsest.core.validation import object_of
from palimpsest.store import entries as entry_queries
from palimpsest.store.ledger import Ledger
from palimpsest.store.rows import grouped

# The checkpoint of an index: what it was built from and how much of the index log it has applied.

FILE_NAME = "checkpoint.json"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The ledger, embedder and layout of an index, and the last index log row that was applied to it.

    `log_signature` describes row number `log_number`. A ledger that was restored from a backup may later use the
    same number for another row.
    """

    ledger: str
    embedder: str
    layout: str
    log_number: int = 0
    log_signature: str = ""

    @classmethod
    def read(cls, folder: Path) -> Checkpoint | None:
        """Return the checkpoint in a folder, or None if there is none or it is damaged."""
        with suppress(OSError, ValueError):
            return cls.from_values(json.loads((folder / FILE_NAME).read_text("utf-8")))
        return None

    @classmethod
    def from_values(cls, values: Any) -> Checkpoint | None:
        """Return the checkpoint with these values of its fields, or None if they are damaged or of another version."""
        types = {field.name: int if field.name == "log_number" else str for field in fields(cls)}
        found = object_of(values)
        return cls(**found) if {name: type(value) for name, value in found.items()} == types else None

    def write(self, folder: Path) -> None:
        """Replace the checkpoint file in one step, so that a crash leaves either the old one or the new one."""
        # An index whose checkpoint is lost in a power failure is rebuilt; that is cheaper than an fsync per batch.
        with replace_file(folder / FILE_NAME, durable=False) as file:
            json.dump(asdict(self), file)

    def is_valid(self, initial: Checkpoint, conn: Connection) -> bool:
        """Return whether an index at this checkpoint can go on following the ledger.

        It can if it was built like `initial`, and if it `can_follow` the ledger.
        """
        return replace(self, log_number=0, log_signature="") == initial and self.can_follow(initial.ledger, conn)

    def can_follow(self, ledger: str, conn: Connection) -> bool:
        """Return whether it is of this ledger, and the ledger still has the log row the index stopped at."""
        return self.ledger == ledger and self.log_signature == entry_queries.log_signature(conn, self.log_number)

    def is_from_earlier_epoch(self, initial: Checkpoint, conn: Connection) -> bool:
        """Return whether rows of the same ledger were erased, or all of them replaced, since this checkpoint."""
        return self.ledger == initial.ledger and self.log_signature.split(" ")[0] != entry_queries.epoch(conn)

    def moved_to_newest(self, conn: Connection) -> Checkpoint:
        """Return the checkpoint moved to the newest row of the index log."""
        log_number, signature = entry_queries.newest_position(conn)
        return replace(self, log_number=log_number, log_signature=signature)


MAX_FOLDERS = 64

# Suffix of a folder whose index could not be used. It is kept for inspection; no process opens it.
SET_ASIDE_SUFFIX = ".aside"


# Index folders of another ledger, or of a state that a restore or a purge has ended, and that no process uses.

logger = logging.getLogger(__name__)


def index_folders(root: Path) -> list[Path]:
    """Return the index folders on this machine that one process at a time uses, sorted by name."""
    return sorted(path for path in root.glob("*") if path.is_dir() and path.name.isdecimal())


def delete_outdated(root: Path, ledger: Ledger) -> list[Path]:
    """Delete the whole indexes that cannot follow the ledger and that no process uses, whatever embedder they are of.

    Return their folders. Raises LedgerError.
    """
    deleted: list[Path] = []
    for folder in index_folders(root):
        failed = logged(logger, f"the outdated index {folder} could not be deleted", OSError)
        # The process of one that is in use rebuilds it at its next call.
        with failed, suppress(Timeout), file_lock(folder.with_suffix(".lock")).acquire(timeout=0):
            checkpoint = Checkpoint.read(folder)
            if checkpoint is not None and not ledger.read_with(partial(checkpoint.can_follow, ledger.id)):
                shutil.rmtree(folder)
                deleted.append(folder)
    return deleted


# Keep a vector index in step with the ledger.
#
# The ledger holds every vector, so an index can always be rebuilt from it. The index follows the index log: its
# checkpoint names the last log row that was applied. An index only proposes entries; the ledger decides which of
# them exist and who may see them.
#
# A projection is in one of four states:
#
# - `closed`: no index is open. This is the state before `open` and after `close`.
# - `building`: `open` is opening the index or filling a new one. A build that is stopped stays in this state.
# - `ready`: the index can be queried. It may be behind the log; `catch_up` applies the rest.
# - `broken`: the last operation failed, and `fault` says why. `open` and `rebuild` try again; `catch_up` does not.
#
# `open` continues with the index in the folder if its checkpoint is valid and it holds as many vectors as the ledger
# says. Otherwise `open` builds a new one, as `rebuild` always does, and as `catch_up` does if the ledger was
# replaced in the meantime. Unless the state is `ready`, `query` returns None and the caller scans the ledger's
# vectors.

# Vectors in one write. Chroma holds the interpreter lock while it writes, about a millisecond for each vector.
BATCH = 50

# If more entries of a user than this changed, reading all keys takes no longer than reading what changed.
MAX_CHANGED = 500

OpenIndex: TypeAlias = Callable[[Path], VectorIndex]
State: TypeAlias = Literal["closed", "building", "ready", "broken"]


@dataclass(frozen=True, slots=True)
class IndexHits:
    """Entry numbers that an index returned, nearest first, and the last row of the index log it had applied."""

    entries: tuple[int, ...]
    log_number: int


class Projection:
    """A vector index that follows the ledger. Blocking; safe to use from several threads.

    No ledger connection is open while the index is read or written, because the index may be on a server. It is in one
    of the folders `0`, `1`, … in `root`. This `folder` is leased by a lock, so that no other process opens it; the
    operating system releases the lock when the process ends, also when it is killed. `layout` names the kind of index;
    an index of another layout is rebuilt. An index on a server, which several processes share, is a `SharedProjection`.
    A `Scan` has no index.
    """

    # Whether the index is on a server, where several processes take turns to write to it.
    shared = False

    # Whether searches ask an index. Otherwise they scan the ledger's vectors.
    has_index = True

    # How many rows are applied at a time.
    batch = BATCH

    def __init__(self, ledger: Ledger, embedder: str, open_index: OpenIndex, root: Path, *, layout: str) -> None:
        self._ledger = ledger
        # The fingerprint of the embedder whose vectors this index holds.
        self.embedder = embedder
        self.open_index = open_index
        self.root = root
        self.folder: Path | None = None
        self._folder_lock: FileLock | None = None
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._index: VectorIndex | None = None
        self._checkpoint: Checkpoint = Checkpoint(ledger.id, embedder, layout)
        self._changes_seen = False
        # The checkpoint of an empty index of this ledger, embedder and layout.
        self.initial_checkpoint = self._checkpoint
        self.state: State = "closed"
        self.fault = ""

    def stop(self) -> None:
        """Make the running operation end after its current batch. What is done is kept."""
        self._stopping.set()

    def stopping(self) -> bool:
        """Return whether `stop` was called."""
        return self._stopping.is_set()

    def open(self, progress: Progress = unseen) -> None:
        """Lease a folder, open its index or build a new one, and catch up. Raises VectorIndexError and LedgerError."""
        with self._operation():
            self.state = "building"
            self._close_index()
            self._prepare()
            if not self._reopen(progress):
                self._build(progress)
            delete_outdated(self.root, self._ledger)

    def rebuild(self, progress: Progress = unseen) -> int:
        """Replace the index with a new one built from the ledger, and return how many vectors it holds.

        Where several processes share it, wait for the one that is writing. Raises VectorIndexError and LedgerError.
        """
        with self._our_turn(), self._operation():
            self._prepare()
            self._build(progress)
            return self._required_index().count()

    def catch_up(self) -> None:
        """Apply the rest of the index log if the index is ready. Rebuild the index if its checkpoint is not valid.

        Raises VectorIndexError and LedgerError.
        """
        with self._operation():
            if self.state != "ready":
                return
            if (valid := self._valid_checkpoint()) is None or not self._apply_log(valid, unseen):
                self._build(unseen)
                delete_outdated(self.root, self._ledger)

    def erase(self) -> None:
        """Erase every vector that was stored before the last purge, in the index that this process has leased.

        Raises VectorIndexError and LedgerError.
        """
        if self.folder is not None:
            self.rebuild()

    def count(self) -> int:
        """Return how many vectors the index holds. Raises VectorIndexError."""
        with self._lock:
            return self._required_index().count()

    def query(self, user_id: str, vector: Vector, limit: int) -> IndexHits | None:
        """Return the nearest entries that the index has, or None if it cannot be queried now.

        Call it with no ledger connection open. Entries that changed after `log_number` may be missing or out of
        date; `changed_since` returns them.
        """
        index, log_number = self._index, self._checkpoint.log_number
        if index is None or self.state != "ready":
            return None
        try:
            return IndexHits(tuple(index.query(user_id, vector, limit)), log_number)
        except VectorIndexError as error:
            return self._failed(error)

    def changed_since(self, conn: Connection, user_id: str, log_number: int) -> list[int] | None:
        """Return a user's entries that changed after a row of the index log, or None if they are too many.

        If they are too many, scan the ledger's vectors instead.
        """
        changed = entry_queries.entries_changed_since(conn, user_id, log_number, MAX_CHANGED + 1)
        self._changes_seen = bool(changed) or log_number != self.log_number
        return None if len(changed) > MAX_CHANGED else changed

    @property
    def log_number(self) -> int:
        """Return the last row of the index log that this process applied."""
        return self._checkpoint.log_number

    def is_behind(self) -> bool:
        """Return whether the last search met changes that the index had not applied, or no index is open."""
        return self.has_index and (self._changes_seen or self.state in ("closed", "broken"))

    def close(self) -> None:
        """Close the index and release its folder."""
        with self._lock:
            self._close_index()
            if self._folder_lock is not None:
                self._folder_lock.release()
            self.folder = self._folder_lock = None
            self.state = "closed"

    def _failed(self, error: VectorIndexError) -> None:
        """Note that a search could not query the index."""
        self.state, self.fault = "broken", str(error)
        logger.warning("the vector index failed, so the ledger's vectors are scanned instead: %s", error)

    def _our_turn(self) -> AbstractContextManager[object]:
        """Wait until no other process writes to the index, and keep the others from it: the folder is leased."""
        return nullcontext()

    @contextmanager
    def _operation(self) -> Generator[None]:
        """Run one operation at a time. Record a failure as the state, for `doctor` and the next search."""
        with self._lock:
            try:
                with raised_as(VectorIndexError, f"the index in {self.root} cannot be used", "", OSError):
                    yield
            except (VectorIndexError, LedgerError) as error:
                self.state, self.fault = "broken", str(error)
                raise

    def _required_index(self) -> VectorIndex:
        if self._index is None:
            raise VectorIndexError(f"the index is {self.state}")
        return self._index

    def _prepare(self) -> None:
        """Lease the first folder that is free, unless one is leased already. Raises VectorIndexError and OSError."""
        if self.folder is not None:
            return
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        for number in range(MAX_FOLDERS):
            lock = file_lock(self.root / f"{number}.lock")
            with suppress(Timeout):
                lock.acquire(timeout=0)
                self._folder_lock, self.folder = lock, self.root / str(number)
                self.folder.mkdir(mode=0o700, exist_ok=True)
                return
        raise VectorIndexError(f"all {MAX_FOLDERS} index folders in {self.root} are in use by other processes")

    def _close_index(self) -> None:
        if self._index is not None:
            self._index.close()
            self._index = None

    def _valid_checkpoint(self) -> Checkpoint | None:
        """Return the checkpoint of the leased folder if it is valid for the ledger."""
        current = None if self.folder is None else Checkpoint.read(self.folder)
        with self._ledger.read() as conn:
            return current if current is not None and current.is_valid(self.initial_checkpoint, conn) else None

    def _save_checkpoint(self, reached: Checkpoint) -> None:
        self._checkpoint = reached
        if self.folder is not None:
            reached.write(self.folder)

    def _may_go_on(self) -> bool:
        """Return whether this process is to write another batch."""
        return not self._stopping.is_set()

    def _reopen(self, progress: Progress) -> bool:
        """Open the index in the folder and catch up. Return whether it can be used."""
        if (valid := self._valid_checkpoint()) is None or self.folder is None:
            return False
        with logged(logger, f"the index in {self.folder} is rebuilt", VectorIndexError):
            self._index = self.open_index(self.folder)
            if self._apply_log(valid, progress) and self._is_complete():
                self.state, self.fault = "ready", ""
                return True
        return False

    def _is_complete(self) -> bool:
        """Return whether an index that has caught up holds as many vectors as the ledger."""
        with self._ledger.read() as conn:
            expected, newest = entry_queries.count_indexed(conn, self.embedder), entry_queries.newest_log_number(conn)
        if newest != self._checkpoint.log_number or expected == self._required_index().count():
            return True  # if another write has come since, the counts cannot be compared
        logger.warning("the index does not hold as many vectors as the ledger, so it is rebuilt")
        return False

    def _apply_log(self, start: Checkpoint, progress: Progress) -> bool:
        """Apply the rows of the index log that follow a checkpoint. Return False if the index must be rebuilt.

        A purge by another process begins a new epoch, and what it erased may be in the index. So the checkpoint moves
        only within the state of the ledger that the rows were read in.
        """
        self._checkpoint = start
        total = self._ledger.read_with(entry_queries.newest_log_number) - start.log_number
        done = 0
        while self._may_go_on():
            with self._ledger.read() as conn:
                if not self._checkpoint.is_valid(self.initial_checkpoint, conn):
                    return False
                rows = entry_queries.log_rows_after(conn, self._checkpoint.log_number, self.batch)
                keys = entry_queries.keys_of(conn, self.embedder, [row.unit_seq for row in rows])
                if not rows:
                    return True
                signature = entry_queries.log_signature(conn, rows[-1].seq)
            self._write(grouped((row.user_id, row.unit_seq) for row in rows), keys)
            self._save_checkpoint(replace(self._checkpoint, log_number=rows[-1].seq, log_signature=signature))
            done += len(rows)
            progress(done, max(total, done))
        return True

    def _build(self, progress: Progress) -> None:
        """Fill an empty index with every vector of the ledger, then apply the log rows written meanwhile."""
        self.state = "building"
        self._begin_build()
        while not self._fill(progress):  # rows were erased meanwhile
            self._begin_build()
        if not self._stopping.is_set():
            self.state, self.fault = "ready", ""

    def _begin_build(self) -> None:
        """Put an empty index in the place of the present one.

        The content of the leased folder is kept aside, unless it may hold what was erased since.
        """
        self._close_index()
        folder = self.folder or Path()
        if self.folder is not None and any(folder.iterdir()):
            previous = Checkpoint.read(folder)
            with self._ledger.read() as conn:
                erased = previous is not None and previous.is_from_earlier_epoch(self.initial_checkpoint, conn)
            if erased:
                shutil.rmtree(folder)
            else:
                aside = folder.with_suffix(SET_ASIDE_SUFFIX)
                shutil.rmtree(aside, ignore_errors=True)
                folder.rename(aside)
            folder.mkdir(mode=0o700)
        self._index = self.open_index(folder)

    def _fill(self, progress: Progress) -> bool:
        """Store every vector of the ledger in the empty index. Return False if rows were erased meanwhile."""
        start = self._ledger.read_with(self.initial_checkpoint.moved_to_newest)
        total = self._ledger.read_with(entry_queries.count_indexed, self.embedder)
        done, last = 0, 0
        while self._may_go_on():
            with self._ledger.read() as conn:
                if not start.is_valid(self.initial_checkpoint, conn):
                    return False
                batch = entry_queries.indexed_keys(conn, self.embedder, last, self.batch)
            if not batch:
                self._save_checkpoint(start)
                return self._apply_log(start, unseen)
            self._write(grouped((user_id, seq) for seq, user_id, _ in batch), {seq: key for seq, _, key in batch})
            last = batch[-1][0]
            done += len(batch)
            progress(done, max(total, done))
        return True

    def _write(self, entries: Mapping[str, Sequence[int]], keys: Mapping[int, Vector]) -> None:
        """Store the keys of entries by user, and delete those that have none any more."""
        for user_id, seqs in entries.items():
            if stored := sorted(keys.keys() & set(seqs)):
                self._required_index().upsert(user_id, stored, np.stack([keys[seq] for seq in stored]))
            if removed := sorted(set(seqs) - keys.keys()):
                self._required_index().delete(user_id, removed)


# Finish a purge: rewrite the ledger's file and delete the indexes, which may still hold erased vectors.


def finish_purge(ledger: Ledger, projection: Projection) -> list[str]:
    """Rewrite the ledger's file, delete the indexes, and return notes on what could not be done yet.

    A server that has an index open rebuilds it at its next call, because the purge began a new epoch of the ledger.
    Blocking. Raises LedgerError and VectorIndexError.
    """
    log_emptied = ledger.erase_free_space()
    notes = [] if log_emptied else ["the ledger's log is being read by another process; the next server empties it"]
    try:
        projection.erase()
    except VectorIndexError as error:
        if not projection.shared:
            raise
        notes.append(f"the index on the Chroma server still holds vectors of what was erased: {error}")
    for folder in sorted(path for path in projection.root.glob("*") if path.is_dir() and path != projection.folder):
        try:
            is_unused = folder.suffix == SET_ASIDE_SUFFIX  # no process opens it
            with nullcontext() if is_unused else file_lock(folder.with_suffix(".lock")).acquire(timeout=0):
                shutil.rmtree(folder)
        except Timeout:
            notes.append(f"{folder} is in use; its client rebuilds it at its next call, or close that client")
        except OSError as error:
            raise VectorIndexError(f"{folder} could not be deleted: {error}. Delete it by hand.") from error
    return notes


# No index: a search compares with all keys of its user, which the ledger has.
#
# `KeptKeys` has the keys of users who searched lately. The first search of a user reads them.


class Scan(Projection):
    """A projection that stores nothing, so that it is never behind. It starts at once, whatever the ledger holds.

    `root` is the folder of indexes that this machine may have had before. A purge deletes them.
    """

    has_index = False

    def __init__(self, ledger: Ledger, embedder: str, root: Path) -> None:
        super().__init__(ledger, embedder, refuse_folder, root, layout="exact")

    def open(self, progress: Progress = unseen) -> None:
        """Do nothing: the ledger can be searched."""
        del progress
        self.state = "ready"

    def rebuild(self, progress: Progress = unseen) -> int:
        """Return how many vectors searches compare with. There is nothing to build. Raises LedgerError."""
        del progress
        return self.count()

    def catch_up(self) -> None:
        """Do nothing: there is nothing to catch up with."""

    def count(self) -> int:
        """Return how many vectors the ledger has. Raises LedgerError."""
        return self._ledger.read_with(entry_queries.count_indexed, self.embedder)


def refuse_folder(folder: Path) -> NoReturn:
    """Open no index, for projections that have none on this machine."""
    raise VectorIndexError(f"the settings name no index on this machine, so none is opened in {folder}")


# Keep the keys of users in memory, where one product with a matrix is quicker than a query to Chroma.
#
# The ledger stays the truth. Before each answer the number and signature of the newest row of the index log are
# compared with those of the kept keys, and what changed is read. So an answer is never older than the ledger was when
# the query began. Users with too many keys, and users for whom there is no room, are left to the vector index.
#
# Keys are kept in single precision. NumPy multiplies half precision without BLAS: 13 ms instead of 0.3 for 10,000 keys
# of 384 numbers.

# How many numbers the keys of all users have at most: 31 MB, or 20,000 keys of 384 dimensions. For more keys Chroma,
# which takes a millisecond or two for any number of them, is about as quick.
MAX_NUMBERS = 20_000 * 384

# The same if there is no index, which is a GB, or a million keys of 256 dimensions. For more keys each search reads
# them from the ledger.
MAX_NUMBERS_WITHOUT_INDEX = 2**28

# A user makes room for another only if none of so many queries was theirs. Reading the keys of 20,000 entries takes as
# long as some fifty queries to Chroma, so users who take turns must not displace each other.
RECENT = 100

# For how many seconds a query waits while another thread reads keys. Then the vector index answers it.
MAX_WAIT = 0.2

KEPT_LAYOUT = "memory"

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class _UserKeys:
    """The keys of a user at one row of the index log: the entry number of each, and a matrix of shape (n, dims)."""

    checkpoint: Checkpoint
    entries: Numbers
    rows: Vector

    def nearest(self, vector: Vector, limit: int) -> tuple[int, ...]:
        """Return the numbers of the nearest keys by cosine similarity, nearest first."""
        if not len(self.entries):
            return ()
        scores = self.rows @ vector
        chosen = np.argpartition(-scores, min(limit, len(scores) - 1))[:limit]
        return tuple(self.entries[chosen[np.lexsort((self.entries[chosen], -scores[chosen]))]].tolist())

    def changed(self, checkpoint: Checkpoint, seqs: Sequence[int], keys: Mapping[int, Vector]) -> _UserKeys:
        """Return the keys after entries have changed, at a later row of the log; `keys` are those they have now.

        All of them are copied, so that a thread can go on reading the old ones: 31 MB take ten milliseconds.
        """
        stay = ~np.isin(self.entries, seqs)
        entries = np.concatenate([self.entries[stay], np.fromiter(keys, np.int64, len(keys))])
        return _UserKeys(checkpoint, entries, np.concatenate([self.rows[stay], *(key[None] for key in keys.values())]))


class KeptKeys:
    """Answer queries of users with few keys from memory, and leave the others to a projection.

    Blocking; safe to use from several threads. Users who searched lately are kept, up to `MAX_NUMBERS` together, or
    without an index `MAX_NUMBERS_WITHOUT_INDEX`. A purge calls `clear`; a purge by another process is noticed by the
    next query of any user, which drops the keys of all.
    """

    def __init__(self, ledger: Ledger, projection: Projection) -> None:
        self._ledger = ledger
        self._projection = projection
        self._embedder = projection.embedder
        self._initial = replace(projection.initial_checkpoint, layout=KEPT_LAYOUT)
        self._lock = threading.Lock()
        self.users: dict[str, _UserKeys] = {}
        self._recent: deque[str] = deque(maxlen=RECENT)

    def query(self, user_id: str, vector: Vector, limit: int) -> IndexHits | None:
        """Return the nearest entries, or None if neither the keys in memory nor the vector index can answer.

        Call it with no ledger connection open.
        """
        keys = self._current(user_id)
        self._recent.append(user_id)
        if keys is None:
            return self._projection.query(user_id, vector, limit)
        return IndexHits(keys.nearest(vector, limit), keys.checkpoint.log_number)

    def changed_since(self, conn: Connection, user_id: str, log_number: int) -> list[int] | None:
        """Return a user's entries that changed after a row of the index log, or None if they are too many."""
        return self._projection.changed_since(conn, user_id, log_number)

    def clear(self) -> None:
        """Drop all keys."""
        with self._lock:
            self.users.clear()

    def _current(self, user_id: str) -> _UserKeys | None:
        """Return the keys of a user as the ledger has them now, or None if they are not kept."""
        try:
            keys = self.users.get(user_id)
            if keys is not None and keys.checkpoint == self._ledger.read_with(self._initial.moved_to_newest):
                return keys  # nothing was written since they were read
            if not self._lock.acquire(timeout=MAX_WAIT):
                return None
            try:
                # A connection from before the lock could see rows that have been erased since.
                return self._ledger.read_with(self._refreshed, user_id)
            finally:
                self._lock.release()
        except (LedgerError, ValueError) as error:  # a damaged ledger; ValueError if a vector has another length
            logger.warning("the keys of a user cannot be read, so the vector index is queried: %s", error)
            return None

    def _refreshed(self, conn: Connection, user_id: str) -> _UserKeys | None:
        """Read what changed, or all keys, and keep them. The caller holds the lock."""
        newest = self._initial.moved_to_newest(conn)
        oldest = next(iter(self.users.values()), None)
        if oldest is not None and oldest.checkpoint.is_from_earlier_epoch(self._initial, conn):
            self.users.clear()
        keys = self.users.pop(user_id, None)
        if keys is not None and keys.checkpoint != newest:
            keys = self._followed(conn, user_id, keys, newest)
        if keys is None:
            keys = self._read(conn, user_id, newest)
        if keys is not None:
            self.users[user_id] = keys
        return keys

    def _followed(self, conn: Connection, user_id: str, keys: _UserKeys, newest: Checkpoint) -> _UserKeys | None:
        """Return the keys with what changed since, or None if they are to be read anew."""
        if not keys.checkpoint.is_valid(self._initial, conn):
            return None
        seqs = entry_queries.entries_changed_since(conn, user_id, keys.checkpoint.log_number, MAX_CHANGED + 1)
        if len(seqs) > MAX_CHANGED:
            return None
        changed = keys.changed(newest, seqs, entry_queries.keys_of(conn, self._embedder, seqs))
        return changed if self._has_room(user_id, changed.rows.size) else None

    def _read(self, conn: Connection, user_id: str, newest: Checkpoint) -> _UserKeys | None:
        """Return all keys of a user, or None if there are none or no room for them."""
        stored = entry_queries.centre(conn, user_id, self._embedder)
        if stored.mean is None or not self._has_room(user_id, stored.entries * len(stored.mean)):
            return None
        read = list(entry_queries.user_keys(conn, user_id, self._embedder))
        entries = np.concatenate([np.array(seqs, dtype=np.int64) for seqs, _ in read])
        return _UserKeys(newest, entries, np.concatenate([keys for _, keys in read]))

    def _has_room(self, user_id: str, size: int) -> bool:
        """Make room for so many numbers by dropping users who did not search lately. Return whether there is room."""
        most = MAX_NUMBERS if self._projection.has_index else MAX_NUMBERS_WITHOUT_INDEX
        free = most - sum(keys.rows.size for keys in self.users.values())
        recent = set(self._recent.copy())  # other threads add to it
        idle = [other for other in self.users if user_id in recent and other not in recent]
        while size > free and idle:
            free += self.users.pop(idle.pop(0)).rows.size
        return size <= free
