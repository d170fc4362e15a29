"""Read messages and conversations."""

import uuid
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from functools import cache
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, FromClause, and_, bindparam, case, func, or_, select

from palimpsest.core.clock import in_zone, shown_date
from palimpsest.core.errors import InputError, MemoryNotFoundError
from palimpsest.core.models import PAGE, UNDO, Message, Scope
from palimpsest.store import rows
from palimpsest.store.memories import learned_memories
from palimpsest.store.schema import (
    IS_MESSAGE,
    IS_SAID,
    conversations,
    memories,
    memory_sources,
    message_history,
    messages,
    vectors,
)
from palimpsest.store.schema import purged as purged_ids

# Read messages, who wrote them, and what was learned from them.

# How many names of speakers are read for a user.
MAX_SPEAKERS = 1_000

# Among how many of the messages stored last the last conversation is looked for: a few milliseconds.
LAST_MESSAGES = 200

_BY_ID = select(messages).where(messages.c.id.in_(rows.listed("ids")))

# The orders in which the message that was stored, or said, last comes first.
NEWEST = (messages.c.seq.desc(),)
LAST_SAID = (messages.c.said_at.desc(), messages.c.seq.desc())


def read_messages(
    conn: Connection,
    *conditions: ColumnElement[bool],
    order: Sequence[ColumnElement[Any]] = (messages.c.seq,),
    limit: int | None = None,
) -> list[Message]:
    """Return the messages under some conditions, at most `limit`, as they were stored or in another order."""
    query = select(messages).where(*conditions).order_by(*order).limit(limit)
    return [rows.to_message(row) for row in conn.execute(query)]


def messages_by_id(conn: Connection, ids: Sequence[str]) -> dict[str, Message]:
    """Return messages, living or deleted, by id."""
    return {row.id: rows.to_message(row) for row in rows.rows_for(conn, _BY_ID, ids)}


def messages_of(conn: Connection, scope: Scope) -> list[Message]:
    """Return the living messages of a scope, oldest first. A project's scope does not include the global ones."""
    return read_messages(conn, rows.owns(messages, scope), messages.c.deleted_at.is_(None))


def messages_before(conn: Connection, scope: Scope, message_id: str, limit: int) -> list[Message]:
    """Return the living messages of exactly this scope that were stored before a message, the last `limit`, in order.

    Those with a forgotten fact are left out.
    """
    first = select(messages.c.seq).where(messages.c.id == message_id).scalar_subquery()
    in_scope = (rows.is_scope(messages, scope), messages.c.deleted_at.is_(None))
    return newest_said(conn, limit, *in_scope, messages.c.seq < first)


def newest_said(conn: Connection, limit: int, *conditions: ColumnElement[bool]) -> list[Message]:
    """Return those of the newest `limit` messages of conversations under some conditions that nobody forgot."""
    newest = read_messages(conn, *conditions, IS_SAID, order=NEWEST, limit=limit)
    return without_forgotten(conn, newest[::-1])


def sessions_of(conn: Connection, user_id: str, client: str, session: str) -> list[tuple[Scope, str]]:
    """Return the conversations that a session of a client is kept as, one in each scope, the newest first."""
    of_session = select(conversations).filter_by(user_id=user_id, client=client, external_id=session)
    newest = conn.execute(of_session.order_by(conversations.c.seq.desc()))
    return [(rows.to_scope(row), row.session_id) for row in newest]


def said_in(conn: Connection, scope: Scope, session_id: str, role: str, limit: int) -> list[Message]:
    """Return the newest living messages of a role in a conversation, in order; none with a forgotten fact."""
    is_said = (messages.c.session_id == session_id, messages.c.role == role)
    return newest_said(conn, limit, rows.is_living(messages, scope), *is_said)


