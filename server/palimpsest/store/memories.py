"""Read memories: current, pinned, expiring, and counted over time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo
from functools import cache
from typing import Any, Literal, TypeAlias

from sqlalchemy import ColumnElement, Connection, Text, and_, bindparam, cast, func, not_, or_, select, text

from palimpsest.core.clock import first_instant
from palimpsest.core.errors import InputError, Remedy
from palimpsest.core.models import CAPTURED, EXPIRES_AT, ORIGIN, PINNED, USER_NAME, Memory, Scope, has_expired
from palimpsest.core.validation import json_object, one_line
from palimpsest.store.rows import (
    Query,
    among,
    is_living,
    is_scope,
    listed,
    local_day,
    minute_of,
    rows_for,
    scope_parts,
    scope_values,
    sees,
    sees_named,
    to_memory,
    to_scope,
)
from palimpsest.store.schema import (
    IS_MARKED,
    IS_SAID,
    TELLS_A_NAME,
    TIME_ABOUT,
    memories,
    memory_sources,
    messages,
    vectors,
)
from palimpsest.text.display import shorten

# Read memories as they are now.

_BY_ID = select(memories).where(memories.c.id.in_(listed("ids")))


def list_memories(
    conn: Connection, scope: Scope, limit: int, *, before: int | None = None, deleted: bool = False
) -> list[tuple[int, Memory]]:
    """Return up to `limit` memories with their row numbers, newest first, from below row `before`."""
    query = (
        select(memories)
        .where(
            sees(memories, scope),
            memories.c.deleted_at.is_not(None) if deleted else memories.c.deleted_at.is_(None),
        )
        .order_by(memories.c.seq.desc())
        .limit(limit)
    )
    if before is not None:
        query = query.where(memories.c.seq < before)
    return [(row.seq, to_memory(row)) for row in conn.execute(query)]


def count_before(conn: Connection, scope: Scope, row: int) -> int:
    """Return how many living memories that the scope sees are older than a row."""
    is_older = (is_living(memories, scope), memories.c.seq < row)
    return conn.execute(select(func.count()).select_from(memories).where(*is_older)).scalar_one()


def metadata_keys(conn: Connection, scope: Scope, *, deleted: bool | None) -> Iterator[str]:
    """Yield every key of the metadata of the memories that the scope sees; a key once for each memory that has it.

    `deleted`: of deleted memories, of living ones, or with None of both.
    """
    stored = memories.c.metadata
    query = select(stored).where(sees(memories, scope), func.length(cast(stored, Text)) > len("{}"))
    if deleted is not None:
        query = query.where(memories.c.deleted_at.is_not(None) if deleted else memories.c.deleted_at.is_(None))
    for metadata in conn.execute(query).scalars():
        yield from metadata


def count_memories(conn: Connection, scope: Scope) -> int:
    """Return how many living memories the scope sees."""
    query = select(func.count()).where(is_living(memories, scope))
    return conn.execute(query).scalar_one()


def count_living(conn: Connection, user_id: str) -> int:
    """Return how many living memories a user has in all scopes. It reads an index of living memories alone."""
    query = select(func.count()).where(memories.c.user_id == user_id, memories.c.deleted_at.is_(None))
    return conn.execute(query).scalar_one()


def memories_of(conn: Connection, scope: Scope) -> list[Memory]:
    """Return the living memories of a scope, oldest first. A project's scope does not include the global ones."""
    query = select(memories).where(
        sees(memories, scope), memories.c.project == scope.project, memories.c.deleted_at.is_(None)
    )
    return [to_memory(row) for row in conn.execute(query.order_by(memories.c.seq))]


def newest_of_project(conn: Connection, scope: Scope, limit: int) -> list[Memory]:
    """Return up to `limit` living memories of the scope's own project, the one that was stated last first."""
    query = select(memories).where(
        sees(memories, scope), memories.c.project == scope.project, memories.c.deleted_at.is_(None)
    )
    newest = query.order_by(memories.c.stated_at.desc(), memories.c.seq.desc()).limit(limit)
    return [to_memory(row) for row in conn.execute(newest)]


def projects_of(conn: Connection, user_id: str) -> list[str]:
    """Return the projects in which a user has living memories. "" stands for no project."""
    query = (
        select(memories.c.project)
        .where(memories.c.user_id == user_id, memories.c.deleted_at.is_(None))
        .distinct()
        .order_by(memories.c.project)
    )
    return list(conn.execute(query).scalars())


