"""Questions about units: keys, means, the change log. Each takes a connection of `Ledger.read`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import NamedTuple

import numpy as np
from sqlalchemy import ColumnElement, Connection, String, and_, bindparam, case, exists, func, or_, select, type_coerce

from palimpsest.core.models import Candidate, Entry, IndexLogRow, Kind, Memory, Message, Scope
from palimpsest.core.protocols import Vector
from palimpsest.store.mapping import (
    Query,
    chunks,
    is_seen,
    listed,
    sees,
    to_memory,
    to_message,
    unpacked,
)
from palimpsest.store.schema import index_log, means, memories, memory_sources, messages, meta, vectors

EPOCH = "epoch"
"""The key in `meta` that counts how often rows were erased, or replaced as a whole: indexes begin anew then."""


MOST = 0.5
"""A user with more than this share of all entries is not matched in the full text: most rows are theirs anyway."""

NARROW = 1_200
"""An agent's or a run's entries are scanned if there are no more than this. Set by hand."""

READ_CHARS = 400
"""How many characters of a candidate's text are compared with the query word by word."""

SCANNED = 4_000
"""How many keys one batch of a scan holds: four megabytes at 256 dimensions."""

QUESTION_MARKS = frozenset("?\uff1f\u061f\u037e")
"""The Latin, the full-width, the Arabic and the Greek one."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """Hold the text of a unit that has no vector of the wanted embedder."""

    seq: int
    text: str


class CandidateRow(NamedTuple):
    """A candidate and its key, of shape (dims,); None if it has no key of the embedder."""

    candidate: Candidate
    key: Vector | None


@dataclass(frozen=True, slots=True)
class Centre:
    """Hold how many living keys a user has and their mean, of shape (dims,); no mean where there are none."""

    units: int
    mean: Vector | None


def log_after(conn: Connection, seq: int, limit: int) -> list[IndexLogRow]:
    """Return the next entries of the change log after number `seq`, oldest first."""
    rows = conn.execute(select(index_log).where(index_log.c.seq > seq).order_by(index_log.c.seq).limit(limit))
    return [IndexLogRow(row.seq, row.unit_seq, row.user_id, row.op) for row in rows]


def mark(conn: Connection, seq: int) -> str:
    """Return what tells change number `seq` of this ledger from another's, and from before rows were erased.

    For 0 and for a number the ledger has not, that is the epoch alone.
    """
    row = conn.execute(
        select(index_log.c.unit_seq, index_log.c.op, index_log.c.at).where(index_log.c.seq == seq)
    ).one_or_none()
    now = epoch(conn)
    return now if row is None else f"{now} {row.unit_seq} {row.op} {row.at.isoformat()}"


def epoch(conn: Connection) -> str:
    """Return how often rows were erased, or replaced as a whole."""
    return conn.execute(select(meta.c.value).where(meta.c.key == EPOCH)).scalar_one_or_none() or "0"


def tail(conn: Connection, user_id: str, seq: int, limit: int) -> list[int]:
    """Return up to `limit` units of a user that the log names after number `seq`."""
    return list(conn.execute(_TAIL, {"user_id": user_id, "seq": seq, "limit": limit}).scalars())


_TAIL = (
    select(index_log.c.unit_seq)
    .distinct()
    .where(index_log.c.seq > bindparam("seq"), index_log.c.user_id == bindparam("user_id"))
    .limit(bindparam("limit"))
)


def units(conn: Connection, scope: Scope, seqs: Sequence[int]) -> dict[int, Entry]:
    """Return those of the units that live and that the scope sees."""
    return {
        seq: Entry(seq, kind, owner, of)
        for chunk in chunks(seqs)
        for seq, kind, owner, *parts in conn.execute(_UNITS, {"seqs": chunk}).all()
        for of in (Scope(*parts),)
        if is_seen(scope, of)
    }


_UNITS: Query = select(
    vectors.c.seq,
    vectors.c.kind,
    vectors.c.owner_id,
    vectors.c.user_id,
    vectors.c.project,
    vectors.c.agent_id,
    vectors.c.run_id,
).where(vectors.c.seq.in_(listed("seqs")), vectors.c.live.is_(True))


def candidates(
    conn: Connection, scope: Scope, embedder: str, seqs: Sequence[int], chars: int = READ_CHARS
) -> list[CandidateRow]:
    """Return those of the entries that are living and visible to the scope, by number, with their keys.

    Keys of another embedder are left out. Of each text only the first `chars` characters are read.
    """
    owned = cache(lambda *parts: is_seen(scope, Scope(*parts)))
    return [
        CandidateRow(
            Candidate(seq, kind, owner, datetime.fromisoformat(at), by, session, length, last in QUESTION_MARKS, text),
            None if key is None else np.frombuffer(key, dtype=np.float32),
        )
        for seq, kind, owner, key, by, session, at, length, last, text, *parts in conn.execute(
            _CANDIDATES, {"seqs": sorted(seqs), "embedder": embedder, "chars": chars}
        ).all()
        if owned(*parts)
    ]


def _candidates() -> Query:
    first_session = (
        select(messages.c.session_id)
        .join(memory_sources, memory_sources.c.message_id == messages.c.id)
        .where(memory_sources.c.memory_id == vectors.c.owner_id, vectors.c.kind == "memory")
        .order_by(messages.c.seq)
        .limit(1)
        .correlate(vectors)
        .scalar_subquery()
    )
    return (
        select(
            vectors.c.seq,
            vectors.c.kind,
            vectors.c.owner_id,
            case((vectors.c.embedder == bindparam("embedder"), vectors.c.key)),
            func.coalesce(messages.c.name, memories.c.actor_id),
            func.coalesce(messages.c.session_id, first_session, ""),
            # As text: a decorated type costs two calls a row.
            type_coerce(func.coalesce(messages.c.said_at, memories.c.happened_at, memories.c.valid_from), String),
            func.coalesce(func.length(messages.c.content), 0),
            func.substr(func.rtrim(messages.c.content), -1),
            func.substr(func.coalesce(messages.c.content, memories.c.text), 1, bindparam("chars")),
            vectors.c.user_id,
            vectors.c.project,
            vectors.c.agent_id,
            vectors.c.run_id,
        )
        .outerjoin(messages, and_(vectors.c.kind == "message", messages.c.id == vectors.c.owner_id))
        .outerjoin(memories, and_(vectors.c.kind == "memory", memories.c.id == vectors.c.owner_id))
        .where(vectors.c.seq.in_(listed("seqs")), vectors.c.live.is_(True))
        .order_by(vectors.c.seq)
    )


_CANDIDATES = _candidates()


def keys(conn: Connection, embedder: str, seqs: Sequence[int]) -> dict[int, Vector]:
    """Return the keys of living entries, each of shape (dims,); entries without a vector are left out."""
    has_key = and_(vectors.c.live.is_(True), vectors.c.embedder == embedder, vectors.c.key.is_not(None))
    return {
        seq: np.frombuffer(blob, dtype=np.float32)
        for chunk in chunks(seqs)
        for seq, blob in conn.execute(select(vectors.c.seq, vectors.c.key).where(vectors.c.seq.in_(chunk), has_key))
    }


def own_vectors(conn: Connection, embedder: str, kind: Kind, owner_ids: Sequence[str]) -> dict[str, Vector]:
    """Return the vectors of the texts themselves by owner, each of shape (dims,)."""
    values = {"kind": kind, "embedder": embedder}
    return {
        owner: unpacked(blob)
        for chunk in chunks(owner_ids)
        for owner, blob in conn.execute(_OWN_VECTORS, {"ids": chunk, **values}).all()
    }


_OWN_VECTORS = select(vectors.c.owner_id, vectors.c.vector).where(
    vectors.c.kind == bindparam("kind"),
    vectors.c.owner_id.in_(listed("ids")),
    vectors.c.embedder == bindparam("embedder"),
    vectors.c.vector.is_not(None),
)


def scope_keys(
    conn: Connection, scope: Scope, embedder: str, kind: str | None = None
) -> Iterator[tuple[list[int], Vector]]:
    """Yield the numbers and the keys, of shape (n, dims), of all living entries the scope sees, in batches."""
    query = select(vectors.c.seq, vectors.c.key).where(
        sees(vectors, scope),
        vectors.c.live.is_(True),
        vectors.c.embedder == embedder,
        vectors.c.key.is_not(None),
    )
    if kind is not None:
        query = query.where(vectors.c.kind == kind)
    for rows in conn.execute(query).partitions(SCANNED):
        seqs, blobs = zip(*rows, strict=True)
        yield list(seqs), np.frombuffer(b"".join(blobs), dtype=np.float32).reshape(len(rows), -1)


def widened(conn: Connection, scope: Scope, units: int) -> Scope | None:
    """Return the parts of the scope to search the full text by; None to search it without a scope.

    A part that most rows have is the most expensive one to match: the user, if most entries are theirs (`units` is how
    many they have), and user and project if an agent or a run is given. The caller drops what the scope may not see.
    """
    if scope.agent_id or scope.run_id:
        return Scope("", "", scope.agent_id, scope.run_id)
    newest: int = conn.execute(_NEWEST).scalar_one() or 0
    return None if units > newest * MOST else scope


def is_narrow(conn: Connection, scope: Scope) -> bool:
    """Say whether the scope sees so few entries that scanning them is faster than searching the index of the user."""
    if scope.agent_id or scope.run_id:
        few = select(vectors.c.seq).where(sees(vectors, scope), vectors.c.live.is_(True)).limit(NARROW + 1).subquery()
        return conn.execute(select(func.count()).select_from(few)).scalar_one() <= NARROW
    return False


_NEWEST = select(func.max(vectors.c.seq))


def centre(conn: Connection, user_id: str, embedder: str) -> Centre:
    """Return the number and the mean of a user's living keys."""
    row = conn.execute(_MEAN, {"user_id": user_id, "embedder": embedder}).one_or_none()
    if row is None or row.units <= 0:
        return Centre(0, None)
    return Centre(row.units, (np.frombuffer(row.total, dtype=np.float64) / row.units).astype(np.float32))