def last_conversation(conn: Connection, scope: Scope) -> list[Message]:
    """Return the messages of the last conversation of the scope's project, oldest first, as far as they are read.

    Deleted messages, and those with a forgotten fact, are left out.
    """
    newest = newest_said(conn, LAST_MESSAGES, rows.owns(messages, scope), messages.c.deleted_at.is_(None))
    newest.sort(key=lambda message: message.said_at)  # an import stores old conversations last
    return [message for message in newest if message.session_id == newest[-1].session_id]


def sources_of(conn: Connection, memory_ids: Sequence[str]) -> dict[str, list[Message]]:
    """Return the messages that each memory was learned from, oldest first."""
    return rows.grouped((row.memory_id, rows.to_message(row)) for row in rows.rows_for(conn, _SOURCES, memory_ids))


_SOURCES = (
    select(memory_sources.c.memory_id, messages)
    .join(messages, messages.c.id == memory_sources.c.message_id)
    .where(memory_sources.c.memory_id.in_(rows.listed("ids")))
    .order_by(messages.c.seq)
)


def awaiting_extraction(conn: Connection, message_ids: Sequence[str]) -> set[str]:
    """Return the ids of those living messages that no facts were extracted from yet."""
    fresh = (messages.c.learnt.is_(False), messages.c.deleted_at.is_(None), IS_SAID)
    return set(conn.execute(select(messages.c.id).where(rows.among(messages.c.id, message_ids), *fresh)).scalars())


def outdated_or_forgotten(conn: Connection, message_ids: Sequence[str]) -> tuple[set[str], set[str]]:
    """Return the messages whose memories are all closed, and those of which at least one memory was forgotten.

    A closed memory was replaced, or has ended. A forgotten one was deleted, and so was what its messages say about it.
    Memories that only an undo deleted do not count.
    """
    states = rows.rows_for(conn, _STATES_OF_MEMORIES, message_ids)
    outdated = {message_id for message_id, living, gone in states if not living and not gone}
    return outdated, {message_id for message_id, _, gone in states if gone}


_STATES_OF_MEMORIES = (
    select(
        memory_sources.c.message_id,
        func.sum(case((memories.c.deleted_at.is_(None), 1), else_=0)),
        func.sum(case((memories.c.is_forgotten.is_(True), 1), else_=0)),
    )
    .join(memories, memories.c.id == memory_sources.c.memory_id)
    .where(memory_sources.c.message_id.in_(rows.listed("ids")), learned_memories())
    .group_by(memory_sources.c.message_id)
)


def without_forgotten(conn: Connection, found: Sequence[Message]) -> list[Message]:
    """Return the messages that say nothing that was forgotten."""
    _, forgotten = outdated_or_forgotten(conn, [message.id for message in found])
    return [message for message in found if message.id not in forgotten]


def sessions_with_forgotten(conn: Connection, session_ids: Sequence[str]) -> set[str]:
    """Return those of some sessions in which something was said that was forgotten."""
    query = select(messages.c.session_id).join(memory_sources, memory_sources.c.message_id == messages.c.id)
    query = query.join(memories, memories.c.id == memory_sources.c.memory_id)
    is_forgotten = (memories.c.is_forgotten.is_(True), learned_memories())
    found = query.where(rows.among(messages.c.session_id, session_ids), *is_forgotten)
    return set(conn.execute(found.distinct()).scalars())


def speakers(conn: Connection, user_id: str) -> list[str]:
    """Return the names of the speakers in a user's messages of all projects.

    The query makes one step in an index for each name, however many messages there are.
    """
    return list(conn.execute(_SPEAKERS, {"user_id": user_id}).scalars().all())


_first = select(func.min(messages.c.name).label("name")).where(messages.c.user_id == bindparam("user_id"))
_begun = _first.where(messages.c.name != "").cte(recursive=True)
_following = _first.where(messages.c.name > _begun.c.name).scalar_subquery()
_names = _begun.union_all(select(_following).where(_begun.c.name.is_not(None)))
_SPEAKERS = select(_names.c.name).where(_names.c.name.is_not(None)).limit(MAX_SPEAKERS)


