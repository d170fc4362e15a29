"""Contextual keys: what a unit is searched by, its own text and what stands around it.

A message is searched with its neighbours of the same session and the facts that cite it; a memory with the
messages it came from. A turn found by its own words, its neighbours' and its facts' beats bare facts by
far; the published counterpart is key expansion in LongMemEval (Wu et al. 2025, section 5.3).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sqlalchemy import Connection, Row, ScalarSelect, and_, bindparam, null, select

from palimpsest.core.models import Kind, Scope
from palimpsest.core.protocols import Vector
from palimpsest.store.mapping import Query, chunks, listed, unpacked
from palimpsest.store.protocols import FullTextRow
from palimpsest.store.schema import memories, memory_sources, messages, vectors
from palimpsest.text.tokenizer import search_tokens

NEIGHBOUR_WEIGHT = 0.5
FACT_WEIGHT = 1.0
SOURCE_WEIGHT = 0.5
"""Weights in the sum of unit vectors; measured by benchmarks/locomo.py, flat around these values."""

MAX_CONTEXT_TEXTS = 8
MAX_CONTEXT_CHARS = 2_000


@dataclass(frozen=True, slots=True)
class Key:
    """Hold what a unit is searched by. `vector` is None while the unit itself has none."""

    row: FullTextRow
    vector: Vector | None


@dataclass(frozen=True, slots=True)
class Entry:
    """Hold the row of a unit, and its key as the ledger now stands; no key where its owner is deleted."""

    seq: int
    user_id: str
    owner_id: str
    live: bool
    embedder: str
    blob: bytes | None
    key: Key | None


@dataclass(frozen=True, slots=True)
class _Text:
    """Hold a text of a context and its vector with the embedder that made it."""

    text: str
    embedder: str
    vector: Vector | None


def compose(own: Vector, around: Sequence[tuple[float, Vector]]) -> Vector:
    """Return the unit vector of own + Σ weight · vector; all of shape (dims,)."""
    total = own.astype(np.float64)
    for weight, vector in around:
        total = total + weight * vector
    norm = float(np.linalg.norm(total))
    return (total / norm if norm > 0 else total).astype(np.float32)


def keyed_entries(conn: Connection, kind: Kind, owner_ids: Sequence[str]) -> Iterator[Entry]:
    """Yield the units of memories or messages, those of one chunk with a fixed number of statements."""
    for chunk in chunks(owner_ids):
        yield from _memory_units(conn, chunk) if kind == "memory" else _message_units(conn, chunk)


def neighbour_ids(conn: Connection, message_ids: Sequence[str]) -> set[str]:
    """Return the ids of the turns just before and after messages in their sessions."""
    return {
        found
        for chunk in chunks(message_ids)
        for _, *around in conn.execute(_AROUND, {"ids": chunk}).all()
        for found in around
        if found
    }


def _message_units(conn: Connection, ids: Sequence[str]) -> Iterator[Entry]:
    around = {owner: [each for each in both if each] for owner, *both in conn.execute(_AROUND, {"ids": ids}).all()}
    said = _texts(
        conn, "message", conn.execute(_SAID, {"ids": [each for both in around.values() for each in both]}).all()
    )
    rows = conn.execute(_FACTS, {"ids": ids}).all()
    facts = _grouped(rows, _texts(conn, "memory", rows))
    for row in conn.execute(_MESSAGES, {"ids": ids}).all():
        if row.deleted_at is not None:
            yield _unit(row, None)
            continue
        neighbours = [said[each] for each in around[row.id] if each in said]
        cited = facts.get(row.id, [])[:MAX_CONTEXT_TEXTS]
        words = (search_tokens(f"{row.name}: {row.content}"), _all_tokens(neighbours), _all_tokens(cited))
        yield _unit(row, words, ((NEIGHBOUR_WEIGHT, neighbours), (FACT_WEIGHT, cited)))


def _memory_units(conn: Connection, ids: Sequence[str]) -> Iterator[Entry]:
    rows = conn.execute(_SOURCES, {"ids": ids}).all()
    sources = _grouped(rows, _texts(conn, "message", rows))
    for row in conn.execute(_MEMORIES, {"ids": ids}).all():
        if row.deleted_at is not None:
            yield _unit(row, None)
            continue
        cited = sources.get(row.id, [])[:MAX_CONTEXT_TEXTS]
        words = (search_tokens(" ".join((row.text, *row.keywords, *row.tags))), _all_tokens(cited), list[str]())
        yield _unit(row, words, ((SOURCE_WEIGHT, cited),))


def _unit(
    row: Row[Any],
    words: tuple[Sequence[str], Sequence[str], Sequence[str]] | None,
    around: Sequence[tuple[float, Sequence[_Text]]] = (),
) -> Entry:
    key = None
    if words is not None:
        scope = Scope(row.user_id, row.project, row.agent_id, row.run_id)
        key = Key(FullTextRow(row.unit_seq, scope, *words), _vector(row.vector, row.embedder, around))
    return Entry(row.unit_seq, row.user_id, row.id, row.live, row.embedder, row.key, key)


def _texts(conn: Connection, kind: Kind, rows: Iterable[Row[Any]]) -> dict[str, _Text]:
    """Return texts and their vectors by id, from rows of id, text and perhaps name."""
    found = {row.id: row for row in rows}
    made: dict[str, tuple[str, Vector]] = {}
    for chunk in chunks(list(found)):
        for owner, embedder, blob in conn.execute(_VECTORS, {"kind": kind, "ids": chunk}).all():
            made[owner] = (embedder, unpacked(blob))
    none = ("", None)
    return {owner: _Text(_said(row)[:MAX_CONTEXT_CHARS], *made.get(owner, none)) for owner, row in found.items()}


def _said(row: Row[Any]) -> str:
    return f"{row.name}: {row.text}" if row.name else str(row.text)


def _grouped(rows: Iterable[Row[Any]], texts: Mapping[str, _Text]) -> dict[str, list[_Text]]:
    found: dict[str, list[_Text]] = {}
    for row in rows:
        found.setdefault(row.owner_id, []).append(texts[row.id])
    return found


def _nearest(*, after: bool) -> ScalarSelect[str]:
    """Return the query for the turn just before or after a message in its session."""
    other = messages.alias()
    same = (other.c.session_id == messages.c.session_id, other.c.deleted_at.is_(None))
    beyond = other.c.seq > messages.c.seq if after else other.c.seq < messages.c.seq
    order = other.c.seq if after else other.c.seq.desc()
    query = select(other.c.id).where(*same, beyond).order_by(order).limit(1)
    return query.correlate(messages).scalar_subquery()


_OF_UNIT = (vectors.c.seq.label("unit_seq"), vectors.c.live, vectors.c.embedder, vectors.c.vector, vectors.c.key)
_AROUND: Query = select(messages.c.id, _nearest(after=False), _nearest(after=True)).where(
    messages.c.id.in_(listed("ids"))
)
_SAID: Query = select(messages.c.id, messages.c.name, messages.c.content.label("text")).where(
    messages.c.id.in_(listed("ids"))
)
_MESSAGES: Query = (
    select(messages, *_OF_UNIT)
    .join(vectors, and_(vectors.c.kind == "message", vectors.c.owner_id == messages.c.id))
    .where(messages.c.id.in_(listed("ids")))
    .order_by(messages.c.id)
)
_MEMORIES: Query = (
    select(memories, *_OF_UNIT)
    .join(vectors, and_(vectors.c.kind == "memory", vectors.c.owner_id == memories.c.id))
    .where(memories.c.id.in_(listed("ids")))
    .order_by(memories.c.id)
)
_FACTS: Query = (
    select(
        memory_sources.c.message_id.label("owner_id"),
        memories.c.id,
        memories.c.text,
        null().label("name"),
    )
    .join(memory_sources, memory_sources.c.memory_id == memories.c.id)
    .where(memory_sources.c.message_id.in_(listed("ids")), memories.c.deleted_at.is_(None))
    .order_by(memories.c.seq.desc())
)
_SOURCES: Query = (
    select(
        memory_sources.c.memory_id.label("owner_id"),
        messages.c.id,
        messages.c.name,
        messages.c.content.label("text"),
    )
    .join(memory_sources, memory_sources.c.message_id == messages.c.id)
    .where(memory_sources.c.memory_id.in_(listed("ids")), messages.c.deleted_at.is_(None))
    .order_by(messages.c.seq)
)
_VECTORS: Query = select(vectors.c.owner_id, vectors.c.embedder, vectors.c.vector).where(
    vectors.c.kind == bindparam("kind"), vectors.c.owner_id.in_(listed("ids")), vectors.c.vector.is_not(None)
)


def _all_tokens(texts: Sequence[_Text]) -> list[str]:
    return [token for text in texts for token in search_tokens(text.text)]


def _vector(own: bytes | None, embedder: str, around: Sequence[tuple[float, Sequence[_Text]]]) -> Vector | None:
    if own is None:
        return None
    alike = [
        (weight, text.vector)
        for weight, texts in around
        for text in texts
        if text.vector is not None and text.embedder == embedder
    ]
    return compose(unpacked(own), alike)
