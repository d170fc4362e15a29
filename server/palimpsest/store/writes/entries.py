"""Entries: what a search sees of a memory or message.

An entry has the vector of its own text, a contextual key (see `contextual_keys.py`) and a full-text row. Every change
of an entry also leaves a row in the index log, which the vector indexes follow.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from sqlalchemy import Connection, Table, and_, bindparam, insert, select, update

from palimpsest.core.models import Kind, Scope
from palimpsest.core.protocols import Vector
from palimpsest.store.database.protocols import FullText, FullTextRow
from palimpsest.store.mapping import batched, chunks, listed, packed, scope_values, unpacked_key
from palimpsest.store.schema import index_log, means, memories, memory_sources, messages, vectors
from palimpsest.store.views import gists
from palimpsest.store.writes import contextual_keys

VectorSum: TypeAlias = npt.NDArray[np.float64]

OWNERS: tuple[tuple[Kind, Table], ...] = (("message", messages), ("memory", memories))
"""The tables whose rows have an entry."""


@dataclass(slots=True)
class TouchedEntries:
    """The owners that one transaction changed. `index` processes them once, at its end.

    Memories that were only `annotated` say what they said before, so nobody who read them has to read them again.
    `moves` holds, by user and embedder, by how much the count and the float64 sum of the living keys change.
    """

    memories: set[str] = field(default_factory=set[str])
    messages: set[str] = field(default_factory=set[str])
    annotated: set[str] = field(default_factory=set[str])
    moves: dict[tuple[str, str], tuple[int, VectorSum]] = field(
        default_factory=dict[tuple[str, str], tuple[int, VectorSum]]
    )

    def move(self, user_id: str, embedder: str, key: bytes | None, vector: bytes | None, sign: int) -> None:
        """Record that a stored key was added (sign 1) or removed (sign -1). Nothing is recorded without a key."""
        if key is None or vector is None:
            return
        added = unpacked_key(key, vector).astype(np.float64)
        count, total = self.moves.get((user_id, embedder), (0, np.zeros_like(added)))
        self.moves[user_id, embedder] = (count + sign, total + sign * added)


@dataclass(frozen=True, slots=True)
class Embedded:
    """The new vector of an entry, of shape (dims,), and the whole text it was made from."""

    seq: int
    text: str
    vector: Vector


def put(
    conn: Connection,
    kind: Kind,
    owner_id: str,
    scope: Scope,
    vector: Vector | None,
    embedder: str,
    touched: TouchedEntries,
    *,
    partial: bool = False,
) -> None:
    """Insert or replace the entry of a memory or message with its own vector, if there is one.

    `partial` says that it is the vector of the first window of a long text. `index` writes the key and the full-text
    row.
    """
    old = conn.execute(_ENTRY, {"kind": kind, "owner": owner_id}).one_or_none()
    values = {
        "live": True,
        "embedder": embedder if vector is not None else "",
        "partial": vector is not None and partial,
        "vector": None if vector is None else packed(vector),
        "key": None,
    }
    if old is None:
        conn.execute(_INSERT, {"kind": kind, "owner_id": owner_id, **scope_values(scope), **values})
        return
    touched.move(old.user_id, old.embedder, old.key, old.vector, -1)
    conn.execute(update(vectors).where(vectors.c.seq == old.seq).values(**values))


_INSERT = insert(vectors)
_ENTRY = select(vectors).where(vectors.c.kind == bindparam("kind"), vectors.c.owner_id == bindparam("owner"))


def index(conn: Connection, full_text: FullText, touched: TouchedEntries, now: datetime) -> None:
    """Rewrite the keys and full-text rows of the touched entries and of the entries around them, and log both."""
    message_ids, memory_ids = set(touched.messages), touched.memories | touched.annotated
    message_ids.update(contextual_keys.neighbour_ids(conn, sorted(touched.messages)))
    for chunk in chunks(sorted(touched.memories)):
        message_ids.update(conn.execute(_CITED, {"ids": chunk}).scalars().all())
    for chunk in chunks(sorted(touched.messages)):
        memory_ids.update(conn.execute(_CITING, {"ids": chunk}).scalars().all())
    _write_entries(conn, full_text, "memory", sorted(memory_ids), touched, now)
    _write_entries(conn, full_text, "message", sorted(message_ids), touched, now)
    _move_means(conn, touched)


_CITED = select(memory_sources.c.message_id).where(memory_sources.c.memory_id.in_(listed("ids")))
_CITING = select(memory_sources.c.memory_id).where(memory_sources.c.message_id.in_(listed("ids")))


def give_vectors(
    conn: Connection, full_text: FullText, embedder: str, embedded: Sequence[Embedded], now: datetime
) -> None:
    """Store new vectors of entries, and rewrite the keys of those entries and of the entries around them.

    An entry whose text was changed or deleted in the meantime is left unchanged.
    """
    touched = TouchedEntries()
    for item in embedded:
        entry = conn.execute(select(vectors).where(vectors.c.seq == item.seq)).one()
        text = {
            "memory": select(memories.c.text).where(memories.c.id == entry.owner_id),
            "message": select(messages.c.content).where(messages.c.id == entry.owner_id),
        }[entry.kind]
        if not entry.live or conn.execute(text).scalar_one() != item.text:
            continue
        touched.move(entry.user_id, entry.embedder, entry.key, entry.vector, -1)
        blob = packed(item.vector)
        values = {"embedder": embedder, "partial": False, "vector": blob, "key": None}
        conn.execute(update(vectors).where(vectors.c.seq == item.seq).values(**values))
        (touched.memories if entry.kind == "memory" else touched.messages).add(entry.owner_id)
    index(conn, full_text, touched, now)


def give_gist_vectors(
    conn: Connection,
    full_text: FullText,
    embedder: str,
    texts: Mapping[str, str],
    made: Sequence[Vector],
    now: datetime,
) -> None:
    """Store the vectors of gists by the ids of their pages, and rewrite the keys of these pages."""
    touched = TouchedEntries()
    touched.messages.update(gists.give_vectors(conn, embedder, texts, made))
    index(conn, full_text, touched, now)


def rebuild_full_text(conn: Connection, full_text: FullText) -> int:
    """Rebuild the full text and return the number of its rows."""
    full_text.clear(conn)
    for keys in batched(_living_keys(conn)):
        full_text.put(conn, [key.row for key in keys])
    return full_text.count(conn)


def rebuild(conn: Connection, full_text: FullText, now: datetime) -> None:
    """Rebuild every key and full-text row, as after a migration."""
    full_text.clear(conn)
    touched = TouchedEntries()
    for kind, table in OWNERS:
        ids = conn.execute(select(table.c.id).order_by(table.c.seq)).scalars().all()
        _write_entries(conn, full_text, kind, ids, touched, now)
    _move_means(conn, touched)


def _living_keys(conn: Connection) -> Iterator[contextual_keys.Key]:
    for kind, table in OWNERS:
        living = select(table.c.id).where(table.c.deleted_at.is_(None)).order_by(table.c.seq)
        for entry in contextual_keys.keyed_entries(conn, kind, conn.execute(living).scalars().all()):
            if entry.key is not None:
                yield entry.key


def _write_entries(
    conn: Connection, full_text: FullText, kind: Kind, owner_ids: Sequence[str], touched: TouchedEntries, now: datetime
) -> None:
    """Write keys, full-text rows and the index log.

    An entry without a key belongs to a deleted owner. It leaves every search, and keeps its own vector in case the
    owner is restored.
    """
    log: list[dict[str, Any]] = []
    rows: list[FullTextRow] = []
    changed: list[dict[str, Any]] = []
    removed: list[int] = []
    for entry in contextual_keys.keyed_entries(conn, kind, owner_ids):
        blob = None if entry.key is None else entry.key.blob
        if blob != entry.blob:
            touched.move(entry.user_id, entry.embedder, entry.blob, entry.vector, -1)
            touched.move(entry.user_id, entry.embedder, blob, entry.vector, 1)
        if entry.key is None:
            removed.append(entry.seq)
        else:
            rows.append(entry.key.row)
        if blob != entry.blob or entry.live is (entry.key is None):
            changed.append({"entry": entry.seq, "new_key": blob, "is_live": entry.key is not None})
        # A decision is refused if a memory it read has changed since. Such rows of the log carry the memory's id.
        memory_id = entry.owner_id if kind == "memory" and entry.owner_id in touched.memories else None
        op = "delete" if entry.key is None else "upsert"
        log.append({"unit_seq": entry.seq, "user_id": entry.user_id, "op": op, "memory_id": memory_id, "at": now})
    full_text.put(conn, rows)
    full_text.remove(conn, removed)
    if changed:
        conn.execute(_CHANGE, changed)
    if log:
        conn.execute(_LOG, log)


_LOG = insert(index_log)
_CHANGE = (
    update(vectors)
    .where(vectors.c.seq == bindparam("entry"))
    .values(key=bindparam("new_key"), live=bindparam("is_live"))
)


def _move_means(conn: Connection, touched: TouchedEntries) -> None:
    for (user_id, embedder), (count, total) in touched.moves.items():
        old = conn.execute(_MEAN, {"user": user_id, "of_embedder": embedder}).one_or_none()
        moved = total if old is None else np.frombuffer(old.total, dtype=np.float64) + total
        values = {"user": user_id, "of_embedder": embedder, "count": count, "sum": moved.tobytes()}
        conn.execute(_INSERT_MEAN if old is None else _MOVE_MEAN, values)


_OF_USER = and_(means.c.user_id == bindparam("user"), means.c.embedder == bindparam("of_embedder"))
_MEAN = select(means.c.total).where(_OF_USER)
_INSERT_MEAN = insert(means).values(
    user_id=bindparam("user"), embedder=bindparam("of_embedder"), units=bindparam("count"), total=bindparam("sum")
)
_MOVE_MEAN = update(means).where(_OF_USER).values(units=means.c.units + bindparam("count"), total=bindparam("sum"))
