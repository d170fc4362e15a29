"""Entries (memories and messages as search sees them), their vectors, the index log, and the context of a write."""

import re
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import sqlalchemy as sa

from palimpsest.core import models
from palimpsest.core.clock import span_of
from palimpsest.core.errors import InputError, MemoryNotFoundError, Remedy
from palimpsest.core.protocols import Vector
from palimpsest.store import messages as message_queries
from palimpsest.store import rows
from palimpsest.store.memories import GrownBlocks
from palimpsest.store.schema import (
    HISTORIES,
    IS_MEMORY,
    IS_MESSAGE,
    IS_PAGE,
    index_log,
    means,
    memories,
    memory_sources,
    messages,
    meta,
    vectors,
)

# Read entries: memories and messages as search sees them.

# An agent's or a run's entries are scanned if there are no more than this.
NARROW_ENTRIES = 1_200

# How many closed memories are compared with a question about the past, the newest: a few megabytes of vectors.
MAX_CLOSED = 1_000

# How many characters of a candidate's text are compared with the query word by word.
READ_CHARS = 400

# The Latin, the full-width, the Arabic and the Greek question mark.
QUESTION_MARKS = frozenset("?\uff1f\u061f\u037e")


class CandidateRow(NamedTuple):
    """A candidate with the vector of its text and its key as they are stored, if it has them of the embedder."""

    candidate: models.Candidate
    vector: bytes | None
    key: bytes | None


def candidates(
    conn: sa.Connection, scope: models.Scope, embedder: str, seqs: Sequence[int], now: datetime, chars: int = READ_CHARS
) -> list[CandidateRow]:
    """Return those of the entries that are living `now` and visible to the scope, by number, with their vectors.

    Vectors of another embedder are left out. Of each text only the first `chars` characters are read.
    """
    found = conn.execute(_CANDIDATES, {"seqs": sorted(seqs), "embedder": embedder, "chars": chars}).all()
    return _rows_seen(found, scope, now, is_closed=False)


def closed_candidates(
    conn: sa.Connection, scope: models.Scope, embedder: str, now: datetime, *, with_dropped: bool
) -> list[CandidateRow]:
    """Return the memories that the scope sees and that were replaced or ended and not forgotten, the newest ones.

    Plans that were replaced before their day are among them only if asked for.
    """
    values = {"embedder": embedder, "chars": READ_CHARS, "limit": MAX_CLOSED, **rows.scope_values(scope)}
    found = conn.execute(_closed(rows.scope_parts(scope), with_dropped=with_dropped), values).all()
    return _rows_seen(found, scope, now, is_closed=True)


def _rows_seen(
    found: Iterable[tuple[Any, ...]], scope: models.Scope, now: datetime, *, is_closed: bool
) -> list[CandidateRow]:
    is_visible = cache(lambda *parts: rows.is_seen(scope, models.Scope(*parts)))
    zone = now.tzinfo or UTC
    seen: list[CandidateRow] = []
    for row in found:
        seq, kind, owner, vector, key, speaker, session, at, last, text, page, hinted = row[:12]
        since, since_unit, until, until_unit, end, successor = row[12:18]
        if not is_visible(*row[18:]) or (end and not is_closed and models.has_expired({models.EXPIRES_AT: end}, now)):
            continue
        begins = None if since is None else span_of(since, since_unit, zone).first
        ends = None if until is None else models.end_in(span_of(until, until_unit, zone), is_replaced=bool(successor))
        if successor and not is_closed and ends is not None and ends < now:  # the plan has begun, and it is closed soon
            continue
        said_at, asks, is_page, has_hints = datetime.fromisoformat(at), last in QUESTION_MARKS, bool(page), bool(hinted)
        told = (seq, kind, owner, said_at, speaker, session, asks, text, is_page, has_hints)
        candidate = models.Candidate(*told, begins, ends, is_closed, successor or "")
        seen.append(CandidateRow(candidate, vector, key))
    return seen


