"""Finish a purge: rewrite the ledger's file and delete the indexes, which may still hold erased vectors."""

from __future__ import annotations

import shutil

from filelock import Timeout

from palimpsest.core.errors import VectorIndexError
from palimpsest.core.files import file_lock
from palimpsest.index.lease import SET_ASIDE_SUFFIX
from palimpsest.index.sync import Projection
from palimpsest.store.ledger import Ledger


def finish_purge(ledger: Ledger, projection: Projection) -> list[str]:
    """Rewrite the ledger's file, delete the indexes, and return notes on what could not be done yet.

    Blocking. Raises LedgerError and VectorIndexError.
    """
    log_emptied = ledger.erase_free_space()
    notes = [] if log_emptied else ["the ledger's log is being read by another process; the next server empties it"]
    return notes + _delete_indexes(projection)


def _delete_indexes(projection: Projection) -> list[str]:
    """Delete the index on the server and the index folders, and return a note for each that is in use.

    A server that has one open rebuilds it at its next call, because the purge began a new epoch of the ledger.
    """
    notes = _erase_in_open_index(projection)
    if not projection.root.is_dir():
        return notes
    for folder in sorted(path for path in projection.root.iterdir() if path.is_dir()):
        if folder == projection.folder:
            continue
        try:
            if folder.suffix == SET_ASIDE_SUFFIX:  # no process opens it
                shutil.rmtree(folder)
                continue
            with file_lock(folder.with_suffix(".lock")).acquire(timeout=0):
                shutil.rmtree(folder)
        except Timeout:
            notes.append(f"{folder} is in use; its client rebuilds it at its next call, or close that client")
        except OSError as error:
            raise VectorIndexError(f"{folder} could not be deleted: {error}. Delete it by hand.") from error
    return notes


def _erase_in_open_index(projection: Projection) -> list[str]:
    """Erase in the index that this process has open or shares, and return a note if a server could not be reached."""
    try:
        projection.erase()
    except VectorIndexError as error:
        if not projection.shared:
            raise
        return [
            f"the index on the Chroma server still holds vectors of what was erased: {error}. The next server that "
            "reaches it erases them"
        ]
    return []
