"""Export entities and what memories mention, and import them into a ledger that may know some of them already.

An entity comes after the one that it was merged into. Its aliases that nobody gave are not exported: they are the names
by which memories mention it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, Row, insert, select, update

from palimpsest.core.clock import exact_iso
from palimpsest.core.entities import name_key
from palimpsest.store.graph.care.namesakes import namesakes
from palimpsest.store.graph.care.told import texts_in, told, with_ids
from palimpsest.store.graph.groups import users_own
from palimpsest.store.graph.identity import aliases
from palimpsest.store.graph.tables import entities, entity_aliases, entity_history, mentions
from palimpsest.store.mapping import chunks
from palimpsest.store.schema import memories, messages

Item = Mapping[str, Any]

ENTITY = ("id", "project", "name", "is_user", "merged_into")
HISTORY = ("event", "before", "after", "updated_at", "stage", "caller", "text")


@dataclass(slots=True)
class ImportedEntities:
    """What an import knows of the entities of its file.

    `of_file` are the ids of all of them, and `only_purged` those that only memories and messages mention that a person
    purged here. `here` maps ids of the file to ids of the ledger.
    """

    of_file: frozenset[str] = frozenset()
    only_purged: frozenset[str] = frozenset()
    here: dict[str, str] = field(default_factory=dict[str, str])


@dataclass(slots=True)
class MentionsOfFile:
    """What mentions the entities of a file, as far as it was read.

    `merged_into` has every entity. `kept` are those that something mentions that comes into the ledger.
    """

    merged_into: dict[str, str | None] = field(default_factory=dict[str, str | None])
    kept: set[str] = field(default_factory=set[str])
    purged: set[str] = field(default_factory=set[str])

    def read(self, item: Item, *, was_purged: bool) -> None:
        """Note an entity, or what a memory or message mentions that was purged here or not."""
        if item["type"] == "entity":
            self.merged_into[item["id"]] = item["merged_into"]
        (self.purged if was_purged else self.kept).update(each["entity_id"] for each in item.get("mentions", ()))

    def only_purged(self) -> frozenset[str]:
        """Return the entities that only what was purged mentions, and those that were merged into one of them."""
        kept = set(self.kept)
        for entity_id, target in reversed(self.merged_into.items()):  # a target comes before what was merged into it
            if target is not None and entity_id in kept:
                kept.add(target)
        without: set[str] = set()
        for entity_id, target in self.merged_into.items():
            if target in without or (entity_id in self.purged and entity_id not in kept):
                without.add(entity_id)
        return frozenset(without)


def is_of_other_user(conn: Connection, user_id: str, item: Item) -> bool:
    """Return whether an entity of an export, or what its edits tell of, is another user's here. Ids are unique."""
    ids = {item["id"]}
    for version in item["history"]:
        ids |= texts_in(version["before"]) | texts_in(version["after"])
    return any(
        conn.execute(select(table.c.seq).where(table.c.id.in_(chunk), table.c.user_id != user_id)).first() is not None
        for table in (entities, memories, messages)
        for chunk in chunks(sorted(ids))
    )


def entities_of(conn: Connection, user_id: str) -> list[Row[Any]]:
    """Return the entities of a user: an entity after the one that it was merged into, else oldest first."""
    rows = conn.execute(select(entities).where(entities.c.user_id == user_id).order_by(entities.c.seq)).all()
    into = {row.id: row.merged_into for row in rows}
    return sorted(rows, key=lambda row: _depth(row.id, into))


def _depth(entity_id: str, into: Mapping[str, str | None]) -> int:
    """Return how many merges lead from an entity to the one that stands for it."""
    seen = {entity_id}
    while (target := into.get(entity_id)) is not None and target not in seen:
        seen.add(target)
        entity_id = target
    return len(seen)


def entity_item(conn: Connection, row: Row[Any]) -> tuple[dict[str, Any], list[Row[Any]]]:
    """Return an entity as an item of an export, without its history, and the rows of its history."""
    given = (entity_aliases.c.entity_id == row.id, entity_aliases.c.given)
    aliases = conn.execute(select(entity_aliases.c.name).where(*given).order_by(entity_aliases.c.key)).scalars()
    of_entity = select(entity_history).where(entity_history.c.entity_id == row.id).order_by(entity_history.c.seq)
    item = {
        "type": "entity",
        **dict.fromkeys(("agent_id", "run_id"), ""),
        **{name: getattr(row, name) for name in ENTITY},
        "entity_type": row.type,
        "aliases": list(aliases),
        "created_at": exact_iso(row.created_at),
    }
    return item, list(conn.execute(of_entity).all())


