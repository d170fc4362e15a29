"""Erase what purged memories and messages name: mentions, relations, and entities, names and edits that only they knew.

An entity is kept as long as anything mentions it or an entity that was merged into it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from sqlalchemy import Connection, Row, delete, select, update

from palimpsest.core.entities import SELF_NAMES, name_key
from palimpsest.store.graph.care.told import told
from palimpsest.store.graph.identity.resolution import USER
from palimpsest.store.graph.tables import entities, entity_aliases, entity_history, mentions, relations
from palimpsest.store.mapping import chunks
from palimpsest.text.names.namesakes import bare_name


def erase(conn: Connection, user_id: str, memory_ids: Sequence[str], message_ids: Sequence[str]) -> tuple[str, ...]:
    """Erase what memories and messages of a user name and state, and return the names that nothing has any more."""
    named: dict[str, list[str]] = defaultdict(list)
    for kind, ids in (("memory", memory_ids), ("message", message_ids)):
        for chunk in chunks(ids):
            of_owners = (mentions.c.kind == kind, mentions.c.owner_id.in_(chunk))
            for row in conn.execute(select(mentions.c.entity_id, mentions.c.name).where(*of_owners)):
                named[row.entity_id].append(row.name)
            conn.execute(delete(mentions).where(*of_owners))
    for chunk in chunks(memory_ids):
        conn.execute(delete(relations).where(relations.c.memory_id.in_(chunk)))
    if not named:
        return ()
    known = {row.id: row for row in conn.execute(select(entities).where(entities.c.user_id == user_id))}
    edits = _edits(conn, user_id)
    touched = _connected(named.keys() & known.keys(), known, edits)
    erased = {name for names in named.values() for name in names} | _forget(conn, touched, known)
    erased = {name for name in erased if name_key(name) not in SELF_NAMES}
    _forget_edits(conn, touched, [row for row in edits if row.entity_id in touched], erased)
    return tuple(sorted(erased - _still_there(conn, erased, None)))


def _edits(conn: Connection, user_id: str) -> list[Row[Any]]:
    of_user = entity_history.c.entity_id.in_(select(entities.c.id).where(entities.c.user_id == user_id))
    return list(conn.execute(select(entity_history).where(of_user).order_by(entity_history.c.seq)))


def _connected(ids: AbstractSet[str], known: Mapping[str, Row[Any]], edits: Sequence[Row[Any]]) -> set[str]:
    """Return entities with all that were ever merged with them or split from them, directly or not."""
    linked: dict[str, set[str]] = defaultdict(set)
    pairs = [(row.id, row.merged_into) for row in known.values() if row.merged_into is not None]
    pairs += [(row.entity_id, other) for row in edits for other in told(row) & known.keys()]
    for one, other in pairs:
        linked[one].add(other)
        linked[other].add(one)
    connected, new = set(ids), set(ids)
    while new:
        new = {other for one in new for other in linked[one]} - connected
        connected |= new
    return connected & known.keys()


def _forget(conn: Connection, touched: AbstractSet[str], known: Mapping[str, Row[Any]]) -> set[str]:
    """Erase entities that nothing mentions and aliases that no mention has, and return the names that they had."""
    names = _names(conn, touched)
    of_group = _of_group(names, known)
    erased: set[str] = set()
    for entity_id in sorted(touched):
        entity, is_of = known[entity_id], entity_aliases.c.entity_id == entity_id
        aliases = conn.execute(select(entity_aliases).where(is_of).order_by(entity_aliases.c.key)).all()
        if entity_id not in of_group:
            erased |= {entity.name, *(alias.name for alias in aliases)}
            conn.execute(delete(entity_aliases).where(is_of))
            conn.execute(delete(entities).where(entities.c.id == entity_id))
            continue
        erased |= _forget_aliases(conn, aliases, _with_bare_names(names.get(entity_id, {})))
        given = [alias.name for alias in aliases if alias.given]
        stated = [*given, USER] if entity.is_user else [*given, *of_group[entity_id]]
        if entity.name not in stated:
            erased.add(entity.name)
            values = {"name": stated[0], "vector": None, "embedder": ""}
            conn.execute(update(entities).where(entities.c.id == entity_id).values(**values))
    return erased


def _with_bare_names(names: Mapping[str, list[str]]) -> dict[str, list[str]]:
    """Return names by their keys, and with "Tom (plumber)" also "Tom"."""
    known = {key: list(called) for key, called in names.items()}
    for name in (name for called in names.values() for name in called):
        if bare := bare_name(name):
            known.setdefault(name_key(bare), []).append(bare)
    return known


def _forget_aliases(conn: Connection, aliases: Sequence[Row[Any]], names: Mapping[str, list[str]]) -> set[str]:
    """Erase the aliases that nobody gave and no mention has, and spellings of the others that no mention has."""
    erased: set[str] = set()
    for alias in aliases:
        if alias.given or alias.name in names.get(alias.key, ()):
            continue
        erased.add(alias.name)
        is_it = (entity_aliases.c.entity_id == alias.entity_id, entity_aliases.c.key == alias.key)
        if alias.key in names:
            conn.execute(update(entity_aliases).where(*is_it).values(name=names[alias.key][0]))
        else:
            conn.execute(delete(entity_aliases).where(*is_it))
    return erased


def _names(conn: Connection, ids: AbstractSet[str]) -> dict[str, dict[str, list[str]]]:
    """Return how mentions call entities: by the id of the entity and by the key of the name, oldest first."""
    names: dict[str, dict[str, list[str]]] = {}
    for chunk in chunks(sorted(ids)):
        of_entities = mentions.c.entity_id.in_(chunk)
        for row in conn.execute(select(mentions).where(of_entities).order_by(mentions.c.seq)):
            names.setdefault(row.entity_id, {}).setdefault(row.key, []).append(row.name)
    return names


def _of_group(names: Mapping[str, Mapping[str, list[str]]], known: Mapping[str, Row[Any]]) -> dict[str, list[str]]:
    """Return how each entity and all that was merged into it are called. Its own names come first."""
    own = {entity_id: [name for of_key in by_key.values() for name in of_key] for entity_id, by_key in names.items()}
    of_group = {entity_id: list(called) for entity_id, called in own.items()}
    for entity_id, called in own.items():
        target, seen = known[entity_id].merged_into, {entity_id}
        while target in known and target not in seen:
            seen.add(target)
            of_group.setdefault(target, []).extend(called)
            target = known[target].merged_into
    return of_group


def _still_there(conn: Connection, names: AbstractSet[str], ids: AbstractSet[str] | None) -> set[str]:
    """Return which of these names something has: these entities, or with None any."""
    present: set[str] = set()
    for name_column, id_column in (
        (entities.c.name, entities.c.id),
        (entity_aliases.c.name, entity_aliases.c.entity_id),
        (mentions.c.name, mentions.c.entity_id),
    ):
        query = select(name_column).distinct()
        if ids is None:
            queries = [query.where(name_column.in_(chunk)) for chunk in chunks(sorted(names))]
        else:
            queries = [query.where(id_column.in_(chunk)) for chunk in chunks(sorted(ids))]
        present.update(name for each in queries for name in conn.execute(each).scalars())
    return present & names


def _forget_edits(conn: Connection, touched: AbstractSet[str], edits: Sequence[Row[Any]], erased: set[str]) -> None:
    """Erase the edits that tell of an erased entity or name. They cannot be undone any more."""
    present: set[str] = set()
    for chunk in chunks(sorted(touched)):
        present.update(conn.execute(select(entities.c.id).where(entities.c.id.in_(chunk))).scalars())
    names = erased - _still_there(conn, erased, touched)
    gone = (touched - present) | {form for name in names for form in (name.casefold(), name_key(name))}
    for row in edits:
        texts = [text.casefold() for text in told(row)]
        if any(name in text for name in gone for text in texts):
            conn.execute(delete(entity_history).where(entity_history.c.seq == row.seq))
