"""What an index folder was built from and how far it follows the ledger."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from sqlalchemy import Connection

from palimpsest.core.files import replace_file
from palimpsest.store.queries import entries as entry_queries
from palimpsest.store.queries import memories as memory_queries

FILE = "checkpoint.json"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Hold an index's ledger, embedder and layout, and the change it stands at.

    `mark` names the change number `seq` of that ledger: a ledger that was put back from a backup may have the
    number again, and not the change.
    """

    ledger: str
    embedder: str
    format: str
    seq: int = 0
    mark: str = ""

    @classmethod
    def read(cls, folder: Path) -> Checkpoint | None:
        """Return the checkpoint of a folder; None when there is none that can be read."""
        try:
            found: Any = json.loads((folder / FILE).read_text("utf-8"))
        except (OSError, ValueError):
            return None
        if not isinstance(found, dict) or cast("dict[str, Any]", found).keys() != set(cls.__slots__):
            return None
        values = cast("dict[str, Any]", found)
        right = all(isinstance(values[name], int if name == "seq" else str) for name in cls.__slots__)
        return cls(**values) if right else None

    def write(self, folder: Path) -> None:
        """Store the checkpoint in one step, so that a crash leaves the old one or the new one."""
        # An index whose checkpoint is lost in a power failure is rebuilt; that is cheaper than an fsync per batch.
        with replace_file(folder / FILE, durable=False) as file:
            json.dump({name: getattr(self, name) for name in self.__slots__}, file)

    def fits(self, wanted: Checkpoint, conn: Connection) -> bool:
        """Say whether this stands on the wanted ledger, embedder and layout, at a change the ledger has."""
        if replace(self, seq=0, mark="") != wanted:
            return False
        return self.seq <= memory_queries.head(conn) and self.mark == entry_queries.mark(conn, self.seq)

    def is_of_earlier_epoch(self, wanted: Checkpoint, conn: Connection) -> bool:
        """Say whether this stands on the wanted ledger as it was before rows were erased or replaced as a whole."""
        mine = self.mark.split(" ")[0]
        return self.ledger == wanted.ledger and mine != entry_queries.epoch(conn)

    def at(self, seq: int, conn: Connection) -> Checkpoint:
        """Return the checkpoint moved to another change."""
        return replace(self, seq=seq, mark=entry_queries.mark(conn, seq))


def remove(folder: Path) -> None:
    """Take the checkpoint away, so that what the folder holds is taken for unfinished."""
    (folder / FILE).unlink(missing_ok=True)
