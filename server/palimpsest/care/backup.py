"""Back the ledger up and put a copy in its place; both while clients are using it. Blocking."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from filelock import Timeout

from palimpsest.core.clock import Clock
from palimpsest.core.errors import InputError, LedgerError
from palimpsest.core.files import file_lock
from palimpsest.core.settings import Settings
from palimpsest.store.ledger import open_ledger
from palimpsest.store.sqlite import backup
from palimpsest.store.sqlite.backup import Copy


@dataclass(frozen=True, slots=True)
class Restored:
    """Hold what was put in place, and the copy of what was there before; None where there was nothing."""

    copy: Copy
    before: Path | None


def back_up(settings: Settings, target: Path | None, clock: Clock) -> Copy:
    """Copy the ledger, to a file or among its backups, and read the copy back. Raises LedgerError and InputError."""
    path = settings.ledger_path
    if not path.is_file():
        raise LedgerError(f"there is no ledger at {path} yet, so there is nothing to back up")
    if target is None:
        return backup.keep_copy(path, "backup", clock())
    if target.exists():
        raise InputError(f"{target} is there already; name a new file")
    return backup.copy_ledger(path, target.absolute())


def restore(settings: Settings, file: Path, clock: Clock) -> Restored:
    """Put a copy in the ledger's place, after a copy of what is there. Raises LedgerError; nothing is changed then.

    Clients may stay connected: they see the restored ledger from their next call on. A ledger that SQLite cannot
    read is set aside whole, which needs the clients to be closed.
    """
    backup.look_at(file)
    path = settings.ledger_path
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder = path.parent / "restoring"
    with file_lock(folder.with_suffix(".lock")):
        shutil.rmtree(folder, ignore_errors=True)  # what a restore left that was cut off
        try:
            fresh = backup.copy_ledger(file, folder / "ledger.db")
            open_ledger(fresh.path, clock).close()  # brings an older schema up to date, or refuses a newer one
            return Restored(fresh, _put(settings, path, fresh.path, clock))
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _put(settings: Settings, path: Path, copy: Path, clock: Clock) -> Path | None:
    """Put a copy of this version's schema in place; return where what was there lies now."""
    if not path.exists():
        _drop_log(path)
        backup.copy_ledger(copy, path)
        return None
    try:
        backup.look_at(path)
        open_ledger(path, clock).close()
    except LedgerError:
        _refuse_while_in_use(settings)
        before = backup.set_aside(path, clock())
        _drop_log(path)
        backup.copy_ledger(copy, path)
        return before
    before = backup.free_name(path.parent / backup.FOLDER, f"{path.stem}-before-restore-{clock():%Y%m%dT%H%M%SZ}")
    backup.put_in_place(copy, path, before)
    return before


def _drop_log(path: Path) -> None:
    """Delete the log of a ledger's file that is gone: SQLite would take it for the log of the file put there now."""
    for ending in ("-wal", "-shm"):
        path.with_name(path.name + ending).unlink(missing_ok=True)


def _refuse_while_in_use(settings: Settings) -> None:
    """Raise LedgerError if a server has an index folder: it would go on writing to the file that was taken away."""
    for lock in sorted(settings.index_dir.glob("*.lock")):
        try:
            with file_lock(lock).acquire(timeout=0):
                continue
        except Timeout:
            raise LedgerError(
                "the ledger is damaged and has to be replaced as a file, but a client is using it "
                f"({lock} is taken). Close all clients, then restore again. Nothing was changed."
            ) from None
