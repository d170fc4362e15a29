"""Compare the ledger with itself, row by row: entries with their texts, memories with their history and the graph.

Every write keeps them in step within one transaction. A difference is damage from outside, or a bug.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import numpy as np
from sqlalchemy import Connection, Row, Table, delete, func, insert, select, update

from palimpsest.core.models import Event, Kind, Provenance, Scope
from palimpsest.core.protocols import Progress
from palimpsest.store.database.protocols import Database, FullText, FullTextColumns
from palimpsest.store.graph import statements as graph
from palimpsest.store.graph.care.checks import GraphFaults, compare, remove_strays
from palimpsest.store.mapping import chunks, scope_values, to_memory, to_scope, unpacked, unpacked_key
from palimpsest.store.schema import history, means, memories, message_history, messages, vectors
from palimpsest.store.views import gists, recalls, uses
from palimpsest.store.views.care import link_care
from palimpsest.store.writes import contextual_keys
from palimpsest.store.writes import entries as entry_writes
from palimpsest.store.writes.transaction import Transaction, next_edit_number, record

TOLERANCE = 1e-4
"""How far two vectors may differ that were summed in a different order."""

ROUNDING = 1e-3
"""By which part of it such a number may differ after it was rounded to half precision: one unit in the last place."""

MAX_EXAMPLES = 5


@dataclass(slots=True)
class Faults:
    """What does not agree.

    `owners` are the memories and messages whose entry is wrong or missing, by id; `orphans` the numbers of entries
    without an owner; `unrecorded` the ids of memories and messages that differ from their history; `file` what the
    database itself reports. `words` means that the full text does not find the words of its rows, and `means` that the
    mean of a user's vectors is wrong. `graph` is what does not agree of entities, mentions and relations. `uses` are
    ids that were used and that no memory has, `links` the memories whose links are not found from the other end,
    `gists` ids that have a gist and belong to no page, and `recalls` questions by number that brought back nothing that
    is there.
    """

    owners: dict[str, Kind] = field(default_factory=dict[str, Kind])
    orphans: set[int] = field(default_factory=set[int])
    words: bool = False
    means: bool = False
    unrecorded: set[str] = field(default_factory=set[str])
    file: list[str] = field(default_factory=list[str])
    graph: GraphFaults = field(default_factory=GraphFaults)
    uses: list[str] = field(default_factory=list[str])
    links: set[str] = field(default_factory=set[str])
    gists: list[str] = field(default_factory=list[str])
    recalls: list[int] = field(default_factory=list[int])

    def texts(self) -> list[str]:
        """Return the faults, one line for each kind, with examples."""
        lines = [f"the file: {text}" for text in self.file[:MAX_EXAMPLES]]
        for what, ids in (
            ("are searched by another text than they have", sorted(self.owners)),
            ("differ from the last row of their history", sorted(self.unrecorded)),
            ("have links that cannot be followed from both ends", sorted(self.links)),
        ):
            if ids:
                lines.append(f"{len(ids)} {what}: {', '.join(owner[:8] for owner in ids[:MAX_EXAMPLES])}")
        if self.orphans:
            lines.append(f"{len(self.orphans)} entries belong to no memory or message")
        if self.words:
            lines.append("the full text does not find the words of its rows")
        if self.means:
            lines.append("the mean of a user's vectors is wrong")
        if self.uses:
            lines.append(f"{len(self.uses)} uses belong to no memory")
        if self.gists:
            lines.append(f"{len(self.gists)} gists belong to no page")
        if self.recalls:
            lines.append(f"{len(self.recalls)} questions of the recall log belong to no memory or message")
        return [*lines, *self.graph.texts()]


def verify(conn: Connection, database: Database, progress: Progress) -> Faults:
    """Compare every row and return what does not agree. `progress` is called with rows done and rows in all."""
    faults = Faults(file=database.faults(conn))
    if faults.file:
        return faults
    entries_by_owner = {(row.kind, row.owner_id): row for row in conn.execute(select(vectors))}
    full_text = database.full_text
    words = full_text.rows(conn)
    faults.words = not full_text.is_sound(conn, words)
    total, done = len(entries_by_owner), 0
    owners: tuple[tuple[Kind, Table], ...] = (("message", messages), ("memory", memories))
    for kind, table in owners:
        ids = conn.execute(select(table.c.id).order_by(table.c.seq)).scalars().all()
        keys = {entry.owner_id: entry.key for entry in contextual_keys.keyed_entries(conn, kind, ids)}
        for owner in ids:
            entry = entries_by_owner.pop((kind, owner), None)
            if entry is None or not _agrees(full_text, entry, keys[owner], words.pop(entry.seq, None)):
                faults.owners[owner] = kind
            done += 1
            progress(done, max(total, done))
    faults.orphans = {entry.seq for entry in entries_by_owner.values()} | set(words)
    faults.means = not _means_agree(conn)
    faults.unrecorded = set(_unrecorded(conn))
    faults.graph = compare(conn)
    faults.uses = uses.strays(conn)
    faults.links = link_care.differing(conn)
    faults.gists = gists.strays(conn)
    faults.recalls = recalls.strays(conn)
    return faults


def repair(conn: Connection, database: Database, faults: Faults, now: datetime) -> None:
    """Rewrite what does not agree: entries from their texts, means from keys, history and the graph from memories."""
    full_text = database.full_text
    if faults.file:
        database.repair(conn)
    touched = entry_writes.TouchedEntries()
    if faults.file or faults.words or faults.owners or faults.orphans:
        entry_writes.rebuild_full_text(conn, full_text)  # rows changed from outside leave traces in its index
    # Other processes may have written since the faults were found, and the full text is whole now.
    faults = verify(conn, database, lambda _done, _total: None)
    conn.execute(delete(means))  # a stored sum may have a wrong length; `_write_means` writes them again
    for seq in faults.orphans:
        full_text.remove(conn, [seq])
        conn.execute(delete(vectors).where(vectors.c.seq == seq))
    for owner, kind in faults.owners.items():
        table = memories if kind == "memory" else messages
        row = conn.execute(select(table).where(table.c.id == owner)).one()
        entry = conn.execute(select(vectors).where(vectors.c.kind == kind, vectors.c.owner_id == owner)).one_or_none()
        if entry is None:
            entry_writes.put(conn, kind, owner, to_scope(row), None, "", touched)
        else:
            values = {"live": row.deleted_at is None, "key": None, **scope_values(to_scope(row))}
            conn.execute(update(vectors).where(vectors.c.seq == entry.seq).values(**values))
        (touched.memories if kind == "memory" else touched.messages).add(owner)
    for chunk in chunks(faults.uses):
        uses.erase(conn, chunk)
    gists.erase(conn, faults.gists)
    recalls.erase_numbered(conn, faults.recalls)
    for memory_id in sorted(faults.unrecorded):
        _record_as_it_is(conn, memory_id, now, touched)
    link_care.repair(conn, faults.links)
    for memory_id in sorted(remove_strays(conn, faults.graph)):
        row = conn.execute(select(memories).where(memories.c.id == memory_id)).one()
        tx = Transaction(conn, to_scope(row), Provenance("repair"), now, next_edit_number(conn), {}, "", touched)
        graph.put(tx.graph, to_memory(row))
        touched.memories.add(memory_id)  # a graph database outside follows the index log
    entry_writes.index(conn, full_text, touched, now)
    _write_means(conn)


def _agrees(
    full_text: FullText, entry: Row[Any], key: contextual_keys.Key | None, words: FullTextColumns | None
) -> bool:
    """Return whether an entry has the key and the full-text row that its owner's text gives."""
    if key is None:
        return not entry.live and words is None and entry.key is None
    if not entry.live or words != full_text.columns(key.row) or to_scope(entry) != key.row.scope:
        return False
    if key.blob is None or entry.key is None:
        return key.blob is None and entry.key is None
    if len(entry.key) != len(key.blob):
        return False
    return bool(np.allclose(unpacked(entry.key), unpacked(key.blob), atol=TOLERANCE, rtol=ROUNDING))


