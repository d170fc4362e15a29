"""A memory or message whole: its text as it is stored, and everything that is stored with it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from palimpsest.core.clock import local_iso, shown_time
from palimpsest.core.models import Kind, Memory, Message
from palimpsest.server.replies.models import Instant, LeftOutIfEmpty, LeftOutIfNone, Reply
from palimpsest.server.replies.render import whole_text
from palimpsest.text.control_characters import visible
from palimpsest.text.counting import counted

SHOWN_SOURCES = 10
"""How many of the messages behind a memory are printed."""


class WholeReply(Reply):
    """A memory or message with everything that is stored with it. `sources` are as in a search."""

    id: str
    kind: Kind
    text: str
    at: str
    scope: dict[str, str]
    deleted: bool
    superseded_by: str | None = LeftOutIfNone
    valid_from: str | None = LeftOutIfNone
    valid_until: str | None = LeftOutIfNone
    sources: tuple[str, ...]
    role: str
    name: str
    tags: tuple[str, ...] = LeftOutIfEmpty
    metadata: dict[str, Any]
    created_at: Instant
    updated_at: Instant

    @classmethod
    def of(cls, owner: Memory | Message, sources: Sequence[Message]) -> WholeReply:
        """Return the reply for a memory and the messages behind it, or for a message."""
        memory = owner.as_memory if isinstance(owner, Message) else owner
        parts = {name: getattr(memory.scope, name) for name in ("user_id", "project", "agent_id", "run_id")}
        return cls(
            id=memory.id,
            kind="message" if isinstance(owner, Message) else "memory",
            text=memory.text,
            at=shown_time(memory.at, memory.at_precision),
            scope={name: value for name, value in parts.items() if value},
            deleted=memory.deleted_at is not None,
            superseded_by=memory.superseded_by,
            valid_from=memory.since or None,
            valid_until=memory.until or None,
            sources=(owner.source,) if isinstance(owner, Message) else tuple(source.source for source in sources),
            role=memory.role,
            name=memory.actor_id,
            tags=memory.tags,
            metadata=dict(memory.metadata),
            created_at=memory.created_at,
            updated_at=memory.updated_at,
        )


def whole_reply_text(owner: Memory | Message, sources: Sequence[Message]) -> str:
    """Return the same for a person: the text, then a line for each thing that is known."""
    memory = owner.as_memory if isinstance(owner, Message) else owner
    metadata = [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in memory.metadata.items()]
    said = [whole_text(source) for source in sources[:SHOWN_SOURCES]]
    if len(sources) > SHOWN_SOURCES:
        said.append(f"and {counted(len(sources) - SHOWN_SOURCES, 'message')} more; --json names all")
    known = {
        "id": [memory.id],
        "date": [memory.date if memory.at_precision else local_iso(memory.at)],
        "scope": [str(memory.scope)],
        "from": [owner.source] if isinstance(owner, Message) and owner.external_id else [],
        "tags": [", ".join(memory.tags)] if memory.tags else [],
        "metadata": metadata,
        "sources": said,
        "created": [local_iso(memory.created_at)],
        "updated": [local_iso(memory.updated_at)] if memory.updated_at != memory.created_at else [],
    }
    lines = [
        f"{name if place == 0 else '':<9} {line}" for name, values in known.items() for place, line in enumerate(values)
    ]
    return "\n".join([whole_text(owner), "", *map(visible, lines)])
