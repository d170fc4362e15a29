"""Export rows from a ledger and import them into another: every message and memory with its history, as JSON values.

Ids, times and history stay the same. Vectors, the full text and the index log are not exported, because they can be
rebuilt. Edit numbers are exported as ranks (1 is the user's first edit), so that the same memory gives the same file
from every ledger. The format says "turn" for a message.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Literal, TypeAlias

from sqlalchemy import Connection, Row, Table, and_, bindparam, delete, func, insert, or_, select, update

from palimpsest.core.clock import exact_iso
from palimpsest.core.models import UNDO, Provenance, Scope
from palimpsest.store import known_projects
from palimpsest.store.database.protocols import FullText
from palimpsest.store.graph import statements as graph
from palimpsest.store.graph.care import transfer as entity_transfer
from palimpsest.store.graph.care.transfer import ImportedEntities
from palimpsest.store.graph.tables import entities, entity_history
from palimpsest.store.mapping import Query, content_hash, is_scope, memory_hash, scope_values, to_memory
from palimpsest.store.queries import messages as message_queries
from palimpsest.store.schema import (
    conversations,
    history,
    memories,
    memory_sources,
    message_history,
    messages,
    meta,
    project_aliases,
    purged,
    summaries,
)
from palimpsest.store.views import gists, uses
from palimpsest.store.views import links as link_rows
from palimpsest.store.views import transfer as summary_transfer
from palimpsest.store.views.care import link_care
from palimpsest.store.writes import conversations as conversation_writes
from palimpsest.store.writes import entries as entry_writes
from palimpsest.store.writes.transaction import Transaction, next_edit_number, reserve_edit_numbers
from palimpsest.store.writes.undo import bring_back, fate_of

MESSAGE = ("id", "project", "agent_id", "run_id", "role", "name", "content", "external_id", "session_id", "said_at")
MESSAGE_STATE = ("created_at", "learnt", "deleted_at")
MESSAGE_HISTORY = ("event", "updated_at", "stage", "caller")
MEMORY = ("id", "project", "agent_id", "run_id", "text", "keywords", "tags", "metadata", "actor_id", "role")
MEMORY_STATE = (
    "happened_at",
    "happened_precision",
    "stated_at",
    "valid_from",
    "valid_from_precision",
    "valid_until",
    "valid_until_precision",
    "created_at",
    "updated_at",
    "deleted_at",
    "superseded_by",
    "is_forgotten",
    "revision",
    "entities",
    "relations",
    "context",
    "links",
)
HISTORY = (
    "id",
    "old_memory",
    "new_memory",
    "event",
    "created_at",
    "updated_at",
    "is_deleted",
    "actor_id",
    "role",
    "state",
    "stage",
    "model",
    "prompt",
    "caller",
)

Item = Mapping[str, Any]

ITEM_TYPES = ("alias", "conversation", "entity", "turn", "memory", "summary")

Standing: TypeAlias = Literal["new", "known", "undone", "deleted", "purged"]
"""What the ledger has of an item of an import: nothing, the item, an item that an undo took back, an item that a person
deleted, or only the id of one that a person purged."""


@dataclass(slots=True)
class ImportState:
    """What an import has done so far.

    `stored` and `known` count the new items and the items that were there already, by type. `key` names the file and
    `total` is its number of items: an interrupted import continues with the edit numbers it began with. `owner_ids`
    maps ids of messages and memories of the file to ids of the ledger, and `entities` does so for entities. Edit
    numbers of the file are added to `base`. Imported texts have no vectors yet. `deleted` counts the new items that are
    deleted in the file, and `left_out` the known items that stay deleted or erased, because a person deleted or purged
    them here; with `brings_back` they are stored again.
    """

    key: str = ""
    total: int = 0
    brings_back: bool = False
    stored: dict[str, int] = field(default_factory=lambda: dict.fromkeys(ITEM_TYPES, 0))
    known: dict[str, int] = field(default_factory=lambda: dict.fromkeys(ITEM_TYPES, 0))
    deleted: int = 0
    left_out: dict[str, int] = field(default_factory=lambda: {"deleted": 0, "purged": 0})
    owner_ids: dict[str, str] = field(default_factory=dict[str, str])
    entities: ImportedEntities = field(default_factory=ImportedEntities)
    base: int = 0


def count(conn: Connection, user_id: str) -> int:
    """Return the number of items that `export_items` yields."""
    tables = (project_aliases, conversations, entities, messages, memories, summaries)
    return sum(
        conn.execute(select(func.count()).select_from(table).where(table.c.user_id == user_id)).scalar_one()
        for table in tables
    )


def export_items(conn: Connection, user_id: str) -> Iterator[dict[str, Any]]:
    """Yield every alias of a project, conversation, entity, message, memory and summary of a user, oldest first."""
    yield from known_projects.items_of_user(conn, user_id)
    yield from conversation_writes.of_user(conn, user_id)
    rank = _ranks(conn, user_id)
    for row in entity_transfer.entities_of(conn, user_id):
        item, rows = entity_transfer.entity_item(conn, row)
        past = [_ranked(_values(version, entity_transfer.HISTORY), version.change, rank) for version in rows]
        yield {**item, "history": past}
    for row in conn.execute(select(messages).where(messages.c.user_id == user_id).order_by(messages.c.seq)):
        rows = _rows_of(conn, message_history, message_history.c.message_id, row.id)
        past = [_ranked(_version(version, MESSAGE_HISTORY), version.change, rank) for version in rows]
        mentions = entity_transfer.mentions_of(conn, "message", row.id)
        also = gists.exported(conn, row) | ({"mentions": mentions} if mentions else {})
        yield {"type": "turn", **_values(row, MESSAGE + MESSAGE_STATE), **also, "history": past}
    for row in conn.execute(select(memories).where(memories.c.user_id == user_id).order_by(memories.c.seq)):
        rows = _rows_of(conn, history, history.c.memory_id, row.id)
        past = [_ranked(_version(version, HISTORY), version.change, rank) for version in rows]
        sources = (
            select(memory_sources.c.message_id, memory_sources.c.history_id)
            .join(messages, messages.c.id == memory_sources.c.message_id)
            .where(memory_sources.c.memory_id == row.id)
            .order_by(messages.c.seq)
        )
        cited = [{"message_id": message, "history_id": version} for message, version in conn.execute(sources)]
        named = {"mentions": entity_transfer.mentions_of(conn, "memory", row.id), **uses.exported(conn, row.id)}
        yield {"type": "memory", **_values(row, MEMORY + MEMORY_STATE), **named, "history": past, "sources": cited}
    yield from summary_transfer.items_of(conn, user_id)


def reserve_edits(conn: Connection, state: ImportState, edits: int) -> None:
    """Reserve as many edit numbers for an import as its file has edits, before its first batch."""
    if not edits:
        return
    begun = conn.execute(select(meta.c.value).where(meta.c.key == state.key)).scalar_one_or_none()
    if begun is not None:
        state.base = int(begun)
        return
    state.base = next_edit_number(conn) - 1
    reserve_edit_numbers(conn, state.base + edits)
    conn.execute(insert(meta).values(key=state.key, value=str(state.base)))


def import_items(
    conn: Connection, full_text: FullText, user_id: str, items: Sequence[Item], state: ImportState, now: datetime
) -> None:
    """Store the items that are not known yet for a user, and index them. Times in items are datetimes.

    What belongs to a project that was moved here goes to where it was moved: nobody looks in the old one any more.
    """
    touched = entry_writes.TouchedEntries()
    names = {
        project: known_projects.current_name(conn, user_id, project) for project in {item["project"] for item in items}
    }
    for item in ({**item, "project": names[item["project"]]} for item in items):
        scope = Scope(user_id, item["project"], item["agent_id"], item["run_id"])
        tx = Transaction(conn, scope, Provenance("import", caller="cli"), now, 0, {}, "", touched)
        is_new = _store(tx, item, state)
        (state.stored if is_new else state.known)[item["type"]] += 1
        state.deleted += is_new and item.get("deleted_at") is not None
    entry_writes.index(conn, full_text, touched, now)
    if sum(state.stored.values()) + sum(state.known.values()) == state.total:
        conn.execute(delete(meta).where(meta.c.key == state.key))
        conversation_writes.erase_empty(conn)  # a title would tell of messages that were purged and stay so


def _store(tx: Transaction, item: Item, state: ImportState) -> bool:
    """Store an item, or bring back what an undo took back. Return whether there is something now that was not."""
    if item["type"] == "alias":
        return known_projects.store_item(tx.conn, tx.scope.user_id, item)
    if item["type"] == "conversation":
        return conversation_writes.store_item(tx.conn, tx.scope, item)
    if item["type"] == "entity":
        past = [_edit(version, entity_transfer.HISTORY, state.base) for version in item["history"]]
        return entity_transfer.store(tx.conn, tx.scope.user_id, item, past, state.entities)
    if item["type"] == "summary":
        return summary_transfer.store_item(tx.conn, tx.scope, item, state.owner_ids)
    standing, known = _standing(tx.conn, tx.scope, item)
    state.owner_ids[item["id"]] = known or item["id"]
    if item["type"] == "memory":
        item = link_care.imported(tx.conn, tx.scope.user_id, item, state.owner_ids)
    if standing in state.left_out and not state.brings_back:
        state.left_out[standing] += 1
        return False
    if known is not None and standing != "known":
        tx = replace(tx, edit=state.base + max(version["change"] for version in item["history"]))
        return bring_back(tx, item, known)
    if known is not None:
        if item["type"] == "turn":
            _join_conversation(tx, item, known)
        return False
    tx.conn.execute(delete(purged).where(purged.c.owner_id == item["id"]))
    (_store_message if item["type"] == "turn" else _store_memory)(tx, item, state)
    return True


def standing_of(conn: Connection, user_id: str, item: Item, state: ImportState) -> Standing:
    """Return what the ledger has of an item, by its id or with the same content in its scope."""
    item = {**item, "project": known_projects.current_name(conn, user_id, item["project"])}
    scope = Scope(user_id, item["project"], item["agent_id"], item["run_id"])
    if item["type"] == "alias":
        return "known" if known_projects.is_known(conn, user_id, item) else "new"
    if item["type"] == "conversation":
        return "new" if conversation_writes.find(conn, scope, item["session_id"]) is None else "known"
    if item["type"] == "entity":
        is_new = item["id"] not in state.entities.only_purged
        return "new" if is_new and entity_transfer.find(conn, user_id, item, state.entities) is None else "known"
    if item["type"] == "summary":
        return "new" if summary_transfer.known(conn, scope, item) is None else "known"
    return _standing(conn, scope, item)[0]


def _standing(conn: Connection, scope: Scope, item: Item) -> tuple[Standing, str | None]:
    """Return what the ledger has of a message or memory, and the id it has here."""
    is_message = item["type"] == "turn"
    known = (_known_message if is_message else _known_memory)(conn, scope, item)
    if known is None:
        return ("purged" if was_purged(conn, item) else "new"), None
    return ("known" if item["deleted_at"] else fate_of(conn, "message" if is_message else "memory", known)), known


def was_purged(conn: Connection, item: Item) -> bool:
    """Return whether a person purged the memory or message that an item is."""
    return conn.execute(select(purged.c.owner_id).where(purged.c.owner_id == item.get("id"))).first() is not None


def belongs_to_other_user(conn: Connection, user_id: str, item: Item) -> bool:
    """Return whether the id of an item is the id of another user's message, memory or entity. Ids are unique."""
    if item["type"] == "entity":
        return entity_transfer.is_of_other_user(conn, user_id, item)
    table = {"turn": messages, "memory": memories}.get(item["type"])
    if table is None:
        return False
    of_other_user = (table.c.id == item["id"], table.c.user_id != user_id)
    return conn.execute(select(table.c.seq).where(*of_other_user)).first() is not None