def memories_by_id(conn: Connection, ids: Sequence[str]) -> dict[str, Memory]:
    """Return memories, living or deleted, by id."""
    return {row.id: to_memory(row) for row in rows_for(conn, _BY_ID, ids)}


def rows_of(conn: Connection, ids: Sequence[str]) -> dict[str, int]:
    """Return the row numbers of memories, living or deleted, by id. The larger one is that of the newer memory."""
    query = select(memories.c.id, memories.c.seq).where(among(memories.c.id, ids))
    return {row.id: row.seq for row in conn.execute(query)}


def memories_from(conn: Connection, message_ids: Sequence[str]) -> dict[str, list[Memory]]:
    """Return the memories, living or deleted, that were learned from each message.

    Memories that only an undo deleted are left out.
    """
    by_message: dict[str, list[Memory]] = {}
    for row in rows_for(conn, _FROM_MESSAGES, message_ids):
        by_message.setdefault(row.message_id, []).append(to_memory(row))
    return by_message


def messages_of(conn: Connection, memory_ids: Sequence[str]) -> list[tuple[str, str]]:
    """Return the ids of the memories with those of the messages they were learned from: (memory, message)."""
    return [(row.memory_id, row.message_id) for row in rows_for(conn, _OF, memory_ids)]


_OF = select(memory_sources.c.memory_id, memory_sources.c.message_id).where(
    memory_sources.c.memory_id.in_(listed("ids"))
)


def name_of_user(conn: Connection, scope: Scope) -> str:
    """Return the user's name as the newest memory that tells it does, or "" if none does."""
    return str(conn.execute(_told_name(scope_parts(scope)), scope_values(scope)).scalar() or "")


def memories_telling_name(conn: Connection, scope: Scope) -> list[Memory]:
    """Return the living memories that tell the user's name, the newest first."""
    return [to_memory(row) for row in conn.execute(_telling_name(scope_parts(scope)), scope_values(scope))]


@cache
def _told_name(scope: tuple[bool, bool, bool]) -> Query:
    name = memories.c.metadata[USER_NAME].as_string()
    return _telling_name(scope).with_only_columns(name).limit(1)


@cache
def _telling_name(scope: tuple[bool, bool, bool]) -> Query:
    name = memories.c.metadata[USER_NAME].as_string()
    may_tell = text(TELLS_A_NAME)  # in the words of the index
    told = (sees_named(memories, scope), may_tell, memories.c.deleted_at.is_(None), name.is_not(None))
    return select(memories).where(*told).order_by(memories.c.seq.desc())


def hashes_known(conn: Connection, user_id: str, hashes: Sequence[str]) -> set[str]:
    """Return which of these hashes of texts a memory of a user has, living or deleted, of whatever scope."""
    query = select(memories.c.content_hash).where(memories.c.user_id == user_id, among(memories.c.content_hash, hashes))
    return set(conn.execute(query).scalars())


def captured_memories(conn: Connection, scope: Scope, limit: int) -> list[Memory]:
    """Return the living memories that the scope sees and that were captured and not confirmed, the newest first."""
    is_captured = memories.c.metadata[ORIGIN].as_string() == CAPTURED
    query = select(memories).where(is_living(memories, scope), is_captured)
    return [to_memory(row) for row in conn.execute(query.order_by(memories.c.seq.desc()).limit(limit))]


def learned_memories() -> ColumnElement[bool]:
    """Return the condition for memories that are living, forgotten, replaced or ended: not those of an undone add."""
    columns = memories.c
    was_closed = or_(columns.superseded_by.is_not(None), columns.valid_until.is_not(None))
    return or_(columns.deleted_at.is_(None), columns.is_forgotten.is_(True), was_closed)


_FROM_MESSAGES = (
    select(memory_sources.c.message_id, memories)
    .join(memories, memories.c.id == memory_sources.c.memory_id)
    .where(memory_sources.c.message_id.in_(listed("ids")), learned_memories())
)


