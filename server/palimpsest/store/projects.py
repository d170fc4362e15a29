"""How projects change inside a transaction: aliases are recorded, and everything in a project moves to another.

A move changes scopes, which the history does not keep, so an undo cannot take it back. The caller makes a backup first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from sqlalchemy import Connection, and_, delete, func, or_, select, update

from palimpsest.core.git_project import Alias, Move
from palimpsest.core.models import MOVE, Annotation, Event, Fact, Link, Memory, Provenance, Scope
from palimpsest.store import known_projects as project_queries
from palimpsest.store.database.protocols import FullText
from palimpsest.store.graph.care import move as entity_moves
from palimpsest.store.mapping import to_memory
from palimpsest.store.queries import index_log as log_queries
from palimpsest.store.schema import (
    conversations,
    index_log,
    memories,
    memory_sources,
    messages,
    project_aliases,
    summaries,
    vectors,
)
from palimpsest.store.views import documents, uses
from palimpsest.store.views import links as link_rows
from palimpsest.store.views import sources as summary_sources
from palimpsest.store.views.tables import recalls
from palimpsest.store.writes import entries as entry_writes
from palimpsest.store.writes import memories as memory_writes
from palimpsest.store.writes.jobs import owners as job_owners
from palimpsest.store.writes.transaction import Transaction, next_edit_number, record_message

SCOPED_TABLES = (memories, messages, vectors, summaries, conversations, recalls)
"""The tables with scopes, apart from that of the jobs, of which a scope may have only one that is not done."""


def move(conn: Connection, full_text: FullText, user_id: str, old: str, new: str, caller: str, now: datetime) -> Move:
    """Move everything in a project to another, which also gets its aliases and its name as an older name."""
    planned = project_queries.planned_move(conn, user_id, old, new)
    is_merge = project_queries.has_content(conn, user_id, new)
    current_from = _newest_change(conn, user_id, old)
    touched = entry_writes.TouchedEntries()
    provenance = Provenance(MOVE, caller=caller)
    tx = Transaction(conn, Scope(user_id, new), provenance, now, next_edit_number(conn), {}, "", touched)
    _merge_messages(tx, old, new)
    _merge_memories(tx, old, new)
    _merge_documents(tx, old, new)
    _merge_conversations(conn, user_id, old, new)
    if is_merge:  # each would be taken for one of both projects
        of_old = select(summaries.c.id).where(summaries.c.user_id == user_id, summaries.c.project == old)
        summary_sources.erase_of(conn, conn.execute(of_old).scalars().all())
    for table, ids in ((memories, touched.memories), (messages, touched.messages)):
        in_project = (table.c.user_id == user_id, table.c.project == old)
        ids.update(conn.execute(select(table.c.id).where(*in_project)).scalars())
    for table in SCOPED_TABLES:
        conn.execute(update(table).where(table.c.user_id == user_id, table.c.project == old).values(project=new))
    entity_moves.move(tx.graph, old)
    job_owners.move(conn, user_id, old, new)
    _move_aliases(conn, user_id, old, new, now)
    entry_writes.index(conn, full_text, touched, now)
    if not is_merge:
        _keep_current(conn, user_id, new, current_from)
    return planned


def _move_aliases(conn: Connection, user_id: str, old: str, new: str, now: datetime) -> None:
    columns = project_aliases.c
    of_user = columns.user_id == user_id
    conn.execute(update(project_aliases).where(of_user, columns.project == old).values(project=new))
    # What a note would say of these two has been decided.
    settled = and_(columns.project == new, columns.other_project.in_((old, new)))
    conn.execute(update(project_aliases).where(of_user, settled).values(other_project="", reported=True))
    conn.execute(update(project_aliases).where(of_user, columns.other_project == old).values(other_project=new))
    project_queries.record(conn, user_id, [Alias("name", old, new)], now)
    conn.execute(delete(project_aliases).where(of_user, columns.kind == "name", columns.alias == new))


def _merge_messages(tx: Transaction, old: str, new: str) -> None:
    """Keep one of two messages that a caller stored in both projects: the one that is not deleted."""
    query = project_queries.same_messages(tx.scope.user_id, old, new)
    for pair in tx.conn.execute(query).all():
        rows = {row.id: row for row in tx.conn.execute(select(messages).where(messages.c.id.in_(pair)))}
        ours, theirs = (rows[message_id] for message_id in pair)
        kept, other = (ours, theirs) if theirs.deleted_at is not None and ours.deleted_at is None else (theirs, ours)
        _cite_instead(tx, other.id, kept.id)
        learnt = kept.learnt or other.learnt
        tx.conn.execute(update(messages).where(messages.c.id == kept.id).values(learnt=learnt))
        # Of messages with the same id of their caller, a scope has one.
        values = {"external_id": "", "deleted_at": other.deleted_at or tx.now}
        tx.conn.execute(update(messages).where(messages.c.id == other.id).values(**values))
        if other.deleted_at is None:
            record_message(tx, Event.DELETE, other.id)
        job_owners.replace_owner(tx.conn, tx.scope.user_id, other.id, kept.id)


def _cite_instead(tx: Transaction, message_id: str, kept_id: str) -> None:
    """Let memories cite a message in place of another."""
    columns = memory_sources.c
    citing = set(tx.conn.execute(select(columns.memory_id).where(columns.message_id == message_id)).scalars())
    known = set(tx.conn.execute(select(columns.memory_id).where(columns.message_id == kept_id)).scalars())
    of_message = columns.message_id == message_id
    tx.conn.execute(delete(memory_sources).where(of_message, columns.memory_id.in_(citing & known)))
    tx.conn.execute(update(memory_sources).where(of_message).values(message_id=kept_id))
    tx.touched.memories.update(citing)
    tx.touched.messages.add(kept_id)


def _merge_memories(tx: Transaction, old: str, new: str) -> None:
    """Close memories in favour of those of the new project that say the same, which take over what these lack."""
    for old_id, new_id in tx.conn.execute(project_queries.same_memories(tx.scope.user_id, old, new)).all():
        ours, theirs = _memory(tx, old_id), _memory(tx, new_id)
        of_memory = memory_sources.c.memory_id == ours.id
        sources = tuple(tx.conn.execute(select(memory_sources.c.message_id).where(of_memory)).scalars())
        lacking = Fact(
            theirs.text,
            sources,
            happened_at=None if theirs.happened_at else ours.happened_at,
            happened_precision=ours.happened_precision,
            keywords=ours.keywords,
            tags=ours.tags,
            metadata={key: value for key, value in ours.metadata.items() if key not in theirs.metadata},
            said_at=ours.stated_at,
            valid_from=None if theirs.valid_from else ours.valid_from,
            valid_from_precision=ours.valid_from_precision,
            entities=ours.entities,
            relations=ours.relations,
        )
        memory_writes.change(tx, theirs, lacking)
        uses.give(tx.conn, ours.id, theirs.id)
        memory_writes.replace_by(tx, ours, _memory(tx, new_id))
        job_owners.replace_owner(tx.conn, tx.scope.user_id, old_id, new_id)
        _link_instead(tx, ours, new_id)


def _link_instead(tx: Transaction, ours: Memory, kept_id: str) -> None:
    """Give a memory the links of one that was closed in its favour, and let links to that one lead to it."""
    kept = _memory(tx, kept_id)
    _annotate(tx, kept, kept.context or ours.context, (*kept.links, *ours.links))
    for memory_id in link_rows.linking_to(tx.conn, ours.id):
        memory = _memory(tx, memory_id)
        leading = (replace(link, memory_id=kept_id) if link.memory_id == ours.id else link for link in memory.links)
        _annotate(tx, memory, memory.context, tuple(leading))


def _annotate(tx: Transaction, memory: Memory, context: str, links: Sequence[Link]) -> None:
    others = {link.memory_id: link for link in reversed(links) if link.memory_id != memory.id}
    memory_writes.annotate(tx, memory, Annotation(memory.id, context, memory.tags, tuple(others.values())[::-1]))


def _merge_documents(tx: Transaction, old: str, new: str) -> None:
    """Make one document of two of the same source. Where both have a page, that of the older one is deleted."""
    for ours, theirs in documents.of_same_source(tx.conn, tx.scope.user_id, old, new):
        for page in documents.outdated_pages(tx.conn, tx.scope.user_id, (old, ours), (new, theirs)):
            tx.conn.execute(update(messages).where(messages.c.id == page).values(deleted_at=tx.now))
            record_message(tx, Event.DELETE, page)
        of_user = (messages.c.user_id == tx.scope.user_id, messages.c.project.in_((old, new)))
        in_ours, in_theirs = messages.c.session_id == ours, messages.c.session_id == theirs
        tx.conn.execute(update(messages).where(*of_user, in_ours).values(session_id=theirs))
        tx.touched.messages.update(tx.conn.execute(select(messages.c.id).where(*of_user, in_theirs)).scalars())
        row = (conversations.c.user_id == tx.scope.user_id, conversations.c.project == old)
        tx.conn.execute(delete(conversations).where(*row, conversations.c.session_id == ours))


def _merge_conversations(conn: Connection, user_id: str, old: str, new: str) -> None:
    """Keep one row of a session that was held in both projects, with a title if one of them has it."""
    ours, theirs = conversations.alias(), conversations.alias()
    query = (
        select(ours.c.seq, ours.c.title, theirs.c.seq.label("kept"), theirs.c.title.label("kept_title"))
        .join(
            theirs, and_(*(ours.c[name] == theirs.c[name] for name in ("user_id", "agent_id", "run_id", "session_id")))
        )
        .where(ours.c.user_id == user_id, ours.c.project == old, theirs.c.project == new)
    )
    for row in conn.execute(query).all():
        is_kept = conversations.c.seq == row.kept
        conn.execute(update(conversations).where(is_kept).values(title=row.kept_title or row.title))
        conn.execute(delete(conversations).where(conversations.c.seq == row.seq))


def _memory(tx: Transaction, memory_id: str) -> Memory:
    return to_memory(tx.conn.execute(select(memories).where(memories.c.id == memory_id)).one())


def _newest_change(conn: Connection, user_id: str, project: str) -> int:
    """Return the newest row of the index log that a summary of a project should include."""
    seen = and_(memories.c.user_id == user_id, or_(memories.c.project == project, memories.c.project == ""))
    query = select(func.max(index_log.c.seq)).join(memories, memories.c.id == index_log.c.memory_id).where(seen)
    return conn.execute(query).scalar_one() or 0


def _keep_current(conn: Connection, user_id: str, project: str, current_from: int) -> None:
    """Keep the summaries current that were so before their project got another name."""
    of_project = (summaries.c.user_id == user_id, summaries.c.project == project, summaries.c.seq >= current_from)
    newest = log_queries.newest_log_number(conn)
    conn.execute(update(summaries).where(*of_project).values(seq=newest))
