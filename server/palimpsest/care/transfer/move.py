"""Move the whole ledger to another database, and bring the schema of a ledger up to date. Blocking."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path

from pydantic import SecretStr

from palimpsest.core.clock import Clock
from palimpsest.core.errors import LedgerError
from palimpsest.core.settings import Settings
from palimpsest.store.database.protocols import Database
from palimpsest.store.ledger import backups_of, open_database
from palimpsest.store.migrations import upgrade
from palimpsest.store.migrations.copying.move import Moved, Shown, move
from palimpsest.store.migrations.upgrade import PendingMigration

__all__ = ["Moved", "PendingMigration", "migrate", "move_ledger", "pending_migration"]


def move_ledger(settings: Settings, target: Path | SecretStr, shown: Shown, clock: Clock) -> Moved:
    """Copy the ledger of the settings to a new file or an empty database, and compare every row.

    A second call goes on with what the first one has copied. Raises InputError if the target is not empty,
    SettingsError for a URL that is none, and LedgerError. The ledger of the settings is not changed.
    """
    with _present_ledger(settings) as source, closing(open_database(target)) as database:
        upgrade.upgrade(source, backups_of(settings.ledger_place, settings.data_dir), clock())
        return move(source, database, clock, shown)


def pending_migration(settings: Settings) -> PendingMigration:
    """Return what a migration of the ledger would do. Raises LedgerError if it cannot be migrated."""
    with _present_ledger(settings) as database:
        return upgrade.pending(database)


def migrate(settings: Settings, clock: Clock) -> None:
    """Migrate the schema of the ledger, a file after a backup. Raises LedgerError."""
    with _present_ledger(settings) as database:
        upgrade.migrate(database, backups_of(settings.ledger_place, settings.data_dir), clock())


@contextmanager
def _present_ledger(settings: Settings) -> Generator[Database]:
    """Open the database of the ledger. Raises LedgerError if there is no file."""
    place = settings.ledger_place
    if isinstance(place, Path) and not place.is_file():
        raise LedgerError(f"there is no ledger at {place} yet. Nothing was done.")
    with closing(open_database(place)) as database:
        yield database
