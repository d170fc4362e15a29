"""Compare the ledger with itself, row by row: entries with their texts, memories with their history and the graph.

Every write keeps them in step within one transaction. A difference is damage from outside, or a bug.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from typing import Any

import numpy as np
from sqlalchemy import Connection, Row, delete, func, insert, select, update

from palimpsest.core.models import Event, Kind, Memory, Provenance, Scope
from palimpsest.core.protocols import Progress
from palimpsest.store import contextual_keys, documents, links, usage
from palimpsest.store import schema as db
from palimpsest.store.database import Database, FullText, FullTextColumns
from palimpsest.store.entries import TouchedEntries, Transaction, VectorSum, next_edit_number, put_entry
from palimpsest.store.graph import statements
from palimpsest.store.graph.statements import relation_rows, stated_names
from palimpsest.store.memories import memories_by_id
from palimpsest.store.messages import messages_by_id
from palimpsest.store.rows import among, grouped, scope_values, to_memory, to_scope, unpacked
from palimpsest.store.writes import record, record_message

# Compare the graph with the memories, row by row, and mend it from them.
#
# A memory says by names what it mentions and states. The rows of the graph must say the same by entities.

RELATION = ("memory_id", "position", "source_id", "key", "name", "destination_id")

MAX_EXAMPLES = 5


def _compare_graph(conn: Connection, faults: Faults) -> None:
    """Compare the graph with the memories and note what does not agree."""
    known = {row.id: row for row in conn.execute(select(db.entities))}
    faults.mentions = set(_stray_mentions(conn, known))
    faults.merges = {entity_id for entity_id in known if _is_merged_wrongly(entity_id, known)}
    faults.aliases = {
        (row.entity_id, row.key)
        for row in conn.execute(select(db.entity_aliases))
        if row.entity_id not in known or known[row.entity_id].user_id != row.user_id
    }
    several = {(row.user_id, row.key) for row in conn.execute(_OF_SEVERAL)}
    related = conn.execute(select(db.relations).order_by(db.relations.c.position))
    stored = grouped((row.memory_id, row) for row in related)
    named = conn.execute(select(db.mentions).where(db.mentions.c.kind == "memory"))
    mentioned = grouped((row.owner_id, row) for row in named)
    wrong: set[str] = set()
    for row in conn.execute(select(db.memories).order_by(db.memories.c.seq)):
        memory = to_memory(row)
        if not _states_agree(memory, mentioned.pop(memory.id, []), stored.pop(memory.id, []), several):
            wrong.add(memory.id)
    faults.memories = wrong
    faults.relations = {row.seq for rows in stored.values() for row in rows}


_NAME = (db.entity_aliases.c.user_id, db.entity_aliases.c.key)
_OF_SEVERAL = select(*_NAME).group_by(*_NAME).having(func.count() > 1)


def _states_agree(
    memory: Memory, own: list[Row[Any]], stated: list[Row[Any]], several: AbstractSet[tuple[str, str]]
) -> bool:
    """Return whether a memory's mentions and relations are what it names and states.

    A name that several have may mean none of them.
    """
    meant = {row.key: row.entity_id for row in own}
    named, current = stated_names(memory).keys(), {row.key for row in own if row.current}
    if not current <= named or any((memory.scope.user_id, key) not in several for key in named - current):
        return False
    expected = relation_rows(memory, meant)
    return expected == [{name: getattr(row, name) for name in RELATION} for row in stated]


def _stray_mentions(conn: Connection, known: Mapping[str, Row[Any]]) -> Iterator[int]:
    """Yield the numbers of mentions without an owner, or of an entity that their owner's scope does not have."""
    owners = {
        kind: {row.id: row for row in conn.execute(select(table.c.id, table.c.user_id, table.c.project))}
        for kind, table in (("memory", db.memories), ("message", db.messages))
    }
    for row in conn.execute(select(db.mentions)):
        owner, entity = owners.get(row.kind, {}).get(row.owner_id), known.get(row.entity_id)
        if owner is None or entity is None or not _may_stand_for(entity, owner):
            yield row.seq


