"""Read what tells captured messages from others, and how often a model was asked about them."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from sqlalchemy import Connection, func, select

from palimpsest.core.models import UNDO, Scope
from palimpsest.store.mapping import chunks, listed, to_scope
from palimpsest.store.schema import message_history, messages, meta
from palimpsest.store.schema import purged as purged_ids

CALLS = "captured_calls"
"""The key in `meta` of the last day (UTC) on which a model was asked about captured messages, and how often."""


NAMESPACE = uuid.UUID("6d0a8b43-52a9-4a0e-8d1c-0c7f7a1f7d55")

SAME_TIME = timedelta(minutes=2)
"""How far apart the times of a message are at most that a hook has brought and of its line in a transcript. Set by
hand: the hook runs within seconds, and a person who says the same again, or in another session, takes longer."""


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
    return int(made) if last == f"{day.astimezone(UTC):%Y-%m-%d}" else 0


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


def said_then(user_id: str, external_id: str, role: str, content_hash: str, said_at: datetime) -> tuple[str, str, str]:
    """Return ids of what was said through a client at a time: before it, then, and after it.

    A purge keeps the second one, which is one of the three of every line of a transcript that says the same.
    """
    client, window = external_id.partition(":")[0], said_at.timestamp() // SAME_TIME.total_seconds()
    before, then, after = (
        str(uuid.uuid5(NAMESPACE, "\0".join((user_id, client, role, content_hash, str(window + step)))))
        for step in (-1, 0, 1)
    )
    return before, then, after


def purged(conn: Connection, owner_ids: Sequence[str]) -> set[str]:
    """Return those of some ids that were purged."""
    return {owner_id for chunk in chunks(owner_ids) for owner_id in conn.execute(_PURGED, {"ids": chunk}).scalars()}


_PURGED = select(purged_ids.c.owner_id).where(purged_ids.c.owner_id.in_(listed("ids")))