def _sums(conn: Connection) -> dict[tuple[str, str], tuple[int, entry_writes.VectorSum]]:
    """Return count and float64 sum of the live keys by user and embedder."""
    sums: dict[tuple[str, str], tuple[int, entry_writes.VectorSum]] = {}
    whole = func.length(vectors.c.key).in_([0, func.length(vectors.c.vector)])
    columns = (vectors.c.user_id, vectors.c.embedder, vectors.c.key, vectors.c.vector)
    for user_id, embedder, blob, vector in conn.execute(select(*columns).where(vectors.c.key.is_not(None), whole)):
        key = unpacked_key(blob, vector).astype(np.float64)
        count, total = sums.get((user_id, embedder), (0, np.zeros_like(key)))
        sums[user_id, embedder] = (count + 1, total + key)
    return sums


def _means_agree(conn: Connection) -> bool:
    expected = _sums(conn)
    stored = {(row.user_id, row.embedder): row for row in conn.execute(select(means)) if row.units}
    return expected.keys() == stored.keys() and all(
        stored[key].units == count
        and len(stored[key].total) == total.nbytes
        and np.allclose(np.frombuffer(stored[key].total, dtype=np.float64), total, atol=TOLERANCE * max(1, count))
        for key, (count, total) in expected.items()
    )


