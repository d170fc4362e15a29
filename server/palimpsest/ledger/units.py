"""Units: what is searched. Their vectors, their contextual keys, their full-text rows and the change log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from sqlalchemy import Connection, and_, insert, select, update

from palimpsest.ledger import keys, lexical
from palimpsest.ledger.rows import scope_values
from palimpsest.ledger.tables import changes, means, memories, memory_sources, messages, vectors
from palimpsest.ports import Vector
from palimpsest.records import Kind, Scope

Sum: TypeAlias = npt.NDArray[np.float64]


@dataclass(slots=True)
class Touched:
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
    touched: Touched,
) -> None:
    """Write the unit of a memory or message with its own vector, if there is one; the key comes by `index`."""
    old = conn.execute(select(vectors).where(vectors.c.kind == kind, vectors.c.owner_id == owner_id)).one_or_none()
    values = {
        "live": True,
        "embedder": embedder if vector is not None else "",
        "vector": None if vector is None else vector.astype(np.float32).tobytes(),
        "key": None,
    }
    if old is None:
        conn.execute(insert(vectors).values(kind=kind, owner_id=owner_id, **scope_values(scope), **values))
        return
    touched.move(old.user_id, old.embedder, old.key, -1)
    conn.execute(update(vectors).where(vectors.c.seq == old.seq).values(**values))


def index(conn: Connection, touched: Touched, now: datetime) -> None:
    """Write anew the keys, full-text rows and log of all that was touched and of all whose context it is."""
    around = set(touched.messages)
    for message_id in touched.messages:
        around.update(keys.neighbour_ids(conn, message_id))
    for memory_id in touched.memories:
        sources = select(memory_sources.c.message_id).where(memory_sources.c.memory_id == memory_id)
        around.update(conn.execute(sources).scalars())
    for memory_id in sorted(touched.memories):
        key = keys.memory_key(conn, memory_id)
        if key is None:
            _retire(conn, memory_id, touched, now)
        else:
            _write_key(conn, key, touched, now, memory_id)
    for message_id in sorted(around):
        _write_key(conn, keys.message_key(conn, message_id), touched, now, None)
    _move_means(conn, touched)


def give_vectors(conn: Connection, embedder: str, found: Sequence[Embedded], now: datetime) -> None:
    """Write new vectors of units, then the keys of those units and of their surroundings.

    A unit whose text was changed or deleted meanwhile is left as it is.
    """
    touched = Touched()
    for item in found:
        unit = conn.execute(select(vectors).where(vectors.c.seq == item.seq)).one()
        texts = {
            "memory": select(memories.c.text).where(memories.c.id == unit.owner_id),
            "message": select(messages.c.content).where(messages.c.id == unit.owner_id),
        }
        if not unit.live or conn.execute(texts[unit.kind]).scalar_one() != item.text:
            continue
        touched.move(unit.user_id, unit.embedder, unit.key, -1)
        blob = item.vector.astype(np.float32).tobytes()
        conn.execute(update(vectors).where(vectors.c.seq == item.seq).values(embedder=embedder, vector=blob, key=None))
        (touched.memories if unit.kind == "memory" else touched.messages).add(unit.owner_id)
    index(conn, touched, now)


def rebuild_lexical(conn: Connection) -> int:
    """Write every full-text row anew and return their number."""
    lexical.clear(conn)
    for key in _all_keys(conn):
        lexical.put(conn, key.row)
    return lexical.count(conn)


def _all_keys(conn: Connection) -> Iterator[keys.Key]:
    for message_id in conn.execute(select(messages.c.id).order_by(messages.c.seq)).scalars().all():
        yield keys.message_key(conn, message_id)
    living = select(memories.c.id).where(memories.c.deleted_at.is_(None)).order_by(memories.c.seq)
    for memory_id in conn.execute(living).scalars().all():
        key = keys.memory_key(conn, memory_id)
        if key is not None:
            yield key


def _write_key(conn: Connection, key: keys.Key, touched: Touched, now: datetime, memory_id: str | None) -> None:
    unit = vectors.c.seq == key.row.seq
    user_id = key.row.scope.user_id
    lexical.put(conn, key.row)
    old = conn.execute(select(vectors.c.key, vectors.c.embedder).where(unit)).one()
    blob = None if key.vector is None else key.vector.tobytes()
    if blob != old.key:
        touched.move(user_id, old.embedder, old.key, -1)
        touched.move(user_id, old.embedder, blob, 1)
        conn.execute(update(vectors).where(unit).values(key=blob))
    _log(conn, key.row.seq, user_id, "upsert", now, memory_id)


def _retire(conn: Connection, memory_id: str, touched: Touched, now: datetime) -> None:
    """Take a deleted memory out of what is searched; its own vector stays for its return."""
    unit = conn.execute(select(vectors).where(vectors.c.kind == "memory", vectors.c.owner_id == memory_id)).one()
    lexical.remove(conn, unit.seq)
    touched.move(unit.user_id, unit.embedder, unit.key, -1)
    conn.execute(update(vectors).where(vectors.c.seq == unit.seq).values(live=False, key=None))
    _log(conn, unit.seq, unit.user_id, "delete", now, memory_id)


def _log(conn: Connection, seq: int, user_id: str, op: str, now: datetime, memory_id: str | None) -> None:
    conn.execute(insert(changes).values(unit_seq=seq, user_id=user_id, op=op, memory_id=memory_id, at=now))


def _move_means(conn: Connection, touched: Touched) -> None:
    for (user_id, embedder), (count, total) in touched.moves.items():
        mine = and_(means.c.user_id == user_id, means.c.embedder == embedder)
        old = conn.execute(select(means).where(mine)).one_or_none()
        if old is None:
            conn.execute(insert(means).values(user_id=user_id, embedder=embedder, units=count, total=total.tobytes()))
            continue
        moved = np.frombuffer(old.total, dtype=np.float64) + total
        conn.execute(update(means).where(mine).values(units=old.units + count, total=moved.tobytes()))