def _known_message(conn: Connection, scope: Scope, item: Item) -> str | None:
    same_name = and_(
        is_scope(messages, scope),
        messages.c.external_id != "",
        messages.c.external_id == item["external_id"],
        messages.c.content_hash == content_hash(item["content"]),
    )
    query = select(messages.c.id).where(or_(messages.c.id == item["id"], same_name))
    return conn.execute(query.limit(1)).scalar()


def _known_memory(conn: Connection, scope: Scope, item: Item) -> str | None:
    values = {**scope_values(scope), "id": item["id"], "digest": memory_hash(item["text"])}
    return conn.execute(_KNOWN_DELETED_MEMORY if item["deleted_at"] else _KNOWN_MEMORY, values).scalar()


_SAME_ID = memories.c.id == bindparam("id")
_DUPLICATE = and_(
    *(memories.c[name] == bindparam(name) for name in ("user_id", "project", "agent_id", "run_id")),
    memories.c.content_hash == bindparam("digest"),
    memories.c.deleted_at.is_(None),
)
_KNOWN_DELETED_MEMORY: Query = select(memories.c.id).where(_SAME_ID).limit(1)
# A living duplicate comes first: then nothing is brought back.
_KNOWN_MEMORY: Query = (
    select(memories.c.id).where(or_(_SAME_ID, _DUPLICATE)).order_by(memories.c.deleted_at.is_not(None)).limit(1)
)


