"""Back up, restore, migrate and move the ledger. Blocking."""

from collections.abc import Generator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from filelock import Timeout
from pydantic import SecretStr

from palimpsest.core.clock import Clock
from palimpsest.core.errors import InputError, LedgerError, raised_as
from palimpsest.core.files import file_lock
from palimpsest.core.protocols import Progress
from palimpsest.core.settings import Settings
from palimpsest.hooks.brief import RenderedFiles
from palimpsest.hooks.spool import hooks_dir
from palimpsest.index.sync import delete_outdated
from palimpsest.store import upgrade
from palimpsest.store.copying import Moved, move, replace_rows
from palimpsest.store.database import Database, LedgerCopy, Restored
from palimpsest.store.ledger import backups_of, open_database, open_ledger
from palimpsest.store.sqlite.ledger_files import Backups, copied
from palimpsest.store.upgrade import PendingMigration

# Move the whole ledger to another database, and bring the schema of a ledger up to date. Blocking.


def move_ledger(settings: Settings, target: Path | SecretStr, progress: Progress, clock: Clock) -> Moved:
    """Copy the ledger of the settings to a new file or an empty database, and compare every row.

    Raises InputError if the target is not empty, SettingsError for a URL that is none, and LedgerError. The ledger of
    the settings is not changed.
    """
    with _present_ledger(settings) as source, closing(open_database(target)) as database:
        upgrade.upgrade(source, backups_of(settings.ledger_place, settings.data_dir), clock())
        return move(source, database, clock, progress)


def pending_migration(settings: Settings) -> PendingMigration:
    """Return what a migration of the ledger would do. Raises LedgerError if it cannot be migrated."""
    with _present_ledger(settings) as database:
        return upgrade.pending(database)


def migrate(settings: Settings, clock: Clock) -> None:
    """Migrate the schema of the ledger, a file after a backup. Raises LedgerError."""
    with _present_ledger(settings) as database:
        upgrade.upgrade(database, backups_of(settings.ledger_place, settings.data_dir), clock(), at_opening=False)


@contextmanager
def _present_ledger(settings: Settings) -> Generator[Database]:
    """Open the database of the ledger. Raises LedgerError if there is no file."""
    if isinstance(place := settings.ledger_place, Path) and not place.is_file():
        raise LedgerError(f"there is no ledger at {place} yet. Nothing was done.")
    with closing(open_database(place)) as database:
        yield database


# Back up the ledger, list its backups and restore one, also while clients are using it. Blocking.


@dataclass(frozen=True, slots=True)
class StoredBackup:
    """A backup in the ledger's folder of backups: when it was made, and its size. Its name says why."""

    path: Path
    made_at: datetime
    size: int


def stored_backups(settings: Settings) -> list[StoredBackup]:
    """Return the backups of the ledger in its folder of backups, the newest first. Those of others do not count."""
    found: list[StoredBackup] = []
    backups = backups_of(settings.ledger_place, settings.data_dir)
    for file in (file for file in backups.files() if file.name.startswith(f"{backups.name}-")):
        with suppress(OSError):  # another process has just deleted it
            stat = file.stat()
            found.append(StoredBackup(file, datetime.fromtimestamp(stat.st_mtime, UTC), stat.st_size))
    return sorted(found, key=lambda backup: (backup.made_at, backup.path.name), reverse=True)


def inspect_backup(settings: Settings, name: str) -> LedgerCopy:
    """Read a backup through, by its name in the folder of backups, and return what it holds.

    Raises InputError if there is none of that name, and LedgerError if it is damaged.
    """
    if (backup := next((backup for backup in stored_backups(settings) if backup.path.name == name), None)) is None:
        raise InputError("there is no backup of this name. Nothing was restored")
    return inspect_copy(settings, backup.path)


def back_up(settings: Settings, target: Path | None, clock: Clock) -> LedgerCopy:
    """Copy the ledger to `target`, or to a dated file in its backup folder, and check the copy.

    Raises LedgerError if there is no ledger or the copy cannot be made, and InputError if `target` exists.
    """
    if isinstance(place := settings.ledger_place, Path) and not place.is_file():
        raise LedgerError(f"there is no ledger at {place} yet, so there is nothing to back up")
    backups = backups_of(place, settings.data_dir)
    if target is None:
        return backups.keep("backup", clock())
    if target.exists():
        raise InputError(f"{target} already exists. Nothing was written. Name a new file")
    return backups.copy(target.absolute())


def inspect_copy(settings: Settings, file: Path) -> LedgerCopy:
    """Read a copy through and return what it holds. Raises LedgerError if it is missing, damaged or not a ledger."""
    return backups_of(settings.ledger_place, settings.data_dir).inspect(file)


def restore(settings: Settings, file: Path, clock: Clock) -> Restored:
    """Replace the ledger with a copy, after a backup of the present ledger.

    Raises LedgerError, and changes nothing then. Clients may stay connected: they see the restored ledger from their
    next call on. A damaged ledger is replaced as a whole. For that, all clients have to be closed.
    """
    backups = backups_of(settings.ledger_place, settings.data_dir)
    backups.inspect(file)
    with backups.work_folder("restoring") as folder:
        copy = copied(file, folder / "restored.db")
        open_ledger(copy.path, clock).close()  # migrates an older schema and refuses a newer one
        restored = Restored(copy, _put_in_place(settings, copy.path, clock, backups))
    with closing(open_ledger(settings.ledger_place, clock, data_dir=settings.data_dir)) as ledger:
        delete_outdated(settings.index_dir, ledger)
    fault = "the ledger was restored, but what new sessions begin with could not be removed"
    advice = f". Delete the folders briefs and instructions in {hooks_dir(str(settings.data_dir))}."
    with raised_as(LedgerError, fault, advice, OSError):  # they may say what the restored ledger does not know
        RenderedFiles(settings.data_dir).remove(None)
    return restored


def _put_in_place(settings: Settings, copy: Path, clock: Clock, backups: Backups) -> Path | None:
    """Put a copy with the present schema in the ledger's place. Return the copy of the previous ledger, if any."""
    place, before = settings.ledger_place, None
    if isinstance(place, Path) and not _is_usable(place, clock, backups):
        if place.exists():
            _refuse_if_in_use(settings)
            before = backups.set_aside(clock())
        backups.replace(copy)
        return before
    with closing(open_database(place)) as database:
        return replace_rows(database, copy, clock(), backups).path


def _is_usable(file: Path, clock: Clock, backups: Backups) -> bool:
    """Return whether a file is a ledger that can be read through, and bring its schema up to date."""
    with suppress(LedgerError):
        backups.inspect(file)
        open_ledger(file, clock).close()
        return True
    return False


def _refuse_if_in_use(settings: Settings) -> None:
    """Raise LedgerError if a server holds an index folder. It would go on writing to the replaced file."""
    for lock in sorted(settings.index_dir.glob("*.lock")):
        try:
            file_lock(lock).acquire(timeout=0).lock.release()
        except Timeout:
            text = f"the ledger is damaged, and a client uses it ({lock}). Nothing was changed. Close all clients first"
            raise LedgerError(text) from None
