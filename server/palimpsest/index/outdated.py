"""Index folders of another ledger, or of a state that a restore or a purge has ended, and that no process uses."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

from filelock import Timeout

from palimpsest.core.files import file_lock
from palimpsest.index.checkpoint import Checkpoint
from palimpsest.store.ledger import Ledger

logger = logging.getLogger(__name__)


def index_folders(root: Path) -> list[Path]:
    """Return the index folders on this machine that one process at a time uses, sorted by name."""
    return sorted(path for path in root.glob("*") if path.is_dir() and path.name.isdecimal())


def is_outdated(folder: Path, ledger: Ledger) -> bool:
    """Return whether an index is complete and cannot follow the ledger, whatever embedder it is of."""
    checkpoint = Checkpoint.read(folder)
    if checkpoint is None:
        return False
    ledger_id = ledger.id
    with ledger.read() as conn:
        return not checkpoint.can_follow(ledger_id, conn)


def delete_outdated(root: Path, ledger: Ledger) -> list[Path]:
    """Delete the outdated index folders that no process uses, and return them. Raises LedgerError."""
    deleted: list[Path] = []
    for folder in index_folders(root):
        try:
            with file_lock(folder.with_suffix(".lock")).acquire(timeout=0):
                if is_outdated(folder, ledger):
                    shutil.rmtree(folder)
                    deleted.append(folder)
        except Timeout:
            continue  # its process rebuilds it at its next call
        except OSError as error:
            logger.warning("the outdated index %s could not be deleted: %s", folder, error)
    return deleted
