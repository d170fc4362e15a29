"""Memories that end at a time. They are few, and have an index of their own."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, bindparam, select, text

from palimpsest.core.models import EXPIRES_AT, Memory, Scope, has_expired
from palimpsest.store.mapping import is_scope, to_memory, to_scope
from palimpsest.store.schema import IS_MARKED, memories


def ending_memories(conn: Connection, scope: Scope) -> list[Memory]:
    """Return the living memories of exactly this scope that end at a time, the oldest first."""
    query = select(memories).where(is_scope(memories, scope), *_ENDING).order_by(memories.c.seq)
    return [to_memory(row) for row in conn.execute(query)]


def scopes_ending(conn: Connection) -> list[tuple[Scope, Mapping[str, Any]]]:
    """Return the scope and the metadata of each living memory of all users that ends at a time."""
    columns = (memories.c[name] for name in ("user_id", "project", "agent_id", "run_id", "metadata"))
    return [(to_scope(row), row[-1]) for row in conn.execute(select(*columns).where(*_ENDING))]


def expired_ids(conn: Connection, scope: Scope, now: datetime) -> set[str]:
    """Return the ids of the living memories of the scope's user that have expired and are not closed yet."""
    rows = conn.execute(_ENDING_OF_USER, {"user_id": scope.user_id})
    return {memory_id for memory_id, metadata in rows if has_expired(metadata, now)}


_ENDING = (text(IS_MARKED), memories.c.metadata[EXPIRES_AT].as_string().is_not(None))
_ENDING_OF_USER = select(memories.c.id, memories.c.metadata).where(memories.c.user_id == bindparam("user_id"), *_ENDING)