def counts(conn: Connection, scope: Scope) -> dict[str, int]:
    """Return the number of living memories, deleted memories and messages of the scope, and of users of the ledger."""
    queries = {
        "memories": select(func.count()).where(is_living(memories, scope)),
        "deleted": select(func.count()).where(sees(memories, scope), memories.c.deleted_at.is_not(None)),
        "messages": select(func.count()).where(is_living(messages, scope)),
        "users": select(func.count(vectors.c.user_id.distinct())),
    }
    return {name: conn.execute(query).scalar_one() for name, query in queries.items()}


# Memories that end at a time. They are few, and have an index of their own.


def ending_memories(conn: Connection, scope: Scope) -> list[Memory]:
    """Return the living memories of exactly this scope that end at a time, the oldest first."""
    query = select(memories).where(is_scope(memories, scope), *_ENDING).order_by(memories.c.seq)
    return [to_memory(row) for row in conn.execute(query)]


def scopes_ending(conn: Connection) -> list[tuple[Scope, Mapping[str, Any]]]:
    """Return the scope and the metadata of each living memory of all users that ends at a time."""
    columns = (memories.c[name] for name in ("user_id", "project", "agent_id", "run_id", "metadata"))
    return [(to_scope(row), row[-1]) for row in conn.execute(select(*columns).where(*_ENDING))]


def expired_ids(conn: Connection, scope: Scope, now: datetime) -> set[str]:
    """Return the ids of the living memories of the scope's user that have expired and are not closed yet."""
    rows = conn.execute(_ENDING_OF_USER, {"user_id": scope.user_id})
    return {memory_id for memory_id, metadata in rows if has_expired(metadata, now)}


_ENDING = (text(IS_MARKED), memories.c.metadata[EXPIRES_AT].as_string().is_not(None))
_ENDING_OF_USER = select(memories.c.id, memories.c.metadata).where(memories.c.user_id == bindparam("user_id"), *_ENDING)


# The pinned block of a scope: memories that head every summary and brief (the core memory of MemGPT), and its limit.
#
# The limit is that of the scope itself. What a scope sees may be two blocks: that of the user and that of the
# project.

MAX_CHARS = 1_200
"""How long the pinned texts of a scope may be together: some 300 tokens, which every session pays for."""

MAX_PLACE = 1e9
"""The largest number that orders: one beyond the floats could not be compared with others."""

LISTED = 5
LISTED_CHARS = 40
"""How many of them a refusal names, the longest first, and how much it quotes of each."""

GrownBlocks = Counter[Scope]
"""By how many characters the block of a scope grew in a write. One that changed without growing has 0 or less."""


def is_pinned(metadata: Mapping[str, Any]) -> bool:
    """Return whether a memory with this metadata is pinned: `pinned` is true, or a number that orders."""
    value = metadata.get(PINNED)
    return value is True or _is_number(value)


def is_unconfirmed(metadata: Mapping[str, Any]) -> bool:
    """Return whether a memory with this metadata is from a page, a file or a tool, and nobody has confirmed it."""
    return metadata.get(ORIGIN, CAPTURED) not in (None, "", CAPTURED) and not is_pinned(metadata)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= MAX_PLACE


def in_order(pinned: Iterable[Memory]) -> list[Memory]:
    """Return pinned memories in the order of the block: by number, then the others as they came."""

    def place(memory: Memory) -> tuple[bool, float]:
        value = memory.metadata[PINNED]
        return value is True, 0.0 if value is True else float(value)

    return sorted(pinned, key=place)


def pinned_memories(conn: Connection, scope: Scope) -> list[Memory]:
    """Return the living memories that are pinned and that the scope sees, in the order of the block."""
    query = select(memories).where(sees(memories, scope), text(IS_MARKED)).order_by(memories.c.seq)
    return in_order(memory for memory in map(to_memory, conn.execute(query)) if is_pinned(memory.metadata))


def note_change(blocks: GrownBlocks, old: Memory | None, new: Memory, *, is_undo: bool = False) -> None:
    """Note what the change of a memory does to the block of its scope.

    Raises InputError if a write, which is no undo, brings a `pinned` that is no order, or metadata that is not JSON,
    which no search could read. What a memory of an earlier version has stays.
    """
    if not is_undo and (old is None or old.metadata != new.metadata):
        _check_metadata(new.metadata, None if old is None else old.metadata.get(PINNED))
    value = new.metadata.get(PINNED)
    if old is None or (old.text, old.metadata.get(PINNED), old.deleted_at) != (new.text, value, new.deleted_at):
        before, after = 0 if old is None else _size(old), _size(new)
        if before or after:
            blocks[new.scope] += after - before


