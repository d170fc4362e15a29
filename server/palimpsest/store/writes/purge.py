"""Erase for good, inside a transaction: rows, history, full text, vectors, entities, and summaries that may quote.

This is the only place that deletes rows of memories and messages. `Ledger.erase_free_space` removes what the database
still holds of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from sqlalchemy import ColumnElement, Connection, Table, delete, insert, select, update

from palimpsest.core.models import Message, Scope
from palimpsest.store.database.protocols import FullText
from palimpsest.store.graph.care import purge as graph
from palimpsest.store.mapping import chunks, sees
from palimpsest.store.queries import id_lookup
from palimpsest.store.queries import index_log as log_queries
from palimpsest.store.queries import messages as message_queries
from palimpsest.store.queries.capture import said_then
from palimpsest.store.queries.index_log import EPOCH
from palimpsest.store.schema import (
    history,
    index_log,
    memories,
    memory_sources,
    message_history,
    messages,
    meta,
    purged,
    summaries,
    vectors,
)
from palimpsest.store.views import gists, recalls, uses
from palimpsest.store.views import sources as summary_sources
from palimpsest.store.views.care import link_care, page_care
from palimpsest.store.views.tables import gists as gist_rows
from palimpsest.store.writes import contextual_keys
from palimpsest.store.writes import conversations as conversation_writes
from palimpsest.store.writes import entries as entry_writes
from palimpsest.store.writes.jobs import owners as job_owners
from palimpsest.store.writes.transaction import next_edit_number, reserve_edit_numbers

ERASED_AT = "erased_at"
"""The key in `meta` of the newest number of the index log at the last purge.