def _candidates() -> sa.Select[*tuple[Any, ...]]:
    is_cited = (memory_sources.c.memory_id == vectors.c.owner_id, vectors.c.kind == "memory")
    sessions = sa.select(messages.c.session_id).join(memory_sources, memory_sources.c.message_id == messages.c.id)
    first = sessions.where(*is_cited).order_by(messages.c.seq).limit(1)
    first_session = first.correlate(vectors).scalar_subquery()
    trimmed = sa.func.rtrim(messages.c.content)
    return (
        sa.select(
            vectors.c.seq,
            vectors.c.kind,
            vectors.c.owner_id,
            sa.case((vectors.c.embedder == sa.bindparam("embedder"), vectors.c.vector)),
            sa.case((vectors.c.embedder == sa.bindparam("embedder"), vectors.c.key)),
            sa.func.coalesce(messages.c.name, memories.c.actor_id),
            sa.func.coalesce(messages.c.session_id, first_session, ""),
            # Read as text, because the type of the column would cost two calls per row.
            sa.type_coerce(
                sa.func.coalesce(messages.c.said_at, memories.c.happened_at, memories.c.stated_at), sa.String
            ),
            sa.func.substr(trimmed, sa.func.length(trimmed), 1),
            sa.func.substr(sa.func.coalesce(messages.c.content, memories.c.text), 1, sa.bindparam("chars")),
            sa.func.coalesce(messages.c.role == models.PAGE, sa.false()),
            sa.func.coalesce(sa.cast(memories.c.keywords, sa.Text) != "[]", sa.false()),
            *(memories.c[name] for name in rows.VALIDITY),
            memories.c.metadata[models.EXPIRES_AT].as_string(),
            memories.c.superseded_by,
            *(vectors.c[name] for name in rows.SCOPE),
        )
        .outerjoin(messages, IS_MESSAGE)
        .outerjoin(memories, IS_MEMORY)
    )


_CANDIDATES: rows.Query = (
    _candidates()
    .where(vectors.c.seq.in_(rows.listed_numbers("seqs")), vectors.c.live.is_(True))
    .order_by(vectors.c.seq)
)


@cache
def _closed(parts: tuple[bool, ...], *, with_dropped: bool) -> rows.Query:
    has_held = sa.or_(memories.c.valid_from.is_(None), memories.c.valid_from <= memories.c.deleted_at)
    was_dropped = memories.c.superseded_by.is_not(None) if with_dropped else sa.false()
    was_closed = sa.or_(sa.and_(memories.c.valid_until.is_not(None), has_held), was_dropped)
    is_kept = (memories.c.deleted_at.is_not(None), memories.c.is_forgotten.is_(False), rows.sees_named(memories, parts))
    return _candidates().where(was_closed, *is_kept).order_by(vectors.c.seq.desc()).limit(sa.bindparam("limit"))


def is_narrow(conn: sa.Connection, scope: models.Scope) -> bool:
    """Return whether the scope sees so few entries that scanning them is faster than searching the user's index."""
    if not scope.agent_id and not scope.run_id:
        return False
    return conn.execute(_count_first(rows.scope_parts(scope)), rows.scope_values(scope)).scalar_one() <= NARROW_ENTRIES


@cache
def _count_first(parts: tuple[bool, ...]) -> rows.Query:
    living = sa.and_(rows.sees_named(vectors, parts), vectors.c.live.is_(True))
    first = sa.select(vectors.c.seq).where(living).limit(NARROW_ENTRIES + 1)
    return sa.select(sa.func.count()).select_from(first.subquery())


def living_memories(conn: sa.Connection, scope: models.Scope) -> Iterator[tuple[int, models.Memory]]:
    """Yield every living memory that the scope sees, with its entry number."""
    query = sa.select(memories, vectors.c.seq.label("entry_seq")).join(vectors, IS_MEMORY)
    return ((row.entry_seq, rows.to_memory(row)) for row in conn.execute(query.where(rows.is_living(memories, scope))))