def has_speaker(conn: Connection, scope: Scope, name: str) -> bool:
    """Return whether the scope sees a message of a speaker of this name."""
    return rows.has_row(conn, _by_speaker(rows.scope_parts(scope)), {**rows.scope_values(scope), "name": name})


@cache
def _by_speaker(parts: tuple[bool, ...]) -> rows.Query:
    return select(messages.c.seq).where(rows.sees_named(messages, parts), messages.c.name == bindparam("name"))


# Read conversations: the messages of one session, and what is known of it besides.

# How many conversations an error names.
NEWEST_SHOWN = 3

# As a limit: every row.
MAX_ROWS = 2**31 - 1


@dataclass(frozen=True, slots=True)
class ConversationSummary:
    """A conversation that has living messages. `id` is their session id, and `first` the first of them.

    `client` is the program it was held in and `title` what it is called there; both are "" if that is not known.
    If something that was said in it is forgotten, `title` is "" too, because it may say the same, and `first` is None
    if that message says it.
    """

    id: str
    project: str
    client: str
    title: str
    first: Message | None
    messages: int
    began_at: datetime
    ended_at: datetime


@dataclass(frozen=True, slots=True)
class MessageBounds:
    """Which messages are read, by their columns. None is no bound; `said_from` and `said_until` are within.

    `entries` are the numbers of entries, which deleted messages do not have, and `ids` those of messages or of others.
    """

    roles: Collection[str] | None = None
    names: Collection[str] | None = None
    sessions: Collection[str] | None = None
    said_from: datetime | None = None
    said_until: datetime | None = None
    entries: Collection[int] | None = None
    ids: Collection[str] | None = None
    has_pages: bool = True

    def conditions(self, table: FromClause = messages) -> Iterator[ColumnElement[bool]]:
        """Yield the conditions for rows of `messages`."""
        values_of = ((table.c.role, self.roles), (table.c.name, self.names), (table.c.session_id, self.sessions))
        yield from (column.in_(sorted(values)) for column, values in values_of if values is not None)
        if self.said_from is not None:
            yield table.c.said_at >= self.said_from
        if self.said_until is not None:
            yield table.c.said_at <= self.said_until
        if self.entries is not None:
            is_listed = (vectors.c.kind == "message", rows.among(vectors.c.seq, self.entries))
            yield table.c.id.in_(select(vectors.c.owner_id).where(*is_listed))
        if self.ids is not None:
            yield rows.among(table.c.id, self.ids)
        if not self.has_pages:
            yield table.c.role != PAGE

    @property
    def leave_most(self) -> bool:
        """Return whether they most likely leave most messages: of roles some may be asked for, but not only pages."""
        bounds = (self.names, self.sessions, self.said_from, self.said_until, self.entries, self.ids)
        return all(bound is None for bound in bounds) and (self.roles is None or not {PAGE}.issuperset(self.roles))


EVERY_MESSAGE = MessageBounds()


