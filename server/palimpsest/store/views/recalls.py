"""The recall log: which question brought back which memories and messages, when, and who asked.

It is kept for a while, so that a person can see what a memory is used for. It is no part of the memory: nothing is
searched or learned from it, an export leaves it out, and what may quote something that was erased or forgotten goes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, Select, and_, delete, func, insert, select

from palimpsest.core.models import Scope
from palimpsest.store.mapping import chunks, local_day, minute_of, scope_values, sees, to_scope
from palimpsest.store.schema import history, memories, memory_sources, messages
from palimpsest.store.views.care.link_care import content_words
from palimpsest.store.views.tables import recalled, recalls

MAX_RECALLS = 5_000
"""How many recalls of a user are kept, the newest. Set by hand: a question every ten minutes for a month, in about 5 MB
with ten hits each."""


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


def note(conn: Connection, new: Sequence[NewRecall]) -> None:
    """Note recalls, without the hits that were deleted meanwhile.

    One with a hit that was erased or forgotten meanwhile is left out, because its question may say the same.
    """
    living, unspeakable = _states(conn, sorted({owner_id for recall in new for owner_id in recall.owner_ids}))
    for recall in new:
        ranks = {owner_id: rank for rank, owner_id in enumerate(recall.owner_ids, 1) if owner_id in living}
        if not ranks or not unspeakable.isdisjoint(recall.owner_ids):
            continue
        row = {
            **scope_values(recall.scope),
            "all_projects": recall.all_projects,
            "question": recall.question,
            "at": recall.at,
            "caller": recall.caller,
        }
        seq = conn.execute(insert(recalls).returning(recalls.c.seq), row).scalar_one()
        hits = [{"recall_seq": seq, "owner_id": owner_id, "rank": rank} for owner_id, rank in ranks.items()]
        conn.execute(insert(recalled), hits)
    for user_id in {recall.scope.user_id for recall in new}:
        of_user = select(recalls.c.seq).where(recalls.c.user_id == user_id).order_by(recalls.c.seq.desc())
        erase_numbered(conn, conn.execute(of_user.offset(MAX_RECALLS)).scalars().all())


def _states(conn: Connection, owner_ids: Sequence[str]) -> tuple[set[str], set[str]]:
    """Return which memories and messages are living, and which were erased or forgotten."""
    living: set[str] = set()
    unspeakable = set(owner_ids)
    for chunk in chunks(owner_ids):
        of_memories = select(memories.c.id, memories.c.deleted_at, memories.c.is_forgotten)
        for row in conn.execute(of_memories.where(memories.c.id.in_(chunk))):
            living |= {row.id} if row.deleted_at is None else set()
            unspeakable -= set() if row.is_forgotten else {row.id}
        of_messages = select(messages.c.id, messages.c.deleted_at).where(messages.c.id.in_(chunk))
        for row in conn.execute(of_messages):
            living |= {row.id} if row.deleted_at is None else set()
            unspeakable.discard(row.id)
        cited = memory_sources.join(memories, memories.c.id == memory_sources.c.memory_id)
        behind = select(memory_sources.c.message_id).select_from(cited).where(memories.c.is_forgotten.is_(True))
        unspeakable |= set(conn.execute(behind.where(memory_sources.c.message_id.in_(chunk))).scalars())
    return living, unspeakable


def recalls_of(
    conn: Connection, scope: Scope, owner_id: str, since: datetime, limit: int, *, in_all_projects: bool
) -> Sequence[Recall]:
    """Return up to `limit` recalls of a memory or message, the newest first.

    They are those of searches that a scope sees. With `in_all_projects` they are those of the user.
    """
    of_user = recalls.c.user_id == scope.user_id
    is_seen = of_user if in_all_projects else and_(sees(recalls, scope), recalls.c.all_projects.is_(False))
    query = (
        select(recalls, recalled.c.rank)
        .join(recalled, recalled.c.recall_seq == recalls.c.seq)
        .where(recalled.c.owner_id == owner_id, recalls.c.at >= since, is_seen)
        .order_by(recalled.c.recall_seq.desc())
        .limit(limit)
    )
    return [Recall(to_scope(row), row.question, row.at, row.caller, row.rank) for row in conn.execute(query)]


def count_by_day(conn: Connection, scope: Scope, since: datetime) -> Counter[str]:
    """Return how many searches a scope sees of each day from a time on, in its zone. A key is "2026-11-21"."""
    minute = minute_of(recalls.c.at)
    is_seen = and_(sees(recalls, scope), recalls.c.all_projects.is_(False))
    query = select(minute, func.count()).where(recalls.c.at >= since, is_seen).group_by(minute)
    days: Counter[str] = Counter()
    for each, number in conn.execute(query):
        days[local_day(each, since.tzinfo)] += number
    return days


def has_outdated(conn: Connection, since: datetime | None) -> bool:
    """Return whether there is a recall of before a time; with None, whether there is any."""
    return conn.execute(_outdated(since).limit(1)).first() is not None


def erase_outdated(conn: Connection, since: datetime | None) -> None:
    """Erase the recalls of before a time; with None all."""
    outdated = _outdated(since)
    conn.execute(delete(recalled).where(recalled.c.recall_seq.in_(outdated)))
    conn.execute(delete(recalls).where(recalls.c.seq.in_(outdated)))


def _outdated(since: datetime | None) -> Select[tuple[int]]:
    query = select(recalls.c.seq)
    return query if since is None else query.where(recalls.c.at < since)


def erase(conn: Connection, user_id: str, owner_ids: Sequence[str], texts: Sequence[str]) -> None:
    """Erase the recalls of a user that brought back one of some memories and messages, or whose question may quote it.

    `texts` are those of the memories and messages. A question may quote them if it has a word of theirs, apart from
    function words.
    """
    erased: set[int] = set()
    for chunk in chunks(owner_ids):
        erased.update(conn.execute(select(recalled.c.recall_seq).where(recalled.c.owner_id.in_(chunk))).scalars())
    words = content_words(" ".join(texts))
    asked = conn.execute(select(recalls.c.seq, recalls.c.question).where(recalls.c.user_id == user_id)).all()
    erased.update(row.seq for row in asked if content_words(row.question) & words)
    erase_numbered(conn, sorted(erased))


def erase_of_scope(conn: Connection, scope: Scope) -> None:
    """Erase the recalls of searches in a scope itself. If it is a project, those of global searches stay."""
    of_scope = sees(recalls, scope) & (recalls.c.project == scope.project)
    erase_numbered(conn, conn.execute(select(recalls.c.seq).where(of_scope)).scalars().all())


def forget(conn: Connection, user_id: str, memory_ids: Sequence[str]) -> None:
    """Erase the recalls that may quote memories that somebody asked to forget, or the messages behind them."""
    owner_ids, texts = list(memory_ids), list[str]()
    for chunk in chunks(memory_ids):
        versions = select(history.c.new_memory).where(history.c.memory_id.in_(chunk), history.c.new_memory.is_not(None))
        texts += conn.execute(versions).scalars()
        behind = memory_sources.join(messages, messages.c.id == memory_sources.c.message_id)
        query = select(messages.c.id, messages.c.content).select_from(behind)
        for row in conn.execute(query.where(memory_sources.c.memory_id.in_(chunk))):
            owner_ids.append(row.id)
            texts.append(row.content)
    erase(conn, user_id, owner_ids, texts)


def strays(conn: Connection) -> list[int]:
    """Return the recalls that name a memory or message that there is not, or none."""
    known = (recalled.c.owner_id.not_in(select(table.c.id)) for table in (memories, messages))
    lost = set(conn.execute(select(recalled.c.recall_seq).where(*known)).scalars())
    empty = select(recalls.c.seq).where(recalls.c.seq.not_in(select(recalled.c.recall_seq)))
    return sorted(lost.union(conn.execute(empty).scalars()))


def erase_numbered(conn: Connection, seqs: Sequence[int]) -> None:
    """Erase recalls by number."""
    for chunk in chunks(seqs):
        conn.execute(delete(recalled).where(recalled.c.recall_seq.in_(chunk)))
        conn.execute(delete(recalls).where(recalls.c.seq.in_(chunk)))