def memories_at(conn: sa.Connection, scope: models.Scope, seqs: Iterable[int]) -> list[models.Memory]:
    """Return the living memories that the scope sees among entries with these numbers, the newest first."""
    is_read = (rows.among(vectors.c.seq, seqs), rows.is_living(memories, scope))
    query = sa.select(memories).join(vectors, IS_MEMORY).where(*is_read).order_by(memories.c.seq.desc())
    return [rows.to_memory(row) for row in conn.execute(query)]


# Read vectors: the keys that are searched, the vectors of the texts alone, means, and what is missing.
#
# A key is the vector of an entry in its context. Every living entry has a row; it has a key if it has been embedded.

# How many keys one batch of a scan has: six megabytes at 384 dimensions.
SCAN_BATCH = 4_000


@dataclass(frozen=True, slots=True)
class Centre:
    """How many living keys a user has, and their mean, of shape (dims,). `mean` is None if there are none.

    `has_pages` is whether pages of documents are among the user's entries.
    """

    entries: int
    mean: Vector | None
    has_pages: bool = False


def keys_of(conn: sa.Connection, embedder: str, seqs: Sequence[int]) -> dict[int, Vector]:
    """Return the keys of living entries, each of shape (dims,). Entries without a key of the embedder are left out."""
    found = conn.execute(_KEYS, {"seqs": seqs, "embedder": embedder})
    return {seq: rows.unpacked_key(blob, b"") for seq, blob in found}


_HAS_KEY = sa.and_(vectors.c.live.is_(True), vectors.c.embedder == sa.bindparam("embedder"), vectors.c.key.is_not(None))
_KEY = sa.case((sa.func.length(vectors.c.key) > 0, vectors.c.key), else_=vectors.c.vector)
_KEYS = sa.select(vectors.c.seq, _KEY).where(vectors.c.seq.in_(rows.listed_numbers("seqs")), _HAS_KEY)


def entries_of(conn: sa.Connection, kind: models.Kind, owner_ids: Sequence[str]) -> list[int]:
    """Return the numbers of the entries of memories or messages."""
    of_owners = (vectors.c.kind == kind, rows.among(vectors.c.owner_id, owner_ids))
    return list(conn.execute(sa.select(vectors.c.seq).where(*of_owners)).scalars())


def own_vectors(conn: sa.Connection, embedder: str, kind: models.Kind, owner_ids: Sequence[str]) -> dict[str, Vector]:
    """Return the vectors of the texts without context, each of shape (dims,), by the id of the memory or message."""
    found = conn.execute(_OWN_VECTORS, {"ids": owner_ids, "kind": kind, "embedder": embedder})
    return {owner: rows.unpacked(blob) for owner, blob in found}


_OWN_VECTORS = sa.select(vectors.c.owner_id, vectors.c.vector).where(
    vectors.c.kind == sa.bindparam("kind"),
    vectors.c.owner_id.in_(rows.listed("ids")),
    vectors.c.embedder == sa.bindparam("embedder"),
    vectors.c.vector.is_not(None),
)


def scope_keys(
    conn: sa.Connection, scope: models.Scope, embedder: str, kind: str | None = None
) -> Iterator[tuple[list[int], Vector]]:
    """Yield the numbers and the keys, of shape (n, dims), of all living entries that the scope sees, in batches."""
    values = {"embedder": embedder, "kind": kind, **rows.scope_values(scope)}
    yield from _batches(conn, _scope_keys(rows.scope_parts(scope), of_kind=kind is not None), values)


@cache
def _scope_keys(parts: tuple[bool, ...], *, of_kind: bool) -> rows.Query:
    query = sa.select(vectors.c.seq, _KEY).where(rows.sees_named(vectors, parts), _HAS_KEY)
    return query.where(vectors.c.kind == sa.bindparam("kind")) if of_kind else query


