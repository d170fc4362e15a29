"""The tables of the graph. Entities belong to a user or to one of the user's projects.

What a memory states stands in the memory itself, by names. `mentions` says which entity each of these names means, and
`relations` is the same with entities in place of names. Both follow every change of the memory in its transaction, and
have no times of their own: a relation holds, and is known, as long as its memory is.
"""

from __future__ import annotations

from sqlalchemy import JSON, Boolean, Column, Index, Integer, LargeBinary, String, Table, Text, false

from palimpsest.store.schema import UtcTime, metadata, only_where

entities = Table(
    "entities",
    metadata,
    Column("seq", Integer, primary_key=True, autoincrement=True),
    Column("id", String(36), nullable=False, unique=True),
    Column("user_id", String(256), nullable=False),
    Column("project", String(256), nullable=False, server_default=""),
    Column("name", String(256), nullable=False),
    Column("type", String(16), nullable=False),
    Column("is_user", Boolean, nullable=False, server_default=false()),
    # The entity that this one is the same as. Mentions and relations keep the id they were stored with.
    Column("merged_into", String(36)),
    # The vector of the name, float16, and the embedder it is of: "" if it has none yet.
    Column("vector", LargeBinary),
    Column("embedder", String(128), nullable=False, server_default=""),
    Column("created_at", UtcTime, nullable=False),
)
Index("entities_by_user", entities.c.user_id, entities.c.project)
Index("entities_by_embedder", entities.c.embedder)
Index("entities_by_target", entities.c.merged_into, **only_where("merged_into IS NOT NULL"))
IS_USER = "is_user"
"""The condition for the user's own entity in the words of its index, which only a query in the same words uses."""
Index("entities_once", entities.c.user_id, unique=True, **only_where(IS_USER))

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

entity_history = Table(
    "entity_history",
    metadata,
    Column("seq", Integer, primary_key=True, autoincrement=True),
    Column("entity_id", String(36), nullable=False),
    # merge, split, rename or undo.
    Column("event", String(8), nullable=False),
    # What the edit changed of the entity, before and after it.
    Column("before", JSON, nullable=False),
    Column("after", JSON, nullable=False),
    Column("updated_at", UtcTime, nullable=False),
    Column("stage", String(64), nullable=False),
    Column("caller", String(256), nullable=False, server_default=""),
    # The number of the edit, by which it can be undone.
    Column("change", Integer, nullable=False),
    # A line for the log of edits.
    Column("text", Text, nullable=False, server_default=""),
)
Index("entity_history_by_entity", entity_history.c.entity_id, entity_history.c.seq)
Index("entity_history_by_change", entity_history.c.change)
