"""Units: what is searched. Their vectors, their contextual keys, their full-text rows and the change log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from sqlalchemy import Connection, Table, and_, bindparam, insert, select, update

from palimpsest.core.models import Kind, Scope
from palimpsest.core.protocols import Vector
from palimpsest.store.mapping import batched, chunks, listed, packed, scope_values
from palimpsest.store.protocols import FullText, FullTextRow
from palimpsest.store.schema import index_log, means, memories, memory_sources, messages, vectors
from palimpsest.store.writes import contextual_keys

Sum: TypeAlias = npt.NDArray[np.float64]


@dataclass(slots=True)
class TouchedEntries:
    """Collect what one transaction changed, for `index` to follow up once at its end.

    `moves` holds, by user and embedder, how the count and the float64 sum of the live keys change.
    """

    memories: set[str] = field(default_factory=set[str])
    messages: set[str] = field(default_factory=set[str])
    moves: dict[tuple[str, str], tuple[int, Sum]] = field(default_factory=dict[tuple[str, str], tuple[int, Sum]])

    def move(self, user_id: str, embedder: str, key: bytes | None, sign: int) -> None:
        """Note that a key came (sign 1) or went (sign -1); no key changes nothing."""
        if key is None:
            return
        vector = np.frombuffer(key, dtype=np.float32).astype(np.float64)
        count, total = self.moves.get((user_id, embedder), (0, np.zeros_like(vector)))
        self.moves[user_id, embedder] = (count + sign, total + sign * vector)


@dataclass(frozen=True, slots=True)
class Embedded:
    """Hold a unit's new vector, of shape (dims,), and the text it was made of."""

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
) -> None:
    """Write the unit of a memory or message with its own vector, if there is one; the key comes by `index`."""
    old = conn.execute(_UNIT, {"kind": kind, "owner": owner_id}).one_or_none()
    values = {
        "live": True,
        "embedder": embedder if vector is not None else "",
        "vector": None if vector is None else packed(vector),
        "key": None,
    }
    if old is None:
        conn.execute(insert(vectors), {"kind": kind, "owner_id": owner_id, **scope_values(scope), **values})
        return
    touched.move(old.user_id, old.embedder, old.key, -1)
    conn.execute(update(vectors).where(vectors.c.seq == old.seq).values(**values))


_UNIT = select(vectors).where(vectors.c.kind == bindparam("kind"), vectors.c.owner_id == bindparam("owner"))


def index(conn: Connection, full_text: FullText, touched: TouchedEntries, now: datetime) -> None:
    """Write anew the keys, full-text rows and log of all that was touched and of all whose context it is."""
    turns, citing = set(touched.messages), set(touched.memories)
    turns.update(contextual_keys.neighbour_ids(conn, sorted(touched.messages)))
    for chunk in chunks(sorted(touched.memories)):
        turns.update(conn.execute(_CITED, {"ids": chunk}).scalars().all())
    for chunk in chunks(sorted(touched.messages)):
        citing.update(conn.execute(_CITING, {"ids": chunk}).scalars().all())
    _write_units(conn, full_text, "memory", sorted(citing), touched, now)
    _write_units(conn, full_text, "message", sorted(turns), touched, now)
    _move_means(conn, touched)


_CITED = select(memory_sources.c.message_id).where(memory_sources.c.memory_id.in_(listed("ids")))
_CITING = select(memory_sources.c.memory_id).where(memory_sources.c.message_id.in_(listed("ids")))


def give_vectors(
    conn: Connection, full_text: FullText, embedder: str, found: Sequence[Embedded], now: datetime
) -> None:
    """Write new vectors of units, then the keys of those units and of their surroundings.

    A unit whose text was changed or deleted meanwhile is left as it is.
    """
    touched = TouchedEntries()
    for item in found:
        unit = conn.execute(select(vectors).where(vectors.c.seq == item.seq)).one()
        texts = {
            "memory": select(memories.c.text).where(memories.c.id == unit.owner_id),
            "message": select(messages.c.content).where(messages.c.id == unit.owner_id),
        }
        if not unit.live or conn.execute(texts[unit.kind]).scalar_one() != item.text:
            continue
        touched.move(unit.user_id, unit.embedder, unit.key, -1)
        blob = packed(item.vector)
        conn.execute(update(vectors).where(vectors.c.seq == item.seq).values(embedder=embedder, vector=blob, key=None))
        (touched.memories if unit.kind == "memory" else touched.messages).add(unit.owner_id)
    index(conn, full_text, touched, now)


