"""What messages mention: who says them, and the known names in them.

A message names nobody anew: only a memory that is learned from it does, and then shows which of its names are meant.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, bindparam, insert, select, update

from palimpsest.core.entities import SELF_NAMES, name_key
from palimpsest.core.models import Message
from palimpsest.store.graph.identity import aliases
from palimpsest.store.graph.identity.candidates import candidates_of
from palimpsest.store.graph.tables import entities, mentions
from palimpsest.store.mapping import Query, listed
from palimpsest.store.schema import memory_sources, messages
from palimpsest.text.names.known import name_candidates

MAX_NAMES = 2_000
"""How many sequences of words of one call are looked up. They cost one query, and milliseconds. Set by hand."""


def mention_known(conn: Connection, stored: Sequence[Message]) -> None:
    """Store which entities new messages of one scope mention: their speakers, and names that exactly one entity has."""
    if not stored or conn.execute(_ANY, {"user_id": stored[0].scope.user_id}).first() is None:
        return
    keys = {message.id: _keys(message.content, message.name) for message in stored}
    wanted = list(dict.fromkeys(key for of_message in keys.values() for key in of_message))[:MAX_NAMES]
    known = {key: found for key, found in candidates_of(conn, stored[0].scope, wanted).items() if len(found) == 1}
    rows = [
        _row(message_id, key, of_message[key], known[key][0].entity_id)
        for message_id, of_message in keys.items()
        for key in of_message
        if key in known
    ]
    if rows:
        conn.execute(insert(mentions), rows)


def _keys(text: str, speaker: str) -> dict[str, str]:
    """Return the names that a message may have, each by its key: its speaker's, and sequences of its words."""
    keys = {key: key for key in name_candidates(text)} | {name_key(speaker): speaker}
    return {key: name for key, name in keys.items() if key and key not in SELF_NAMES}


def mention_with(conn: Connection, memory_id: str) -> None:
    """Let the messages behind a memory mention what it mentions, as far as their texts have its names.

    What the memory means by a name counts more than what was taken to be meant when the message was stored.
    """
    meant = {row.key: row for row in conn.execute(_OF_MEMORY, {"memory": memory_id}).all()}
    meant = {key: row for key, row in meant.items() if key not in SELF_NAMES}
    if not meant:
        return
    rows = [
        _row(message.id, key, row.name, row.entity_id)
        for message in conn.execute(_SOURCES, {"memory": memory_id}).all()
        for key, row in meant.items()
        if key in _keys(message.content, message.name)
    ]
    if not rows:
        return
    of_messages = conn.execute(_OF_MESSAGES, {"ids": [row["owner_id"] for row in rows]}).all()
    known = {(row.owner_id, row.key): row for row in of_messages}
    for row in rows:
        stored = known.get((row["owner_id"], row["key"]))
        if stored is None:
            conn.execute(insert(mentions), row)
        elif stored.entity_id != row["entity_id"]:
            conn.execute(update(mentions).where(mentions.c.seq == stored.seq).values(entity_id=row["entity_id"]))
            aliases.drop_unused(conn, stored.entity_id, stored.key)


def _row(message_id: str, key: str, name: str, entity_id: str) -> dict[str, Any]:
    return {
        "kind": "message",
        "owner_id": message_id,
        "key": key,
        "name": name,
        "entity_id": entity_id,
        "current": True,
    }


_ANY: Query = select(entities.c.seq).where(entities.c.user_id == bindparam("user_id")).limit(1)
_OF_MEMORY: Query = select(mentions).where(
    mentions.c.kind == "memory", mentions.c.owner_id == bindparam("memory"), mentions.c.current
)
_SOURCES: Query = (
    select(messages.c.id, messages.c.content, messages.c.name)
    .join(memory_sources, memory_sources.c.message_id == messages.c.id)
    .where(memory_sources.c.memory_id == bindparam("memory"))
)
_OF_MESSAGES: Query = select(mentions).where(mentions.c.kind == "message", mentions.c.owner_id.in_(listed("ids")))
