"""Compare the ledger with itself, row by row: entries with their texts, and the graph with the memories.

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

from palimpsest.core.models import Kind, Memory, Provenance, Scope
from palimpsest.core.protocols import Progress, unseen
from palimpsest.store import contextual_keys
from palimpsest.store import schema as db
from palimpsest.store.database import Database, FullText, FullTextColumns
from palimpsest.store.entries import Moves, TouchedEntries, Transaction, next_edit_number, put_entry
from palimpsest.store.graph import statements
from palimpsest.store.graph.statements import relation_rows, stated_names
from palimpsest.store.memories import memories_by_id
from palimpsest.store.rows import among, grouped, scope_values, to_memory, to_scope, unpacked

# Compare the graph with the memories, row by row, and mend it from them.
#
# A memory says by names what it mentions and states. The rows of the graph must say the same by entities.

RELATION = ("memory_id", "position", "source_id", "key", "name", "destination_id")

MAX_EXAMPLES = 5


def _compare_graph(conn: Connection, faults: Faults) -> None:
    """Compare the graph with the memories and note what does not agree."""
    known = {row.id: row for row in conn.execute(select(db.entities))}
    faults.mentions = set(_stray_mentions(conn, known))
    several = {(row.user_id, row.key) for row in conn.execute(_OF_SEVERAL)}
    related = conn.execute(select(db.relations).order_by(db.relations.c.position))
    stored = grouped((row.memory_id, row) for row in related)
    named = conn.execute(select(db.mentions).where(db.mentions.c.kind == "memory"))
    mentioned = grouped((row.owner_id, row) for row in named)
    memories = map(to_memory, conn.execute(select(db.memories).order_by(db.memories.c.seq)))
    faults.memories = {
        memory.id
        for memory in memories
        if not _states_agree(memory, mentioned.get(memory.id, []), stored.get(memory.id, []), several)
    }


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
        if not owner or not entity or entity.user_id != owner.user_id or entity.project not in ("", owner.project):
            yield row.seq


# How far two vectors may differ that were summed in a different order.
TOLERANCE = 1e-4

# By which part of it such a number may differ after it was rounded to half precision: one unit in the last place.
ROUNDING = 1e-3


def _called(text: str) -> Any:
    """Return a field for what was found of a kind."""
    return field(default_factory=dict[Any, Any], metadata={"text": text})


@dataclass(slots=True)
class Faults:
    """What does not agree, in the order in which it is told.

    `file` is what the database itself reports, and `owners` the memories and messages whose entry is wrong or missing,
    by id. `memories` are those whose mentions or relations are not what they name and state. A mention is a fault if it
    has no memory or message, or means an entity that is missing or that their scope does not see.
    """

    file: Sequence[str] = ()
    owners: Mapping[str, Kind] = _called("are searched by another text than they have")
    orphans: Collection[int] = _called("entries belong to no memory or message")
    words: bool = _called("the full text does not find the words of its rows")
    means: bool = _called("the mean of a user's vectors is wrong")
    memories: Collection[str] = _called("have other mentions or relations than they state")
    mentions: Collection[int] = _called("mentions belong to no memory, message or entity of their scope")

    def texts(self) -> list[str]:
        """Return the faults, one line for each kind, with examples."""
        lines = [f"the file: {text}" for text in self.file[:MAX_EXAMPLES]]
        for kind in fields(self)[1:]:
            found, text = getattr(self, kind.name), kind.metadata["text"]
            if found is True:
                lines.append(text)
            elif found:
                shown = ", ".join(str(each)[:8] for each in sorted(found)[:MAX_EXAMPLES])
                lines.append(f"{len(found)} {text}: {shown}")
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
    _compare_graph(conn, faults)
    return faults


def repair(conn: Connection, database: Database, faults: Faults, now: datetime) -> None:
    """Rewrite what does not agree: entries from their texts, means from keys, and the graph from memories."""
    full_text = database.full_text
    if faults.file:
        database.repair(conn)
    tx = Transaction(conn, Scope(""), Provenance("repair"), now, 0)
    touched = tx.touched
    if faults.file or faults.words or faults.owners or faults.orphans:
        contextual_keys.rebuild_full_text(conn, full_text)  # rows changed from outside leave traces in its index
    # Other processes may have written since the faults were found, and the full text is whole now.
    faults = verify(conn, database, unseen)
    conn.execute(delete(db.means))  # a stored sum may have a wrong length; at the end they are written again
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
    stray = among(db.mentions.c.seq, faults.mentions)
    of_memories = select(db.memories.c.id).join(db.mentions, db.mentions.c.owner_id == db.memories.c.id)
    mentioned = conn.execute(of_memories.where(stray, db.mentions.c.kind == "memory")).scalars().all()
    conn.execute(delete(db.mentions).where(stray))
    for memory_id, memory in sorted(memories_by_id(conn, [*faults.memories, *mentioned]).items()):
        statements.put(replace(tx, scope=memory.scope, edit=next_edit_number(conn)), memory)
        touched.memories.add(memory_id)  # a graph database outside follows the index log
    contextual_keys.index(conn, full_text, touched, now)
    conn.execute(delete(db.means))
    for (user_id, embedder), (units, total) in _sums(conn).items():
        conn.execute(insert(db.means).values(user_id=user_id, embedder=embedder, units=units, total=total.tobytes()))


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


def _sums(conn: Connection) -> Moves:
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
