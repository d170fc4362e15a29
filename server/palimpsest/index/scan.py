"""No index: a search compares with all keys of its user, which the ledger has.

`KeptKeys` keeps the keys of users who searched lately in memory. The first search of a user reads them.
"""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

from palimpsest.core.errors import VectorIndexError
from palimpsest.core.protocols import Progress, Vector
from palimpsest.index.sync import IndexHits, Projection
from palimpsest.store.ledger import Ledger
from palimpsest.store.queries import vectors as vector_queries


class Scan(Projection):
    """A projection that stores nothing, so that it is never behind. It starts at once, whatever the ledger holds.

    `root` is the folder of indexes that this machine may have had before. A purge deletes them.
    """

    has_index = False

    def __init__(self, ledger: Ledger, embedder: str, root: Path) -> None:
        super().__init__(ledger, embedder, _refuse_folder, root, layout="exact")

    def open(self, progress: Progress | None = None) -> None:
        """Do nothing: the ledger can be searched."""
        del progress
        self.state = "ready"

    def rebuild(self, progress: Progress | None = None) -> int:
        """Return how many vectors searches compare with. There is nothing to build. Raises LedgerError."""
        del progress
        return self.count()

    def catch_up(self, progress: Progress | None = None) -> None:
        """Do nothing: there is nothing to catch up with."""

    def erase(self) -> None:
        """Do nothing: what the ledger has erased is in no index."""

    def count(self) -> int:
        """Return how many vectors the ledger has. Raises LedgerError."""
        with self._ledger.read() as conn:
            return vector_queries.count_indexed(conn, self.embedder)

    def query(self, user_id: str, vector: Vector, limit: int) -> IndexHits | None:
        """Return None: the caller scans the ledger's vectors."""

    def lag(self, newest: int) -> int:
        """Return 0: nothing lags behind the ledger."""
        del newest
        return 0

    def is_behind(self) -> bool:
        """Return False."""
        return False


def _refuse_folder(folder: Path) -> NoReturn:
    raise VectorIndexError(f"searches scan the ledger, and use no index in {folder}")
