"""Write entries: their keys, full text, means and the index log."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import numpy as np
from sqlalchemy import Connection, Row, ScalarSelect, Table, and_, bindparam, insert, null, select, update

from palimpsest.core.models import PAGE, SELF_NAMES, Kind, key_text
from palimpsest.core.protocols import Vector
from palimpsest.store import documents
from palimpsest.store.database import FullText, FullTextRow
from palimpsest.store.documents import EmbeddedText
from palimpsest.store.entries import TouchedEntries
from palimpsest.store.rows import Query, batched, grouped, listed, packed, to_relations, to_scope, unpacked
from palimpsest.store.schema import IS_MEMORY, IS_MESSAGE, index_log, means, memories, memory_sources, messages, vectors
from palimpsest.text.tokenizer import search_tokens

# Contextual keys: what an entry is searched by, its own text and its context.
#
# The context of a message is the memories that cite it, and its neighbours in the same session, if they were said on
# about the same day; that of a page of a document is also its gist. The context of a memory is the messages it came
# from, and the words of its relations, some of which it only goes on with. The sentence on what it belongs to is
# embedded with its text, and its words have a column of their own. Searching messages with their context finds
# far more than searching bare facts. LongMemEval calls this key expansion (Wu et al. 2025, section 5.3).

# Weights in the sum of unit vectors. Measured with benchmarks/locomo.py; recall hardly changes around these values.
NEIGHBOUR_WEIGHT = 0.5
FACT_WEIGHT = 1.0
SOURCE_WEIGHT = 0.5
GIST_WEIGHT = 1.0

# What was said longer before or after is no context, though it belongs to the same conversation: a chat that is taken
# up again after a night goes on, and after a month it is often about something else.
NEIGHBOUR_GAP = timedelta(days=1)

# Of many source messages or citing memories only so many are used: they cost time and change little.
MAX_CONTEXT_TEXTS = 8

# The part of a context text whose words are used.
MAX_CONTEXT_CHARS = 2_000


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry as it is `stored`, and the full-text row and the key that it should have now.

    `row` is None if the owner is deleted, and `key` also while its own text has no vector. The key of an entry without
    context is empty: it is the same as the vector of its own text. `stored` is the row of the memory or message, with
    that of the entry.
    """

    stored: Row[Any]
    row: FullTextRow | None
    key: bytes | None


def combined(own: Vector, around: Sequence[tuple[float, Vector]]) -> Vector:
    """Return the unit vector of own + Σ weight · vector. All vectors have the shape (dims,)."""
    total = own.astype(np.float64)
    for weight, vector in around:
        total = total + weight * vector
    norm = float(np.linalg.norm(total))
    return (total / norm if norm > 0 else total).astype(np.float32)


def keyed_entries(conn: Connection, kind: Kind, owner_ids: Sequence[str]) -> Iterator[Entry]:
    """Yield the entries of memories or messages. Each chunk takes a fixed number of statements."""
    for chunk in batched(owner_ids):
        yield from _memory_entries(conn, chunk) if kind == "memory" else _message_entries(conn, chunk)


def neighbour_ids(conn: Connection, message_ids: Sequence[str]) -> set[str]:
    """Return the ids of the messages just before and after the given ones in their sessions."""
    return {neighbour for both in _neighbour_ids(conn, message_ids).values() for neighbour in both}


def _neighbour_ids(conn: Connection, message_ids: Sequence[str]) -> dict[str, list[str]]:
    rows = conn.execute(_NEIGHBOURS, {"ids": message_ids})
    return {owner: [neighbour for neighbour in both if neighbour] for owner, *both in rows}