A summary that a model wrote from an older state may quote erased text. It is not stored any more.
"""

ROWS_ON_DISK = "unscrubbed"
"""The key in `meta` that exists from the erasure of rows until the database was rewritten without them."""


@dataclass(frozen=True, slots=True)
class PurgeSelection:
    """What a purge erases: ids, and every text that these memories and messages ever had.

    `names` are those of entities that nothing has any more. They are known when the rows are erased.
    """

    memory_ids: tuple[str, ...]
    message_ids: tuple[str, ...]
    texts: tuple[str, ...]
    names: tuple[str, ...] = ()


def purge_selection(conn: Connection, scope: Scope, owner_ids: Sequence[str] | None) -> PurgeSelection:
    """Return what a purge would erase: the given memories and messages or, with None, a whole scope.

    The messages that a memory was learned from are erased with it, because they say the same in other words. Raises
    InputError for an unknown id.
    """
    if owner_ids is None:
        memory_ids = list(conn.execute(select(memories.c.id).where(_of_scope(memories, scope))).scalars())
        message_ids = list(conn.execute(select(messages.c.id).where(_of_scope(messages, scope))).scalars())
    else:
        owners = [id_lookup.find(conn, scope, owner_id) for owner_id in owner_ids]
        memory_ids = list(dict.fromkeys(owner.id for owner in owners if not isinstance(owner, Message)))
        message_ids = [owner.id for owner in owners if isinstance(owner, Message)]
    sources = message_queries.sources_of(conn, memory_ids)
    message_ids += [message.id for messages_of_memory in sources.values() for message in messages_of_memory]
    message_ids = list(dict.fromkeys(message_ids))
    return PurgeSelection(tuple(memory_ids), tuple(message_ids), _texts(conn, scope, memory_ids, message_ids))


def purge(
    conn: Connection, full_text: FullText, scope: Scope, owner_ids: Sequence[str] | None, now: datetime
) -> PurgeSelection:
    """Erase memories and messages, or a whole scope, and return what was erased."""
    selection = purge_selection(conn, scope, owner_ids)
    newest_edit = next_edit_number(conn) - 1
    names = graph.erase(conn, scope.user_id, selection.memory_ids, selection.message_ids)
    touched = entry_writes.TouchedEntries()
    touched.annotated |= link_care.erase(conn, scope.user_id, selection.memory_ids, selection.texts)
    touched.messages |= page_care.erase(conn, selection.message_ids)
    _touch_context(conn, selection, touched)
    for kind, ids in (("memory", selection.memory_ids), ("message", selection.message_ids)):
        for chunk in chunks(ids):
            _erase_entries(conn, full_text, vectors.c.kind == kind, chunk, touched, now)
    for chunk in chunks(selection.memory_ids):
        conn.execute(delete(memory_sources).where(memory_sources.c.memory_id.in_(chunk)))
        conn.execute(delete(history).where(history.c.memory_id.in_(chunk)))
        conn.execute(update(index_log).where(index_log.c.memory_id.in_(chunk)).values(memory_id=None))
        uses.erase(conn, chunk)
        conn.execute(delete(memories).where(memories.c.id.in_(chunk)))
    for chunk in chunks(selection.message_ids):
        conn.execute(delete(memory_sources).where(memory_sources.c.message_id.in_(chunk)))
        conn.execute(delete(message_history).where(message_history.c.message_id.in_(chunk)))
        if sayings := _sayings(conn, chunk):
            conn.execute(delete(purged).where(purged.c.owner_id.in_(sayings)))
            conn.execute(insert(purged), [{"owner_id": saying} for saying in sayings])
        gists.erase(conn, chunk)
        conn.execute(delete(messages).where(messages.c.id.in_(chunk)))
    conversation_writes.erase_empty(conn)
    for chunk in chunks((*selection.memory_ids, *selection.message_ids)):
        conn.execute(delete(purged).where(purged.c.owner_id.in_(chunk)))
        conn.execute(insert(purged), [{"owner_id": owner_id} for owner_id in chunk])
    owners = (*selection.memory_ids, *selection.message_ids)
    summary_sources.erase_of(conn, summary_sources.resting_on(conn, scope.user_id, owners))
    job_owners.erase(conn, scope.user_id, owners)
    recalls.erase(conn, scope.user_id, owners, selection.texts)
    if owner_ids is None:
        recalls.erase_of_scope(conn, scope)
    entry_writes.index(conn, full_text, touched, now)
    _begin_epoch(conn, newest_edit)
    return replace(selection, names=names)


def has_erased_rows_on_disk(conn: Connection) -> bool:
    """Return whether the database may still hold traces of erased rows: a purge is under way or was interrupted."""
    return conn.execute(select(meta.c.value).where(meta.c.key == ROWS_ON_DISK)).first() is not None


def note_free_space_erased(conn: Connection) -> None:
    """Record that the database was rewritten after the last purge."""
    conn.execute(delete(meta).where(meta.c.key == ROWS_ON_DISK))


def _of_scope(table: Table, scope: Scope) -> ColumnElement[bool]:
    """Return the condition for all rows of exactly this project, living or deleted."""
    return sees(table, scope) & (table.c.project == scope.project)


def _texts(conn: Connection, scope: Scope, memory_ids: Sequence[str], message_ids: Sequence[str]) -> tuple[str, ...]:
    texts: dict[str, None] = {}
    queries = [
        select(column).where(key.in_(chunk))
        for column, key, ids in (
            (memories.c.text, memories.c.id, memory_ids),
            (history.c.old_memory, history.c.memory_id, memory_ids),
            (history.c.new_memory, history.c.memory_id, memory_ids),
            (messages.c.content, messages.c.id, message_ids),
            (gist_rows.c.text, gist_rows.c.message_id, message_ids),
        )
        for chunk in chunks(ids)
    ]
    resting = summary_sources.resting_on(conn, scope.user_id, (*memory_ids, *message_ids))
    queries += [select(summaries.c.text).where(summaries.c.id.in_(chunk)) for chunk in chunks(resting)]
    for query in queries:
        texts.update(dict.fromkeys(text for text in conn.execute(query).scalars() if text))
    return tuple(texts)


def _sayings(conn: Connection, message_ids: Sequence[str]) -> list[str]:
    """Return what is kept of messages of clients, whose transcripts may say the same under other ids."""
    columns = (messages.c[name] for name in ("user_id", "external_id", "role", "content_hash", "said_at"))
    query = select(*columns).where(messages.c.id.in_(message_ids), messages.c.external_id != "")
    return list(dict.fromkeys(said_then(*row)[1] for row in conn.execute(query).all()))


def _touch_context(conn: Connection, selection: PurgeSelection, touched: entry_writes.TouchedEntries) -> None:
    """Mark the entries whose context the erased rows were. Their keys are rebuilt without them."""
    memory_ids, message_ids = set(selection.memory_ids), set(selection.message_ids)
    touched.messages.update(contextual_keys.neighbour_ids(conn, selection.message_ids) - message_ids)
    for chunk in chunks(selection.message_ids):
        cited_by = select(memory_sources.c.memory_id).where(memory_sources.c.message_id.in_(chunk))
        touched.memories.update(set(conn.execute(cited_by).scalars()) - memory_ids)


def _erase_entries(
    conn: Connection,
    full_text: FullText,
    kind: ColumnElement[bool],
    ids: Sequence[str],
    touched: entry_writes.TouchedEntries,
    now: datetime,
) -> None:
    for entry in conn.execute(select(vectors).where(kind, vectors.c.owner_id.in_(ids))).all():
        touched.move(entry.user_id, entry.embedder, entry.key, entry.vector, -1)
        full_text.remove(conn, [entry.seq])
        conn.execute(delete(vectors).where(vectors.c.seq == entry.seq))
        conn.execute(insert(index_log).values(unit_seq=entry.seq, user_id=entry.user_id, op="delete", at=now))


def _begin_epoch(conn: Connection, newest_edit: int) -> None:
    """Begin a new epoch, and reserve the numbers of erased edits."""
    reserve_edit_numbers(conn, newest_edit)
    values: dict[str, str] = {row.key: row.value for row in conn.execute(select(meta))}
    for key, value in (
        (EPOCH, int(values.get(EPOCH, 0)) + 1),
        (ERASED_AT, log_queries.newest_log_number(conn)),
        (ROWS_ON_DISK, 1),
    ):
        conn.execute(delete(meta).where(meta.c.key == key))
        conn.execute(insert(meta).values(key=key, value=str(value)))