def _may_stand_for(entity: Row[Any], other: Any) -> bool:
    """Return whether an entity is of the user of another row, and general or of its project."""
    return entity.user_id == other.user_id and entity.project in ("", other.project)


def _is_merged_wrongly(entity_id: str, known: Mapping[str, Row[Any]]) -> bool:
    """Return whether an entity is merged into a missing one, into one of another user or project, or in a circle."""
    entity = known[entity_id]
    if entity.merged_into is None:
        return False
    target = known.get(entity.merged_into)
    if target is None or not _may_stand_for(target, entity):
        return True
    seen: set[str] = set()
    while target is not None and target.id not in seen:
        if target.id == entity_id:
            return True
        seen.add(target.id)
        target = known.get(target.merged_into)
    return False


def _remove_strays(conn: Connection, faults: Faults) -> set[str]:
    """Remove what belongs to nothing and undo merges that cannot be, and return the memories to state anew.

    `statements.put` then writes their mentions and relations.
    """
    restated = set(faults.memories)
    stray = among(db.mentions.c.seq, faults.mentions)
    of_memories = select(db.memories.c.id).join(db.mentions, db.mentions.c.owner_id == db.memories.c.id)
    restated.update(conn.execute(of_memories.where(stray, db.mentions.c.kind == "memory")).scalars())
    conn.execute(delete(db.mentions).where(stray))
    conn.execute(delete(db.relations).where(among(db.relations.c.seq, faults.relations)))
    conn.execute(update(db.entities).where(among(db.entities.c.id, faults.merges)).values(merged_into=None))
    for entity_id, key in sorted(faults.aliases):
        is_it = (db.entity_aliases.c.entity_id == entity_id, db.entity_aliases.c.key == key)
        owner = conn.execute(select(db.entities.c.user_id).where(db.entities.c.id == entity_id)).scalar_one_or_none()
        if owner is None:
            conn.execute(delete(db.entity_aliases).where(*is_it))
        else:
            conn.execute(update(db.entity_aliases).where(*is_it).values(user_id=owner))
    return restated


TOLERANCE = 1e-4
"""How far two vectors may differ that were summed in a different order."""

ROUNDING = 1e-3
"""By which part of it such a number may differ after it was rounded to half precision: one unit in the last place."""


def _called(text: str, *, has_examples: bool = False) -> Any:
    """Return a field for what was found of a kind. `has_examples` says that it is of ids, of which some are shown."""
    return field(default_factory=dict[Any, Any], metadata={"text": text, "has_examples": has_examples})


@dataclass(slots=True)
class Faults:
    """What does not agree, in the order in which it is told.

    `file` is what the database itself reports, `owners` the memories and messages whose entry is wrong or missing, by
    id, and `unrecorded` those that differ from their history. `uses`, `gists` and `recalls` have no owner any more.
    `memories` are those whose mentions or relations are not what they name and state. A mention is a fault if it has no
    memory or message, or means an entity that is missing or that their scope does not see, and a merge if it is into
    none that there is, or in a circle.
    """

    file: Sequence[str] = ()
    owners: Mapping[str, Kind] = _called("are searched by another text than they have", has_examples=True)
    unrecorded: Collection[str] = _called("differ from the last row of their history", has_examples=True)
    links: AbstractSet[str] = _called("have links that cannot be followed from both ends", has_examples=True)
    orphans: Collection[int] = _called("entries belong to no memory or message")
    words: bool = _called("the full text does not find the words of its rows")
    means: bool = _called("the mean of a user's vectors is wrong")
    uses: Sequence[str] = _called("uses belong to no memory")
    gists: Sequence[str] = _called("gists belong to no page")
    recalls: Sequence[int] = _called("questions of the recall log belong to no memory or message")
    memories: Collection[str] = _called("have other mentions or relations than they state", has_examples=True)
    merges: Collection[str] = _called("are merged into an entity that cannot stand for them", has_examples=True)
    mentions: Collection[int] = _called("mentions belong to no memory, message or entity of their scope")
    relations: Collection[int] = _called("relations belong to no memory")
    aliases: Collection[tuple[str, str]] = _called("names belong to no entity")

    def texts(self) -> list[str]:
        """Return the faults, one line for each kind, with examples."""
        lines = [f"the file: {text}" for text in self.file[:MAX_EXAMPLES]]
        for kind in fields(self)[1:]:
            found, text = getattr(self, kind.name), kind.metadata["text"]
            if found is True:
                lines.append(text)
            elif found:
                shown = sorted(found)[:MAX_EXAMPLES] if kind.metadata["has_examples"] else []
                lines.append(f"{len(found)} {text}" + (f": {', '.join(each[:8] for each in shown)}" if shown else ""))
        return lines


