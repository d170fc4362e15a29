"""What summaries rest on: the memories in the version that was read, and the messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlalchemy import ColumnElement, Connection, and_, delete, exists, insert, or_, select

from palimpsest.core.models import LINK, Summary
from palimpsest.store.mapping import chunks, is_scope
from palimpsest.store.schema import history, index_log, memories, memory_sources, messages, summaries
from palimpsest.store.views.tables import summary_sources

KEPT_MONTHS = 12
"""For how many months the last summary of each kind keeps what it rests on. If a newer one is outdated by a correction,
the next is written from such an older one, which the correction does not concern, and not from the beginning."""


def put(conn: Connection, summary_id: int, summary: Summary) -> None:
    """Store what a new summary rests on. Of older ones, the last of each earlier month keeps it, for a year."""
    store(conn, summary_id, summary.sources, summary.message_ids)
    _thin_out(conn, summary_id, summary)


def store(conn: Connection, summary_id: int, of_memories: Mapping[str, int], message_ids: Sequence[str]) -> None:
    """Store what a summary rests on, and leave older ones as they are."""
    rows = [{"kind": "message", "owner_id": message_id, "revision": 0} for message_id in dict.fromkeys(message_ids)]
    rows += [
        {"kind": "memory", "owner_id": memory_id, "revision": revision} for memory_id, revision in of_memories.items()
    ]
    if rows:
        conn.execute(insert(summary_sources), [{"summary_id": summary_id, **row} for row in rows])


def _thin_out(conn: Connection, newest_id: int, summary: Summary) -> None:
    of_kind = (is_scope(summaries, summary.scope), _same_subject(summary.kind), summaries.c.id != newest_id)
    query = (
        select(summaries.c.id, summaries.c.created_at).where(*of_kind, has_sources()).order_by(summaries.c.id.desc())
    )
    kept = {f"{summary.created_at:%Y-%m}"}
    surplus: list[int] = []
    for row in conn.execute(query).all():
        month = f"{row.created_at:%Y-%m}"
        if month in kept or len(kept) > KEPT_MONTHS:
            surplus.append(row.id)
        kept.add(month)
    for chunk in chunks(surplus):
        conn.execute(delete(summary_sources).where(summary_sources.c.summary_id.in_(chunk)))


def _same_subject(kind: str) -> ColumnElement[bool]:
    """Return the condition for summaries of a kind. What ends in a sign of its content, as ABOUT does, is one kind."""
    name, _, argument = kind.partition(":")
    subject, colon, _ = argument.rpartition(":")
    if not colon:
        return summaries.c.kind == kind
    return summaries.c.kind.startswith(f"{name}:{subject}:", autoescape=True)


def read(conn: Connection, summary_id: int) -> tuple[Mapping[str, int], tuple[str, ...]]:
    """Return the memories that a summary rests on, by id with the revision that was read, and the ids of messages."""
    query = select(summary_sources).where(summary_sources.c.summary_id == summary_id)
    rows = conn.execute(query.order_by(summary_sources.c.kind, summary_sources.c.owner_id)).all()
    of_memories = {row.owner_id: row.revision for row in rows if row.kind == "memory"}
    return of_memories, tuple(row.owner_id for row in rows if row.kind == "message")


def has_sources() -> ColumnElement[bool]:
    """Return the condition for summaries of which it is known what they rest on."""
    return exists().where(summary_sources.c.summary_id == summaries.c.id)


def have_changed() -> ColumnElement[bool]:
    """Return the condition for summaries that rest on something that was changed, deleted, forgotten or erased since.

    A memory may have ended before a summary was written that says so; then nothing has changed.
    """
    return _rests_on(and_(memories.c.revision != summary_sources.c.revision, reworded_since(summaries.c.seq)))


def have_gone() -> ColumnElement[bool]:
    """Return the condition for summaries that rest on something that was deleted, forgotten or erased since.

    What was reworded, was replaced or has ended is not gone: the next summary can be written from one that has it.
    """
    return _rests_on(
        and_(memories.c.deleted_at.is_not(None), memories.c.superseded_by.is_(None), memories.c.valid_until.is_(None))
    )


def _rests_on(is_other: ColumnElement[bool]) -> ColumnElement[bool]:
    """Return the condition for summaries that rest on something forgotten or erased, or on a memory of a condition.

    A message is forgotten with a memory that was learned from it.
    """
    of_summary = summary_sources.c.summary_id == summaries.c.id
    of_memory = and_(of_summary, summary_sources.c.kind == "memory")
    of_message = and_(of_summary, summary_sources.c.kind == "message")
    with_memory = summary_sources.outerjoin(memories, memories.c.id == summary_sources.c.owner_id)
    with_message = summary_sources.outerjoin(messages, messages.c.id == summary_sources.c.owner_id)
    learned = summary_sources.join(memory_sources, memory_sources.c.message_id == summary_sources.c.owner_id).join(
        memories, memories.c.id == memory_sources.c.memory_id
    )
    is_gone = or_(memories.c.id.is_(None), memories.c.is_forgotten.is_(True), is_other)
    is_unsaid = or_(messages.c.id.is_(None), messages.c.deleted_at.is_not(None))
    return or_(
        select(summary_sources.c.owner_id).select_from(with_memory).where(of_memory, is_gone).exists(),
        select(summary_sources.c.owner_id).select_from(with_message).where(of_message, is_unsaid).exists(),
        select(summary_sources.c.owner_id)
        .select_from(learned)
        .where(of_message, memories.c.is_forgotten.is_(True))
        .exists(),
    )


def reworded_since(log_number: ColumnElement[int]) -> ColumnElement[bool]:
    """Return the condition for memories with an edit after a number of the index log that changed what they say."""
    # An edit of the stage LINK only says where a memory belongs, which no summary says.
    # A mention of a memory is in the log too. What changes the memory also leaves a row of history, at the same time.
    edited = history.join(
        index_log, and_(index_log.c.memory_id == history.c.memory_id, index_log.c.at == history.c.updated_at)
    )
    return (
        select(history.c.seq)
        .select_from(edited)
        .where(
            history.c.memory_id == memories.c.id,
            history.c.stage != LINK,
            index_log.c.user_id == memories.c.user_id,
            index_log.c.seq > log_number,
        )
        .correlate(memories, summaries)  # the number may be a column of the summary, two selects further out
        .exists()
    )


def unread_by(summary_id: int | None) -> ColumnElement[bool]:
    """Return the condition for memories that a summary does not rest on; with None all of them."""
    is_read = (summary_sources.c.summary_id == summary_id, summary_sources.c.kind == "memory")
    return ~exists().where(*is_read, summary_sources.c.owner_id == memories.c.id)


def erase_of(conn: Connection, summary_ids: Sequence[int]) -> None:
    """Erase summaries with what they rest on."""
    for chunk in chunks(summary_ids):
        conn.execute(delete(summary_sources).where(summary_sources.c.summary_id.in_(chunk)))
        conn.execute(delete(summaries).where(summaries.c.id.in_(chunk)))


def resting_on(conn: Connection, user_id: str, owner_ids: Sequence[str]) -> list[int]:
    """Return the ids of a user's summaries that may quote memories or messages.

    These are the ones that rest on them, and the ones of which it is not known what they rest on.
    """
    of_user = summaries.c.user_id == user_id
    found = set(conn.execute(select(summaries.c.id).where(of_user, ~has_sources())).scalars())
    for chunk in chunks(owner_ids):
        query = select(summary_sources.c.summary_id).join(summaries, summaries.c.id == summary_sources.c.summary_id)
        found.update(conn.execute(query.where(of_user, summary_sources.c.owner_id.in_(chunk))).scalars())
    return sorted(found)