def some_keys(conn: sa.Connection, embedder: str, seqs: Sequence[int]) -> Iterator[tuple[list[int], Vector]]:
    """Yield the numbers and the keys, of shape (n, dims), of those of some entries that are living, in batches."""
    return _batches(conn, _KEYS, {"seqs": seqs, "embedder": embedder})


def user_keys(conn: sa.Connection, user_id: str, embedder: str) -> Iterator[tuple[list[int], Vector]]:
    """Yield the numbers and the keys, of shape (n, dims), of all living entries of a user, in batches."""
    return _batches(conn, _USER_KEYS, {"user_id": user_id, "embedder": embedder})


_USER_KEYS = sa.select(vectors.c.seq, _KEY).where(vectors.c.user_id == sa.bindparam("user_id"), _HAS_KEY)


def _batches(
    conn: sa.Connection, query: rows.Query, values: Mapping[str, object]
) -> Iterator[tuple[list[int], Vector]]:
    for found in conn.execute(query, values).partitions(SCAN_BATCH):
        seqs, blobs = zip(*found, strict=True)
        yield list(seqs), rows.unpacked_keys(blobs)


def centre(conn: sa.Connection, user_id: str, embedder: str) -> Centre:
    """Return the number and the mean of a user's living keys, and whether there are pages. Every search needs them."""
    row = conn.execute(_MEAN, {"user_id": user_id, "embedder": embedder}).one_or_none()
    if row is None or row.units <= 0:
        return Centre(0, None)
    mean = (np.frombuffer(row.total, dtype=np.float64) / row.units).astype(np.float32)
    return Centre(row.units, mean, bool(row.has_pages))


# It goes along an index, and takes the same time for any number of pages.
_HAS_PAGES = sa.exists().where(messages.c.user_id == sa.bindparam("user_id"), sa.text(IS_PAGE))

_MEAN = sa.select(means.c.units, means.c.total, _HAS_PAGES.label("has_pages")).where(
    means.c.user_id == sa.bindparam("user_id"), means.c.embedder == sa.bindparam("embedder")
)


def indexed_keys(conn: sa.Connection, embedder: str, after: int, limit: int) -> list[tuple[int, str, Vector]]:
    """Return what an index holds, from above entry `after`: (entry, user, key), ordered by entry."""
    query = sa.select(vectors.c.seq, vectors.c.user_id, _KEY).where(vectors.c.seq > after, _HAS_KEY)
    found = conn.execute(query.order_by(vectors.c.seq).limit(limit), {"embedder": embedder})
    return [(seq, user_id, rows.unpacked_key(blob, b"")) for seq, user_id, blob in found]


def count_indexed(conn: sa.Connection, embedder: str) -> int:
    """Return how many vectors a complete index holds."""
    return conn.execute(sa.select(sa.func.count()).where(_HAS_KEY), {"embedder": embedder}).scalar_one()


def missing_vectors(
    conn: sa.Connection, embedder: str, limit: int, *, after: int = 0, only_failed: bool = False
) -> dict[int, str]:
    """Return the texts to embed of living entries above number `after` that wait for it, by number, oldest first.

    They have no vector of this embedder, with `only_failed` no vector at all, or only that of their first window.
    """
    text, note = sa.func.coalesce(memories.c.text, messages.c.content), memories.c
    columns = (text, note.keywords, note.context, note.tags)
    query = sa.select(vectors.c.seq, *columns).outerjoin(memories, IS_MEMORY).outerjoin(messages, IS_MESSAGE)
    waiting = query.where(*_waits(embedder, after, only_failed=only_failed))
    found = conn.execute(waiting.order_by(vectors.c.seq).limit(limit))
    return {seq: models.key_text(text, keywords or (), context, tags) for seq, text, keywords, context, tags in found}