def _check_metadata(metadata: Mapping[str, Any], old_value: object) -> None:
    try:
        json_object(dict(metadata))
    except ValueError as error:
        raise InputError(f"metadata is not valid JSON: {error}. Nothing was changed") from error
    value = metadata.get(PINNED)
    if not (value is None or isinstance(value, bool) or _is_number(value) or value == old_value):
        raise InputError(f"metadata.{PINNED} is true, or a number that orders (1 comes first). Nothing was changed")


def notes_on_long_blocks(conn: Connection, user_id: str) -> list[str]:
    """Return a note on each block of a user that is beyond the limit, as one may be after an import."""
    blocks: Counter[Scope] = Counter()
    query = select(memories).where(memories.c.user_id == user_id, text(IS_MARKED))
    for memory in map(to_memory, conn.execute(query)):
        blocks[memory.scope] += _size(memory)
    return [f"{scope}: {_use(chars)}" for scope, chars in blocks.items() if chars > MAX_CHARS]


def check(conn: Connection, blocks: GrownBlocks, *, may_exceed: bool) -> list[str]:
    """Return a note on the use of each block that a write changed.

    Raises InputError if one grew beyond the limit, unless it `may_exceed`: an undo is not refused.
    """
    notes: list[str] = []
    for scope, grown in blocks.items():
        query = select(memories).where(is_scope(memories, scope), text(IS_MARKED))
        block = [memory for memory in map(to_memory, conn.execute(query)) if is_pinned(memory.metadata)]
        chars = sum(map(_size, block))
        if chars > MAX_CHARS and grown > 0 and not may_exceed:
            raise InputError(_refusal(block, chars), Remedy.UNPIN)
        notes.append(_use(chars))
    return notes


def _use(chars: int) -> str:
    beyond = ", which is too much: shorten or unpin some" if chars > MAX_CHARS else ""
    return f"pinned: {chars:,} of {MAX_CHARS:,} characters{beyond}"


def _size(memory: Memory) -> int:
    """Return how many characters a memory takes in the block; 0 if it is not in it."""
    return len(memory.text) if memory.deleted_at is None and is_pinned(memory.metadata) else 0


def _refusal(block: list[Memory], chars: int) -> str:
    longest = sorted(block, key=_size, reverse=True)
    lines = [
        f"[{memory.id[:8]}] {_size(memory):,} ({shorten(one_line(memory.text), LISTED_CHARS)})"
        for memory in longest[:LISTED]
    ]
    rest = sum(map(_size, longest[LISTED:]))
    lines += [f"{len(longest) - LISTED} others {rest:,}"] if rest else []
    return (
        f"what is pinned would have {chars:,} characters, and at most {MAX_CHARS:,} are shown in every session, so "
        f"nothing was changed. They would be: {'; '.join(lines)}"
    )


# Count and read what a memory holds of a span of time.

Unit: TypeAlias = Literal["day", "month", "year"]

A_DAY = timedelta(days=1)
"""How much earlier or later a day may begin somewhere than in UTC, at most."""

_CHARS: dict[Unit, int] = {"day": 10, "month": 7, "year": 4}
"""How much of an instant in ISO 8601 names its day, month or year."""

_IS_DATE = and_(memories.c.happened_at.is_not(None), memories.c.happened_precision != "")
"""The condition for memories of a day, a month or a year, which is the same date in every zone."""


@dataclass(frozen=True, slots=True)
class Days:
    """The days from `first` until before `end`, as they are in a zone."""

    first: date
    end: date
    zone: tzinfo | None

    def hold(self, at: ColumnElement[Any]) -> ColumnElement[bool]:
        """Return the condition that an exact time lies within them."""
        return and_(at >= first_instant(self.first, self.zone), at < first_instant(self.end, self.zone))


def count_memories_by_time(conn: Connection, scope: Scope, unit: Unit, days: Days) -> Counter[str]:
    """Return how many living memories are about each of the days, or their months or years.

    The keys are as in ISO 8601; a unit without any is not among them.
    """
    is_counted = (is_living(memories, scope), *_are_about(days))
    return _counted(conn, TIME_ABOUT, unit, (*is_counted, not_(_IS_DATE)), days.zone) + _counted(
        conn, TIME_ABOUT, unit, (*is_counted, _IS_DATE), UTC
    )


