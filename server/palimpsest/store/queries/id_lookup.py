"""Find the memory or message that an id, or the beginning of one, names in a scope."""

from __future__ import annotations

import re
import uuid
from dataclasses import replace

from sqlalchemy import Connection, and_, select

from palimpsest.core.errors import InputError, MemoryNotFoundError, Remedy
from palimpsest.core.models import Memory, Message, Scope
from palimpsest.store.mapping import sees, to_memory, to_message
from palimpsest.store.queries import messages as message_queries
from palimpsest.store.schema import memories, messages

MIN_PREFIX = 8
"""The fewest characters that are accepted as the beginning of an id."""

HIDDEN = "(not shown, because something that was said here is forgotten)"
"""What stands for the text of a message with a forgotten fact. Nothing tells which part of the text says it."""

UUID_DIGITS = 32

_ID = re.compile(r"(?<![0-9a-z])[0-9a-f]{8}[0-9a-f-]*(?![0-9a-z])")
"""An id within a caller's argument, which may put it in brackets or pass a whole line of a reply."""


def find(conn: Connection, scope: Scope, owner_id: str) -> Memory | Message:
    """Return the memory or message, living or deleted, whose id is `owner_id` or is the only one to begin with it.

    Raises MemoryNotFoundError, and InputError for a beginning that is too short or that several ids have.
    """
    prefix = _prefix(owner_id)
    matches: list[Memory | Message] = []
    for table, to_record in ((memories, to_memory), (messages, to_message)):
        # A range can use the index on ids. "g" comes after every hexadecimal digit.
        begins = and_(table.c.id >= prefix, table.c.id < f"{prefix}g")
        rows = conn.execute(select(table).where(begins, sees(table, scope)).limit(2))
        matches += [to_record(row) for row in rows]
    if len(matches) > 1:
        examples = "; ".join(f"{match.id} ({_text_of(match)[:60]})" for match in matches[:2])
        raise InputError(f"several memories begin with '{prefix}'. Use more characters of the id: {examples}")
    if not matches:
        raise MemoryNotFoundError(
            f"no memory '{owner_id[:80]}' for {scope}; use an id from a search or a list", Remedy.NAME_SCOPE
        )
    return matches[0]


def find_shown(conn: Connection, scope: Scope, owner_id: str) -> Memory | Message:
    """Return what `find` does. Of a message with a forgotten fact the text is not shown, only that there is one."""
    match = find(conn, scope, owner_id)
    return shown(conn, match) if isinstance(match, Message) else match


def shown(conn: Connection, message: Message) -> Message:
    """Return a message as it may be shown: without its text if a fact of it is forgotten."""
    return message if message_queries.without_forgotten(conn, [message]) else replace(message, content=HIDDEN)


def find_memory(conn: Connection, scope: Scope, memory_id: str) -> Memory:
    """Return the memory, living or deleted, that an id names. Raises as `find`, and InputError for a message's id."""
    match = find(conn, scope, memory_id)
    if isinstance(match, Message):
        raise InputError(
            f"'{memory_id[:80]}' is a message of a conversation, not a memory. Messages cannot be edited",
            Remedy.DELETE,
            match.id[:MIN_PREFIX],
        )
    return match


def ids_beginning(conn: Connection, scope: Scope, prefix: str, limit: int) -> list[str]:
    """Return up to `limit` ids of living memories that begin with a prefix, the newest memory first."""
    query = (
        select(memories.c.id)
        .where(sees(memories, scope), memories.c.deleted_at.is_(None))
        .order_by(memories.c.seq.desc())
        .limit(limit)
    )
    if prefix:
        query = query.where(memories.c.id >= prefix, memories.c.id < f"{prefix}g")
    return list(conn.execute(query).scalars())


def _prefix(argument: str) -> str:
    """Return the id, or beginning of one, that a caller's argument starts with. Raises InputError."""
    line = argument.strip().lower()
    ids = _ID.findall(line)
    if not ids or not line.startswith((ids[0], f"[{ids[0]}", f"id:{ids[0]}")):
        raise InputError(
            f"'{argument[:80]}' is not a memory id. Use an id from a search or a list, such as "
            f"3a090c21, or at least its first {MIN_PREFIX} characters"
        )
    if len(ids) > 1 and not line.startswith("["):
        raise InputError(f"'{argument[:80]}' has several memory ids", Remedy.ONE_ID)
    if len(ids[0]) == UUID_DIGITS and "-" not in ids[0]:
        return str(uuid.UUID(ids[0]))
    return ids[0]


def _text_of(owner: Memory | Message) -> str:
    return owner.content if isinstance(owner, Message) else owner.text
