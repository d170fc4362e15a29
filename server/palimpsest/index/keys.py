"""Keep the keys of users in memory, where one product with a matrix is quicker than a query to Chroma.

The ledger stays the truth. Before each answer the number and signature of the newest row of the index log are compared
with those of the kept keys, and what changed is read. So an answer is never older than the ledger was when the query
began. Users with too many keys, and users for whom there is no room, are left to the vector index.

Keys are kept in single precision. NumPy multiplies half precision without BLAS: 13 ms instead of 0.3 for 10,000 keys
of 384 numbers.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from sqlalchemy import Connection

from palimpsest.core.errors import LedgerError, LedgerReplacedError
from palimpsest.core.protocols import Vector
from palimpsest.index.sync import Checkpoint, IndexHits, Projection
from palimpsest.store import entries as entry_queries
from palimpsest.store.ledger import Ledger

logger = logging.getLogger(__name__)

MAX_NUMBERS = 20_000 * 384
"""How many numbers the keys of all users have at most: 31 MB, or 20,000 keys of 384 dimensions. For more keys Chroma,
which takes a millisecond or two for any number of them, is about as quick."""

MAX_NUMBERS_WITHOUT_INDEX = 2**28
"""The same if there is no index, which is a GB, or a million keys of 256 dimensions. For more keys each search reads
them from the ledger."""

MAX_CHANGED = 500
"""If more entries of a user than this changed, all keys are read anew. It takes about as long."""

RECENT = 100
"""A user makes room for another only if none of so many queries was theirs. Reading the keys of 20,000 entries takes as
long as some fifty queries to Chroma, so users who take turns must not displace each other."""

MIN_SPARE = 256
"""How many rows are free for changes at least, after all keys of a user were read. Beyond 2,000 keys an eighth is."""

REMOVED = -1
"""The entry number of a row whose entry was removed, or has another row now."""

MAX_WAIT = 0.2
"""For how many seconds a query waits while another thread reads keys. Then the vector index answers it."""

LAYOUT = "memory"

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class _UserKeys:
    """The keys of a user at one row of the index log.

    `entries` has the entry number of each row in use. `rows` is a matrix of shape (capacity, dims). Rows in use are
    never written again, so a thread can read them while another appends.
    """

    checkpoint: Checkpoint
    entries: Numbers
    rows: Vector

    def nearest(self, vector: Vector, limit: int) -> tuple[int, ...]:
        """Return the numbers of the nearest keys by cosine similarity, nearest first."""
        if not len(self.entries):
            return ()
        scores = self.rows[: len(self.entries)] @ vector
        scores[self.entries == REMOVED] = -np.inf
        chosen = np.argpartition(-scores, min(limit, len(scores) - 1))[:limit]
        chosen = chosen[np.lexsort((self.entries[chosen], -scores[chosen]))]
        return tuple(seq for seq in self.entries[chosen].tolist() if seq != REMOVED)

    def changed(self, checkpoint: Checkpoint, seqs: Sequence[int], keys: dict[int, Vector]) -> _UserKeys | None:
        """Return the keys after entries have changed, at a later row of the log. Return None if no row is free.

        `keys` are those that the changed entries `seqs` have now. One thread at a time may call this.
        """
        used = len(self.entries)
        if used + len(keys) > len(self.rows):
            return None
        entries = np.concatenate([self.entries, np.fromiter(keys, np.int64, len(keys))])
        entries[:used][np.isin(self.entries, seqs)] = REMOVED
        if keys:
            self.rows[used : len(entries)] = np.stack(list(keys.values()))
        return replace(self, checkpoint=checkpoint, entries=entries)


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
        self._initial = replace(projection.initial_checkpoint, layout=LAYOUT)
        self._lock = threading.Lock()
        self._users: dict[str, _UserKeys] = {}
        self._recent: deque[str] = deque(maxlen=RECENT)
        self._recent_lock = threading.Lock()

    def query(self, user_id: str, vector: Vector, limit: int) -> IndexHits | None:
        """Return the nearest entries, or None if neither the keys in memory nor the vector index can answer.

        Call it with no ledger connection open.
        """
        keys = self._current(user_id)
        with self._recent_lock:
            self._recent.append(user_id)
        if keys is None:
            return self._projection.query(user_id, vector, limit)
        return IndexHits(keys.nearest(vector, limit), keys.checkpoint.log_number)

    def changed_since(self, conn: Connection, user_id: str, log_number: int) -> list[int] | None:
        """Return a user's entries that changed after a row of the index log, or None if they are too many."""
        return self._projection.changed_since(conn, user_id, log_number)

    def kept_users(self) -> list[str]:
        """Return the users whose keys are in memory."""
        return list(self._users)

    def clear(self) -> None:
        """Drop all keys."""
        with self._lock:
            self._users.clear()

    def _current(self, user_id: str) -> _UserKeys | None:
        """Return the keys of a user as the ledger has them now, or None if they are not kept."""
        try:
            keys = self._users.get(user_id)
            if keys is not None and keys.checkpoint == self._ledger.read_with(self._initial.moved_to_newest):
                return keys  # nothing was written since they were read
            if not self._lock.acquire(timeout=MAX_WAIT):
                return None
            try:
                # A connection from before the lock could see rows that have been erased since.
                with self._ledger.read() as conn:
                    return self._refreshed(conn, user_id)
            finally:
                self._lock.release()
        except LedgerReplacedError:
            raise
        except (LedgerError, ValueError) as error:  # a damaged ledger; ValueError if a vector has another length
            logger.warning("the keys of a user cannot be read, so the vector index is queried: %s", error)
            return None

    def _refreshed(self, conn: Connection, user_id: str) -> _UserKeys | None:
        """Read what changed, or all keys, and keep them. The caller holds the lock."""
        newest = self._initial.moved_to_newest(conn)
        oldest = next(iter(self._users.values()), None)
        if oldest is not None and oldest.checkpoint.is_from_earlier_epoch(self._initial, conn):
            self._users.clear()
        keys = self._users.pop(user_id, None)
        if keys is not None and keys.checkpoint != newest:
            keys = self._followed(conn, user_id, keys, newest)
        if keys is None:
            keys = self._read(conn, user_id, newest)
        if keys is not None:
            self._users[user_id] = keys
        return keys

    def _followed(self, conn: Connection, user_id: str, keys: _UserKeys, newest: Checkpoint) -> _UserKeys | None:
        """Return the keys with what changed since, or None if they are to be read anew."""
        if not keys.checkpoint.is_valid(self._initial, conn):
            return None
        seqs = entry_queries.entries_changed_since(conn, user_id, keys.checkpoint.log_number, MAX_CHANGED + 1)
        if len(seqs) > MAX_CHANGED:
            return None
        return keys.changed(newest, seqs, entry_queries.keys_of(conn, self._embedder, seqs))

    def _read(self, conn: Connection, user_id: str, newest: Checkpoint) -> _UserKeys | None:
        """Return all keys of a user, or None if there are none or no room for them."""
        stored = entry_queries.centre(conn, user_id, self._embedder)
        if stored.mean is None or not self._has_room(user_id, stored.entries * len(stored.mean)):
            return None
        capacity = stored.entries + max(MIN_SPARE, stored.entries // 8)
        entries = np.empty(capacity, dtype=np.int64)
        rows = np.empty((capacity, len(stored.mean)), dtype=np.float32)
        used = 0
        for seqs, keys in entry_queries.user_keys(conn, user_id, self._embedder):
            if used + len(seqs) > capacity:
                return None  # the ledger's count of the keys is wrong; `verify` tells
            entries[used : used + len(seqs)] = seqs
            rows[used : used + len(seqs)] = keys
            used += len(seqs)
        return _UserKeys(newest, entries[:used], rows)

    def _has_room(self, user_id: str, size: int) -> bool:
        """Make room for so many numbers by dropping users who did not search lately. Return whether there is room."""
        most = MAX_NUMBERS if self._projection.has_index else MAX_NUMBERS_WITHOUT_INDEX
        free = most - sum(len(keys.entries) * keys.rows.shape[1] for keys in self._users.values())
        if size <= free:
            return True
        with self._recent_lock:
            recent = set(self._recent)
        dropped: list[str] = []
        for other, keys in self._users.items():
            if size > free and user_id in recent and other not in recent:
                free += len(keys.entries) * keys.rows.shape[1]
                dropped.append(other)
        if size > free:
            return False
        for other in dropped:
            del self._users[other]
        return True