def mentions_of(conn: Connection, kind: str, owner_id: str) -> list[dict[str, str]]:
    """Return which entity each name of a memory or message means, as an item of an export has it."""
    of_owner = (mentions.c.kind == kind, mentions.c.owner_id == owner_id)
    query = select(mentions.c.name, mentions.c.entity_id).where(*of_owner).order_by(mentions.c.seq)
    return [{"name": row.name, "entity_id": row.entity_id} for row in conn.execute(query)]


def find(conn: Connection, user_id: str, item: Item, imported: ImportedEntities) -> str | None:
    """Return the id of the entity that an item of an export is here, and remember it; None if it is new.

    It is the one with its id, the user's own, or one of its project with its name and a type that fits. An entity that
    was merged stays one of its own, and so do two of a file that have one name.
    """
    known = conn.execute(select(entities.c.id).where(entities.c.id == item["id"])).scalar()
    if known is None and item["is_user"]:
        known = users_own(conn, user_id)
    elif known is None and item["merged_into"] is None:
        taken = imported.of_file | set(imported.here.values())
        same = namesakes(conn, user_id, item["project"], item["name"], item["entity_type"])
        known = next((row.id for row in same if row.id not in taken), None)
    imported.here[item["id"]] = known or item["id"]
    return known


def store(conn: Connection, user_id: str, item: Item, past: Sequence[Item], imported: ImportedEntities) -> bool:
    """Store an entity of an export, unless it is known or only what was purged mentions it. Return whether it is new.

    `past` are the rows of its history, with the edit numbers of this ledger.
    """
    if item["id"] in imported.only_purged:
        return False
    known = find(conn, user_id, item, imported)
    entity_id = imported.here[item["id"]]
    if known is None:
        row = {name: item[name] for name in ENTITY} | {"type": item["entity_type"], "created_at": item["created_at"]}
        into = item["merged_into"]
        row |= {"user_id": user_id, "merged_into": None if into is None else imported.here[into]}
        conn.execute(insert(entities), row)
        for version in past:
            if not (texts_in(version["before"]) | texts_in(version["after"])) & imported.only_purged:
                states = {part: with_ids(version[part], imported.here) for part in ("before", "after")}
                conn.execute(insert(entity_history), {**version, **states, "entity_id": entity_id})
    elif known != item["id"]:
        _correct_ids(conn, user_id, {item["id"]: known})
    of_entity = (entity_aliases.c.entity_id == entity_id, entity_aliases.c.given)
    given = set(conn.execute(select(entity_aliases.c.key).where(*of_entity)).scalars())
    for name in item["aliases"]:
        if name_key(name) not in given:
            aliases.give(conn, entity_id, name_key(name), name)
    return known is None


def _correct_ids(conn: Connection, user_id: str, here: dict[str, str]) -> None:
    """Correct the ids in rows of history that were imported before it was known which entity they mean here."""
    of_user = entity_history.c.entity_id.in_(select(entities.c.id).where(entities.c.user_id == user_id))
    for row in conn.execute(select(entity_history).where(of_user)).all():
        if told(row) & here.keys():
            states = {"before": with_ids(row.before, here), "after": with_ids(row.after, here)}
            conn.execute(update(entity_history).where(entity_history.c.seq == row.seq).values(**states))


def store_mentions(conn: Connection, kind: str, owner: Item, imported: ImportedEntities) -> None:
    """Store which entity each name of an imported memory or message means."""
    present = None if kind == "message" else _stated_keys(owner)
    for mention in owner.get("mentions", ()):
        entity_id, name = imported.here[mention["entity_id"]], mention["name"]
        key = name_key(name)
        row = {"kind": kind, "owner_id": owner["id"], "key": key, "name": name, "entity_id": entity_id}
        conn.execute(insert(mentions), {**row, "current": present is None or key in present})
        aliases.add(conn, entity_id, key, name)


def _stated_keys(memory: Item) -> set[str]:
    """Return the keys of the names that the present version of an exported memory has."""
    named = [name for name, _ in memory.get("entities") or ()]
    ends = [end for relation in memory.get("relations") or () for end in (relation[0], relation[2])]
    return {name_key(name) for name in (*named, *ends)}
