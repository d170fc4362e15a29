"""Copies of a ledger in PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import NoReturn

from palimpsest.core.errors import LedgerError
from palimpsest.store.database.protocols import LedgerCopy, Restored


class PostgresBackups:
    """Implement `Backups` for a PostgreSQL database, which its own tools copy."""

    def __init__(self, location: str) -> None:
        self._location = location

    def copy(self, target: Path) -> LedgerCopy:
        """Refuse: the database is copied with pg_dump."""
        del target
        self._refuse()

    def keep(self, occasion: str, now: datetime) -> LedgerCopy:
        """Refuse: the database is copied with pg_dump."""
        del occasion, now
        self._refuse()

    def files(self) -> list[Path]:
        """Return no files."""
        return []

    def inspect(self, file: Path) -> LedgerCopy:
        """Refuse."""
        del file
        self._refuse()

    def holds(self, file: Path, memory_ids: Sequence[str], message_ids: Sequence[str]) -> bool:
        """Return False: there is no file."""
        del file, memory_ids, message_ids
        return False

    def restore(
        self, file: Path, now: datetime, migrate: Callable[[Path], None], refuse_if_in_use: Callable[[], None]
    ) -> Restored:
        """Refuse."""
        del file, now, migrate, refuse_if_in_use
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise LedgerError(f"the ledger {self._location} is in PostgreSQL. Copy it with pg_dump.")