def count_missing_vectors(conn: sa.Connection, embedder: str, *, after: int = 0, only_failed: bool = False) -> int:
    """Return how many entries `missing_vectors` would return without a limit."""
    return rows.count(conn, *_waits(embedder, after, only_failed=only_failed))


def has_partial_vectors(conn: sa.Connection, embedder: str) -> bool:
    """Return whether a living entry has the vector of its first window only. It takes the same time for any number."""
    is_partial = (vectors.c.embedder == embedder, vectors.c.live.is_(True), vectors.c.partial.is_(True))
    return bool(conn.execute(sa.select(sa.exists().where(*is_partial))).scalar_one())


def has_missing_vectors(conn: sa.Connection, embedder: str) -> bool:
    """Return whether any living entry has no vector of this embedder. It takes the same time for any number of them."""
    return bool(conn.execute(_HAS_MISSING_VECTORS, {"embedder": embedder}).scalar_one())


# Two ranges instead of one `!=`, because the index on `embedder` serves only ranges.
_HAS_MISSING_VECTORS = sa.select(
    sa.or_(
        sa.exists().where(vectors.c.embedder < sa.bindparam("embedder"), vectors.c.live.is_(True)),
        sa.exists().where(vectors.c.embedder > sa.bindparam("embedder"), vectors.c.live.is_(True)),
    )
)


def _waits(embedder: str, after: int, *, only_failed: bool) -> tuple[sa.ColumnElement[bool], ...]:
    """Return the conditions for living entries without a vector, and for those with one of their first window only."""
    is_missing = vectors.c.embedder == "" if only_failed else vectors.c.embedder != embedder
    is_partial = sa.and_(vectors.c.embedder == embedder, vectors.c.partial.is_(True))
    return vectors.c.live.is_(True), vectors.c.seq > after, sa.or_(is_missing, is_partial)


# Read the index log, the numbered sequence of changes that vector indexes follow.

# The key in `meta` of the epoch: how often rows were erased, or all rows were replaced. Each time, indexes that were
# built before must be rebuilt.
EPOCH = "epoch"


# The key in `meta` of the newest number of the index log when the last epoch began.
#
# A summary that a model wrote from an older state may quote erased text. It is not stored any more.
ERASED_AT = "erased_at"


def begin_epoch(conn: sa.Connection, previous: str) -> None:
    """Begin the epoch after `previous`, by which every index knows that it follows other rows now."""
    set_meta(conn, EPOCH, int(previous) + 1)
    set_meta(conn, ERASED_AT, newest_log_number(conn))


def newest_log_number(conn: sa.Connection) -> int:
    """Return the newest number of the index log, or 0 if it is empty."""
    return conn.execute(_NEWEST).scalar_one() or 0


def meta_value(conn: sa.Connection, key: str) -> str | None:
    """Return what the ledger keeps under a key in `meta`."""
    return conn.execute(sa.select(meta.c.value).where(meta.c.key == key)).scalar()


def set_meta(conn: sa.Connection, key: str, value: object) -> None:
    """Keep a value under a key in `meta`, in place of the one before."""
    conn.execute(sa.delete(meta).where(meta.c.key == key))
    conn.execute(sa.insert(meta).values(key=key, value=str(value)))


_NEWEST = sa.select(sa.func.max(index_log.c.seq))


def log_rows_after(conn: sa.Connection, log_number: int, limit: int) -> Sequence[sa.Row[Any]]:
    """Return the next `limit` rows of the index log after a number, oldest first."""
    query = sa.select(index_log).where(index_log.c.seq > log_number).order_by(index_log.c.seq).limit(limit)
    return conn.execute(query).all()


def log_signature(conn: sa.Connection, log_number: int) -> str:
    """Return a text that identifies a row of the index log: the epoch, and what the row says.

    It tells the row from another row of the same number in a ledger that was restored from a backup. For 0, and for a
    number that the ledger does not have, it is the epoch alone.
    """
    row = conn.execute(sa.select(index_log).where(index_log.c.seq == log_number)).one_or_none()
    current = epoch(conn)
    return current if row is None else _signature(current, row)