def verify(conn: Connection, database: Database, progress: Progress) -> Faults:
    """Compare every row and return what does not agree. `progress` is called with rows done and rows in all."""
    faults = Faults(file=database.faults(conn))
    if faults.file:
        return faults
    entries_by_owner = {(row.kind, row.owner_id): row for row in conn.execute(select(db.vectors))}
    full_text = database.full_text
    words = full_text.rows(conn)
    faults.words = not full_text.is_sound(conn, words)
    total, done, owners = len(entries_by_owner), 0, dict[str, Kind]()
    for kind, table in contextual_keys.OWNERS:
        ids = conn.execute(select(table.c.id).order_by(table.c.seq)).scalars().all()
        keyed = {entry.stored.id: entry for entry in contextual_keys.keyed_entries(conn, kind, ids)}
        for owner in ids:
            entry = entries_by_owner.pop((kind, owner), None)
            if entry is None or not _agrees(full_text, entry, keyed[owner], words.pop(entry.seq, None)):
                owners[owner] = kind
            done += 1
            progress(done, max(total, done))
    faults.owners = owners
    faults.orphans = {entry.seq for entry in entries_by_owner.values()} | set(words)
    faults.means = not _means_agree(conn)
    faults.unrecorded = set(_unrecorded(conn))
    _compare_graph(conn, faults)
    faults.uses = usage.orphaned_uses(conn)
    faults.links = links.differing(conn)
    faults.gists = documents.strays(conn)
    faults.recalls = usage.orphaned_recalls(conn)
    return faults


def repair(conn: Connection, database: Database, faults: Faults, now: datetime) -> None:
    """Rewrite what does not agree: entries from their texts, means from keys, history and the graph from memories."""
    full_text = database.full_text
    if faults.file:
        database.repair(conn)
    tx = Transaction(conn, Scope(""), Provenance("repair"), now, 0)
    touched = tx.touched
    if faults.file or faults.words or faults.owners or faults.orphans:
        contextual_keys.rebuild_full_text(conn, full_text)  # rows changed from outside leave traces in its index
    # Other processes may have written since the faults were found, and the full text is whole now.
    faults = verify(conn, database, lambda _done, _total: None)
    conn.execute(delete(db.means))  # a stored sum may have a wrong length; `_write_means` writes them again
    full_text.remove(conn, sorted(faults.orphans))
    conn.execute(delete(db.vectors).where(among(db.vectors.c.seq, faults.orphans)))
    for owner, kind in faults.owners.items():
        table = dict(contextual_keys.OWNERS)[kind]
        row = conn.execute(select(table).where(table.c.id == owner)).one()
        values = {"live": row.deleted_at is None, "key": None, **scope_values(to_scope(row))}
        entry = update(db.vectors).filter_by(kind=kind, owner_id=owner)
        if not conn.execute(entry.values(**values)).rowcount:
            put_entry(tx, kind, owner, to_scope(row), "")
        (touched.memories if kind == "memory" else touched.messages).add(owner)
    usage.erase_uses(conn, faults.uses)
    documents.erase(conn, faults.gists)
    usage.erase_numbered(conn, faults.recalls)
    for owner_id in sorted(faults.unrecorded):
        _record_as_it_is(replace(tx, edit=next_edit_number(conn)), owner_id)
    links.repair(conn, faults.links)
    for memory_id, memory in sorted(memories_by_id(conn, [*_remove_strays(conn, faults)]).items()):
        statements.put(replace(tx, scope=memory.scope, edit=next_edit_number(conn)), memory)
        touched.memories.add(memory_id)  # a graph database outside follows the index log
    contextual_keys.index(conn, full_text, touched, now)
    _write_means(conn)


