"""What was learned in the background, and what is new in this version, as notes on the next reply."""

from __future__ import annotations

from typing import TYPE_CHECKING

from palimpsest.core.errors import LedgerError
from palimpsest.core.models import Scope
from palimpsest.learn.facts.forget_notes import FORGOTTEN
from palimpsest.server.auth.access import current_grant

if TYPE_CHECKING:
    from palimpsest.memory import Memory


RESTORE = "list_memories(deleted=true) has the ids of what was forgotten; update_memory(restore=true) restores it"


async def news(memory: Memory, scope: Scope) -> tuple[str, ...]:
    """Return what no reply has told yet. An access token that only reads leaves it to those that write.

    What is about this installation is for its owner, and for nobody who uses it with an access token. If the ledger
    cannot be read, the next reply tells it: this one has to say what was done.
    """
    grant = current_grant()
    try:
        notes = () if grant is not None and grant.read_only else await memory.news(scope)
        if grant is None:
            notes = (*await memory.upgrade_notice(), *notes)
    except LedgerError:
        return ()
    return (*notes, RESTORE) if any(note.startswith(FORGOTTEN) for note in notes) else notes