def newest_position(conn: sa.Connection) -> tuple[int, str]:
    """Return the newest number of the index log and its signature, in one statement for a log that is not empty."""
    row = conn.execute(_NEWEST_ROW).one_or_none()
    return (0, epoch(conn)) if row is None else (row.seq, _signature(row.epoch or "0", row))


def _signature(current_epoch: str, row: Any) -> str:
    return f"{current_epoch} {row.unit_seq} {row.op} {row.at.isoformat()}"


def epoch(conn: sa.Connection) -> str:
    """Return how often rows were erased, or all rows were replaced."""
    return meta_value(conn, EPOCH) or "0"


_EPOCH = sa.select(meta.c.value).where(meta.c.key == EPOCH).scalar_subquery()
_NEWEST_ROW = sa.select(index_log, _EPOCH.label("epoch")).order_by(index_log.c.seq.desc()).limit(1)


def entries_changed_since(conn: sa.Connection, user_id: str, log_number: int, limit: int) -> list[int]:
    """Return up to `limit` entries of a user that the index log names after a number."""
    return list(conn.execute(_CHANGED, {"user_id": user_id, "log_number": log_number, "limit": limit}).scalars())


_CHANGED = (
    sa.select(index_log.c.unit_seq)
    .distinct()
    .where(index_log.c.seq > sa.bindparam("log_number"), index_log.c.user_id == sa.bindparam("user_id"))
    .limit(sa.bindparam("limit"))
)


def has_changed_since(conn: sa.Connection, user_id: str, log_number: int) -> bool:
    """Return whether the index log names anything of a user after a number."""
    return bool(entries_changed_since(conn, user_id, log_number, 1))


def changed_memories(conn: sa.Connection, log_number: int, limit: int) -> list[models.ChangedMemory]:
    """Return the memories that changed after a number of the index log, in its order. Erased ones are left out."""
    columns = (index_log.c.seq, memories.c.id, memories.c.revision, memories.c.user_id, memories.c.project)
    query = sa.select(*columns).join(memories, memories.c.id == index_log.c.memory_id)
    newer = query.where(index_log.c.seq > log_number).order_by(index_log.c.seq).limit(limit)
    return [models.ChangedMemory(*row) for row in conn.execute(newer)]


# The context of one write: what it touches, the numbers of edits, and the entries of new texts.

# By how much the count and the float64 sum of the living keys change, by user and embedder.
Moves: TypeAlias = dict[tuple[str, str], tuple[int, npt.NDArray[np.float64]]]


@dataclass(slots=True)
class TouchedEntries:
    """The owners that one transaction changed. `index` processes them once, at its end.

    Memories that were only `annotated` say what they said before, so nobody who read them has to read them again.
    """

    memories: set[str] = field(default_factory=set[str])
    messages: set[str] = field(default_factory=set[str])
    annotated: set[str] = field(default_factory=set[str])
    moves: Moves = field(default_factory=Moves)

    def move(self, user_id: str, embedder: str, key: bytes | None, vector: bytes | None, sign: int) -> None:
        """Record that a stored key was added (sign 1) or removed (sign -1). Nothing is recorded without a key."""
        if key is None or vector is None:
            return
        added = rows.unpacked_key(key, vector).astype(np.float64)
        count, total = self.moves.get((user_id, embedder), (0, np.zeros_like(added)))
        self.moves[user_id, embedder] = (count + sign, total + sign * added)


# The key in `meta` of the highest edit number that was used by erased rows or reserved for an import.
EDITS = "edits"