def rebuild_full_text(conn: Connection, full_text: FullText) -> int:
    """Write every full-text row anew and return their number."""
    full_text.clear(conn)
    for some in batched(_all_keys(conn)):
        full_text.put(conn, [key.row for key in some])
    return full_text.count(conn)


def renew(conn: Connection, full_text: FullText, now: datetime) -> None:
    """Write every key and full-text row anew, as this version makes them."""
    full_text.clear(conn)
    touched = TouchedEntries()
    owners: tuple[tuple[Kind, Table], ...] = (("message", messages), ("memory", memories))
    for kind, table in owners:
        ids = conn.execute(select(table.c.id).order_by(table.c.seq)).scalars().all()
        _write_units(conn, full_text, kind, ids, touched, now)
    _move_means(conn, touched)


def _all_keys(conn: Connection) -> Iterator[contextual_keys.Key]:
    owners: tuple[tuple[Kind, Table], ...] = (("message", messages), ("memory", memories))
    for kind, table in owners:
        living = select(table.c.id).where(table.c.deleted_at.is_(None)).order_by(table.c.seq)
        for unit in contextual_keys.keyed_entries(conn, kind, conn.execute(living).scalars().all()):
            if unit.key is not None:
                yield unit.key


def _write_units(
    conn: Connection, full_text: FullText, kind: Kind, owner_ids: Sequence[str], touched: TouchedEntries, now: datetime
) -> None:
    """Write keys and full-text rows; a unit without a key is deleted, and its own vector stays for its return."""
    log: list[dict[str, Any]] = []
    rows: list[FullTextRow] = []
    changed: list[dict[str, Any]] = []
    gone: list[int] = []
    for unit in contextual_keys.keyed_entries(conn, kind, owner_ids):
        blob = None if unit.key is None or unit.key.vector is None else unit.key.vector.tobytes()
        if blob != unit.blob:
            touched.move(unit.user_id, unit.embedder, unit.blob, -1)
            touched.move(unit.user_id, unit.embedder, blob, 1)
        if unit.key is None:
            gone.append(unit.seq)
        else:
            rows.append(unit.key.row)
        if blob != unit.blob or unit.live is (unit.key is None):
            changed.append({"unit": unit.seq, "new_key": blob, "lives": unit.key is not None})
        # Decisions are held against changes of memories, and these are told by their own id.
        memory_id = unit.owner_id if kind == "memory" and unit.owner_id in touched.memories else None
        op = "delete" if unit.key is None else "upsert"
        log.append({"unit_seq": unit.seq, "user_id": unit.user_id, "op": op, "memory_id": memory_id, "at": now})
    full_text.put(conn, rows)
    full_text.remove(conn, gone)
    if changed:
        conn.execute(_CHANGED, changed)
    if log:
        conn.execute(insert(index_log), log)


_CHANGED = (
    update(vectors).where(vectors.c.seq == bindparam("unit")).values(key=bindparam("new_key"), live=bindparam("lives"))
)


def _move_means(conn: Connection, touched: TouchedEntries) -> None:
    for (user_id, embedder), (count, total) in touched.moves.items():
        mine = and_(means.c.user_id == user_id, means.c.embedder == embedder)
        old = conn.execute(select(means).where(mine)).one_or_none()
        if old is None:
            conn.execute(insert(means).values(user_id=user_id, embedder=embedder, units=count, total=total.tobytes()))
            continue
        moved = np.frombuffer(old.total, dtype=np.float64) + total
        conn.execute(update(means).where(mine).values(units=old.units + count, total=moved.tobytes()))
