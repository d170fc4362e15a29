"""Read vectors: the keys that are searched, the vectors of the texts alone, means, and what is missing.

A key is the vector of an entry in its context. Every living entry has a row; it has a key if it has been embedded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from sqlalchemy import ColumnElement, Connection, and_, bindparam, case, exists, func, or_, select, text

from palimpsest.core.models import Kind, Scope
from palimpsest.core.protocols import Vector
from palimpsest.store.mapping import (
    Query,
    chunks,
    listed,
    listed_numbers,
    scope_parts,
    scope_values,
    sees_named,
    unpacked,
    unpacked_key,
    unpacked_keys,
)
from palimpsest.store.schema import IS_PAGE, means, memories, messages, vectors

SCAN_BATCH = 4_000
"""How many keys one batch of a scan has: six megabytes at 384 dimensions."""


@dataclass(frozen=True, slots=True)
class UnembeddedEntry:
    """The number and text of an entry that has no vector of an embedder."""

    seq: int
    text: str


@dataclass(frozen=True, slots=True)
class Waiting:
    """How many living entries have no vector of an embedder, and how many only that of their first window."""

    without: int
    partial: int


@dataclass(frozen=True, slots=True)
class Centre:
    """How many living keys a user has, and their mean, of shape (dims,). `mean` is None if there are none.

    `has_pages` is whether pages of documents are among the user's entries.
    """

    entries: int
    mean: Vector | None
    has_pages: bool = False


def keys_of(conn: Connection, embedder: str, seqs: Sequence[int]) -> dict[int, Vector]:
    """Return the keys of living entries, each of shape (dims,). Entries without a key of the embedder are left out."""
    return {
        seq: unpacked_key(blob, b"")
        for chunk in chunks(seqs)
        for seq, blob in conn.execute(_KEYS, {"seqs": chunk, "embedder": embedder})
    }


_HAS_KEY = and_(vectors.c.live.is_(True), vectors.c.embedder == bindparam("embedder"), vectors.c.key.is_not(None))
_KEY = case((func.length(vectors.c.key) > 0, vectors.c.key), else_=vectors.c.vector)
_KEYS = select(vectors.c.seq, _KEY).where(vectors.c.seq.in_(listed_numbers("seqs")), _HAS_KEY)


def own_vectors(conn: Connection, embedder: str, kind: Kind, owner_ids: Sequence[str]) -> dict[str, Vector]:
    """Return the vectors of the texts without context, each of shape (dims,), by the id of the memory or message."""
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
    """Yield the numbers and the keys, of shape (n, dims), of all living entries that the scope sees, in batches."""
    values = {"embedder": embedder, "kind": kind, **scope_values(scope)}
    yield from _batches(conn, _scope_keys(scope_parts(scope), of_kind=kind is not None), values)


@cache
def _scope_keys(parts: tuple[bool, ...], *, of_kind: bool) -> Query:
    query = select(vectors.c.seq, _KEY).where(sees_named(vectors, parts), _HAS_KEY)
    return query.where(vectors.c.kind == bindparam("kind")) if of_kind else query


def some_keys(conn: Connection, embedder: str, seqs: Sequence[int]) -> Iterator[tuple[list[int], Vector]]:
    """Yield the numbers and the keys, of shape (n, dims), of those of some entries that are living, in batches."""
    for chunk in chunks(seqs):
        yield from _batches(conn, _KEYS, {"seqs": chunk, "embedder": embedder})


def user_keys(conn: Connection, user_id: str, embedder: str) -> Iterator[tuple[list[int], Vector]]:
    """Yield the numbers and the keys, of shape (n, dims), of all living entries of a user, in batches."""
    return _batches(conn, _USER_KEYS, {"user_id": user_id, "embedder": embedder})


_USER_KEYS = select(vectors.c.seq, _KEY).where(vectors.c.user_id == bindparam("user_id"), _HAS_KEY)


def _batches(conn: Connection, query: Query, values: Mapping[str, object]) -> Iterator[tuple[list[int], Vector]]:
    for rows in conn.execute(query, values).partitions(SCAN_BATCH):
        seqs, blobs = zip(*rows, strict=True)
        yield list(seqs), unpacked_keys(blobs)


def centre(conn: Connection, user_id: str, embedder: str) -> Centre:
    """Return the number and the mean of a user's living keys, and whether there are pages. Every search needs them."""
    row = conn.execute(_MEAN, {"user_id": user_id, "embedder": embedder}).one_or_none()
    if row is None or row.units <= 0:
        return Centre(0, None)
    mean = (np.frombuffer(row.total, dtype=np.float64) / row.units).astype(np.float32)
    return Centre(row.units, mean, bool(row.has_pages))