def _message_entries(conn: Connection, ids: Sequence[str]) -> Iterator[Entry]:
    neighbour_ids_of = _neighbour_ids(conn, ids)
    all_neighbours = [neighbour for both in neighbour_ids_of.values() for neighbour in both]
    neighbours_rows = conn.execute(_TEXTS, {"ids": all_neighbours}).all()
    said_at = {row.id: row.said_at for row in neighbours_rows}
    texts = _texts(conn, "message", neighbours_rows)
    facts = _texts_by_owner(conn, "memory", _FACTS, ids)
    entries = conn.execute(_MESSAGES, {"ids": ids}).all()
    told = documents.vectors_of(conn, [row.id for row in entries if row.role == PAGE])
    for row in entries:
        if row.deleted_at is not None:
            yield _keyed_entry(row, None)
            continue
        near = (name for name in neighbour_ids_of[row.id] if abs(said_at[name] - row.said_at) <= NEIGHBOUR_GAP)
        neighbours = [texts[neighbour] for neighbour in near if neighbour in texts]
        cited = facts.get(row.id, [])[:MAX_CONTEXT_TEXTS]
        gist = [told[row.id]] if row.id in told else []
        # The pages beside a page are long and have too many words to tell it from others.
        around = [] if row.role == PAGE else _all_tokens(neighbours)
        words = (search_tokens(f"{row.name}: {row.content}"), around, _all_tokens([*gist, *cited]))
        beside = ((NEIGHBOUR_WEIGHT, neighbours), (FACT_WEIGHT, cited), (GIST_WEIGHT, gist))
        yield _keyed_entry(row, words, beside)


def _memory_entries(conn: Connection, ids: Sequence[str]) -> Iterator[Entry]:
    sources = _texts_by_owner(conn, "message", _SOURCES, ids)
    for row in conn.execute(_MEMORIES, {"ids": ids}).all():
        if row.deleted_at is not None:
            yield _keyed_entry(row, None)
            continue
        cited = sources.get(row.id, [])[:MAX_CONTEXT_TEXTS]
        own = search_tokens(" ".join((row.text, *row.keywords, *row.tags)))
        stated = search_tokens(" ".join(relation.in_words for relation in to_relations(row.relations)))
        beside = dict.fromkeys(token for token in stated if token not in own and token not in SELF_NAMES)
        words = (own, [*_all_tokens(cited), *beside], search_tokens(row.context))
        yield _keyed_entry(row, words, ((SOURCE_WEIGHT, cited),))


def _keyed_entry(
    stored: Row[Any],
    words: tuple[Sequence[str], Sequence[str], Sequence[str]] | None,
    around: Sequence[tuple[float, Sequence[EmbeddedText]]] = (),
) -> Entry:
    row = None if words is None else FullTextRow(stored.entry_seq, to_scope(stored), *words)
    key = None if words is None else _blob(stored.vector, stored.embedder, around)
    return Entry(stored, row, key)


def _texts(conn: Connection, kind: Kind, rows: Iterable[Row[Any]]) -> dict[str, EmbeddedText]:
    """Return the texts of rows with `id`, `text` and perhaps `name`, with their vectors, by id."""
    row_of = {row.id: row for row in rows}
    stored = conn.execute(_VECTORS, {"kind": kind, "ids": list(row_of)})
    vector_of = {owner: (embedder, unpacked(blob)) for owner, embedder, blob in stored}
    said = {owner: f"{row.name}: {row.text}" if row.name else row.text for owner, row in row_of.items()}
    return {
        owner: EmbeddedText(text[:MAX_CONTEXT_CHARS], *vector_of.get(owner, ("", None))) for owner, text in said.items()
    }


def _texts_by_owner(
    conn: Connection, kind: Kind, query: Query, owner_ids: Sequence[str]
) -> dict[str, list[EmbeddedText]]:
    rows = conn.execute(query, {"ids": owner_ids}).all()
    texts = _texts(conn, kind, rows)
    return grouped((row.owner_id, texts[row.id]) for row in rows)


def _nearest(*, after: bool) -> ScalarSelect[str]:
    """Return the query for the message just before or after a message in its session."""
    other = messages.alias()
    same = (other.c.session_id == messages.c.session_id, other.c.deleted_at.is_(None))
    beyond = other.c.seq > messages.c.seq if after else other.c.seq < messages.c.seq
    order = other.c.seq if after else other.c.seq.desc()
    query = select(other.c.id).where(*same, beyond).order_by(order).limit(1)
    return query.correlate(messages).scalar_subquery()


