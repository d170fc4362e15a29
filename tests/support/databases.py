"""The databases that a ledger can lie in. Tests of the ledger run once for each."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from palimpsest.core.clock import Clock
from palimpsest.store.ledger import Ledger, open_ledger

OpenLedger: TypeAlias = Callable[[Path, Clock], Ledger]
"""Opens the ledger that belongs to a test's folder. A second call opens the same ledger again."""


def open_sqlite_ledger(folder: Path, clock: Clock) -> Ledger:
    """Open the ledger in an SQLite file in a folder."""
    return open_ledger(folder / "ledger.db", clock)


DATABASES: dict[str, OpenLedger] = {"sqlite": open_sqlite_ledger}