@dataclass(frozen=True, slots=True)
class Transaction:
    """The context of one write.

    `edit` is the number of the edit. `touched` collects the entries that are indexed again at the end. `vectors` maps
    texts to their vectors of `embedder`, and `partial` are those of them of which only the first window was embedded.
    `entity_edits` collects a line about each edit of entities, `pinned` what becomes of pinned blocks, and `notes` what
    else the caller must know. `told_names` are the deleted memories that told the user's name.
    """

    conn: sa.Connection
    scope: models.Scope
    provenance: models.Provenance
    now: datetime
    edit: int
    touched: TouchedEntries = field(default_factory=TouchedEntries)
    vectors: Mapping[str, Vector] = field(default_factory=dict[str, Vector])
    embedder: str = ""
    partial: AbstractSet[str] = frozenset()
    entity_edits: list[str] = field(default_factory=list[str])
    pinned: GrownBlocks = field(default_factory=GrownBlocks)
    notes: list[str] = field(default_factory=list[str])
    told_names: list[models.Memory] = field(default_factory=list[models.Memory])

    @property
    def made(self) -> dict[str, Any]:
        """Return what a row of the history of messages or entities says of how it was made."""
        by = {"stage": self.provenance.stage, "caller": self.provenance.caller}
        return {"updated_at": self.now, **by, "change": self.edit}


def next_edit_number(conn: sa.Connection) -> int:
    """Return the number of the next edit. Numbers of erased edits and reserved numbers are not used again."""
    return int(conn.execute(_NEXT).scalar_one())


_NEXT = sa.select(
    rows.next_number(
        *(sa.func.coalesce(sa.select(sa.func.max(of.rows.c.change)).scalar_subquery(), 0) for of in HISTORIES),
        sa.func.coalesce(sa.select(sa.cast(meta.c.value, sa.Integer)).where(meta.c.key == EDITS).scalar_subquery(), 0),
    )
)


def reserve_edit_numbers(conn: sa.Connection, newest: int) -> None:
    """Reserve the edit numbers up to `newest`."""
    set_meta(conn, EDITS, newest)
    next_edit_number(conn)  # a database that counts by itself goes on from there


def put_entry(
    tx: Transaction, kind: models.Kind, owner_id: str, scope: models.Scope, text: str, beginning: str = ""
) -> None:
    """Insert or replace the entry of a memory or message with the vector of its text, if there is one.

    If only its `beginning` has a vector, that stands in for it. `contextual_keys.index` writes the key and the
    full-text row.
    """
    old = tx.conn.execute(_ENTRY, {"kind": kind, "owner": owner_id}).one_or_none()
    vector, is_partial = tx.vectors.get(text), text in tx.partial
    if vector is None and beginning:
        vector, is_partial = tx.vectors.get(beginning), True
    values: dict[str, Any] = {"live": True, "embedder": "", "partial": False, "vector": None, "key": None}
    if vector is not None:
        values |= {"embedder": tx.embedder, "partial": is_partial, "vector": rows.packed(vector)}
    if old is None:
        tx.conn.execute(sa.insert(vectors), {"kind": kind, "owner_id": owner_id, **rows.scope_values(scope), **values})
        return
    tx.touched.move(old.user_id, old.embedder, old.key, old.vector, -1)
    tx.conn.execute(sa.update(vectors).where(vectors.c.seq == old.seq).values(**values))


_ENTRY = sa.select(vectors).where(vectors.c.kind == sa.bindparam("kind"), vectors.c.owner_id == sa.bindparam("owner"))


# Find the memory or message that an id, or the beginning of one, names in a scope.

# What stands for the text of a message with a forgotten fact. Nothing tells which part of the text says it.
HIDDEN = "(not shown, because something that was said here is forgotten)"

UUID_DIGITS = 32

# An id within a caller's argument, which may put it in brackets or pass a whole line of a reply.
_ID = re.compile(r"(?<![0-9a-z])[0-9a-f]{8}[0-9a-f-]*(?![0-9a-z])")


_REVISION = re.compile(r"\s*(?:\[|id:)?[0-9a-f-]+@([0-9]{1,9})\b", re.IGNORECASE)


