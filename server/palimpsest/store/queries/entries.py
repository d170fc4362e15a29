"""Read entries: memories and messages as search sees them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from functools import cache
from typing import NamedTuple

from sqlalchemy import Connection, String, and_, bindparam, case, false, func, select, type_coerce

from palimpsest.core.models import EXPIRES_AT, PAGE, Memory, Scope, has_expired
from palimpsest.core.search.hits import Candidate
from palimpsest.store.mapping import (
    Query,
    is_seen,
    listed_numbers,
    scope_parts,
    scope_values,
    sees,
    sees_named,
    to_memory,
)
from palimpsest.store.schema import memories, memory_sources, messages, vectors

NARROW_ENTRIES = 1_200
"""An agent's or a run's entries are scanned if there are no more than this. Set by hand."""

READ_CHARS = 400
"""How many characters of a candidate's text are compared with the query word by word."""

QUESTION_MARKS = frozenset("?\uff1f\u061f\u037e")
"""The Latin, the full-width, the Arabic and the Greek question mark."""


class CandidateRow(NamedTuple):
    """A candidate with the vector of its text and its key as they are stored, if it has them of the embedder."""

    candidate: Candidate
    vector: bytes | None
    key: bytes | None


def candidates(
    conn: Connection, scope: Scope, embedder: str, seqs: Sequence[int], now: datetime, chars: int = READ_CHARS
) -> list[CandidateRow]:
    """Return those of the entries that are living `now` and visible to the scope, by number, with their vectors.

    Vectors of another embedder are left out. Of each text only the first `chars` characters are read.
    """
    is_visible = cache(lambda *parts: is_seen(scope, Scope(*parts)))
    return [
        CandidateRow(
            Candidate(
                seq,
                kind,
                owner,
                datetime.fromisoformat(at),
                speaker,
                session,
                length,
                last in QUESTION_MARKS,
                text,
                bool(page),
            ),
            vector,
            key,
        )
        for seq, kind, owner, vector, key, speaker, session, at, length, last, text, end, page, *parts in conn.execute(
            _CANDIDATES, {"seqs": sorted(seqs), "embedder": embedder, "chars": chars}
        ).all()
        if is_visible(*parts) and not (end and has_expired({EXPIRES_AT: end}, now))
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
    trimmed = func.rtrim(messages.c.content)
    return (
        select(
            vectors.c.seq,
            vectors.c.kind,
            vectors.c.owner_id,
            case((vectors.c.embedder == bindparam("embedder"), vectors.c.vector)),
            case((vectors.c.embedder == bindparam("embedder"), vectors.c.key)),
            func.coalesce(messages.c.name, memories.c.actor_id),
            func.coalesce(messages.c.session_id, first_session, ""),
            # Read as text, because the type of the column would cost two calls per row.
            type_coerce(func.coalesce(messages.c.said_at, memories.c.happened_at, memories.c.stated_at), String),
            func.coalesce(func.length(messages.c.content), 0),
            func.substr(trimmed, func.length(trimmed), 1),
            func.substr(func.coalesce(messages.c.content, memories.c.text), 1, bindparam("chars")),
            memories.c.metadata[EXPIRES_AT].as_string(),
            func.coalesce(messages.c.role == PAGE, false()),
            vectors.c.user_id,
            vectors.c.project,
            vectors.c.agent_id,
            vectors.c.run_id,
        )
        .outerjoin(messages, and_(vectors.c.kind == "message", messages.c.id == vectors.c.owner_id))
        .outerjoin(memories, and_(vectors.c.kind == "memory", memories.c.id == vectors.c.owner_id))
        .where(vectors.c.seq.in_(listed_numbers("seqs")), vectors.c.live.is_(True))
        .order_by(vectors.c.seq)
    )


_CANDIDATES = _candidates()


def is_narrow(conn: Connection, scope: Scope) -> bool:
    """Return whether the scope sees so few entries that scanning them is faster than searching the user's index."""
    if not scope.agent_id and not scope.run_id:
        return False
    return conn.execute(_count_first(scope_parts(scope)), scope_values(scope)).scalar_one() <= NARROW_ENTRIES


@cache
def _count_first(parts: tuple[bool, ...]) -> Query:
    living = and_(sees_named(vectors, parts), vectors.c.live.is_(True))
    first = select(vectors.c.seq).where(living).limit(NARROW_ENTRIES + 1)
    return select(func.count()).select_from(first.subquery())


def living_memories(conn: Connection, scope: Scope) -> Iterator[tuple[int, Memory]]:
    """Yield every living memory that the scope sees, with its entry number."""
    query = (
        select(memories, vectors.c.seq.label("entry_seq"))
        .join(vectors, (vectors.c.kind == "memory") & (vectors.c.owner_id == memories.c.id))
        .where(sees(memories, scope), memories.c.deleted_at.is_(None))
    )
    return ((row.entry_seq, to_memory(row)) for row in conn.execute(query))


def memories_at(conn: Connection, scope: Scope, seqs: Iterable[int]) -> list[Memory]:
    """Return the living memories that the scope sees among entries with these numbers, the newest first."""
    query = (
        select(memories)
        .join(vectors, (vectors.c.kind == "memory") & (vectors.c.owner_id == memories.c.id))
        .where(vectors.c.seq.in_(listed_numbers("seqs")), sees(memories, scope), memories.c.deleted_at.is_(None))
        .order_by(memories.c.seq.desc())
    )
    return [to_memory(row) for row in conn.execute(query, {"seqs": sorted(seqs)})]
