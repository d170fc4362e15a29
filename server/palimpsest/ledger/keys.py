"""Contextual keys: what a unit is searched by, its own text and what stands around it.

A message is searched with its neighbours of the same session and the facts that cite it; a memory with the
messages it came from. A turn found by its own words, its neighbours' and its facts' beats bare facts by
far; the published counterpart is key expansion in LongMemEval (Wu et al. 2025, section 5.3).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from sqlalchemy import Connection, Select, and_, select

from palimpsest.ledger import lexical
from palimpsest.ledger.tables import memories, memory_sources, messages, vectors
from palimpsest.lexicon import tokens
from palimpsest.ports import Vector
from palimpsest.records import Kind, Scope

NEIGHBOUR_WEIGHT = 0.8
FACT_WEIGHT = 0.7
SOURCE_WEIGHT = 0.5
"""Weights in the sum of unit vectors; measured by benchmarks/locomo.py, flat around these values."""

MAX_CONTEXT_TEXTS = 8
MAX_CONTEXT_CHARS = 2_000


Query: TypeAlias = "Select[*tuple[Any, ...]]"


@dataclass(frozen=True, slots=True)
class Key:
    """Hold what a unit is searched by. `vector` is None while the unit itself has none."""

    row: lexical.LexicalRow
    vector: Vector | None


@dataclass(frozen=True, slots=True)
class _Text:
    text: str
    vector: Vector | None


def compose(own: Vector, around: Sequence[tuple[float, Vector]]) -> Vector:
    """Return the unit vector of own + Σ weight · vector; all of shape (dims,)."""
    total = own.astype(np.float64)
    for weight, vector in around:
        total = total + weight * vector
    norm = float(np.linalg.norm(total))
    return (total / norm if norm > 0 else total).astype(np.float32)


def message_key(conn: Connection, message_id: str) -> Key:
    """Return the key of a stored message as the ledger now stands."""
    row = conn.execute(
        select(messages, vectors.c.seq.label("unit_seq"), vectors.c.vector, vectors.c.embedder)
        .join(vectors, and_(vectors.c.kind == "message", vectors.c.owner_id == messages.c.id))
        .where(messages.c.id == message_id)
    ).one()
    neighbours = _neighbours(conn, row.session_id, row.seq, row.embedder)
    facts = _texts(conn, _facts_citing(message_id), "memory", row.embedder)
    return Key(
        lexical.LexicalRow(
            row.unit_seq,
            Scope(row.user_id, row.project, row.agent_id, row.run_id),
            tokens(f"{row.name}: {row.content}"),
            _all_tokens(neighbours),
            _all_tokens(facts),
        ),
        _vector(row.vector, ((NEIGHBOUR_WEIGHT, neighbours), (FACT_WEIGHT, facts))),
    )


def memory_key(conn: Connection, memory_id: str) -> Key | None:
    """Return the key of a memory as the ledger now stands; None when it is deleted."""
    row = conn.execute(
        select(memories, vectors.c.seq.label("unit_seq"), vectors.c.vector, vectors.c.embedder)
        .join(vectors, and_(vectors.c.kind == "memory", vectors.c.owner_id == memories.c.id))
        .where(memories.c.id == memory_id, memories.c.deleted_at.is_(None))
    ).one_or_none()
    if row is None:
        return None
    sources = _texts(conn, _sources_of(memory_id), "message", row.embedder)
    return Key(
        lexical.LexicalRow(
            row.unit_seq,
            Scope(row.user_id, row.project, row.agent_id, row.run_id),
            tokens(" ".join((row.text, *row.keywords, *row.tags))),
            _all_tokens(sources),
        ),
        _vector(row.vector, ((SOURCE_WEIGHT, sources),)),
    )


def neighbour_ids(conn: Connection, message_id: str) -> list[str]:
    """Return the ids of the turns just before and after a message in its session."""
    row = conn.execute(select(messages.c.session_id, messages.c.seq).where(messages.c.id == message_id)).one()
    nearest = _nearest(row.session_id, row.seq, messages.c.id)
    return [found for query in nearest for found in conn.execute(query).scalars()]


def _nearest(session_id: str, seq: int, *columns: Any) -> tuple[Query, Query]:
    """Return the queries for the turn just before and just after one, in its session."""
    same = select(*columns).where(messages.c.session_id == session_id).limit(1)
    before = same.where(messages.c.seq < seq).order_by(messages.c.seq.desc())
    return before, same.where(messages.c.seq > seq).order_by(messages.c.seq)


def _neighbours(conn: Connection, session_id: str, seq: int, embedder: str) -> list[_Text]:
    columns = (messages.c.id, messages.c.name, messages.c.content.label("text"))
    return [text for query in _nearest(session_id, seq, *columns) for text in _texts(conn, query, "message", embedder)]


def _facts_citing(message_id: str) -> Query:
    return (
        select(memories.c.id, memories.c.text)
        .join(memory_sources, memory_sources.c.memory_id == memories.c.id)
        .where(memory_sources.c.message_id == message_id, memories.c.deleted_at.is_(None))
        .order_by(memories.c.seq.desc())
        .limit(MAX_CONTEXT_TEXTS)
    )


def _sources_of(memory_id: str) -> Query:
    return (
        select(messages.c.id, messages.c.name, messages.c.content.label("text"))
        .join(memory_sources, memory_sources.c.message_id == messages.c.id)
        .where(memory_sources.c.memory_id == memory_id)
        .order_by(messages.c.seq)
        .limit(MAX_CONTEXT_TEXTS)
    )


def _texts(conn: Connection, query: Query, kind: Kind, embedder: str) -> list[_Text]:
    """Run a query for id, text and perhaps name, and add to each row its vector of the same embedder."""
    found = conn.execute(query).mappings().all()
    if not found:
        return []
    rows = conn.execute(
        select(vectors.c.owner_id, vectors.c.vector).where(
            vectors.c.kind == kind,
            vectors.c.owner_id.in_([row["id"] for row in found]),
            vectors.c.embedder == embedder,
        )
    )
    by_owner = {owner: _array(blob) for owner, blob in rows if blob is not None}
    return [
        _Text(": ".join((row["name"], text)) if row.get("name") else text, by_owner.get(row["id"]))
        for row in found
        for text in (row["text"][:MAX_CONTEXT_CHARS],)
    ]


def _all_tokens(texts: Sequence[_Text]) -> list[str]:
    return [token for text in texts for token in tokens(text.text)]


def _vector(own: bytes | None, around: Sequence[tuple[float, Sequence[_Text]]]) -> Vector | None:
    if own is None:
        return None
    return compose(
        _array(own),
        [(weight, text.vector) for weight, texts in around for text in texts if text.vector is not None],
    )


def _array(blob: bytes) -> Vector:
    return np.frombuffer(blob, dtype=np.float32)