def _store_message(tx: Transaction, item: Item, state: ImportState) -> None:
    past = [_edit(version, MESSAGE_HISTORY, state.base) for version in item["history"]]
    values = {name: item[name] for name in MESSAGE + MESSAGE_STATE} | {"user_id": tx.scope.user_id}
    values |= {"content_hash": content_hash(item["content"]), "change": past[0]["change"]}
    tx.conn.execute(insert(messages), values)
    gists.put_imported(tx.conn, item)
    entity_transfer.store_mentions(tx.conn, "message", item, state.entities)
    for version, row in zip(item["history"], past, strict=True):
        also = {"message_id": item["id"], "recorded_at": version.get("recorded_at")}
        tx.conn.execute(insert(message_history), {**row, **also})
    entry_writes.put(tx.conn, "message", item["id"], tx.scope, None, "", tx.touched)
    tx.touched.messages.add(item["id"])


def _join_conversation(tx: Transaction, item: Item, message_id: str) -> None:
    """Give a stored message to the conversation that its client names, if none is known for it."""
    stored = tx.conn.execute(select(messages.c.session_id).where(messages.c.id == message_id)).scalar_one()
    in_conversation = (conversation_writes.find(tx.conn, tx.scope, name) for name in (item["session_id"], stored))
    if [number is not None for number in in_conversation] == [True, False]:
        session = {"session_id": item["session_id"]}
        tx.conn.execute(update(messages).where(messages.c.id == message_id).values(**session))
        tx.touched.messages.add(message_id)


