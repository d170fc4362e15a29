"""What is known of a conversation besides its messages: the client it was held in, its id there, its title."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, and_, delete, exists, insert, select, update

from palimpsest.core.clock import exact_iso
from palimpsest.core.models import MAX_SCOPE_CHARS, Scope
from palimpsest.core.validation import one_line
from palimpsest.store.mapping import is_scope, scope_values
from palimpsest.store.schema import conversations, messages
from palimpsest.store.writes.transaction import Transaction

NAMESPACE = uuid.UUID("c3d5b0a2-7f3e-4a52-9d0e-2a8a6b1f4e77")

MAX_TITLE_CHARS = 300
"""A longer title is cut. Set by hand: clients write titles of a few words."""

ITEM = ("session_id", "project", "agent_id", "run_id", "client", "external_id", "title")
"""The columns of an item of an export, besides the time."""

SCOPE = ("user_id", "project", "agent_id", "run_id")


@dataclass(frozen=True, slots=True)
class Conversation:
    """A conversation as its client knows it: the client's name, the client's id of it, and its title if it has one.

    `client` is claude-code, codex, chatgpt, claude or the like. Secrets must be replaced in the title.
    """

    client: str
    external_id: str
    title: str = ""


def session_id_of(scope: Scope, client: str, external_id: str) -> str:
    """Return the id that belongs to a client's conversation in a scope: always the same one."""
    return str(uuid.uuid5(NAMESPACE, "\0".join((*scope_values(scope).values(), client, external_id))))


def record(tx: Transaction, scope: Scope, conversation: Conversation) -> str:
    """Insert the row of a conversation, or give it a new title, and return the session id of its messages.

    The row is found by the client's id, so a conversation goes on where its scope was moved to.
    """
    external_id = one_line(conversation.external_id)[:MAX_SCOPE_CHARS]
    title = one_line(conversation.title)[:MAX_TITLE_CHARS]
    of_client = and_(
        is_scope(conversations, scope),
        conversations.c.client == conversation.client,
        conversations.c.external_id == external_id,
    )
    newest = select(conversations).where(of_client).order_by(conversations.c.seq.desc()).limit(1)
    known = tx.conn.execute(newest).one_or_none()
    if known is not None:
        if title and title != known.title:
            tx.conn.execute(update(conversations).where(conversations.c.seq == known.seq).values(title=title))
        return str(known.session_id)
    session_id = session_id_of(scope, conversation.client, external_id)
    tx.conn.execute(
        insert(conversations).values(
            session_id=session_id,
            **scope_values(scope),
            client=conversation.client,
            external_id=external_id,
            title=title,
            created_at=tx.now,
        )
    )
    return session_id


def of_user(conn: Connection, user_id: str) -> list[dict[str, Any]]:
    """Return the rows of a user's conversations as items of an export, oldest first."""
    query = select(conversations).where(conversations.c.user_id == user_id).order_by(conversations.c.seq)
    return [
        {"type": "conversation", **{name: getattr(row, name) for name in ITEM}, "created_at": exact_iso(row.created_at)}
        for row in conn.execute(query)
    ]


def find(conn: Connection, scope: Scope, session_id: str) -> int | None:
    """Return the number of the row of exactly this scope with a session id, if there is one."""
    of_session = (is_scope(conversations, scope), conversations.c.session_id == session_id)
    return conn.execute(select(conversations.c.seq).where(*of_session)).scalar_one_or_none()


def store_item(conn: Connection, scope: Scope, item: Mapping[str, Any]) -> bool:
    """Store a conversation of an import, or its title if that is new. Return whether the row is new."""
    known = find(conn, scope, item["session_id"])
    if known is None:
        values = {name: item[name] for name in ITEM} | {"created_at": item["created_at"]}
        conn.execute(insert(conversations).values(user_id=scope.user_id, **values))
    elif item["title"]:
        conn.execute(update(conversations).where(conversations.c.seq == known).values(title=item["title"]))
    return known is None


def erase_empty(conn: Connection) -> None:
    """Delete the rows of conversations that have no message any more, and their titles with them."""
    of_row = and_(
        messages.c.session_id == conversations.c.session_id,
        *(messages.c[name] == conversations.c[name] for name in SCOPE),
    )
    conn.execute(delete(conversations).where(~exists().where(of_row)))
