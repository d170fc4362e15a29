"""Questions about units: keys, means, the change log. Each takes a connection of `Ledger.read`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from sqlalchemy import ColumnElement, Connection, and_, func, select

from palimpsest.ledger.rows import chunks, sees, to_memory, to_message, to_scope
from palimpsest.ledger.tables import changes, means, memories, messages, vectors
from palimpsest.ports import Vector
from palimpsest.records import Kind, LogEntry, Memory, Message, Scope, Unit


@dataclass(frozen=True, slots=True)
class Waiting:
    """Hold the text of a unit that has no vector of the wanted embedder."""

    seq: int
    text: str


@dataclass(frozen=True, slots=True)
class Centre:
    """Hold how many living keys a user has and their mean, of shape (dims,); no mean where there are none."""

    units: int
    mean: Vector | None


def log_after(conn: Connection, seq: int, limit: int) -> list[LogEntry]:
    """Return the next entries of the change log after number `seq`, oldest first."""
    rows = conn.execute(select(changes).where(changes.c.seq > seq).order_by(changes.c.seq).limit(limit))
    return [LogEntry(row.seq, row.unit_seq, row.user_id, row.op) for row in rows]


def mark(conn: Connection, seq: int) -> str:
    """Return what tells change number `seq` of this ledger from another's; empty for 0 and for one it has not."""
    row = conn.execute(select(changes.c.unit_seq, changes.c.op, changes.c.at).where(changes.c.seq == seq)).one_or_none()
    return "" if row is None else f"{row.unit_seq} {row.op} {row.at.isoformat()}"


def tail(conn: Connection, user_id: str, seq: int, limit: int) -> list[int]:
    """Return up to `limit` units of a user that the log names after number `seq`."""
    query = select(changes.c.unit_seq).distinct().where(changes.c.seq > seq, changes.c.user_id == user_id)
    return list(conn.execute(query.limit(limit)).scalars())


def units(conn: Connection, scope: Scope, seqs: Sequence[int]) -> dict[int, Unit]:
    """Return those of the units that live and that the scope sees."""
    columns = (vectors.c.seq, vectors.c.kind, vectors.c.owner_id, *(vectors.c[name] for name in _SCOPE))
    return {
        row.seq: Unit(row.seq, row.kind, row.owner_id, to_scope(row))
        for chunk in chunks(seqs)
        for row in conn.execute(
            select(*columns).where(vectors.c.seq.in_(chunk), vectors.c.live.is_(True), sees(vectors, scope))
        )
    }


def keys(conn: Connection, embedder: str, seqs: Sequence[int]) -> dict[int, Vector]:
    """Return the keys of living units, each of shape (dims,); units without a vector are left out."""
    has_key = and_(vectors.c.live.is_(True), vectors.c.embedder == embedder, vectors.c.key.is_not(None))
    return {
        seq: np.frombuffer(blob, dtype=np.float32)
        for chunk in chunks(seqs)
        for seq, blob in conn.execute(select(vectors.c.seq, vectors.c.key).where(vectors.c.seq.in_(chunk), has_key))
    }


def own_vectors(conn: Connection, embedder: str, kind: Kind, owner_ids: Sequence[str]) -> dict[str, Vector]:
    """Return the texts' own vectors by owner, each of shape (dims,)."""
    has_vector = and_(vectors.c.kind == kind, vectors.c.embedder == embedder, vectors.c.vector.is_not(None))
    return {
        owner: np.frombuffer(blob, dtype=np.float32)
        for chunk in chunks(owner_ids)
        for owner, blob in conn.execute(
            select(vectors.c.owner_id, vectors.c.vector).where(vectors.c.owner_id.in_(chunk), has_vector)
        )
    }


def scope_keys(conn: Connection, scope: Scope, embedder: str, kind: str | None = None) -> tuple[list[int], Vector]:
    """Return the numbers and the keys, of shape (n, dims), of all living units the scope sees."""
    query = select(vectors.c.seq, vectors.c.key).where(
        sees(vectors, scope),
        vectors.c.live.is_(True),
        vectors.c.embedder == embedder,
        vectors.c.key.is_not(None),
    )
    if kind is not None:
        query = query.where(vectors.c.kind == kind)
    rows = conn.execute(query).all()
    if not rows:
        return [], np.zeros((0, 0), dtype=np.float32)
    matrix = np.frombuffer(b"".join(row.key for row in rows), dtype=np.float32)
    return [row.seq for row in rows], matrix.reshape(len(rows), -1)


