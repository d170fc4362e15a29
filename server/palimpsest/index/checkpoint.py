"""The checkpoint of an index: what it was built from and how much of the index log it has applied."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from sqlalchemy import Connection

from palimpsest.core.files import replace_file
from palimpsest.store.queries import index_log as log_queries

FILE_NAME = "checkpoint.json"

_FILE_KEYS = {
    "ledger": "ledger",
    "embedder": "embedder",
    "layout": "format",
    "log_number": "seq",
    "log_signature": "mark",
}
"""The key in the file of each field. An index folder with other keys is rebuilt."""


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
        try:
            content: Any = json.loads((folder / FILE_NAME).read_text("utf-8"))
        except (OSError, ValueError):
            return None
        if not isinstance(content, dict) or cast("dict[str, Any]", content).keys() != set(_FILE_KEYS.values()):
            return None
        values = {field: cast("dict[str, Any]", content)[key] for field, key in _FILE_KEYS.items()}
        if not all(isinstance(value, int if field == "log_number" else str) for field, value in values.items()):
            return None
        return cls(**values)

    def write(self, folder: Path) -> None:
        """Replace the checkpoint file in one step, so that a crash leaves either the old one or the new one."""
        # An index whose checkpoint is lost in a power failure is rebuilt; that is cheaper than an fsync per batch.
        with replace_file(folder / FILE_NAME, durable=False) as file:
            json.dump({key: getattr(self, field) for field, key in _FILE_KEYS.items()}, file)

    def is_valid(self, initial: Checkpoint, conn: Connection) -> bool:
        """Return whether an index at this checkpoint can go on following the ledger.

        It can if it was built like `initial`, and if it `can_follow` the ledger.
        """
        return replace(self, log_number=0, log_signature="") == initial and self.can_follow(initial.ledger, conn)

    def can_follow(self, ledger: str, conn: Connection) -> bool:
        """Return whether it is of this ledger, and the ledger still has the log row the index stopped at."""
        if self.ledger != ledger:
            return False
        if self.log_number > log_queries.newest_log_number(conn):
            return False
        return self.log_signature == log_queries.log_signature(conn, self.log_number)

    def is_from_earlier_epoch(self, initial: Checkpoint, conn: Connection) -> bool:
        """Return whether rows of the same ledger were erased, or all of them replaced, since this checkpoint."""
        return self.ledger == initial.ledger and self.log_signature.split(" ")[0] != log_queries.epoch(conn)

    def moved_to(self, log_number: int, conn: Connection) -> Checkpoint:
        """Return the checkpoint moved to another row of the index log."""
        return replace(self, log_number=log_number, log_signature=log_queries.log_signature(conn, log_number))

    def moved_to_newest(self, conn: Connection) -> Checkpoint:
        """Return the checkpoint moved to the newest row of the index log."""
        log_number, signature = log_queries.newest_position(conn)
        return replace(self, log_number=log_number, log_signature=signature)
