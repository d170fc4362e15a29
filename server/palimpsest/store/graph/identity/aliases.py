"""The names of entities. One that an edit gave stays; the others last as long as something mentions the entity so.

An entity that is called "Tom (plumber)" is also found as "Tom".
"""

from __future__ import annotations

from sqlalchemy import Connection, bindparam, delete, exists, func, insert, or_, select, update

from palimpsest.core.entities import SELF_NAMES, name_key
from palimpsest.store.graph.tables import entities, entity_aliases, mentions
from palimpsest.store.mapping import Query
from palimpsest.text.names.namesakes import bare_name


def add(conn: Connection, entity_id: str, key: str, name: str) -> None:
    """Add the name by which something mentions an entity, unless it has it. What every user is called is no alias."""
    if key in SELF_NAMES or conn.execute(_KNOWN, {"entity": entity_id, "of": key}).first() is not None:
        return
    user_id = conn.execute(select(entities.c.user_id).where(entities.c.id == entity_id)).scalar_one()
    conn.execute(insert(entity_aliases), {"entity_id": entity_id, "key": key, "name": name, "user_id": user_id})
    if bare := bare_name(name):
        add(conn, entity_id, name_key(bare), bare)


def give(conn: Connection, entity_id: str, key: str, name: str | None) -> None:
    """Give an entity a name that stays, or with None take it back: then it lasts as long as something uses it."""
    if name is None:
        conn.execute(_SET_GIVEN, {"entity": entity_id, "of": key, "is_given": False})
        drop_unused(conn, entity_id, key)
        return
    add(conn, entity_id, key, name)
    conn.execute(_SET_GIVEN, {"entity": entity_id, "of": key, "is_given": True})
    conn.execute(update(entity_aliases).where(_OF_ENTITY).values(name=name), {"entity": entity_id, "of": key})


def drop_unused(conn: Connection, entity_id: str, key: str) -> None:
    """Remove a name that no edit gave and that nothing mentions the entity by."""
    conn.execute(_DROP, {"entity": entity_id, "of": key})
    bare, bracket, _ = key.rpartition("(")
    if bracket:
        conn.execute(_DROP, {"entity": entity_id, "of": bare.strip()})


_OF_ENTITY = (entity_aliases.c.entity_id == bindparam("entity")) & (entity_aliases.c.key == bindparam("of"))
_KNOWN: Query = select(entity_aliases.c.key).where(_OF_ENTITY)
_SET_GIVEN = update(entity_aliases).where(_OF_ENTITY).values(given=bindparam("is_given"))
_LENGTH = func.length(entity_aliases.c.key)
_USED = exists().where(
    mentions.c.entity_id == entity_aliases.c.entity_id,
    or_(
        mentions.c.key == entity_aliases.c.key,
        func.substr(mentions.c.key, 1, _LENGTH + 2) == entity_aliases.c.key + " (",
        func.substr(mentions.c.key, 1, _LENGTH + 1) == entity_aliases.c.key + "(",
    ),
)
_DROP = delete(entity_aliases).where(_OF_ENTITY, entity_aliases.c.given.is_(False), ~_USED)
