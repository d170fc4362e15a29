"""Memories and turns as hits: what a search or a listing gives, and what a filter sees of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from palimpsest.core.models import Hit, Memory, Message


def memory_hit(memory: Memory, text: str, sources: Sequence[Message], score: float) -> Hit:
    """Return a memory as a hit."""
    return Hit(
        id=memory.id,
        kind="memory",
        text=text,
        score=score,
        at=memory.at,
        created_at=memory.created_at,
        updated_at=memory.updated_at,
        sources=tuple(source.source for source in sources),
        message_ids=tuple(source.id for source in sources),
        role=memory.role,
        name=memory.actor_id,
        tags=memory.tags,
        metadata=memory.metadata,
    )


def message_hit(message: Message, score: float) -> Hit:
    """Return a message as a hit."""
    return Hit(
        id=message.id,
        kind="message",
        text=message.content,
        score=score,
        at=message.said_at,
        created_at=message.created_at,
        updated_at=message.created_at,
        sources=(message.source,),
        message_ids=(message.id,),
        role=message.role,
        name=message.name,
    )


def record(hit: Hit) -> dict[str, Any]:
    """Return what a filter sees of a hit."""
    return {
        "at": hit.at,
        "created_at": hit.created_at,
        "role": hit.role,
        "kind": hit.kind,
        "tags": hit.tags,
        "metadata": hit.metadata,
    }
