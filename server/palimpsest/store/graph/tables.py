"""The tables of the graph. Entities belong to a user or to one of the user's projects.

What a memory states stands in the memory itself, by names. `mentions` says which entity each of these names means, and
`relations` is the same with entities in place of names. Both follow every change of the memory in its transaction, and
have no times of their own: a relation holds, and is known, as long as its memory is.
"""

from __future__ import annotations

from sqlalchemy import Boolean, Column, Index, Integer, String, Table, false

from palimpsest.store.schema import IS_USER, entities, entity_history, metadata

__all__ = ["IS_USER", "entities", "entity_aliases", "entity_history", "mentions", "relations"]

entity_aliases = Table(
    "entity_aliases",
    metadata,
    Column("entity_id", String(36), primary_key=True),
    # The name as `name_key` gives it, and as it was written.
    Column("key", String(256), primary_key=True),
    Column("name", String(256), nullable=False),
    Column("user_id", String(256), nullable=False),
    # Whether an edit gave it. The others live as long as something mentions the entity by them.
    Column("given", Boolean, nullable=False, server_default=false()),
)
Index("entity_aliases_by_key", entity_aliases.c.user_id, entity_aliases.c.key)

mentions = Table(
    "mentions",
    metadata,
    Column("seq", Integer, primary_key=True, autoincrement=True),
    Column("kind", String(8), nullable=False),
    Column("owner_id", String(36), nullable=False),
    Column("key", String(256), nullable=False),
    Column("name", String(256), nullable=False),
    Column("entity_id", String(36), nullable=False),
    # Whether the present text states the name. An earlier version of a memory keeps what its names mean.
    Column("current", Boolean, nullable=False),
)
Index("mentions_once", mentions.c.kind, mentions.c.owner_id, mentions.c.key, unique=True)
Index("mentions_by_entity", mentions.c.entity_id, mentions.c.current)

relations = Table(
    "relations",
    metadata,
    Column("seq", Integer, primary_key=True, autoincrement=True),
    Column("memory_id", String(36), nullable=False),
    # The place in the memory's own list.
    Column("position", Integer, nullable=False),
    Column("source_id", String(36), nullable=False),
    Column("key", String(256), nullable=False),
    Column("name", String(256), nullable=False),
    Column("destination_id", String(36), nullable=False),
)
Index("relations_once", relations.c.memory_id, relations.c.position, unique=True)
Index("relations_by_source", relations.c.source_id, relations.c.key)
Index("relations_by_destination", relations.c.destination_id)
