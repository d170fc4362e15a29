"""The pinned block as text, as it heads summaries."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Connection

from palimpsest.core.models import Memory, Scope, has_expired
from palimpsest.learn.views.listing import NOTHING
from palimpsest.store.views.pinned import pinned_memories

HEADING = "Pinned:"


def pinned_block(conn: Connection, scope: Scope, now: datetime) -> str:
    """Return what is pinned for a scope, in order and word for word, with the ids to edit it by; "" if nothing is."""
    pinned = pinned_memories(conn, scope)
    lines = [_line(memory) for memory in pinned if not has_expired(memory.metadata, now)]
    return "\n".join((HEADING, *lines)) if lines else ""


def under(block: str, text: str) -> str:
    """Return a summary below the pinned block; only the block if nothing else is known."""
    return block if text == NOTHING else f"{block}\n\n{text}"


def _line(memory: Memory) -> str:
    """Return a memory with its id. Further lines of its text are indented, so that they are seen to belong to it."""
    return f"- [{memory.id[:8]}] " + "\n  ".join(memory.text.splitlines())