def _store_memory(tx: Transaction, item: Item, state: ImportState) -> None:
    values = {name: item.get(name) for name in MEMORY + MEMORY_STATE}  # older exports have no entities
    values |= {"user_id": tx.scope.user_id, "content_hash": memory_hash(item["text"])}
    tx.conn.execute(insert(memories), values)
    entity_transfer.store_mentions(tx.conn, "memory", item, state.entities)
    numbered = replace(tx, edit=state.base + max(version["change"] for version in item["history"]))
    stored = tx.conn.execute(select(memories).where(memories.c.id == item["id"])).one()
    link_rows.put(tx.conn, to_memory(stored))
    uses.restore(tx.conn, item["id"], item.get("strength"), item.get("used_at"))
    graph.put(numbered.graph, to_memory(stored))
    for version in item["history"]:
        values = {"memory_id": item["id"], "recorded_at": version.get("recorded_at")}
        tx.conn.execute(insert(history), {**_edit(version, HISTORY, state.base), **values})
    for source in item["sources"]:
        message_id = state.owner_ids.get(source["message_id"])
        if message_id is not None and message_queries.messages_by_id(tx.conn, [message_id]):
            values = {"memory_id": item["id"], "message_id": message_id, "history_id": source["history_id"]}
            tx.conn.execute(insert(memory_sources).values(**values))
    entry_writes.put(tx.conn, "memory", item["id"], tx.scope, None, "", tx.touched)
    tx.touched.memories.add(item["id"])


def _ranks(conn: Connection, user_id: str) -> dict[int, int]:
    numbers: set[int] = set()
    for table, owner, key in ((history, memories, "memory_id"), (message_history, messages, "message_id")):
        query = select(table.c.change).join(owner, owner.c.id == table.c[key]).where(owner.c.user_id == user_id)
        numbers.update(conn.execute(query.distinct()).scalars())
    of_entities = select(entity_history.c.change).join(entities, entities.c.id == entity_history.c.entity_id)
    numbers.update(conn.execute(of_entities.where(entities.c.user_id == user_id).distinct()).scalars())
    return {number: rank for rank, number in enumerate(sorted(numbers), 1)}


def _ranked(past: dict[str, Any], change: int, rank: Mapping[int, int]) -> dict[str, Any]:
    """Return a row of history with ranks in place of edit numbers: of its own edit, and of the edit it undid."""
    undone = past["stage"].removeprefix(f"{UNDO} ")
    if past["stage"] != undone and undone.isdecimal():
        # An edit that was purged since has no rank. "?" matches no edit.
        past["stage"] = f"{UNDO} {rank.get(int(undone), '?')}"
    return {**past, "change": rank[change]}


def _edit(version: Item, names: Sequence[str], base: int) -> dict[str, Any]:
    """Return the columns of a row of history with edit numbers of this ledger."""
    stage, change = _numbered(version["stage"], base), base + version["change"]
    return {**{name: version[name] for name in names}, "stage": stage, "change": change}


def _numbered(stage: str, base: int) -> str:
    """Return the stage of an imported edit, with the number that the edit it undid has in this ledger."""
    undone = stage.removeprefix(f"{UNDO} ")
    return f"{UNDO} {base + int(undone)}" if stage != undone and undone.isdecimal() else stage


def _version(row: Row[Any], names: Sequence[str]) -> dict[str, Any]:
    """Return a row of history as JSON values. Only a row of an import from another tool has `recorded_at`."""
    return _values(row, names if row.recorded_at is None else (*names, "recorded_at"))


def _rows_of(conn: Connection, table: Table, column: Any, owner_id: str) -> list[Row[Any]]:
    return list(conn.execute(select(table).where(column == owner_id).order_by(table.c.seq)).all())


def _values(row: Row[Any], names: Sequence[str]) -> dict[str, Any]:
    """Return columns of a row as JSON values. Times are ISO 8601 with microseconds, in UTC."""
    values = {name: getattr(row, name) for name in names}
    return {name: exact_iso(value) if isinstance(value, datetime) else value for name, value in values.items()}
