"""How turns change inside a transaction: kept once, forgotten, brought back; their words never change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

from sqlalchemy import insert, select, update

from palimpsest.core.errors import MemoryNotFoundError
from palimpsest.core.models import Event, Message, Outcome
from palimpsest.store.mapping import content_hash, is_scope, scope_values, sees, to_message
from palimpsest.store.schema import messages, vectors
from palimpsest.store.writes.transaction import Transaction, put_entry, record_turn

SESSION_GAP = timedelta(minutes=30)
"""A longer silence in one scope begins a new session."""

SENT_AGAIN = timedelta(minutes=10)
"""The same turns without ids or times within this span are one call that was sent again, not said twice."""


def keep(tx: Transaction, given: Sequence[Message]) -> tuple[tuple[Message, ...], frozenset[str]]:
    """Store turns, each once; return them as they are stored, and the ids of those that are new."""
    again = _sent_again(tx, given)
    if again is not None:
        return again, frozenset()
    kept: dict[str, Message] = {}
    new: set[str] = set()
    for message in given:
        known = _known(tx, message)
        if known is None:
            known = _insert(tx, message)
            new.add(known.id)
        kept[known.id] = known
    return tuple(kept.values()), frozenset(new)


def _sent_again(tx: Transaction, given: Sequence[Message]) -> tuple[Message, ...] | None:
    """Return the stored turns of an earlier call that said just the same, if it was a moment ago.

    A client that saw no answer sends its call again. Turns with ids or times of their own are known by these.
    """
    if any(message.external_id or message.said_at != message.created_at for message in given):
        return None
    first = given[0]
    like_first = select(messages.c.change).where(
        is_scope(messages, first.scope),
        messages.c.content_hash == content_hash(first.content),
        messages.c.created_at >= first.created_at - SENT_AGAIN,
        messages.c.external_id == "",
    )
    wanted = [(message.role, message.name, content_hash(message.content)) for message in given]
    for change in tx.conn.execute(like_first.distinct()).scalars():
        rows = tx.conn.execute(select(messages).where(messages.c.change == change).order_by(messages.c.seq)).all()
        if [(row.role, row.name, row.content_hash) for row in rows] == wanted:
            return tuple(to_message(row) for row in rows)
    return None


def _known(tx: Transaction, message: Message) -> Message | None:
    """Return the stored turn of the same id and text, or of the same text, speaker and time of another call."""
    same = select(messages).where(
        is_scope(messages, message.scope),
        messages.c.content_hash == content_hash(message.content),
        messages.c.external_id == message.external_id,
    )
    if not message.external_id:
        same = same.where(messages.c.said_at == message.said_at, messages.c.name == message.name)
        same = same.where(messages.c.role == message.role, messages.c.change != tx.change)
    row = tx.conn.execute(same.limit(1)).first()
    return None if row is None else to_message(row)


def _insert(tx: Transaction, message: Message) -> Message:
    last = tx.conn.execute(
        select(messages.c.session_id, messages.c.said_at)
        .where(is_scope(messages, message.scope))
        .order_by(messages.c.seq.desc())
        .limit(1)
    ).first()
    goes_on = last is not None and abs(message.said_at - last.said_at) <= SESSION_GAP
    stored = replace(message, session_id=last.session_id if last is not None and goes_on else message.id)
    tx.conn.execute(
        insert(messages).values(
            id=stored.id,
            **scope_values(stored.scope),
            role=stored.role,
            name=stored.name,
            content=stored.content,
            content_hash=content_hash(stored.content),
            external_id=stored.external_id,
            session_id=stored.session_id,
            said_at=stored.said_at,
            created_at=stored.created_at,
            change=tx.change,
        )
    )
    put_entry(tx, "message", stored.id, stored.scope, stored.content)
    record_turn(tx, Event.ADD, stored.id)
    return stored


def set_deleted(tx: Transaction, message_id: str | None, *, deleted: bool) -> Outcome:
    """Forget a turn, or bring it back; one that is so already stays. Raises MemoryNotFoundError."""
    row = tx.conn.execute(select(messages).where(messages.c.id == message_id, sees(messages, tx.scope))).one_or_none()
    if row is None:
        raise MemoryNotFoundError(f"there is no turn {message_id} any more; nothing was changed")
    message = to_message(row)
    if (message.deleted_at is not None) is deleted:
        return Outcome(Event.NONE, message.as_memory, kind="message")
    message = replace(message, deleted_at=tx.now if deleted else None)
    tx.conn.execute(update(messages).where(messages.c.id == message.id).values(deleted_at=message.deleted_at))
    if not deleted:
        mine = (vectors.c.kind == "message", vectors.c.owner_id == message.id)
        tx.conn.execute(update(vectors).where(*mine).values(live=True))
    event = Event.DELETE if deleted else Event.ADD
    record_turn(tx, event, message.id)
    return Outcome(event, message.as_memory, previous=message.content if deleted else None, kind="message")
