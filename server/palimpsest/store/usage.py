"""Record uses of memories and the recall log."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

import sqlalchemy as sa

from palimpsest.core.clock import exact_iso
from palimpsest.core.models import Scope
from palimpsest.store import memories as memory_queries
from palimpsest.store.history import hints_of
from palimpsest.store.links import content_words
from palimpsest.store.messages import sources_of
from palimpsest.store.rows import Query, among, begins, has_row, listed, owns, scope_values, sees, to_scope
from palimpsest.store.schema import history, memories, memory_sources, memory_uses, messages, recalled, recalls

# How often and when memories were used, and what else says how well they are remembered.
#
# A memory that was never used has no row. Only what is noted here is written; the rest is read from the ledger.

# The strength of a memory that was never used (MemoryBank, section 2.3).
FIRST_STRENGTH = 1


@dataclass(frozen=True, slots=True)
class Use:
    """How often a memory was used since it was last noted, and when last. `times` is 0 if it was only stated again."""

    times: int
    last_at: datetime


class Trace(NamedTuple):
    """What says how well a memory is remembered.

    `owner_id` is the memory, or a message that it was learned from. `last_at` is when it was last used or stated, and
    `used_at` when it was last used.
    """

    owner_id: str
    memory_id: str
    last_at: datetime
    strength: int
    used_at: datetime | None
    tags: Sequence[str]
    metadata: Mapping[str, Any]


def note_uses(conn: sa.Connection, uses: Mapping[str, Use], named: Mapping[tuple[str, str], datetime]) -> None:
    """Note uses of memories by id, and of those that were recalled and then named before any other use.

    `named` has when, by the user and the beginning of the id. What was forgotten or erased meanwhile is left out.
    """
    noted = dict(uses)
    last = sa.select(recalled.c.owner_id, memory_uses.c.used_at, sa.func.max(recalls.c.at).label("recalled_at"))
    last = last.join_from(recalled, recalls).outerjoin(memory_uses, memory_uses.c.memory_id == recalled.c.owner_id)
    last = last.group_by(recalled.c.owner_id, memory_uses.c.used_at)
    for (user_id, beginning), at in named.items():
        is_meant = (begins(recalled.c.owner_id, beginning), recalls.c.user_id == user_id, recalls.c.at <= at)
        for row in conn.execute(last.where(*is_meant)).all():
            use = noted.get(row.owner_id, Use(0, row.recalled_at))
            used_at = (row.used_at, use.last_at if use.times else None)
            if all(time is None or row.recalled_at > time for time in used_at):
                noted[row.owner_id] = Use(use.times + 1, max(use.last_at, at))
    is_kept = (among(memories.c.id, sorted(noted)), memories.c.is_forgotten.is_(False))
    for memory_id in conn.execute(sa.select(memories.c.id).where(*is_kept)).scalars().all():
        _put(conn, memory_id, noted[memory_id].times, noted[memory_id].last_at)


def _put(conn: sa.Connection, memory_id: str, times: int, at: datetime) -> None:
    """Add uses to those of a memory."""
    if (known := conn.execute(_KNOWN, {"memory": memory_id}).one_or_none()) is None:
        row = {"memory_id": memory_id, "strength": FIRST_STRENGTH + times, "used_at": at}
        conn.execute(sa.insert(memory_uses), row)
        return
    values = {"strength": known.strength + times, "used_at": max(known.used_at, at)}
    conn.execute(sa.update(memory_uses).where(memory_uses.c.memory_id == memory_id).values(**values))


_KNOWN = sa.select(memory_uses).where(memory_uses.c.memory_id == sa.bindparam("memory"))


def exported(conn: sa.Connection, memory_id: str) -> dict[str, Any]:
    """Return the strength of a memory and when it was used as JSON values; nothing if it never was."""
    row = conn.execute(_KNOWN, {"memory": memory_id}).one_or_none()
    return {} if row is None else {"strength": row.strength, "used_at": exact_iso(row.used_at)}


def restore(conn: sa.Connection, memory_id: str, strength: int | None, used_at: datetime | None) -> None:
    """Store the uses of a memory that was exported; None if it had none."""
    if strength is not None and used_at is not None:
        _put(conn, memory_id, strength - FIRST_STRENGTH, used_at)


def give(conn: sa.Connection, memory_id: str, other_id: str) -> None:
    """Add the uses of a memory to those of another one, which says the same."""
    if (row := conn.execute(_KNOWN, {"memory": memory_id}).one_or_none()) is not None:
        _put(conn, other_id, row.strength - FIRST_STRENGTH, row.used_at)
        erase_uses(conn, [memory_id])


def erase_uses(conn: sa.Connection, memory_ids: Sequence[str]) -> None:
    """Erase the uses of memories."""
    conn.execute(sa.delete(memory_uses).where(among(memory_uses.c.memory_id, memory_ids)))


def traces(conn: sa.Connection, memory_ids: Sequence[str], message_ids: Sequence[str] = ()) -> list[Trace]:
    """Return the traces of living memories, and of the living memories that messages were learned as."""
    return _read(conn, _BY_ID, {"memories": memory_ids, "messages": message_ids})


def traces_in(conn: sa.Connection, scope: Scope) -> list[Trace]:
    """Return the traces of all living memories that a scope sees, and of the messages they were learned from."""
    seen = sees(memories, scope)
    return _read(conn, sa.union_all(_OF_MEMORIES.where(seen), _OF_MESSAGES.where(seen)), {})


def _read(conn: sa.Connection, query: Any, values: Mapping[str, Any]) -> list[Trace]:
    return [
        Trace(
            row.owner_id,
            row.memory_id,
            max(at for at in (row.stated_at, row.said_at, row.used_at) if at is not None),
            row.strength or FIRST_STRENGTH,
            row.used_at if (row.strength or 0) > FIRST_STRENGTH else None,
            row.tags,
            row.metadata,
        )
        for row in conn.execute(query, values)
    ]


def _trace(owner: sa.ColumnElement[Any]) -> Query:
    """Return the query for living memories and what says how well they are remembered, by owner."""
    is_source = (memory_sources.c.message_id == messages.c.id, memory_sources.c.memory_id == memories.c.id)
    last_said = sa.select(sa.func.max(messages.c.said_at)).where(*is_source).correlate(memories).scalar_subquery()
    return (
        sa.select(
            owner.label("owner_id"),
            memories.c.id.label("memory_id"),
            *(memories.c[name].label(name) for name in ("stated_at", "tags", "metadata")),
            last_said.label("said_at"),
            *(memory_uses.c[name] for name in ("strength", "used_at")),
        )
        .select_from(memories)
        .outerjoin(memory_uses, memory_uses.c.memory_id == memories.c.id)
        .where(memories.c.deleted_at.is_(None))
    )


_CITED = memory_sources.alias("cited")
_OF_MEMORIES = _trace(memories.c.id)
_OF_MESSAGES = _trace(_CITED.c.message_id).join(_CITED, _CITED.c.memory_id == memories.c.id)
_BY_ID = sa.union_all(
    _OF_MEMORIES.where(memories.c.id.in_(listed("memories"))),
    _OF_MESSAGES.where(_CITED.c.message_id.in_(listed("messages"))),
)


# The recall log: which question brought back which memories and messages, when, and who asked.
#
# It is kept for a while, so that a person can see what a memory is used for. It is no part of the memory: nothing is
# searched or learned from it, an export leaves it out, and what may quote something that was erased or forgotten
# goes.

# How many recalls of a user are kept, the newest: a question every ten minutes for a month, in about 5 MB with ten hits
# each.
MAX_RECALLS = 5_000


@dataclass(frozen=True, slots=True)
class NewRecall:
    """A question and the ids of the memories and messages that it brought back, the best first."""

    scope: Scope
    question: str
    at: datetime
    caller: str
    owner_ids: tuple[str, ...]
    all_projects: bool = False


@dataclass(frozen=True, slots=True)
class Recall:
    """When a memory or message came back, for which question in which scope, and as which hit: 1 is the best."""

    scope: Scope
    question: str
    at: datetime
    caller: str
    rank: int


def note_recalls(conn: sa.Connection, new: Sequence[NewRecall]) -> None:
    """Note recalls, without the hits that were deleted meanwhile.

    One with a hit that was erased or forgotten meanwhile is left out, because its question may say the same.
    """
    living, unspeakable = _states(conn, sorted({owner_id for recall in new for owner_id in recall.owner_ids}))
    for recall in new:
        ranks = {owner_id: rank for rank, owner_id in enumerate(recall.owner_ids, 1) if owner_id in living}
        if not ranks or not unspeakable.isdisjoint(recall.owner_ids):
            continue
        asked = {name: getattr(recall, name) for name in ("all_projects", "question", "at", "caller")}
        row = {**scope_values(recall.scope), **asked}
        seq = conn.execute(sa.insert(recalls).returning(recalls.c.seq), row).scalar_one()
        hits = [{"recall_seq": seq, "owner_id": owner_id, "rank": rank} for owner_id, rank in ranks.items()]
        conn.execute(sa.insert(recalled), hits)
    for user_id in {recall.scope.user_id for recall in new}:
        of_user = sa.select(recalls.c.seq).where(recalls.c.user_id == user_id).order_by(recalls.c.seq.desc())
        erase_numbered(conn, conn.execute(of_user.offset(MAX_RECALLS)).scalars().all())


def _states(conn: sa.Connection, owner_ids: Sequence[str]) -> tuple[set[str], set[str]]:
    """Return which memories and messages are living, and which were erased or forgotten."""
    living: set[str] = set()
    unspeakable = set(owner_ids)
    for table, is_forgotten in ((memories, memories.c.is_forgotten), (messages, sa.false())):
        columns = (table.c.id, table.c.deleted_at, is_forgotten.label("is_forgotten"))
        for row in conn.execute(sa.select(*columns).where(among(table.c.id, owner_ids))):
            living |= {row.id} if row.deleted_at is None else set()
            unspeakable -= set() if row.is_forgotten else {row.id}
    cited = memory_sources.join(memories, memories.c.id == memory_sources.c.memory_id)
    behind = sa.select(memory_sources.c.message_id).select_from(cited).where(memories.c.is_forgotten.is_(True))
    unspeakable |= set(conn.execute(behind.where(among(memory_sources.c.message_id, owner_ids))).scalars())
    return living, unspeakable


def recalls_of(
    conn: sa.Connection, scope: Scope, owner_id: str, since: datetime, limit: int, *, in_all_projects: bool
) -> Sequence[Recall]:
    """Return up to `limit` recalls of a memory or message, the newest first.

    They are those of searches that a scope sees. With `in_all_projects` they are those of the user.
    """
    of_user = recalls.c.user_id == scope.user_id
    is_seen = of_user if in_all_projects else sa.and_(sees(recalls, scope), recalls.c.all_projects.is_(False))
    query = sa.select(recalls, recalled.c.rank).join(recalled, recalled.c.recall_seq == recalls.c.seq)
    query = query.where(recalled.c.owner_id == owner_id, recalls.c.at >= since, is_seen)
    found = conn.execute(query.order_by(recalled.c.recall_seq.desc()).limit(limit))
    return [Recall(to_scope(row), row.question, row.at, row.caller, row.rank) for row in found]


def count_by_day(conn: sa.Connection, scope: Scope, since: datetime) -> Counter[str]:
    """Return how many searches a scope sees of each day from a time on, in its zone. A key is "2026-11-21"."""
    is_seen = (sees(recalls, scope), recalls.c.all_projects.is_(False))
    return memory_queries.count_by_day(conn, recalls.c.at, since.tzinfo, recalls.c.at >= since, *is_seen)


def has_outdated(conn: sa.Connection, since: datetime | None) -> bool:
    """Return whether there is a recall of before a time; with None, whether there is any."""
    return has_row(conn, _outdated(since))


def erase_outdated(conn: sa.Connection, since: datetime | None) -> None:
    """Erase the recalls of before a time; with None all."""
    erase_numbered(conn, conn.execute(_outdated(since)).scalars().all())


def _outdated(since: datetime | None) -> Query:
    query = sa.select(recalls.c.seq)
    return query if since is None else query.where(recalls.c.at < since)


def erase_recalls(conn: sa.Connection, user_id: str, owner_ids: Sequence[str], texts: Sequence[str]) -> None:
    """Erase the recalls of a user that brought back one of some memories and messages, or whose question may quote it.

    `texts` are those of the memories and messages, and their hints. A question may quote them if it has a word of
    theirs, apart from function words.
    """
    erased = set(conn.execute(sa.select(recalled.c.recall_seq).where(among(recalled.c.owner_id, owner_ids))).scalars())
    words = content_words(" ".join(texts))
    asked = conn.execute(sa.select(recalls.c.seq, recalls.c.question).where(recalls.c.user_id == user_id)).all()
    erased.update(row.seq for row in asked if content_words(row.question) & words)
    erase_numbered(conn, sorted(erased))


def erase_of_scope(conn: sa.Connection, scope: Scope) -> None:
    """Erase the recalls of searches in a scope itself. If it is a project, those of global searches stay."""
    erase_numbered(conn, conn.execute(sa.select(recalls.c.seq).where(owns(recalls, scope))).scalars().all())


def forget(conn: sa.Connection, user_id: str, memory_ids: Sequence[str]) -> None:
    """Erase the recalls that may quote memories that somebody asked to forget, or the messages behind them."""
    of_memories = (among(history.c.memory_id, memory_ids), history.c.new_memory.is_not(None))
    versions = conn.execute(sa.select(history.c.new_memory).where(*of_memories)).scalars()
    behind = [message for said in sources_of(conn, memory_ids).values() for message in said]
    texts = [*versions, *hints_of(conn, memory_ids), *(message.content for message in behind)]
    erase_recalls(conn, user_id, [*memory_ids, *(message.id for message in behind)], texts)


def erase_numbered(conn: sa.Connection, seqs: Sequence[int]) -> None:
    """Erase recalls by number."""
    conn.execute(sa.delete(recalled).where(among(recalled.c.recall_seq, seqs)))
    conn.execute(sa.delete(recalls).where(among(recalls.c.seq, seqs)))