def count_stored_memories(conn: Connection, scope: Scope, unit: Unit, days: Days) -> Counter[str]:
    """Return how many of the living memories were stored on each day, in each month or year."""
    stored = memories.c.created_at
    is_counted = (is_living(memories, scope), days.hold(stored))
    return _counted(conn, stored, unit, is_counted, days.zone)


def count_messages(conn: Connection, scope: Scope, unit: Unit, days: Days) -> Counter[str]:
    """Return how many living messages of conversations were said on each day, in each month or year."""
    said = messages.c.said_at
    is_counted = (is_living(messages, scope), IS_SAID, days.hold(said))
    return _counted(conn, said, unit, is_counted, days.zone)


def memories_about(conn: Connection, scope: Scope, days: Days, limit: int) -> list[Memory]:
    """Return up to `limit` living memories that are about some days, in the order of their times."""
    query = (
        select(memories)
        .where(is_living(memories, scope), *_are_about(days))
        .order_by(TIME_ABOUT, memories.c.seq)
        .limit(limit)
    )
    return [to_memory(row) for row in conn.execute(query)]


def conversations_within(conn: Connection, scope: Scope, days: Days, limit: int) -> list[str]:
    """Return the ids of up to `limit` conversations in which something was said on some days, in that order."""
    said = messages.c.said_at
    query = (
        select(messages.c.session_id)
        .where(is_living(messages, scope), IS_SAID, days.hold(said))
        .group_by(messages.c.session_id)
        .order_by(func.min(said), messages.c.session_id)
        .limit(limit)
    )
    return list(conn.execute(query).scalars())


def bounds(conn: Connection, scope: Scope) -> tuple[datetime, datetime] | None:
    """Return the first and the last time that living memories of a scope are about; None if there are none."""
    query = select(TIME_ABOUT).where(is_living(memories, scope)).limit(1)
    first = conn.execute(query.order_by(TIME_ABOUT, memories.c.seq)).scalar()
    last = conn.execute(query.order_by(TIME_ABOUT.desc(), memories.c.seq.desc())).scalar()
    return None if first is None or last is None else (first, last)


def first_stored_at(conn: Connection, scope: Scope) -> datetime | None:
    """Return when the oldest row of a scope's memories was stored, deleted or not; None if there is none."""
    query = select(memories.c.created_at).where(sees(memories, scope)).order_by(memories.c.seq).limit(1)
    return conn.execute(query).scalar()


def living_at(
    conn: Connection, scope: Scope, instant: datetime, limit: int, before: int | None
) -> list[tuple[int, str]]:
    """Return the row numbers and ids of up to `limit` memories that may have been living at an instant, newest first.

    Only the history says which were.
    """
    query = (
        select(memories.c.seq, memories.c.id)
        .where(
            sees(memories, scope),
            memories.c.created_at <= instant,
            or_(memories.c.deleted_at.is_(None), memories.c.deleted_at > instant),
        )
        .order_by(memories.c.seq.desc())
        .limit(limit)
    )
    if before is not None:
        query = query.where(memories.c.seq < before)
    return [(row.seq, row.id) for row in conn.execute(query)]


def _are_about(days: Days) -> tuple[ColumnElement[bool], ...]:
    """Return the conditions for memories that are about some days. The first two alone can use the index."""
    begin, end = first_instant(days.first, UTC), first_instant(days.end, UTC)
    earliest, latest = begin - A_DAY, end + A_DAY
    is_date = and_(_IS_DATE, begin <= TIME_ABOUT, end > TIME_ABOUT)
    return (
        earliest <= TIME_ABOUT,
        latest > TIME_ABOUT,
        or_(is_date, and_(not_(_IS_DATE), days.hold(TIME_ABOUT))),
    )


def _counted(
    conn: Connection,
    at: ColumnElement[Any],
    unit: Unit,
    is_counted: Sequence[ColumnElement[bool]],
    zone: tzinfo | None,
) -> Counter[str]:
    minute, counts = minute_of(at), Counter[str]()
    for each, number in conn.execute(select(minute, func.count()).where(*is_counted).group_by(minute)):
        counts[local_day(each, zone)[: _CHARS[unit]]] += number
    return counts
