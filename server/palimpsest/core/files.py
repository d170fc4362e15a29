"""Locks of the operating system on files: who may open an index folder, who migrates."""

from __future__ import annotations

from errno import EACCES, EDQUOT, ENOSPC, EPERM, EROFS
from pathlib import Path

from filelock import FileLock, Timeout

from palimpsest.core.errors import LedgerError

PROBE = "locks.probe"
UNWRITABLE = (EACCES, EPERM, EROFS, ENOSPC, EDQUOT)
"""What the system says where it is the folder and not its locks: flock itself says none of these."""


def file_lock(path: Path) -> FileLock:
    """Return a lock on a file (0600), free again when its process ends, however that ends.

    It may be taken in one thread and given back in another. A marker file in its place, which would outlive a killed
    process, is never made: where the file system has no locks, taking it raises OSError.
    """
    return FileLock(path, mode=0o600, thread_local=False, fallback_to_soft=False)


def refuse_without_locks(folder: Path) -> None:
    """Raise LedgerError where file locks do not hold in a folder: two clients would destroy each other's writes."""
    advice = "Nothing was written. Set data_dir to a folder on a local disk."
    try:
        with file_lock(folder / PROBE).acquire(timeout=0):
            try:
                file_lock(folder / PROBE).acquire(timeout=0).lock.release()
            except Timeout:
                return
    except Timeout:
        return  # another process is looking at this moment, and its lock holds
    except OSError as error:
        if error.errno in UNWRITABLE:
            raise LedgerError(
                f"the folder {folder} cannot be written to: {error.strerror}. Nothing was written. Make it and all in "
                "it writable for this user and look for free space, or set data_dir to another place."
            ) from error
        raise LedgerError(f"file locks cannot be used in {folder} ({error}). {advice}") from error
    raise LedgerError(f"file locks do not hold in {folder}: two holders were let in at once. {advice}")