def list_conversations(
    conn: Connection, scope: Scope, limit: int, after: tuple[datetime, str] | None = None, only: str = ""
) -> list[ConversationSummary]:
    """Return up to `limit` conversations that the scope sees, the one with the newest message first; no documents.

    `after` is the time of the last message and the id of the conversation that a page ended with. With `only` it is the
    conversation of this id alone.
    """
    ended_at, session_id = func.max(messages.c.said_at), messages.c.session_id
    query = (
        select(
            session_id.label("id"),
            func.count().label("messages"),
            func.min(messages.c.said_at).label("began_at"),
            ended_at.label("ended_at"),
            func.min(messages.c.seq).label("first_row"),
            func.max(messages.c.project).label("project"),
        )
        .where(rows.is_living(messages, scope), IS_SAID)
        .group_by(session_id)
        .order_by(ended_at.desc(), session_id)
        .limit(limit)
    )
    if only:
        query = query.where(session_id == only)
    if after is not None:
        at, last_id = after
        query = query.having(or_(ended_at < at, and_(ended_at == at, session_id > last_id)))
    found = conn.execute(query).all()
    is_listed = rows.among(conversations.c.session_id, [row.id for row in found])
    known = select(conversations).where(rows.sees(conversations, scope), is_listed).order_by(conversations.c.seq)
    by_id = {row.session_id: row for row in conn.execute(known)}
    begin = read_messages(conn, rows.among(messages.c.seq, [row.first_row for row in found]))
    first = {message.session_id: message for message in without_forgotten(conn, begin)}
    titled = by_id.keys() - sessions_with_forgotten(conn, list(by_id))
    return [
        ConversationSummary(
            **{name: getattr(row, name) for name in ("id", "project", "messages", "began_at", "ended_at")},
            client=by_id[row.id].client if row.id in by_id else "",
            title=by_id[row.id].title if row.id in titled else "",
            first=first.get(row.id),
        )
        for row in found
    ]


def count_conversations(conn: Connection, scope: Scope) -> tuple[int, int]:
    """Return how many conversations with living messages the scope sees, and how many messages these have."""
    counts = select(func.count(messages.c.session_id.distinct()), func.count())
    row = conn.execute(counts.where(rows.is_living(messages, scope), IS_SAID)).one()
    return row[0], row[1]


def count_deleted_messages(conn: Connection, scope: Scope) -> int:
    """Return how many messages that the scope sees are deleted."""
    return rows.count(conn, rows.sees(messages, scope), messages.c.deleted_at.is_not(None), IS_SAID)


def find_conversation(
    conn: Connection, scope: Scope, conversation_id: str, zone: tzinfo | None, *, deleted: bool = False
) -> str:
    """Return the whole id of the conversation that an id, or the beginning of one, names.

    The id of a message names the conversation that it belongs to. With `deleted` one without living messages is found
    too. Raises MemoryNotFoundError, and InputError for a beginning that is too short or that several ids have.
    """
    prefix = rows.long_enough(conversation_id)
    is_read = rows.sees(messages, scope) if deleted else rows.is_living(messages, scope)
    for column in (messages.c.session_id, messages.c.id):
        query = select(messages.c.session_id).where(rows.begins(column, prefix), is_read).distinct().limit(2)
        found: Sequence[str] = conn.execute(query).scalars().all()
        if len(found) > 1:
            raise InputError(f"several conversations begin with '{prefix}': {', '.join(found)}. Use more characters")
        if found:
            return found[0]
    newest = [
        f"{each.id[: rows.MIN_PREFIX]} ({shown_date(in_zone(each.ended_at, zone))})"
        for each in list_conversations(conn, scope, NEWEST_SHOWN)
    ]
    known = f"the newest are {', '.join(newest)}" if newest else "there is none"
    raise MemoryNotFoundError(f"no conversation '{prefix[:80]}' for {scope}; {known}")


def ids_beginning(conn: Connection, scope: Scope, prefix: str, limit: int) -> list[str]:
    """Return up to `limit` ids of conversations that begin with a prefix, the one with the newest message first."""
    is_meant = (rows.begins(messages.c.session_id, prefix), rows.is_living(messages, scope), IS_SAID)
    query = select(messages.c.session_id).where(*is_meant).group_by(messages.c.session_id)
    return list(conn.execute(query.order_by(func.max(messages.c.said_at).desc()).limit(limit)).scalars())


def messages_in(
    conn: Connection, scope: Scope, session_id: str, limit: int, after: int = 0
) -> list[tuple[int, Message]]:
    """Return up to `limit` living messages of a conversation with their row numbers, in order, after row `after`."""
    in_session = (messages.c.session_id == session_id, rows.is_living(messages, scope))
    query = select(messages).where(*in_session, messages.c.seq > after).order_by(messages.c.seq).limit(limit)
    return [(row.seq, rows.to_message(row)) for row in conn.execute(query)]


