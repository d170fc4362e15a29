"""The databases that a ledger can be in. The tests of the ledger run once for each."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TypeAlias

from palimpsest.core.clock import Clock
from palimpsest.store.ledger import Ledger, open_ledger
from tests.support.memory import StoppedClock

OpenLedger: TypeAlias = Callable[[Path, Clock], Ledger]
"""Opens the ledger of a test's folder, and creates it the first time. All ledgers it creates have the same id."""


def open_sqlite_ledger(folder: Path, clock: Clock) -> Ledger:
    """Open the ledger in the file `ledger.db` of a folder."""
    path = folder / "ledger.db"
    if not path.exists():
        path.write_bytes(_empty_sqlite_ledger())
    return open_ledger(path, clock)


@cache
def _empty_sqlite_ledger() -> bytes:
    """Return the file of an empty ledger. Running the migrations for every test would take long."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ledger.db"
        open_ledger(path, StoppedClock()).close()
        return path.read_bytes()


DATABASES: dict[str, OpenLedger] = {"sqlite": open_sqlite_ledger}
