"""Finish a purge: rewrite the ledger's file and delete the index folders, which may still hold what was erased."""

from __future__ import annotations

import shutil

from filelock import Timeout

from palimpsest.core.errors import VectorIndexError
from palimpsest.core.files import file_lock
from palimpsest.index.sync import Projection
from palimpsest.store.ledger import Ledger

ASIDE = ".aside"
"""How the name of an index folder ends that a client has moved away; see `Projection`."""


def finish_purge(ledger: Ledger, projection: Projection) -> list[str]:
    """Write the ledger's file anew and drop the index folders; return what hinders that. Blocking."""
    whole = ledger.scrub()
    notes = [] if whole else ["the ledger's log is being read by another process; the next server empties it"]
    return notes + _drop_indexes(projection)


def _drop_indexes(projection: Projection) -> list[str]:
    """Delete the index folders; one that a server has open is dropped by that server, for the epoch has changed."""
    if projection.root is None or not projection.root.is_dir():
        return []
    if projection.shared or projection.folder is not None:
        projection.rebuild()  # our own, which no other process has
    notes: list[str] = []
    for folder in sorted(path for path in projection.root.iterdir() if path.is_dir()):
        if folder == projection.folder:
            continue
        try:
            if folder.suffix == ASIDE:  # nobody has it open
                shutil.rmtree(folder)
                continue
            with file_lock(folder.with_suffix(".lock")).acquire(timeout=0):
                shutil.rmtree(folder)
        except Timeout:
            notes.append(f"{folder} is in use; its client makes it anew at its next call, or close that client")
        except OSError as error:
            raise VectorIndexError(f"{folder} could not be deleted: {error}. Delete it by hand.") from error
    return notes