_OF_ENTRY = (vectors.c.seq.label("entry_seq"), vectors.c.live, vectors.c.embedder, vectors.c.vector, vectors.c.key)
_CONTENT = messages.c.content.label("text")
_ARE_MESSAGES, _ARE_MEMORIES = (table.c.id.in_(listed("ids")) for table in (messages, memories))
_NEIGHBOURS: Query = select(messages.c.id, _nearest(after=False), _nearest(after=True)).where(_ARE_MESSAGES)
_TEXTS: Query = select(messages.c.id, messages.c.name, _CONTENT, messages.c.said_at).where(_ARE_MESSAGES)
_MESSAGES: Query = select(messages, *_OF_ENTRY).join(vectors, IS_MESSAGE).where(_ARE_MESSAGES).order_by(messages.c.id)
_MEMORIES: Query = select(memories, *_OF_ENTRY).join(vectors, IS_MEMORY).where(_ARE_MEMORIES).order_by(memories.c.id)
_FACTS: Query = (
    select(memory_sources.c.message_id.label("owner_id"), memories.c.id, memories.c.text, null().label("name"))
    .join(memory_sources, memory_sources.c.memory_id == memories.c.id)
    .where(memory_sources.c.message_id.in_(listed("ids")), memories.c.deleted_at.is_(None))
    .order_by(memories.c.seq.desc())
)
_SOURCES: Query = (
    select(memory_sources.c.memory_id.label("owner_id"), messages.c.id, messages.c.name, _CONTENT)
    .join(memory_sources, memory_sources.c.message_id == messages.c.id)
    .where(memory_sources.c.memory_id.in_(listed("ids")), messages.c.deleted_at.is_(None))
    .order_by(messages.c.seq)
)
_VECTORS: Query = select(vectors.c.owner_id, vectors.c.embedder, vectors.c.vector).where(
    vectors.c.kind == bindparam("kind"), vectors.c.owner_id.in_(listed("ids")), vectors.c.vector.is_not(None)
)


def _all_tokens(texts: Sequence[EmbeddedText]) -> list[str]:
    return [token for text in texts for token in search_tokens(text.text)]


def _blob(own: bytes | None, embedder: str, around: Sequence[tuple[float, Sequence[EmbeddedText]]]) -> bytes | None:
    if own is None:
        return None
    texts = [(weight, text) for weight, weighted in around for text in weighted if text.embedder == embedder]
    comparable = [(weight, text.vector) for weight, text in texts if text.vector is not None]
    return packed(combined(unpacked(own), comparable)) if comparable else b""


# Entries: what a search sees of a memory or message.
#
# An entry has the vector of its own text, a contextual key (see `contextual_keys.py`) and a full-text row. Every
# change of an entry also leaves a row in the index log, which the vector indexes follow.

# The tables whose rows have an entry.
OWNERS: tuple[tuple[Kind, Table], ...] = (("message", messages), ("memory", memories))


def index(conn: Connection, full_text: FullText, touched: TouchedEntries, now: datetime) -> None:
    """Rewrite the keys and full-text rows of the touched entries and of the entries around them, and log both."""
    message_ids, memory_ids = set(touched.messages), touched.memories | touched.annotated
    message_ids.update(neighbour_ids(conn, sorted(touched.messages)))
    message_ids.update(conn.execute(_CITED, {"ids": sorted(touched.memories)}).scalars())
    memory_ids.update(conn.execute(_CITING, {"ids": sorted(touched.messages)}).scalars())
    _write_entries(conn, full_text, "memory", sorted(memory_ids), touched, now)
    _write_entries(conn, full_text, "message", sorted(message_ids), touched, now)
    _move_means(conn, touched)