def _agrees(full_text: FullText, stored: Row[Any], entry: contextual_keys.Entry, words: FullTextColumns | None) -> bool:
    """Return whether an entry has the key and the full-text row that its owner's text gives."""
    if entry.row is None:
        return not stored.live and words is None and stored.key is None
    if not stored.live or words != full_text.columns(entry.row) or to_scope(stored) != entry.row.scope:
        return False
    if entry.key is None or stored.key is None:
        return entry.key is None and stored.key is None
    if len(stored.key) != len(entry.key):
        return False
    return bool(np.allclose(unpacked(stored.key), unpacked(entry.key), atol=TOLERANCE, rtol=ROUNDING))


def _sums(conn: Connection) -> dict[tuple[str, str], tuple[int, VectorSum]]:
    """Return count and float64 sum of the live keys by user and embedder."""
    of_vectors = db.vectors.c
    is_whole = func.length(of_vectors.key).in_([0, func.length(of_vectors.vector)])
    columns = (of_vectors.user_id, of_vectors.embedder, of_vectors.key, of_vectors.vector)
    all_keys = TouchedEntries()
    for row in conn.execute(select(*columns).where(of_vectors.key.is_not(None), is_whole)):
        all_keys.move(*row, sign=1)
    return all_keys.moves


def _means_agree(conn: Connection) -> bool:
    expected = _sums(conn)
    stored = {(row.user_id, row.embedder): row for row in conn.execute(select(db.means)) if row.units}
    return expected.keys() == stored.keys() and all(
        stored[key].units == count
        and len(stored[key].total) == total.nbytes
        and np.allclose(np.frombuffer(stored[key].total, dtype=np.float64), total, atol=TOLERANCE * max(1, count))
        for key, (count, total) in expected.items()
    )


def _write_means(conn: Connection) -> None:
    """Replace all means by those of the stored keys."""
    conn.execute(delete(db.means))
    for (user_id, embedder), (count, total) in _sums(conn).items():
        conn.execute(insert(db.means).values(user_id=user_id, embedder=embedder, units=count, total=total.tobytes()))


def _unrecorded(conn: Connection) -> Iterator[str]:
    """Yield the memories and messages that are not as the last row of their history says."""
    last: dict[str, tuple[str | None, bool]] = {}
    for row in conn.execute(select(db.history).order_by(db.history.c.seq)):
        last[row.memory_id] = (row.new_memory, row.is_deleted)
    for row in conn.execute(select(db.memories.c.id, db.memories.c.text, db.memories.c.deleted_at)):
        text, is_deleted = last.get(row.id, (None, None))
        if is_deleted is not (row.deleted_at is not None) or (not is_deleted and text != row.text):
            yield row.id
    order = select(db.message_history).order_by(db.message_history.c.seq)
    events: dict[str, str] = {row.message_id: row.event for row in conn.execute(order)}
    for row in conn.execute(select(db.messages.c.id, db.messages.c.deleted_at)):
        if events.get(row.id) != (Event.ADD if row.deleted_at is None else Event.DELETE):
            yield row.id


def _record_as_it_is(tx: Transaction, owner_id: str) -> None:
    """Insert the missing row of history. The row of the memory or message itself counts as right."""
    if memory := memories_by_id(tx.conn, [owner_id]).get(owner_id):
        record(tx, Event.UPDATE if memory.deleted_at is None else Event.DELETE, memory, old=memory.text)
        return
    message = messages_by_id(tx.conn, [owner_id])[owner_id]
    record_message(tx, Event.ADD if message.deleted_at is None else Event.DELETE, owner_id)
