"""Erasing for good, inside a transaction: rows, history, full text, vectors, and the summaries that may quote them.

The one place that deletes. What the file itself still holds of it goes with `Ledger.scrub`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import ColumnElement, Connection, Table, delete, insert, select, update

from palimpsest.core.models import Message, Scope
from palimpsest.store.mapping import chunks, sees
from palimpsest.store.protocols import FullText
from palimpsest.store.queries import id_lookup
from palimpsest.store.queries import index_log as log_queries
from palimpsest.store.queries import messages as message_queries
from palimpsest.store.queries.index_log import EPOCH
from palimpsest.store.schema import (
    history,
    index_log,
    memories,
    memory_sources,
    message_history,
    messages,
    meta,
    summaries,
    vectors,
)
from palimpsest.store.writes import contextual_keys
from palimpsest.store.writes import entries as entry_writes
from palimpsest.store.writes.transaction import next_edit_number, reserve_edit_numbers

ERASED_AT = "erased_at"
"""The head of the change log at the last purge: what a model was shown before then is not stored any more."""


UNSCRUBBED = "unscrubbed"
"""Is there from the moment rows were erased until the file was written anew without them."""


@dataclass(frozen=True, slots=True)
class PurgeSelection:
    """Hold what a purge erases: ids, and every text that these memories and turns ever had."""

    memory_ids: tuple[str, ...]
    message_ids: tuple[str, ...]
    texts: tuple[str, ...]


def purge_selection(conn: Connection, scope: Scope, owner_ids: Sequence[str] | None) -> PurgeSelection:
    """Return what a purge would erase: the named memories and turns, or, with None, all of a scope itself.

    With a memory go the turns it was learnt from, which say the same in other words. Raises InputError for an
    unknown id.
    """
    if owner_ids is None:
        memory_ids = list(conn.execute(select(memories.c.id).where(_own(memories, scope))).scalars())
        message_ids = list(conn.execute(select(messages.c.id).where(_own(messages, scope))).scalars())
    else:
        owners = [id_lookup.find(conn, scope, owner_id) for owner_id in owner_ids]
        memory_ids = list(dict.fromkeys(owner.id for owner in owners if not isinstance(owner, Message)))
        message_ids = [owner.id for owner in owners if isinstance(owner, Message)]
    sources = message_queries.sources_of(conn, memory_ids)
    message_ids += [message.id for found in sources.values() for message in found]
    message_ids = list(dict.fromkeys(message_ids))
    return PurgeSelection(tuple(memory_ids), tuple(message_ids), _texts(conn, scope, memory_ids, message_ids))


def purge(
    conn: Connection, full_text: FullText, scope: Scope, owner_ids: Sequence[str] | None, now: datetime
) -> PurgeSelection:
    """Erase memories and turns of a scope and return what that was."""
    going = purge_selection(conn, scope, owner_ids)
    floor = next_edit_number(conn) - 1
    touched = entry_writes.TouchedEntries()
    _note_surroundings(conn, going, touched)
    for kind, ids in (("memory", going.memory_ids), ("message", going.message_ids)):
        for chunk in chunks(ids):
            _erase_units(conn, full_text, vectors.c.kind == kind, chunk, touched, now)
    for chunk in chunks(going.memory_ids):
        conn.execute(delete(memory_sources).where(memory_sources.c.memory_id.in_(chunk)))
        conn.execute(delete(history).where(history.c.memory_id.in_(chunk)))
        conn.execute(update(index_log).where(index_log.c.memory_id.in_(chunk)).values(memory_id=None))
        conn.execute(delete(memories).where(memories.c.id.in_(chunk)))
    for chunk in chunks(going.message_ids):
        conn.execute(delete(memory_sources).where(memory_sources.c.message_id.in_(chunk)))
        conn.execute(delete(message_history).where(message_history.c.message_id.in_(chunk)))
        conn.execute(delete(messages).where(messages.c.id.in_(chunk)))
    conn.execute(delete(summaries).where(summaries.c.user_id == scope.user_id))
    entry_writes.index(conn, full_text, touched, now)
    _note_erasure(conn, floor)
    return going


def has_erased_rows_on_disk(conn: Connection) -> bool:
    """Say whether rows were erased of which the file may still hold traces: a purge was cut off, or is under way."""
    return conn.execute(select(meta.c.value).where(meta.c.key == UNSCRUBBED)).first() is not None


def note_free_space_erased(conn: Connection) -> None:
    """Note that the file was written anew since the last purge."""
    conn.execute(delete(meta).where(meta.c.key == UNSCRUBBED))


def _own(table: Table, scope: Scope) -> ColumnElement[bool]:
    """Return the condition for all rows of a scope itself, living or not."""
    return sees(table, scope) & (table.c.project == scope.project)


def _texts(conn: Connection, scope: Scope, memory_ids: Sequence[str], message_ids: Sequence[str]) -> tuple[str, ...]:
    found: dict[str, None] = {}
    queries = [
        select(column).where(key.in_(chunk))
        for column, key, ids in (
            (memories.c.text, memories.c.id, memory_ids),
            (history.c.old_memory, history.c.memory_id, memory_ids),
            (history.c.new_memory, history.c.memory_id, memory_ids),
            (messages.c.content, messages.c.id, message_ids),
        )
        for chunk in chunks(ids)
    ]
    queries.append(select(summaries.c.text).where(summaries.c.user_id == scope.user_id))
    for query in queries:
        found.update(dict.fromkeys(text for text in conn.execute(query).scalars() if text))
    return tuple(found)


def _note_surroundings(conn: Connection, going: PurgeSelection, touched: entry_writes.TouchedEntries) -> None:
    """Note whose context the erased ones were: it is made anew without them."""
    leaving, forgetting = set(going.memory_ids), set(going.message_ids)
    touched.messages.update(contextual_keys.neighbour_ids(conn, going.message_ids) - forgetting)
    for chunk in chunks(going.message_ids):
        citing = select(memory_sources.c.memory_id).where(memory_sources.c.message_id.in_(chunk))
        touched.memories.update(set(conn.execute(citing).scalars()) - leaving)


def _erase_units(
    conn: Connection,
    full_text: FullText,
    kind: ColumnElement[bool],
    ids: Sequence[str],
    touched: entry_writes.TouchedEntries,
    now: datetime,
) -> None:
    for unit in conn.execute(select(vectors).where(kind, vectors.c.owner_id.in_(ids))).all():
        touched.move(unit.user_id, unit.embedder, unit.key, -1)
        full_text.remove(conn, [unit.seq])
        conn.execute(delete(vectors).where(vectors.c.seq == unit.seq))
        conn.execute(insert(index_log).values(unit_seq=unit.seq, user_id=unit.user_id, op="delete", at=now))


def _note_erasure(conn: Connection, floor: int) -> None:
    """Move the ledger to a new epoch, and keep the numbers of edits that are gone from being given again."""
    reserve_edit_numbers(conn, floor)
    values: dict[str, str] = {row.key: row.value for row in conn.execute(select(meta))}
    for key, value in (
        (EPOCH, int(values.get(EPOCH, 0)) + 1),
        (ERASED_AT, log_queries.newest_log_number(conn)),
        (UNSCRUBBED, 1),
    ):
        conn.execute(delete(meta).where(meta.c.key == key))
        conn.execute(insert(meta).values(key=key, value=str(value)))