def _write_means(conn: Connection) -> None:
    """Replace all means by those of the stored keys."""
    conn.execute(delete(means))
    for (user_id, embedder), (count, total) in _sums(conn).items():
        conn.execute(insert(means).values(user_id=user_id, embedder=embedder, units=count, total=total.tobytes()))


def _unrecorded(conn: Connection) -> Iterator[str]:
    """Yield the memories and messages that are not as the last row of their history says."""
    last: dict[str, tuple[str | None, bool]] = {}
    for row in conn.execute(select(history).order_by(history.c.seq)):
        last[row.memory_id] = (row.new_memory, row.is_deleted)
    for row in conn.execute(select(memories.c.id, memories.c.text, memories.c.deleted_at)):
        text, is_deleted = last.get(row.id, (None, None))
        if is_deleted is not (row.deleted_at is not None) or (not is_deleted and text != row.text):
            yield row.id
    order = select(message_history).order_by(message_history.c.seq)
    events: dict[str, str] = {row.message_id: row.event for row in conn.execute(order)}
    for row in conn.execute(select(messages.c.id, messages.c.deleted_at)):
        if events.get(row.id) != (Event.ADD if row.deleted_at is None else Event.DELETE):
            yield row.id


def _record_as_it_is(conn: Connection, owner_id: str, now: datetime, touched: entry_writes.TouchedEntries) -> None:
    """Insert the missing row of history. The row of the memory or message itself counts as right."""
    provenance = Provenance("repair")
    row = conn.execute(select(memories).where(memories.c.id == owner_id)).one_or_none()
    if row is not None:
        tx = Transaction(conn, Scope(row.user_id), provenance, now, next_edit_number(conn), {}, "", touched)
        record(tx, Event.UPDATE if row.deleted_at is None else Event.DELETE, to_memory(row), old=row.text)
        return
    message = conn.execute(select(messages).where(messages.c.id == owner_id)).one()
    event = Event.ADD if message.deleted_at is None else Event.DELETE
    conn.execute(
        insert(message_history).values(
            message_id=owner_id,
            event=event.value,
            updated_at=now,
            stage=provenance.stage,
            change=next_edit_number(conn),
        )
    )