def revision_in(owner_id: str) -> int | None:
    """Return the revision that a caller has read, if the id names it as in 27e8f74a@3."""
    match = _REVISION.match(owner_id)
    return int(match[1]) if match else None


def find(conn: sa.Connection, scope: models.Scope, owner_id: str) -> models.Memory | models.Message:
    """Return the memory or message, living or deleted, whose id is `owner_id` or is the only one to begin with it.

    Raises MemoryNotFoundError, and InputError for a beginning that is too short or that several ids have.
    """
    prefix = _prefix(owner_id)
    matches: list[models.Memory | models.Message] = []
    for table, to_record in ((memories, rows.to_memory), (messages, rows.to_message)):
        found = conn.execute(sa.select(table).where(rows.begins(table.c.id, prefix), rows.sees(table, scope)).limit(2))
        matches += [to_record(row) for row in found]
    if len(matches) > 1:
        examples = "; ".join(f"{match.id} ({_text_of(match)[:60]})" for match in matches[:2])
        raise InputError(f"several memories begin with '{prefix}'. Use more characters of the id: {examples}")
    if not matches:
        raise MemoryNotFoundError(
            f"no memory '{owner_id[:80]}' for {scope}; use an id from a search or a list", Remedy.NAME_SCOPE
        )
    return matches[0]


def scopes_with_content(conn: sa.Connection) -> list[models.Scope]:
    """Return every user and project with memories or messages, living or deleted."""
    owners = (sa.select(table.c.user_id, table.c.project) for table in (memories, messages))
    return [models.Scope(*row) for row in conn.execute(sa.union(*owners))]


def find_shown(conn: sa.Connection, scope: models.Scope, owner_id: str) -> models.Memory | models.Message:
    """Return what `find` does. Of a message with a forgotten fact the text is not shown, only that there is one."""
    match = find(conn, scope, owner_id)
    return shown(conn, match) if isinstance(match, models.Message) else match


def shown(conn: sa.Connection, message: models.Message) -> models.Message:
    """Return a message as it may be shown: without its text if a fact of it is forgotten."""
    return message if message_queries.without_forgotten(conn, [message]) else replace(message, content=HIDDEN)


def find_memory(conn: sa.Connection, scope: models.Scope, memory_id: str) -> models.Memory:
    """Return the memory, living or deleted, that an id names. Raises as `find`, and InputError for a message's id."""
    match = find(conn, scope, memory_id)
    if isinstance(match, models.Message):
        raise InputError(
            f"'{memory_id[:80]}' is a message of a conversation, not a memory. Messages cannot be edited",
            Remedy.DELETE,
            match.id[: rows.MIN_PREFIX],
        )
    return match


def ids_beginning(conn: sa.Connection, scope: models.Scope, prefix: str, limit: int) -> list[str]:
    """Return up to `limit` ids of living memories that begin with a prefix, the newest memory first."""
    query = sa.select(memories.c.id).where(rows.is_living(memories, scope), rows.begins(memories.c.id, prefix))
    return list(conn.execute(query.order_by(memories.c.seq.desc()).limit(limit)).scalars())


def _prefix(argument: str) -> str:
    """Return the id, or beginning of one, that a caller's argument starts with. Raises InputError."""
    line = argument.strip().lower()
    if not (ids := _ID.findall(line)) or not line.startswith((ids[0], f"[{ids[0]}", f"id:{ids[0]}")):
        raise InputError(
            f"'{argument[:80]}' is not a memory id. Use an id from a search or a list, such as "
            f"3a090c21, or at least its first {rows.MIN_PREFIX} characters"
        )
    if len(ids) > 1 and not line.startswith("["):
        raise InputError(f"'{argument[:80]}' has several memory ids", Remedy.ONE_ID)
    return str(uuid.UUID(ids[0])) if len(ids[0]) == UUID_DIGITS and "-" not in ids[0] else ids[0]


def _text_of(owner: models.Memory | models.Message) -> str:
    return owner.content if isinstance(owner, models.Message) else owner.text