_HAS_PAGES = exists().where(messages.c.user_id == bindparam("user_id"), text(IS_PAGE))
"""It goes along an index, and takes the same time for any number of pages."""

_MEAN = select(means.c.units, means.c.total, _HAS_PAGES.label("has_pages")).where(
    means.c.user_id == bindparam("user_id"), means.c.embedder == bindparam("embedder")
)


def indexed_keys(conn: Connection, embedder: str, after: int, limit: int) -> list[tuple[int, str, Vector]]:
    """Return what an index holds, from above entry `after`: (entry, user, key), ordered by entry."""
    rows = conn.execute(_INDEXED, {"embedder": embedder, "after": after, "limit": limit})
    return [(seq, user_id, unpacked_key(blob, b"")) for seq, user_id, blob in rows]


_INDEXED = (
    select(vectors.c.seq, vectors.c.user_id, _KEY)
    .where(vectors.c.seq > bindparam("after"), _HAS_KEY)
    .order_by(vectors.c.seq)
    .limit(bindparam("limit"))
)


def count_indexed(conn: Connection, embedder: str) -> int:
    """Return how many vectors a complete index holds."""
    return conn.execute(_COUNT_INDEXED, {"embedder": embedder}).scalar_one()


_COUNT_INDEXED = select(func.count()).select_from(vectors).where(_HAS_KEY)


def missing_vectors(
    conn: Connection, embedder: str, limit: int, *, after: int = 0, only_failed: bool = False
) -> list[UnembeddedEntry]:
    """Return living entries above number `after` that wait to be embedded, oldest first.

    They have no vector of this embedder, with `only_failed` no vector at all, or only that of their first window.
    """
    rows = conn.execute(
        select(vectors.c.seq, func.coalesce(memories.c.text, messages.c.content))
        .outerjoin(memories, (vectors.c.kind == "memory") & (memories.c.id == vectors.c.owner_id))
        .outerjoin(messages, (vectors.c.kind == "message") & (messages.c.id == vectors.c.owner_id))
        .where(vectors.c.live.is_(True), vectors.c.seq > after, _waits(embedder, only_failed=only_failed))
        .order_by(vectors.c.seq)
        .limit(limit)
    )
    return [UnembeddedEntry(seq, text) for seq, text in rows]


def count_missing_vectors(conn: Connection, embedder: str, *, after: int = 0, only_failed: bool = False) -> int:
    """Return how many entries `missing_vectors` would return without a limit."""
    query = select(func.count()).where(
        vectors.c.live.is_(True), vectors.c.seq > after, _waits(embedder, only_failed=only_failed)
    )
    return conn.execute(query).scalar_one()


def waiting(conn: Connection, embedder: str) -> Waiting:
    """Return how many living entries wait to be embedded by this embedder."""
    living = select(func.count()).where(vectors.c.live.is_(True))
    return Waiting(
        conn.execute(living.where(vectors.c.embedder != embedder)).scalar_one(),
        conn.execute(living.where(vectors.c.embedder == embedder, vectors.c.partial.is_(True))).scalar_one(),
    )


def has_partial_vectors(conn: Connection, embedder: str) -> bool:
    """Return whether a living entry has the vector of its first window only. It takes the same time for any number."""
    return bool(conn.execute(_HAS_PARTIAL_VECTORS, {"embedder": embedder}).scalar_one())


_HAS_PARTIAL_VECTORS = select(
    exists().where(vectors.c.embedder == bindparam("embedder"), vectors.c.live.is_(True), vectors.c.partial.is_(True))
)


def has_missing_vectors(conn: Connection, embedder: str) -> bool:
    """Return whether any living entry has no vector of this embedder. It takes the same time for any number of them."""
    return bool(conn.execute(_HAS_MISSING_VECTORS, {"embedder": embedder}).scalar_one())


_HAS_MISSING_VECTORS = select(
    or_(
        exists().where(vectors.c.embedder < bindparam("embedder"), vectors.c.live.is_(True)),
        exists().where(vectors.c.embedder > bindparam("embedder"), vectors.c.live.is_(True)),
    )
)
"""Two ranges instead of one `!=`, because the index on `embedder` serves only ranges."""


def _waits(embedder: str, *, only_failed: bool) -> ColumnElement[bool]:
    """Return the condition for entries without a vector, and for those that have one of their first window only."""
    is_missing = vectors.c.embedder == "" if only_failed else vectors.c.embedder != embedder
    return or_(is_missing, and_(vectors.c.embedder == embedder, vectors.c.partial.is_(True)))