def row_before(conn: Connection, scope: Scope, message_id: str, count: int) -> int | None:
    """Return the row that stands `count` + 1 living messages before one in its conversation; None if there is none."""
    named = select(messages.c.session_id, messages.c.seq).where(messages.c.id == message_id, rows.sees(messages, scope))
    if (row := conn.execute(named).one_or_none()) is None:
        return None
    in_session = (messages.c.session_id == row.session_id, rows.is_living(messages, scope))
    before = select(messages.c.seq).where(*in_session, messages.c.seq < row.seq).order_by(messages.c.seq.desc())
    return conn.execute(before.offset(count).limit(1)).scalar()


def memories_of_sessions(conn: Connection, session_ids: Iterable[str]) -> dict[str, set[str]]:
    """Return the ids of the memories that were learned from messages of conversations, living or deleted."""
    found: dict[str, set[str]] = {session_id: set() for session_id in session_ids}
    learned = select(messages.c.session_id, memory_sources.c.memory_id).distinct()
    query = learned.where(rows.among(messages.c.session_id, found), memory_sources.c.message_id == messages.c.id)
    for session_id, memory_id in conn.execute(query):
        found[session_id].add(memory_id)
    return found


class MessagePosition(NamedTuple):
    """Where a page of messages ended: when its last message was said, and the number of its row."""

    said_at: datetime
    row: int


def list_messages(
    conn: Connection,
    scope: Scope,
    limit: int,
    *,
    after: MessagePosition | None = None,
    deleted: bool = False,
    bounds: MessageBounds = EVERY_MESSAGE,
) -> list[tuple[MessagePosition, Message]]:
    """Return up to `limit` messages with their positions, the one that was said last first, from after a position."""
    table = _rows_within(bounds)
    is_read = (rows.sees(table, scope), rows.is_deleted(table, deleted=deleted), *bounds.conditions(table))
    query = select(table).where(*is_read).order_by(table.c.said_at.desc(), table.c.seq.desc()).limit(limit)
    if after is not None:
        query = query.where(table.c.said_at <= after.said_at)
        query = query.where(or_(table.c.said_at < after.said_at, table.c.seq < after.row))
    return [(MessagePosition(row.said_at, row.seq), rows.to_message(row)) for row in conn.execute(query)]


def _rows_within(bounds: MessageBounds) -> FromClause:
    """Return what to read messages from: all of them, or those of some conversations or ids, by the index on these.

    The limit keeps the query planner from going through all messages in the order of time instead.
    """
    if bounds.ids is not None:
        is_chosen = rows.among(messages.c.id, bounds.ids)
    elif bounds.sessions is not None:
        is_chosen = messages.c.session_id.in_(sorted(bounds.sessions))
    else:
        return messages
    return select(messages).where(is_chosen).limit(MAX_ROWS).subquery()


def living_messages(conn: Connection, scope: Scope, bounds: MessageBounds) -> Iterator[tuple[int, Message]]:
    """Yield every living message within the bounds that the scope sees, with its entry number."""
    found = conn.execute(_living(select(messages, vectors.c.seq.label("entry_seq")), scope, bounds))
    return ((row.entry_seq, rows.to_message(row)) for row in found)


def message_entries(conn: Connection, scope: Scope, bounds: MessageBounds) -> set[int]:
    """Return the entry numbers of the living messages within the bounds that the scope sees."""
    return set(conn.execute(_living(select(vectors.c.seq), scope, bounds)).scalars())


