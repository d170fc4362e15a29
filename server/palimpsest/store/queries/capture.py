"""Read what tells captured messages from others, and how often a model was asked about them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, func, select

from palimpsest.core.models import UNDO, Scope
from palimpsest.store.mapping import chunks, listed, to_scope
from palimpsest.store.schema import message_history, messages, meta
from palimpsest.store.schema import purged as purged_ids

CALLS = "captured_calls"
"""The key in `meta` of the last day (UTC) on which a model was asked about captured messages, and how often."""


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """What tells a message with an id of its client from others."""

    id: str
    external_id: str
    role: str
    content_hash: str
    said_at: datetime
    deleted_at: datetime | None = None


_COLUMNS = ("id", "external_id", "role", "content_hash", "said_at", "deleted_at")
_WITH_TEXTS = select(*(messages.c[name] for name in _COLUMNS)).where(
    messages.c.content_hash.in_(listed("hashes")), messages.c.external_id != ""
)


def with_texts(conn: Connection, user_id: str, content_hashes: Sequence[str]) -> list[StoredMessage]:
    """Return the messages of a user in all scopes that have an id of their client and one of these texts."""
    query = _WITH_TEXTS.where(messages.c.user_id == user_id)
    return [
        StoredMessage(*row) for chunk in chunks(content_hashes) for row in conn.execute(query, {"hashes": chunk}).all()
    ]


def calls_on(conn: Connection, day: datetime) -> int:
    """Return how many calls of the model were made on a day (UTC) to learn from captured messages."""
    value = conn.execute(select(meta.c.value).where(meta.c.key == CALLS)).scalar_one_or_none()
    last, _, made = (value or "").partition(" ")
    return int(made) if last == f"{day:%Y-%m-%d}" else 0


def undone(conn: Connection, message_ids: Sequence[str]) -> dict[Scope, list[str]]:
    """Return those deleted messages that an undo deleted, by their scope."""
    by_scope: dict[Scope, list[str]] = {}
    for chunk in chunks(message_ids):
        for row in conn.execute(_UNDONE, {"ids": chunk}).all():
            by_scope.setdefault(to_scope(row), []).append(row.id)
    return by_scope


_LATER = message_history.alias()
_NEWEST = select(func.max(_LATER.c.seq)).where(_LATER.c.message_id == messages.c.id).scalar_subquery()
_UNDONE = (
    select(messages)
    .join(message_history, message_history.c.message_id == messages.c.id)
    .where(
        messages.c.id.in_(listed("ids")),
        messages.c.deleted_at.is_not(None),
        message_history.c.seq == _NEWEST,
        message_history.c.stage.like(f"{UNDO}%"),
    )
    .order_by(messages.c.seq)
)


def purged(conn: Connection, owner_ids: Sequence[str]) -> set[str]:
    """Return those of some ids that were purged."""
    return {owner_id for chunk in chunks(owner_ids) for owner_id in conn.execute(_PURGED, {"ids": chunk}).scalars()}


_PURGED = select(purged_ids.c.owner_id).where(purged_ids.c.owner_id.in_(listed("ids")))