_MEAN = select(means.c.units, means.c.total).where(
    means.c.user_id == bindparam("user_id"), means.c.embedder == bindparam("embedder")
)


def living_memories(conn: Connection, scope: Scope) -> Iterator[tuple[int, Memory]]:
    """Yield every living memory the scope sees, with its unit."""
    query = (
        select(memories, vectors.c.seq.label("unit_seq"))
        .join(vectors, (vectors.c.kind == "memory") & (vectors.c.owner_id == memories.c.id))
        .where(sees(memories, scope), memories.c.deleted_at.is_(None))
    )
    return ((row.unit_seq, to_memory(row)) for row in conn.execute(query))


def all_messages(conn: Connection, scope: Scope) -> Iterator[tuple[int, Message]]:
    """Yield every message the scope sees and that is not forgotten, with its unit."""
    query = (
        select(messages, vectors.c.seq.label("unit_seq"))
        .join(vectors, (vectors.c.kind == "message") & (vectors.c.owner_id == messages.c.id))
        .where(sees(messages, scope), messages.c.deleted_at.is_(None))
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
    return bool(conn.execute(_ANY_WAITING, {"embedder": embedder}).scalar_one())


_ANY_WAITING = select(
    or_(
        exists().where(vectors.c.embedder < bindparam("embedder"), vectors.c.live.is_(True)),
        exists().where(vectors.c.embedder > bindparam("embedder"), vectors.c.live.is_(True)),
    )
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