def message_entries_among(conn: Connection, scope: Scope, bounds: MessageBounds, seqs: Collection[int]) -> set[int]:
    """Return those of some entries that are living messages within the bounds and visible to the scope.

    They are looked up one by one: the limit keeps the query planner from beginning with all messages.
    """
    names = ("id", *rows.SCOPE, "role", "name", "session_id", "said_at", "deleted_at")
    columns = (vectors.c.seq.label("entry_seq"), *(messages.c[name] for name in names))
    chosen = select(*columns).join_from(vectors, messages, IS_MESSAGE)
    table = chosen.where(rows.among(vectors.c.seq, seqs)).limit(MAX_ROWS).subquery()
    query = select(table.c.entry_seq).where(rows.is_living(table, scope), *bounds.conditions(table))
    return set(conn.execute(query).scalars())


def _living(query: rows.Query, scope: Scope, bounds: MessageBounds) -> rows.Query:
    return query.join_from(messages, vectors, IS_MESSAGE).where(rows.is_living(messages, scope), *bounds.conditions())


# Read what tells captured messages from others.

NAMESPACE = uuid.UUID("6d0a8b43-52a9-4a0e-8d1c-0c7f7a1f7d55")

# How far apart the times of a message are at most that a hook has brought and of its line in a transcript. Set by hand:
# the hook runs within seconds, and a person who says the same again, or in another session, takes longer.
SAME_TIME = timedelta(minutes=2)


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """What tells a message with an id of its client from others."""

    id: str
    external_id: str
    role: str
    content_hash: str
    said_at: datetime
    deleted_at: datetime | None = None


def contents_of(conn: Connection, scope: Scope, content_hashes: Sequence[str]) -> dict[str, str]:
    """Return the texts of a scope's messages by their hashes, which the descriptions of pictures do not change."""
    is_known = (rows.is_scope(messages, scope), rows.among(messages.c.content_hash, content_hashes))
    found = conn.execute(select(messages.c.content_hash, messages.c.content).where(*is_known).order_by(messages.c.seq))
    return {row.content_hash: row.content for row in found}


def with_texts(conn: Connection, user_id: str, content_hashes: Sequence[str]) -> list[StoredMessage]:
    """Return the messages of a user in all scopes that have an id of their client and one of these texts."""
    names = ("id", "external_id", "role", "content_hash", "said_at", "deleted_at")
    has_text = (messages.c.user_id == user_id, rows.among(messages.c.content_hash, content_hashes))
    query = select(*(messages.c[name] for name in names)).where(*has_text, messages.c.external_id != "")
    return [StoredMessage(*row) for row in conn.execute(query)]


def undone(conn: Connection, message_ids: Sequence[str]) -> dict[Scope, list[str]]:
    """Return those deleted messages that an undo deleted, by their scope."""
    later = message_history.alias()
    newest = select(func.max(later.c.seq)).where(later.c.message_id == messages.c.id).scalar_subquery()
    is_deleted = (rows.among(messages.c.id, message_ids), messages.c.deleted_at.is_not(None))
    by_undo = (message_history.c.seq == newest, message_history.c.stage.like(f"{UNDO}%"))
    query = select(messages).join(message_history, message_history.c.message_id == messages.c.id)
    deleted = conn.execute(query.where(*is_deleted, *by_undo).order_by(messages.c.seq))
    return rows.grouped((rows.to_scope(row), row.id) for row in deleted)


def said_then(user_id: str, external_id: str, role: str, content_hash: str, said_at: datetime) -> tuple[str, str, str]:
    """Return ids of what was said through a client at a time: before it, then, and after it.

    A purge keeps the second one, which is one of the three of every line of a transcript that says the same.
    """
    client, window = external_id.partition(":")[0], said_at.timestamp() // SAME_TIME.total_seconds()
    before, then, after = (
        str(uuid.uuid5(NAMESPACE, "\0".join((user_id, client, role, content_hash, str(window + step)))))
        for step in (-1, 0, 1)
    )
    return before, then, after


def purged(conn: Connection, owner_ids: Sequence[str]) -> set[str]:
    """Return those of some ids that were purged."""
    is_named = rows.among(purged_ids.c.owner_id, owner_ids)
    return set(conn.execute(select(purged_ids.c.owner_id).where(is_named)).scalars())
