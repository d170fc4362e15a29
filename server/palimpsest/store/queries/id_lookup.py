"""What an id, or the beginning of one, means in a scope."""

from __future__ import annotations

import re
import uuid

from sqlalchemy import Connection, and_, select

from palimpsest.core.errors import InputError, MemoryNotFoundError
from palimpsest.core.models import Memory, Message, Scope
from palimpsest.store.mapping import sees, to_memory, to_message
from palimpsest.store.schema import memories, messages

MIN_PREFIX = 8
"""Shorter beginnings of an id are not taken for it."""

UUID_DIGITS = 32

_ID = re.compile(r"(?<![0-9a-z])[0-9a-f]{8}[0-9a-f-]*(?![0-9a-z])")
"""An id in what a caller gives for one: bare, in brackets, or the line of a reply that begins with it."""


def find(conn: Connection, scope: Scope, owner_id: str) -> Memory | Message:
    """Return the memory or turn, living or deleted, whose id is, or uniquely begins with, `owner_id`.

    Raises MemoryNotFoundError, and InputError for a beginning that is too short or fits several.
    """
    wanted = _named(owner_id)
    found: list[Memory | Message] = []
    for table, record in ((memories, to_memory), (messages, to_message)):
        # A range, which the index on ids serves; "g" comes after every digit of an id.
        begins = and_(table.c.id >= wanted, table.c.id < f"{wanted}g")
        found += [record(row) for row in conn.execute(select(table).where(begins, sees(table, scope)).limit(2))]
    if len(found) > 1:
        which = "; ".join(f"{each.id} ({_text_of(each)[:60]})" for each in found[:2])
        raise InputError(f"several memories begin with '{wanted}'; give more of the id: {which}")
    if not found:
        raise MemoryNotFoundError(
            f"no memory '{owner_id[:80]}' for {scope}. If it was found with a scope, give the same scope here; else "
            "take ids from search_memories or list_memories"
        )
    return found[0]


def _named(given: str) -> str:
    """Return the id, or beginning of one, that stands first in what a caller gives. Raises InputError."""
    line = given.strip().lower()
    ids = _ID.findall(line)
    if not ids or not line.startswith((ids[0], f"[{ids[0]}", f"id:{ids[0]}")):
        raise InputError(
            f"'{given[:80]}' is no memory id; give one as search_memories and list_memories do, such as 3a090c21, "
            f"or its first {MIN_PREFIX} characters at least"
        )
    if len(ids) > 1 and not line.startswith("["):
        raise InputError(f"'{given[:80]}' names several memories; give one id, or a list of them where one is taken")
    if len(ids[0]) == UUID_DIGITS and "-" not in ids[0]:
        return str(uuid.UUID(ids[0]))
    return ids[0]


def find_memory(conn: Connection, scope: Scope, memory_id: str) -> Memory:
    """Return the memory, living or deleted, that an id means. Raises as `find`, and InputError for a turn's id."""
    found = find(conn, scope, memory_id)
    if isinstance(found, Message):
        raise InputError(
            f"'{memory_id[:80]}' is a turn of a conversation and no memory: its words stay as they were said; "
            "delete_memory forgets it"
        )
    return found


def _text_of(found: Memory | Message) -> str:
    return found.content if isinstance(found, Message) else found.text


def ids_beginning(conn: Connection, scope: Scope, beginning: str, limit: int) -> list[str]:
    """Return up to `limit` ids of living memories that begin so, the newest memory first."""
    query = (
        select(memories.c.id)
        .where(sees(memories, scope), memories.c.deleted_at.is_(None))
        .order_by(memories.c.seq.desc())
        .limit(limit)
    )
    if beginning:
        query = query.where(memories.c.id >= beginning, memories.c.id < f"{beginning}g")
    return list(conn.execute(query).scalars())