_CITED = select(memory_sources.c.message_id).where(memory_sources.c.memory_id.in_(listed("ids")))
_CITING = select(memory_sources.c.memory_id).where(memory_sources.c.message_id.in_(listed("ids")))


def give_vectors(conn: Connection, full_text: FullText, embedded: Mapping[int, EmbeddedText], now: datetime) -> None:
    """Store new vectors of entries by their numbers, and rewrite the keys of these entries and of those around them.

    An entry whose text was changed or deleted in the meantime is left unchanged.
    """
    touched = TouchedEntries()
    for seq, new in embedded.items():
        entry = conn.execute(select(vectors).where(vectors.c.seq == seq)).one()
        text, keywords, *note = conn.execute(_EMBEDDED_OF[entry.kind], {"owner": entry.owner_id}).one()
        if not entry.live or key_text(text, keywords or (), *note) != new.text:
            continue
        touched.move(entry.user_id, entry.embedder, entry.key, entry.vector, -1)
        values = {**documents.vector_values(new), "partial": False, "key": None}
        conn.execute(update(vectors).where(vectors.c.seq == seq).values(**values))
        (touched.memories if entry.kind == "memory" else touched.messages).add(entry.owner_id)
    index(conn, full_text, touched, now)


_EMBEDDED_OF: dict[str, Query] = {
    "memory": select(memories.c.text, memories.c.keywords, memories.c.context, memories.c.tags).where(
        memories.c.id == bindparam("owner")
    ),
    "message": select(messages.c.content, null(), null(), null()).where(messages.c.id == bindparam("owner")),
}


def rebuild_full_text(conn: Connection, full_text: FullText) -> int:
    """Rebuild the full text and return the number of its rows."""
    full_text.clear(conn)
    for kind, table in OWNERS:
        living = select(table.c.id).where(table.c.deleted_at.is_(None)).order_by(table.c.seq)
        for entries in batched(keyed_entries(conn, kind, conn.execute(living).scalars().all())):
            full_text.put(conn, [entry.row for entry in entries if entry.row is not None])
    return full_text.count(conn)


def _write_entries(
    conn: Connection, full_text: FullText, kind: Kind, owner_ids: Sequence[str], touched: TouchedEntries, now: datetime
) -> None:
    """Write keys, full-text rows and the index log.

    An entry without a full-text row belongs to a deleted owner. It leaves every search, and keeps its own vector in
    case the owner is restored.
    """
    log: list[dict[str, Any]] = []
    rows: list[FullTextRow] = []
    changed: list[dict[str, Any]] = []
    removed: list[int] = []
    for entry in keyed_entries(conn, kind, owner_ids):
        stored, is_live = entry.stored, entry.row is not None
        if entry.key != stored.key:
            touched.move(stored.user_id, stored.embedder, stored.key, stored.vector, -1)
            touched.move(stored.user_id, stored.embedder, entry.key, stored.vector, 1)
        if entry.row is None:
            removed.append(stored.entry_seq)
        else:
            rows.append(entry.row)
        if entry.key != stored.key or stored.live is not is_live:
            changed.append({"entry": stored.entry_seq, "new_key": entry.key, "is_live": is_live})
        # A decision is refused if a memory it read has changed since. Such rows of the log carry the memory's id.
        memory_id = stored.id if kind == "memory" and stored.id in touched.memories else None
        of_entry = {"unit_seq": stored.entry_seq, "user_id": stored.user_id, "op": "upsert" if is_live else "delete"}
        log.append({**of_entry, "memory_id": memory_id, "at": now})
    full_text.put(conn, rows)
    full_text.remove(conn, removed)
    if changed:
        conn.execute(_CHANGE, changed)
    if log:
        conn.execute(insert(index_log), log)


_OF_ENTRY_NUMBER = update(vectors).where(vectors.c.seq == bindparam("entry"))
_CHANGE = _OF_ENTRY_NUMBER.values(key=bindparam("new_key"), live=bindparam("is_live"))


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
