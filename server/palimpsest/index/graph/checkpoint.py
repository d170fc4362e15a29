"""The checkpoint of a graph database: how much of the ledger it shows. It is kept in the database itself.

So a database that was restored, emptied or exchanged for another one says itself where the ledger goes on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, TypeAlias

from sqlalchemy import Connection

from palimpsest.store.graph.projected import ledger_end
from palimpsest.store.queries import index_log as log_queries

LAYOUT = "1"
"""The kind of nodes and edges. A database with another one is filled anew."""

Phase: TypeAlias = Literal["clearing", "filling", "following"]

Standing: TypeAlias = Literal["ours", "outdated", "foreign"]


@dataclass(frozen=True, slots=True)
class GraphCheckpoint:
    """What a graph database shows of the ledger with the id `ledger`.

    `log_number`, `edit_number` and `mention_number` are the last rows of the index log, of the history of entities and
    of the mentions that were applied, and `log_signature` describes the first of them. While the database is filled,
    `filled_to` is the number of the last memory that it shows.
    """

    ledger: str
    layout: str
    phase: Phase
    log_number: int
    log_signature: str
    edit_number: int
    mention_number: int
    filled_to: int = 0

    @classmethod
    def read(cls, values: Mapping[str, Any]) -> GraphCheckpoint | None:
        """Return the checkpoint in the properties of a node, or None if it is not one of this version."""
        if values.get("layout") != LAYOUT:
            return None
        try:
            return cls(**values)
        except TypeError:
            return None

    @classmethod
    def at_start(cls, ledger: str, conn: Connection) -> GraphCheckpoint:
        """Return the checkpoint of a database that is to be filled with what the ledger is now."""
        end = ledger_end(conn)
        signature = log_queries.log_signature(conn, end.log_number)
        return cls(ledger, LAYOUT, "clearing", end.log_number, signature, end.edit_number, end.mention_number)

    def values(self) -> dict[str, Any]:
        """Return it as the properties of a node."""
        return asdict(self)

    def moved_to(self, log_number: int, conn: Connection) -> GraphCheckpoint:
        """Return the checkpoint moved to another row of the index log."""
        return replace(self, log_number=log_number, log_signature=log_queries.log_signature(conn, log_number))

    def standing(self, conn: Connection) -> Standing:
        """Return whether the database can go on following the ledger.

        It is outdated after a purge or a restore, which begin a new epoch of the ledger, and is filled anew. It is
        foreign if it shows what this ledger never said: another copy of the ledger, which was used since, wrote it.
        """
        epoch, known_epoch = int(log_queries.epoch(conn)), int(self.log_signature.split(" ")[0])
        if known_epoch > epoch:
            return "foreign"
        if known_epoch < epoch:
            return "outdated"
        end = ledger_end(conn)
        is_known = self.log_number <= end.log_number and self.edit_number <= end.edit_number
        is_same = is_known and self.log_signature == log_queries.log_signature(conn, self.log_number)
        return "ours" if is_same else "foreign"

    def behind(self, conn: Connection) -> int:
        """Return how many rows of the ledger are still to be applied."""
        end = ledger_end(conn)
        return end.log_number - self.log_number + end.edit_number - self.edit_number