def count_units(conn: Connection, scope: Scope, embedder: str) -> int:
    """Return how many living units of an embedder the scope sees."""
    query = select(func.count()).where(sees(vectors, scope), vectors.c.live.is_(True), vectors.c.embedder == embedder)
    return conn.execute(query).scalar_one()


def centre(conn: Connection, user_id: str, embedder: str) -> Centre:
    """Return the number and the mean of a user's living keys."""
    row = conn.execute(
        select(means.c.units, means.c.total).where(means.c.user_id == user_id, means.c.embedder == embedder)
    ).one_or_none()
    if row is None or row.units <= 0:
        return Centre(0, None)
    return Centre(row.units, (np.frombuffer(row.total, dtype=np.float64) / row.units).astype(np.float32))


def living_memories(conn: Connection, scope: Scope) -> Iterator[tuple[int, Memory]]:
    """Yield every living memory the scope sees, with its unit."""
    query = (
        select(memories, vectors.c.seq.label("unit_seq"))
        .join(vectors, (vectors.c.kind == "memory") & (vectors.c.owner_id == memories.c.id))
        .where(sees(memories, scope), memories.c.deleted_at.is_(None))
    )
    return ((row.unit_seq, to_memory(row)) for row in conn.execute(query))


def all_messages(conn: Connection, scope: Scope) -> Iterator[tuple[int, Message]]:
    """Yield every message the scope sees, with its unit."""
    query = (
        select(messages, vectors.c.seq.label("unit_seq"))
        .join(vectors, (vectors.c.kind == "message") & (vectors.c.owner_id == messages.c.id))
        .where(sees(messages, scope))
    )
    return ((row.unit_seq, to_message(row)) for row in conn.execute(query))


def waiting(conn: Connection, embedder: str, limit: int, *, after: int = 0, only_failed: bool = False) -> list[Waiting]:
    """Return living units above unit `after` that have no vector of this embedder, or none at all, oldest first."""
    rows = conn.execute(
        select(vectors.c.seq, func.coalesce(memories.c.text, messages.c.content))
        .outerjoin(memories, (vectors.c.kind == "memory") & (memories.c.id == vectors.c.owner_id))
        .outerjoin(messages, (vectors.c.kind == "message") & (messages.c.id == vectors.c.owner_id))
        .where(vectors.c.live.is_(True), vectors.c.seq > after, _waits(embedder, only_failed=only_failed))
        .order_by(vectors.c.seq)
        .limit(limit)
    )
    return [Waiting(seq, text) for seq, text in rows]


def count_waiting(conn: Connection, embedder: str, *, only_failed: bool = False) -> int:
    """Return how many living units have no vector of this embedder, or none at all."""
    query = select(func.count()).where(vectors.c.live.is_(True), _waits(embedder, only_failed=only_failed))
    return conn.execute(query).scalar_one()


def any_waiting(conn: Connection, embedder: str) -> bool:
    """Say whether any living unit has no vector of this embedder; by index, however many there are."""
    columns = vectors.c
    sides = (columns.embedder < embedder, columns.embedder > embedder)
    return any(
        conn.execute(select(columns.seq).where(side, columns.live.is_(True)).limit(1)).first() is not None
        for side in sides
    )


def _waits(embedder: str, *, only_failed: bool) -> ColumnElement[bool]:
    return vectors.c.embedder == "" if only_failed else vectors.c.embedder != embedder


def indexed(conn: Connection, embedder: str, after: int, limit: int) -> list[tuple[int, str, Vector]]:
    """Return living units with a key, by number: (unit, user, key), from above unit `after`."""
    rows = conn.execute(
        select(vectors.c.seq, vectors.c.user_id, vectors.c.key)
        .where(
            vectors.c.seq > after,
            vectors.c.live.is_(True),
            vectors.c.embedder == embedder,
            vectors.c.key.is_not(None),
        )
        .order_by(vectors.c.seq)
        .limit(limit)
    )
    return [(seq, user_id, np.frombuffer(key, dtype=np.float32)) for seq, user_id, key in rows]


def count_indexed(conn: Connection, embedder: str) -> int:
    """Return how many vectors a complete index holds."""
    query = select(func.count()).where(
        vectors.c.live.is_(True), vectors.c.embedder == embedder, vectors.c.key.is_not(None)
    )
    return conn.execute(query).scalar_one()


_SCOPE = ("user_id", "project", "agent_id", "run_id")
