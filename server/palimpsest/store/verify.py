"""The ledger held against itself, row by row: what is searched against what was said, history against what is believed.

All of it is kept in step by one transaction a write, so a difference means damage from outside or a mistake of ours.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import numpy as np
from sqlalchemy import Connection, Row, Table, delete, func, insert, select, update

from palimpsest.core.errors import FullTextError
from palimpsest.core.models import Event, Kind, Provenance, Scope
from palimpsest.core.protocols import Progress
from palimpsest.store.mapping import scope_values, to_memory, to_scope
from palimpsest.store.protocols import Database, FullText, FullTextColumns
from palimpsest.store.schema import history, means, memories, message_history, messages, vectors
from palimpsest.store.writes import contextual_keys
from palimpsest.store.writes import entries as entry_writes
from palimpsest.store.writes.transaction import Transaction, next_edit_number, record

TOLERANCE = 1e-4
"""Difference of two vectors that were summed in another order."""

MAX_EXAMPLES = 5


@dataclass(slots=True)
class Faults:
    """Collect what does not agree: owners whose unit is wrong, units without an owner, means, memories, the file.

    `words` says that the full text does not find what its rows say.
    """

    owners: dict[str, Kind] = field(default_factory=dict[str, Kind])
    orphans: set[int] = field(default_factory=set[int])
    words: bool = False
    means: bool = False
    unrecorded: set[str] = field(default_factory=set[str])
    file: list[str] = field(default_factory=list[str])

    def texts(self) -> list[str]:
        """Return what was found, a line a kind, with examples."""
        found = [f"the file: {text}" for text in self.file[:MAX_EXAMPLES]]
        for what, ids in (
            ("are searched by something else than they say", sorted(self.owners)),
            ("differ from the last row of their history", sorted(self.unrecorded)),
        ):
            if ids:
                found.append(f"{len(ids)} {what}: {', '.join(each[:8] for each in ids[:MAX_EXAMPLES])}")
        if self.orphans:
            found.append(f"{len(self.orphans)} rows of the search belong to nothing")
        if self.words:
            found.append("the full text does not find what its rows say")
        if self.means:
            found.append("the mean of a user's vectors is not that of the vectors")
        return found


def verify(conn: Connection, database: Database, progress: Progress) -> Faults:
    """Compare every row and return what does not agree. `progress` is told how many of how many rows are done."""
    faults = Faults(file=database.faults(conn))
    if faults.file:
        return faults
    units_by_owner = {(row.kind, row.owner_id): row for row in conn.execute(select(vectors))}
    full_text = database.full_text
    words = full_text.rows(conn)
    faults.words = not _words_agree(conn, full_text, words.values())
    total, done = len(units_by_owner), 0
    owners: tuple[tuple[Kind, Table], ...] = (("message", messages), ("memory", memories))
    for kind, table in owners:
        ids = conn.execute(select(table.c.id).order_by(table.c.seq)).scalars().all()
        found = {unit.owner_id: unit.key for unit in contextual_keys.keyed_entries(conn, kind, ids)}
        for owner in ids:
            unit = units_by_owner.pop((kind, owner), None)
            if unit is None or not _agrees(full_text, unit, found[owner], words.pop(unit.seq, None)):
                faults.owners[owner] = kind
            done += 1
            progress(done, max(total, done))
    faults.orphans = {unit.seq for unit in units_by_owner.values()} | set(words)
    faults.means = not _means_agree(conn)
    faults.unrecorded = set(_unrecorded(conn))
    return faults


def repair(conn: Connection, database: Database, faults: Faults, now: datetime) -> None:
    """Write anew what does not agree: units from their texts, means from the keys, history from what is believed."""
    full_text = database.full_text
    if faults.file:
        database.repair(conn)
    touched = entry_writes.TouchedEntries()
    if faults.file or faults.words or faults.owners or faults.orphans:
        entry_writes.rebuild_full_text(conn, full_text)  # rows that were changed from outside leave traces in its index
    faults = verify(
        conn, database, lambda _done, _total: None
    )  # others may have written since, and the full text is whole now
    conn.execute(delete(means))  # made anew from the keys below
    for seq in faults.orphans:
        full_text.remove(conn, [seq])
        conn.execute(delete(vectors).where(vectors.c.seq == seq))
    for owner, kind in faults.owners.items():
        table = memories if kind == "memory" else messages
        row = conn.execute(select(table).where(table.c.id == owner)).one()
        unit = conn.execute(select(vectors).where(vectors.c.kind == kind, vectors.c.owner_id == owner)).one_or_none()
        if unit is None:
            entry_writes.put(conn, kind, owner, to_scope(row), None, "", touched)
        else:
            values = {"live": row.deleted_at is None, "key": None, **scope_values(to_scope(row))}
            conn.execute(update(vectors).where(vectors.c.seq == unit.seq).values(**values))
        (touched.memories if kind == "memory" else touched.messages).add(owner)
    for memory_id in sorted(faults.unrecorded):
        _record_as_it_is(conn, memory_id, now, touched)
    entry_writes.index(conn, full_text, touched, now)
    _write_means(conn)


def _agrees(
    full_text: FullText, unit: Row[Any], key: contextual_keys.Key | None, words: FullTextColumns | None
) -> bool:
    """Say whether a unit is searched by what its owner says now."""
    if key is None:
        return not unit.live and words is None and unit.key is None
    if not unit.live or words != full_text.columns(key.row) or to_scope(unit) != key.row.scope:
        return False
    if key.vector is None or unit.key is None:
        return key.vector is None and unit.key is None
    if len(unit.key) != key.vector.nbytes:
        return False
    return bool(np.allclose(np.frombuffer(unit.key, dtype=np.float32), key.vector, atol=TOLERANCE))


def _words_agree(conn: Connection, full_text: FullText, rows: Iterable[FullTextColumns]) -> bool:
    """Say whether the full text counts each word of the texts as often as its rows have it."""
    wanted = Counter(word for _, own, _, _ in rows for word in set(own.split()))
    try:
        return full_text.own_text_counts(conn, wanted) == wanted
    except FullTextError:
        return False


def _sums(conn: Connection) -> dict[tuple[str, str], tuple[int, entry_writes.Sum]]:
    """Return count and float64 sum of the live keys by user and embedder."""
    found: dict[tuple[str, str], tuple[int, entry_writes.Sum]] = {}
    whole = func.length(vectors.c.key) == 2 * func.length(vectors.c.vector)  # single and half precision
    query = select(vectors.c.user_id, vectors.c.embedder, vectors.c.key).where(vectors.c.key.is_not(None), whole)
    for user_id, embedder, blob in conn.execute(query):
        key = np.frombuffer(blob, dtype=np.float32).astype(np.float64)
        count, total = found.get((user_id, embedder), (0, np.zeros_like(key)))
        found[user_id, embedder] = (count + 1, total + key)
    return found


def _means_agree(conn: Connection) -> bool:
    wanted = _sums(conn)
    stored = {(row.user_id, row.embedder): row for row in conn.execute(select(means)) if row.units}
    return wanted.keys() == stored.keys() and all(
        stored[key].units == count
        and len(stored[key].total) == total.nbytes
        and np.allclose(np.frombuffer(stored[key].total, dtype=np.float64), total, atol=TOLERANCE * max(1, count))
        for key, (count, total) in wanted.items()
    )


def _write_means(conn: Connection) -> None:
    conn.execute(delete(means))  # what the mending moved
    for (user_id, embedder), (count, total) in _sums(conn).items():
        conn.execute(insert(means).values(user_id=user_id, embedder=embedder, units=count, total=total.tobytes()))


def _unrecorded(conn: Connection) -> Iterator[str]:
    """Yield memories that are not what the last row of their history says, and turns likewise."""
    last: dict[str, tuple[str | None, bool]] = {}
    for row in conn.execute(select(history).order_by(history.c.seq)):
        last[row.memory_id] = (row.new_memory, row.is_deleted)
    for row in conn.execute(select(memories.c.id, memories.c.text, memories.c.deleted_at)):
        text, gone = last.get(row.id, (None, None))
        if gone is not (row.deleted_at is not None) or (not gone and text != row.text):
            yield row.id
    order = select(message_history).order_by(message_history.c.seq)
    events: dict[str, str] = {row.message_id: row.event for row in conn.execute(order)}
    for row in conn.execute(select(messages.c.id, messages.c.deleted_at)):
        if events.get(row.id) != (Event.ADD if row.deleted_at is None else Event.DELETE):
            yield row.id


def _record_as_it_is(conn: Connection, owner_id: str, now: datetime, touched: entry_writes.TouchedEntries) -> None:
    """Write the row of history that was missing: a memory or turn is believed as its own row has it."""
    made_by = Provenance("repair")
    row = conn.execute(select(memories).where(memories.c.id == owner_id)).one_or_none()
    if row is not None:
        tx = Transaction(conn, Scope(row.user_id), made_by, now, next_edit_number(conn), {}, "", touched)
        record(tx, Event.UPDATE if row.deleted_at is None else Event.DELETE, to_memory(row), old=row.text)
        return
    turn = conn.execute(select(messages).where(messages.c.id == owner_id)).one()
    event = Event.ADD if turn.deleted_at is None else Event.DELETE
    conn.execute(
        insert(message_history).values(
            message_id=owner_id, event=event.value, updated_at=now, stage=made_by.stage, change=next_edit_number(conn)
        )
    )
