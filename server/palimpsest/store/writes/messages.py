"""How messages change inside a transaction: each is stored once, deleted or restored. Their text never changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

from sqlalchemy import bindparam, exists, insert, select, update

from palimpsest.core.errors import MemoryNotFoundError
from palimpsest.core.models import Event, Message, Outcome
from palimpsest.store.graph.identity.spoken import mention_known
from palimpsest.store.mapping import Query, content_hash, is_scope, scope_values, sees, to_message
from palimpsest.store.schema import conversations, messages, vectors
from palimpsest.store.writes import conversations as conversation_writes
from palimpsest.store.writes.conversations import SCOPE, Conversation
from palimpsest.store.writes.transaction import Transaction, put_entry, record_message

SESSION_GAP = timedelta(minutes=30)
"""A longer silence in one scope begins a new session. Most breaks within one sitting are shorter."""

RETRY_WINDOW = timedelta(minutes=10)
"""The same messages, without ids or times, within this span are a call that was repeated because its reply was lost."""


def store(
    tx: Transaction, messages_in: Sequence[Message], conversation: Conversation | None = None
) -> tuple[tuple[Message, ...], frozenset[str]]:
    """Store messages, each once. Return them as they are stored, and the ids of those that are new.

    They belong to `conversation`, or, without one, to sessions that a silence ends.
    """
    earlier = _stored_by_earlier_call(tx, messages_in)
    if earlier is not None:
        return earlier, frozenset()
    session_id = "" if conversation is None else conversation_writes.record(tx, messages_in[0].scope, conversation)
    stored: dict[str, Message] = {}
    new_ids: set[str] = set()
    for message in messages_in:
        known = _find_known(tx, message)
        if known is None:
            known = _insert(tx, message, session_id or _session_id(tx, message))
            new_ids.add(known.id)
        stored[known.id] = known
    mention_known(tx.conn, [stored[message_id] for message_id in stored if message_id in new_ids])
    return tuple(stored.values()), frozenset(new_ids)


def _stored_by_earlier_call(tx: Transaction, messages_in: Sequence[Message]) -> tuple[Message, ...] | None:
    """Return the messages of an earlier call with exactly the same messages, if it came within `RETRY_WINDOW`.

    A client that got no reply repeats its call. Messages with ids or times of their own are recognized by these.
    """
    if any(message.external_id or message.said_at != message.created_at for message in messages_in):
        return None
    first = messages_in[0]
    edits_like_first = select(messages.c.change).where(
        is_scope(messages, first.scope),
        messages.c.content_hash == content_hash(first.content),
        messages.c.created_at >= first.created_at - RETRY_WINDOW,
        messages.c.external_id == "",
    )
    contents = [(message.role, message.name, content_hash(message.content)) for message in messages_in]
    for edit in tx.conn.execute(edits_like_first.distinct()).scalars():
        rows = tx.conn.execute(select(messages).where(messages.c.change == edit).order_by(messages.c.seq)).all()
        if [(row.role, row.name, row.content_hash) for row in rows] == contents:
            return tuple(to_message(row) for row in rows)
    return None


def _find_known(tx: Transaction, message: Message) -> Message | None:
    """Return the stored message with the same id and text, or with the same text, speaker and time of another call."""
    values = {
        **scope_values(message.scope),
        "digest": content_hash(message.content),
        "external": message.external_id,
        "at": message.said_at,
        "speaker": message.name,
        "by": message.role,
        "edit": tx.edit,
    }
    row = tx.conn.execute(_SAME_ID if message.external_id else _SAME_TEXT, values).first()
    return None if row is None else to_message(row)


_OF_SCOPE = [messages.c[name] == bindparam(name) for name in SCOPE]
_SAME_ID: Query = (
    select(messages)
    .where(*_OF_SCOPE, messages.c.content_hash == bindparam("digest"), messages.c.external_id == bindparam("external"))
    .limit(1)
)
_SAME_TEXT = _SAME_ID.where(
    messages.c.said_at == bindparam("at"),
    messages.c.name == bindparam("speaker"),
    messages.c.role == bindparam("by"),
    messages.c.change != bindparam("edit"),
)


def _session_id(tx: Transaction, message: Message) -> str:
    """Return the session of the last message of the scope, or a new one after a silence."""
    last = tx.conn.execute(_LAST, scope_values(message.scope)).first()
    is_same = last is not None and abs(message.said_at - last.said_at) <= SESSION_GAP
    return last.session_id if last is not None and is_same else message.id


def _insert(tx: Transaction, message: Message, session_id: str) -> Message:
    stored = replace(message, session_id=session_id)
    row = {
        "id": stored.id,
        **scope_values(stored.scope),
        "role": stored.role,
        "name": stored.name,
        "content": stored.content,
        "content_hash": content_hash(stored.content),
        "external_id": stored.external_id,
        "session_id": stored.session_id,
        "said_at": stored.said_at,
        "created_at": stored.created_at,
        "change": tx.edit,
    }
    tx.conn.execute(_INSERT, row)
    put_entry(tx, "message", stored.id, stored.scope, stored.content)
    record_message(tx, Event.ADD, stored.id)
    return stored


RECENT = 50
"""How many messages are looked through for the last one that no client gave to a conversation. Set by hand."""


def _last() -> Query:
    recent = select(messages).where(*_OF_SCOPE).order_by(messages.c.seq.desc()).limit(RECENT).subquery()
    same = (recent.c[name] == conversations.c[name] for name in (*SCOPE, "session_id"))
    newest = select(recent.c.session_id, recent.c.said_at).order_by(recent.c.seq.desc()).limit(1)
    return newest.where(~exists().where(*same))


_LAST = _last()
_INSERT = insert(messages)


def set_deleted(tx: Transaction, message_id: str | None, *, deleted: bool) -> Outcome:
    """Delete or restore a message. One that already is in that state stays. Raises MemoryNotFoundError."""
    row = tx.conn.execute(select(messages).where(messages.c.id == message_id, sees(messages, tx.scope))).one_or_none()
    if row is None:
        raise MemoryNotFoundError(f"there is no message {message_id} any more; nothing was changed")
    message = to_message(row)
    if (message.deleted_at is not None) is deleted:
        return Outcome(Event.NONE, message.as_memory, kind="message")
    message = replace(message, deleted_at=tx.now if deleted else None)
    tx.conn.execute(update(messages).where(messages.c.id == message.id).values(deleted_at=message.deleted_at))
    if not deleted:
        of_message = (vectors.c.kind == "message", vectors.c.owner_id == message.id)
        tx.conn.execute(update(vectors).where(*of_message).values(live=True))
    event = Event.DELETE if deleted else Event.ADD
    record_message(tx, event, message.id)
    return Outcome(event, message.as_memory, previous=message.content if deleted else None, kind="message")
