"""The lease on an index folder, which keeps two processes from ever opening the same Chroma folder."""

from __future__ import annotations

import shutil
from pathlib import Path

from filelock import FileLock, Timeout

from palimpsest.core.errors import VectorIndexError
from palimpsest.core.files import file_lock

MAX_FOLDERS = 64

SET_ASIDE_SUFFIX = ".aside"
"""Suffix of a folder whose index could not be used. It is kept for inspection; no process opens it."""


class FolderLease:
    """A lease on one of the folders `0`, `1`, … in `root`, held through a lock of the operating system.

    The system releases the lock when the process ends, also when it is killed.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.folder: Path | None = None
        self._lock: FileLock | None = None

    def take(self) -> None:
        """Lease the first folder that is free, unless one is leased already. Raises VectorIndexError and OSError."""
        if self.folder is not None:
            return
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        for number in range(MAX_FOLDERS):
            lock = file_lock(self.root / f"{number}.lock")
            try:
                lock.acquire(timeout=0)
            except Timeout:
                continue
            self._lock = lock
            self.folder = self.root / str(number)
            self.folder.mkdir(mode=0o700, exist_ok=True)
            return
        raise VectorIndexError(f"all {MAX_FOLDERS} index folders in {self.root} are in use by other processes")

    def release(self) -> None:
        """Release the folder and its lock."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None
        self.folder = None

    def empty(self, *, keep: bool) -> None:
        """Empty the folder. With `keep`, move its content aside, in place of what was moved aside before."""
        if self.folder is None or not any(self.folder.iterdir()):
            return
        if keep:
            aside = self.folder.with_suffix(SET_ASIDE_SUFFIX)
            shutil.rmtree(aside, ignore_errors=True)
            self.folder.rename(aside)
        else:
            shutil.rmtree(self.folder)
        self.folder.mkdir(mode=0o700)
