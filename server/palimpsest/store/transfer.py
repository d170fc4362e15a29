"""Export rows from a ledger and import them into another: every message and memory with its history, as JSON values.

Ids, times and history stay the same. Vectors, the full text and the index log are not exported, because they can be
rebuilt. Edit numbers are exported as ranks (1 is the user's first edit), so that the same memory gives the same file
from every ledger.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Literal, TypeAlias

from sqlalchemy import Connection, Row, Table, and_, bindparam, delete, insert, or_, select, update

from palimpsest.core.clock import exact_iso
from palimpsest.core.models import IMPORT, UNDO, Provenance, Scope, name_key
from palimpsest.store import contextual_keys, documents, entries, links, projects, rows, usage, writes
from palimpsest.store import messages as message_queries
from palimpsest.store import schema as db
from palimpsest.store import summaries as summary_queries
from palimpsest.store.database import FullText
from palimpsest.store.entries import Transaction, meta_value, next_edit_number, put_entry, reserve_edit_numbers
from palimpsest.store.graph import identity, statements
from palimpsest.store.graph.identity import texts_in, told, users_own, with_ids
from palimpsest.store.history import edits_of_entities
from palimpsest.store.memories import memories_by_id
from palimpsest.store.projects import namesakes
from palimpsest.store.undo import bring_back, fate_of

# Export entities and what memories mention, and import them into a ledger that may know some of them already.
#
# An entity comes after the one that it was merged into. Its aliases that nobody gave are not exported: they are the
# names by which memories mention it.

Item = Mapping[str, Any]

_TIME = ("created_at",)
ALIAS = ("agent_id", "run_id", *projects.ITEM, *_TIME)
CONVERSATION = (*writes.ITEM, *_TIME)
ENTITY = ("id", "project", "name", "is_user", "merged_into")
ENTITY_HISTORY = ("event", "before", "after", "updated_at", "stage", "caller", "text")


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


def entities_of(conn: Connection, user_id: str) -> list[Row[Any]]:
    """Return the entities of a user: an entity after the one that it was merged into, else oldest first."""
    found = _rows(conn, db.entities, user_id=user_id)
    into = {row.id: row.merged_into for row in found}
    return sorted(found, key=lambda row: _depth(row.id, into))


def _depth(entity_id: str, into: Mapping[str, str | None]) -> int:
    """Return how many merges lead from an entity to the one that stands for it."""
    seen = {entity_id}
    while (target := into.get(entity_id)) is not None and target not in seen:
        seen.add(target)
        entity_id = target
    return len(seen)


def _entity_item(conn: Connection, row: Row[Any]) -> dict[str, Any]:
    """Return an entity as an item of an export, without its history."""
    aliases = select(db.entity_aliases.c.name).filter_by(entity_id=row.id, given=True).order_by(db.entity_aliases.c.key)
    return {
        "type": "entity",
        **_values(row, ("agent_id", "run_id", *ENTITY)),
        "entity_type": row.type,
        "aliases": list(conn.execute(aliases).scalars()),
        **_values(row, _TIME),
    }


def mentions_of(conn: Connection, kind: str, owner_id: str) -> list[dict[str, str]]:
    """Return which entity each name of a memory or message means, as an item of an export has it."""
    named = _rows(conn, db.mentions, kind=kind, owner_id=owner_id)
    return [{"name": row.name, "entity_id": row.entity_id} for row in named]


def find(conn: Connection, user_id: str, item: Item, imported: ImportedEntities) -> str | None:
    """Return the id of the entity that an item of an export is here, and remember it; None if it is new.

    It is the one with its id, the user's own, or one of its project with its name and a type that fits. An entity that
    was merged stays one of its own, and so do two of a file that have one name.
    """
    known = conn.execute(select(db.entities.c.id).where(db.entities.c.id == item["id"])).scalar()
    if known is None and item["is_user"]:
        own = users_own(conn, user_id)
        known = None if own is None else own.id
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
        conn.execute(insert(db.entities), row)
        for version in past:
            if not (texts_in(version["before"]) | texts_in(version["after"])) & imported.only_purged:
                states = {part: with_ids(version[part], imported.here) for part in ("before", "after")}
                conn.execute(insert(db.entity_history), {**version, **states, "entity_id": entity_id})
    elif known != item["id"]:
        _correct_ids(conn, user_id, {item["id"]: known})
    given = set(conn.execute(select(db.entity_aliases.c.key).filter_by(entity_id=entity_id, given=True)).scalars())
    for name in item["aliases"]:
        if name_key(name) not in given:
            identity.give(conn, entity_id, name_key(name), name)
    return known is None


def _correct_ids(conn: Connection, user_id: str, here: dict[str, str]) -> None:
    """Correct the ids in rows of history that were imported before it was known which entity they mean here."""
    for row in edits_of_entities(conn, user_id):
        if told(row) & here.keys():
            states = {"before": with_ids(row.before, here), "after": with_ids(row.after, here)}
            conn.execute(update(db.entity_history).where(db.entity_history.c.seq == row.seq).values(**states))


def store_mentions(conn: Connection, kind: str, owner: Item, imported: ImportedEntities) -> None:
    """Store which entity each name of an imported memory or message means."""
    present = None if kind == "message" else _stated_keys(owner)
    for mention in owner.get("mentions", ()):
        entity_id, name = imported.here[mention["entity_id"]], mention["name"]
        key = name_key(name)
        row = {"kind": kind, "owner_id": owner["id"], "key": key, "name": name, "entity_id": entity_id}
        conn.execute(insert(db.mentions), {**row, "current": present is None or key in present})
        identity.add(conn, entity_id, key, name)


def _stated_keys(memory: Item) -> set[str]:
    """Return the keys of the names that the present version of an exported memory has."""
    named = [name for name, _ in memory.get("entities") or ()]
    ends = [end for relation in memory.get("relations") or () for end in (relation[0], relation[2])]
    return {name_key(name) for name in (*named, *ends)}


# Export and import summaries, with what they rest on: so that one that is imported is outdated by the same edits.

_NAMES = ("project", "agent_id", "run_id", "kind", "text", "model", "prompt", "created_at")


def items_of(conn: Connection, user_id: str) -> Iterator[dict[str, Any]]:
    """Yield every summary of a user as an item, oldest first."""
    for row in conn.execute(select(db.summaries).where(db.summaries.c.user_id == user_id).order_by(db.summaries.c.id)):
        of_memories, message_ids = summary_queries.read(conn, row.id)
        rests_on = {"sources": dict(of_memories), "message_ids": list(message_ids)}
        yield {"type": "summary", **_values(row, _NAMES), **(rests_on if of_memories or message_ids else {})}


def known(conn: Connection, scope: Scope, item: Mapping[str, Any]) -> int | None:
    """Return the row number of a summary that the ledger has already, or None."""
    columns = (db.summaries.c[name] == item[name] for name in ("kind", "text", "created_at"))
    return conn.execute(select(db.summaries.c.id).where(rows.is_scope(db.summaries, scope), *columns).limit(1)).scalar()


def store_item(conn: Connection, scope: Scope, item: Mapping[str, Any], owner_ids: Mapping[str, str]) -> bool:
    """Store a summary unless it is known, and return whether it was stored.

    `owner_ids` maps ids of memories and messages in the file to those in the ledger.
    """
    if known(conn, scope, item) is not None:
        return False
    # The number it was current to belongs to another ledger. As nobody knows what it includes, everything comes later.
    values = {name: item[name] for name in _NAMES}
    stored = insert(db.summaries).values(user_id=scope.user_id, seq=0, **values).returning(db.summaries.c.id)
    summary_id = conn.execute(stored).scalar_one()
    rests_on: Mapping[str, int] = item.get("sources", {})
    of_memories = {owner_ids.get(memory_id, memory_id): revision for memory_id, revision in rests_on.items()}
    of_messages = [owner_ids.get(message_id, message_id) for message_id in item.get("message_ids", ())]
    summary_queries.store(conn, summary_id, of_memories, of_messages)
    return True


MESSAGE = ("id", "project", "agent_id", "run_id", "role", "name", "content", "external_id", "session_id", "said_at")
MESSAGE_STATE = ("created_at", "learnt", "deleted_at")
MESSAGE_HISTORY = ("event", "updated_at", "stage", "caller")
MEMORY = ("id", "project", "agent_id", "run_id", "text", *(field.name for field in rows.MEMORY_FIELDS))
_NOT_EXPORTED = ("seq", "memory_id", "change", "recorded_at")
HISTORY = tuple(column.name for column in db.history.c if column.name not in _NOT_EXPORTED)


ITEM_TYPES = ("alias", "conversation", "entity", "message", "memory", "summary")

# What the ledger has of an item of an import: nothing, the item, an item that an undo took back, an item that a person
# deleted, or only the id of one that a person purged.
Standing: TypeAlias = Literal["new", "known", "undone", "deleted", "purged"]


@dataclass(slots=True)
class ImportState:
    """What an import has done so far.

    `stored` and `known` count the new items and the items that were there already, by type. `key` names the file and
    `total` is its number of items: an interrupted import continues with the edit numbers it began with. `owner_ids`
    maps ids of messages and memories of the file to ids of the ledger, and `entities` does so for entities. Edit
    numbers of the file are added to `base`. Imported texts have no vectors yet. `deleted` counts the new items that are
    deleted in the file, and `left_out` the known items that stay deleted or erased, because a person deleted or purged
    them here.
    """

    key: str = ""
    total: int = 0
    stored: dict[str, int] = field(default_factory=lambda: dict.fromkeys(ITEM_TYPES, 0))
    known: dict[str, int] = field(default_factory=lambda: dict.fromkeys(ITEM_TYPES, 0))
    deleted: int = 0
    left_out: dict[str, int] = field(default_factory=lambda: {"deleted": 0, "purged": 0})
    owner_ids: dict[str, str] = field(default_factory=dict[str, str])
    entities: ImportedEntities = field(default_factory=ImportedEntities)
    base: int = 0


def count(conn: Connection, user_id: str) -> int:
    """Return the number of items that `export_items` yields."""
    tables = (db.project_aliases, db.conversations, db.entities, db.messages, db.memories, db.summaries)
    return sum(rows.count(conn, table.c.user_id == user_id) for table in tables)


def export_items(conn: Connection, user_id: str) -> Iterator[dict[str, Any]]:
    """Yield every alias of a project, conversation, entity, message, memory and summary of a user, oldest first."""
    of_user = select(db.project_aliases).filter_by(user_id=user_id)
    for row in conn.execute(of_user.order_by(db.project_aliases.c.kind, db.project_aliases.c.alias)):
        yield {"type": "alias", **_values(row, ALIAS)}
    for row in _rows(conn, db.conversations, user_id=user_id):
        yield {"type": "conversation", **_values(row, CONVERSATION)}
    rank = _ranks(conn, user_id)

    def past(table: Table, names: Sequence[str], **owner: str) -> list[dict[str, Any]]:
        return [_ranked(version, names, rank) for version in _rows(conn, table, **owner)]

    for row in entities_of(conn, user_id):
        yield {**_entity_item(conn, row), "history": past(db.entity_history, ENTITY_HISTORY, entity_id=row.id)}
    of_user = select(db.messages).where(db.messages.c.user_id == user_id).order_by(db.messages.c.seq)
    for row in conn.execute(of_user):
        named = mentions_of(conn, "message", row.id)
        also = documents.exported(conn, row) | ({"mentions": named} if named else {})
        versions = past(db.message_history, MESSAGE_HISTORY, message_id=row.id)
        yield {"type": "message", **_values(row, MESSAGE + MESSAGE_STATE), **also, "history": versions}
    sources = (
        select(db.memory_sources.c.message_id, db.memory_sources.c.history_id)
        .join(db.messages, db.messages.c.id == db.memory_sources.c.message_id)
        .order_by(db.messages.c.seq)
    )
    for row in conn.execute(select(db.memories).where(db.memories.c.user_id == user_id).order_by(db.memories.c.seq)):
        cited = conn.execute(sources.where(db.memory_sources.c.memory_id == row.id)).mappings()
        also = {"mentions": mentions_of(conn, "memory", row.id), **usage.exported(conn, row.id)}
        versions = past(db.history, HISTORY, memory_id=row.id)
        item = {"type": "memory", **_values(row, MEMORY), **also, "history": versions}
        yield {**item, "sources": [dict(source) for source in cited]}
    yield from items_of(conn, user_id)


def reserve_edits(conn: Connection, state: ImportState, edits: int) -> None:
    """Reserve as many edit numbers for an import as its file has edits, before its first batch."""
    if not edits:
        return
    if (begun := meta_value(conn, state.key)) is not None:
        state.base = int(begun)
        return
    state.base = next_edit_number(conn) - 1
    reserve_edit_numbers(conn, state.base + edits)
    conn.execute(insert(db.meta).values(key=state.key, value=str(state.base)))


def import_items(
    conn: Connection, full_text: FullText, user_id: str, items: Sequence[Item], state: ImportState, now: datetime
) -> None:
    """Store the items that are not known yet for a user, and index them. Times in items are datetimes.

    What belongs to a project that was moved here goes to where it was moved: nobody looks in the old one any more.
    """
    touched = entries.TouchedEntries()
    names = {project: projects.current_name(conn, user_id, project) for project in {item["project"] for item in items}}
    for item in ({**item, "project": names[item["project"]]} for item in items):
        scope = Scope(user_id, item["project"], item["agent_id"], item["run_id"])
        tx = Transaction(conn, scope, Provenance(IMPORT, caller="cli"), now, 0, touched)
        is_new = _store(tx, item, state)
        (state.stored if is_new else state.known)[item["type"]] += 1
        state.deleted += is_new and item.get("deleted_at") is not None
    contextual_keys.index(conn, full_text, touched, now)
    if sum(state.stored.values()) + sum(state.known.values()) == state.total:
        conn.execute(delete(db.meta).where(db.meta.c.key == state.key))
        writes.erase_empty(conn)  # a title would tell of messages that were purged and stay so


def _store(tx: Transaction, item: Item, state: ImportState) -> bool:
    """Store an item, or bring back what an undo took back. Return whether there is something now that was not."""
    if item["type"] == "alias":
        return projects.store_item(tx.conn, tx.scope.user_id, item)
    if item["type"] == "conversation":
        return writes.store_item(tx.conn, tx.scope, item)
    if item["type"] == "entity":
        past = [_edit(version, ENTITY_HISTORY, state.base) for version in item["history"]]
        return store(tx.conn, tx.scope.user_id, item, past, state.entities)
    if item["type"] == "summary":
        return store_item(tx.conn, tx.scope, item, state.owner_ids)
    standing, known = _standing(tx.conn, tx.scope, item, state)
    state.owner_ids[item["id"]] = known or item["id"]
    if item["type"] == "memory":
        item = links.imported(tx.conn, tx.scope.user_id, item, state.owner_ids)
    if standing in state.left_out:
        state.left_out[standing] += 1
        return False
    if known is not None and standing != "known":
        tx = replace(tx, edit=state.base + max(version["change"] for version in item["history"]))
        return bring_back(tx, item, known)
    if known is not None:
        return False
    (_store_message if item["type"] == "message" else _store_memory)(tx, item, state)
    return True


def standing_of(conn: Connection, user_id: str, item: Item, state: ImportState) -> Standing:
    """Return what the ledger has of an item, by its id or with the same content in its scope."""
    item = {**item, "project": projects.current_name(conn, user_id, item["project"])}
    return _standing(conn, Scope(user_id, item["project"], item["agent_id"], item["run_id"]), item, state)[0]


def _standing(conn: Connection, scope: Scope, item: Item, state: ImportState) -> tuple[Standing, str | None]:
    """Return what the ledger has of an item, and the id it has here."""
    match item["type"]:
        case "alias":
            found = "" if projects.is_known(conn, scope.user_id, item) else None
        case "conversation":
            found = writes.find_conversation(conn, scope, item["session_id"])
        case "entity" if item["id"] in state.entities.only_purged:
            found = item["id"]
        case "entity":
            found = find(conn, scope.user_id, item, state.entities)
        case "summary":
            found = known(conn, scope, item)
        case kind:
            found = (_known_message if kind == "message" else _known_memory)(conn, scope, item)
            if found is None and was_purged(conn, item):
                return "purged", None
            if found is not None and not item["deleted_at"]:
                return fate_of(conn, kind, found), found
    return ("new", None) if found is None else ("known", str(found))


def was_purged(conn: Connection, item: Item) -> bool:
    """Return whether a person purged the memory or message that an item is."""
    return rows.has_row(conn, select(db.purged.c.owner_id).where(db.purged.c.owner_id == item.get("id")))


def belongs_to_other_user(conn: Connection, user_id: str, item: Item) -> bool:
    """Return whether an id of an item is the id of another user's message, memory or entity. Ids are unique.

    Those of an entity are also what its edits tell of.
    """
    tables = {"message": [db.messages], "memory": [db.memories], "entity": [db.entities, db.memories, db.messages]}
    states = [version[part] for version in item.get("history", ()) for part in ("before", "after") if part in version]
    ids = {item.get("id"), *(text for state in states for text in texts_in(state))}
    return any(
        rows.has_row(conn, select(table.c.seq).where(rows.among(table.c.id, ids), table.c.user_id != user_id))
        for table in tables.get(item["type"], ())
    )


def _known_message(conn: Connection, scope: Scope, item: Item) -> str | None:
    is_named = and_(db.messages.c.external_id != "", db.messages.c.external_id == item["external_id"])
    same_text = db.messages.c.content_hash == rows.content_hash(item["content"])
    is_known = or_(db.messages.c.id == item["id"], and_(rows.is_scope(db.messages, scope), is_named, same_text))
    return conn.execute(select(db.messages.c.id).where(is_known).limit(1)).scalar()


def _known_memory(conn: Connection, scope: Scope, item: Item) -> str | None:
    values = {**rows.scope_values(scope), "id": item["id"], "digest": rows.memory_hash(item["text"])}
    return conn.execute(_KNOWN_DELETED_MEMORY if item["deleted_at"] else _KNOWN_MEMORY, values).scalar()


_SAME_ID = db.memories.c.id == bindparam("id")
_KNOWN_DELETED_MEMORY: rows.Query = select(db.memories.c.id).where(_SAME_ID).limit(1)

# A living duplicate comes first: then nothing is brought back.
_KNOWN_MEMORY: rows.Query = (
    select(db.memories.c.id)
    .where(or_(_SAME_ID, writes.IS_DUPLICATE))
    .order_by(db.memories.c.deleted_at.is_not(None))
    .limit(1)
)


def _store_message(tx: Transaction, item: Item, state: ImportState) -> None:
    values = {name: item[name] for name in MESSAGE + MESSAGE_STATE} | {"user_id": tx.scope.user_id}
    values |= {"content_hash": rows.content_hash(item["content"]), "change": state.base + item["history"][0]["change"]}
    tx.conn.execute(insert(db.messages), values)
    if gist := item.get("gist"):
        documents.put(tx.conn, {item["id"]: documents.Gist(gist["text"], gist["model"], gist["prompt"])})
    store_mentions(tx.conn, "message", item, state.entities)
    _store_history(tx, db.message_history, MESSAGE_HISTORY, item, state, message_id=item["id"])
    put_entry(tx, "message", item["id"], tx.scope, item["content"])
    tx.touched.messages.add(item["id"])


def _store_history(
    tx: Transaction, table: Table, names: Sequence[str], item: Item, state: ImportState, **owner: str
) -> None:
    for version in item["history"]:
        row = {**_edit(version, names, state.base), **owner, "recorded_at": version.get("recorded_at")}
        tx.conn.execute(insert(table), row)


def _store_memory(tx: Transaction, item: Item, state: ImportState) -> None:
    values = {name: item.get(name) for name in MEMORY}  # files of other tools have no entities
    values |= {"user_id": tx.scope.user_id, "content_hash": rows.memory_hash(item["text"])}
    tx.conn.execute(insert(db.memories), values)
    store_mentions(tx.conn, "memory", item, state.entities)
    numbered = replace(tx, edit=state.base + max(version["change"] for version in item["history"]))
    stored = memories_by_id(tx.conn, [item["id"]])[item["id"]]
    links.put(tx.conn, stored)
    usage.restore(tx.conn, item["id"], item.get("strength"), item.get("used_at"))
    statements.put(numbered, stored)
    _store_history(tx, db.history, HISTORY, item, state, memory_id=item["id"])
    for source in item["sources"]:
        message_id = state.owner_ids.get(source["message_id"])
        if message_id is not None and message_queries.messages_by_id(tx.conn, [message_id]):
            cited = {"memory_id": item["id"], "message_id": message_id, "history_id": source["history_id"]}
            tx.conn.execute(insert(db.memory_sources).values(**cited))
    put_entry(tx, "memory", item["id"], tx.scope, item["text"])
    tx.touched.memories.add(item["id"])


def _ranks(conn: Connection, user_id: str) -> dict[int, int]:
    numbers: set[int] = set()
    for _, owners, table, owner_id in db.HISTORIES:
        query = select(table.c.change).join(owners, owners.c.id == owner_id).where(owners.c.user_id == user_id)
        numbers.update(conn.execute(query.distinct()).scalars())
    return {number: rank for rank, number in enumerate(sorted(numbers), 1)}


def _ranked(row: Row[Any], names: Sequence[str], rank: Mapping[int, int]) -> dict[str, Any]:
    """Return a row of history as JSON values, with ranks in place of edit numbers.

    Only a row of an import from another tool has `recorded_at`.
    """
    values = _values(row, names if getattr(row, "recorded_at", None) is None else (*names, "recorded_at"))
    # An edit that was purged since has no rank. "?" matches no edit.
    return {**values, "stage": _undoing(row.stage, lambda number: rank.get(number, "?")), "change": rank[row.change]}


def _edit(version: Item, names: Sequence[str], base: int) -> dict[str, Any]:
    """Return the columns of a row of history with edit numbers of this ledger."""
    stage, change = _undoing(version["stage"], lambda number: base + number), base + version["change"]
    return {**{name: version[name] for name in names}, "stage": stage, "change": change}


def _undoing(stage: str, numbered: Callable[[int], object]) -> str:
    """Return the stage of an edit, with another number of the edit that it undid, if it did."""
    undone = stage.removeprefix(f"{UNDO} ")
    return f"{UNDO} {numbered(int(undone))}" if stage != undone and undone.isdecimal() else stage


def _rows(conn: Connection, table: Table, **owner: str) -> Sequence[Row[Any]]:
    return conn.execute(select(table).filter_by(**owner).order_by(table.c.seq)).all()


def _values(row: Row[Any], names: Sequence[str]) -> dict[str, Any]:
    """Return columns of a row as JSON values, "" for those it lacks. Times are ISO 8601 with microseconds, in UTC."""
    values = {name: getattr(row, name, "") for name in names}
    return {name: exact_iso(value) if isinstance(value, datetime) else value for name, value in values.items()}
