"""Read memories: current, pinned, expiring, and counted over time."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta, tzinfo
from functools import cache
from typing import Any, Literal, TypeAlias, TypeGuard

import sqlalchemy as sa

from palimpsest.core.clock import first_instant, in_zone
from palimpsest.core.errors import InputError, Remedy, raised_as
from palimpsest.core.models import CAPTURED, EXPIRES_AT, ORIGIN, PINNED, USER_NAME, Memory, Scope, has_expired
from palimpsest.core.validation import json_object, one_line
from palimpsest.store import rows
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
from palimpsest.text.display import inert, shorten, visible

# Read memories as they are now.

# The orders in which the memory that was stored, or stated, last comes first.
NEWEST = (memories.c.seq.desc(),)
LAST_STATED = (memories.c.stated_at.desc(), memories.c.seq.desc())


def read_memories(
    conn: sa.Connection,
    *conditions: sa.ColumnElement[bool] | sa.TextClause,
    order: Sequence[sa.ColumnElement[Any]] = (memories.c.seq,),
    limit: int | None = None,
) -> list[Memory]:
    """Return the memories under some conditions, at most `limit`, as they were stored or in another order."""
    query = sa.select(memories).where(*conditions).order_by(*order).limit(limit)
    return [rows.to_memory(row) for row in conn.execute(query)]


_BY_ID = sa.select(memories).where(memories.c.id.in_(rows.listed("ids")))


# Added to the numbers of what somebody deleted, so that it comes before all that was replaced.
FORGOTTEN_FROM = 10**15


def list_memories(
    conn: sa.Connection,
    scope: Scope,
    limit: int,
    *,
    before: int | None = None,
    deleted: bool = False,
    with_closed: bool = False,
) -> list[tuple[int, Memory]]:
    """Return up to `limit` memories with their row numbers, newest first, from below row `before`.

    Of deleted ones, those that somebody deleted come first, and then those that were replaced.
    `with_closed`: also those that were replaced or ended, and that nobody asked to forget.
    """
    forgotten = sa.case((memories.c.is_forgotten, memories.c.seq + FORGOTTEN_FROM), else_=memories.c.seq)
    place = (forgotten if deleted else memories.c.seq).label("place")
    is_older = () if before is None else (place < before,)
    is_wanted = rows.is_deleted(memories, deleted=deleted)
    if with_closed:
        was_closed = sa.and_(memories.c.valid_until.is_not(None), memories.c.is_forgotten.is_(False))
        is_wanted = sa.or_(is_wanted, was_closed)
    query = sa.select(memories, place).where(rows.sees(memories, scope), is_wanted, *is_older)
    return [(row.place, rows.to_memory(row)) for row in conn.execute(query.order_by(place.desc()).limit(limit))]


def count_before(conn: sa.Connection, scope: Scope, row: int) -> int:
    """Return how many living memories that the scope sees are older than a row."""
    return rows.count(conn, rows.is_living(memories, scope), memories.c.seq < row)


def metadata_keys(conn: sa.Connection, scope: Scope, *, deleted: bool | None) -> Iterator[str]:
    """Yield every key of the metadata of the memories that the scope sees; a key once for each memory that has it.

    `deleted`: of deleted memories, of living ones, or with None of both.
    """
    stored = memories.c.metadata
    query = sa.select(stored).where(rows.sees(memories, scope), sa.func.length(sa.cast(stored, sa.Text)) > len("{}"))
    if deleted is not None:
        query = query.where(rows.is_deleted(memories, deleted=deleted))
    for metadata in conn.execute(query).scalars():
        yield from metadata


def count_memories(conn: sa.Connection, scope: Scope) -> int:
    """Return how many living memories the scope sees."""
    return rows.count(conn, rows.is_living(memories, scope))


def count_living(conn: sa.Connection, user_id: str) -> int:
    """Return how many living memories a user has in all scopes. It reads an index of living memories alone."""
    return rows.count(conn, memories.c.user_id == user_id, memories.c.deleted_at.is_(None))


def memories_of(conn: sa.Connection, scope: Scope) -> list[Memory]:
    """Return the living memories of a scope, oldest first. A project's scope does not include the global ones."""
    return read_memories(conn, rows.owns(memories, scope), memories.c.deleted_at.is_(None))


def newest_of_project(conn: sa.Connection, scope: Scope, limit: int) -> list[Memory]:
    """Return up to `limit` living memories of the scope's own project, the one that was stated last first."""
    is_own = (rows.owns(memories, scope), memories.c.deleted_at.is_(None))
    return read_memories(conn, *is_own, order=LAST_STATED, limit=limit)


def near_memories(conn: sa.Connection, scope: Scope, since: datetime, until: datetime) -> list[Memory]:
    """Return the living memories that a scope sees and that name a day between two times, the oldest first.

    A scope without a project sees those of all projects.
    """
    near = sa.or_(*(memories.c[day].between(since, until) for day in ("happened_at", "valid_from", "valid_until")))
    found = read_memories(conn, memories.c.user_id == scope.user_id, memories.c.deleted_at.is_(None), near)
    scopes = {each.scope.project: replace(scope, project=scope.project or each.scope.project) for each in found}
    return [each for each in found if scope.with_general and rows.is_seen(scopes[each.scope.project], each.scope)]


# How many memories of a chain are followed. It also ends a circle, which only damage makes.
MAX_CHAIN = 1_000


def successors(conn: sa.Connection, closed: Iterable[Memory]) -> dict[str, Memory]:
    """Return the last memory of the chain that superseded each, living or deleted, by the ids of the superseded."""
    found: dict[str, Memory] = {}
    following = {memory.id: memory.superseded_by for memory in closed if memory.superseded_by}
    for _ in range(MAX_CHAIN):
        known = memories_by_id(conn, list(set(following.values())))
        met = {start: known[next_id] for start, next_id in following.items() if next_id in known}
        found |= met
        following = {start: memory.superseded_by for start, memory in met.items() if memory.superseded_by}
        if not following:
            break
    return found


def memories_by_id(conn: sa.Connection, ids: Sequence[str]) -> dict[str, Memory]:
    """Return memories, living or deleted, by id."""
    return {row.id: rows.to_memory(row) for row in rows.rows_for(conn, _BY_ID, ids)}


def rows_of(conn: sa.Connection, ids: Sequence[str]) -> dict[str, int]:
    """Return the row numbers of memories, living or deleted, by id. The larger one is that of the newer memory."""
    query = sa.select(memories.c.id, memories.c.seq).where(rows.among(memories.c.id, ids))
    return {row.id: row.seq for row in conn.execute(query)}


def memories_from(conn: sa.Connection, message_ids: Sequence[str]) -> dict[str, list[Memory]]:
    """Return the memories, living or deleted, that were learned from each message.

    Memories that only an undo deleted are left out.
    """
    learned = rows.rows_for(conn, _FROM_MESSAGES, message_ids)
    return rows.grouped((row.message_id, rows.to_memory(row)) for row in learned)


def messages_of(conn: sa.Connection, memory_ids: Sequence[str]) -> list[tuple[str, str]]:
    """Return the ids of the memories with those of the messages they were learned from: (memory, message)."""
    return [(row.memory_id, row.message_id) for row in rows.rows_for(conn, _OF, memory_ids)]


_OF = sa.select(memory_sources.c.memory_id, memory_sources.c.message_id).where(
    memory_sources.c.memory_id.in_(rows.listed("ids"))
)


def name_of_user(conn: sa.Connection, scope: Scope) -> str:
    """Return the user's name as the newest memory that tells it does, or "" if none does."""
    return str(conn.execute(_told_name(rows.scope_parts(scope)), rows.scope_values(scope)).scalar() or "")


def memories_telling_name(conn: sa.Connection, scope: Scope) -> list[Memory]:
    """Return the living memories that tell the user's name, the newest first."""
    found = conn.execute(_telling_name(rows.scope_parts(scope)), rows.scope_values(scope))
    return [rows.to_memory(row) for row in found]


@cache
def _told_name(scope: tuple[bool, ...]) -> rows.Query:
    return _telling_name(scope).with_only_columns(memories.c.metadata[USER_NAME].as_string()).limit(1)


@cache
def _telling_name(scope: tuple[bool, ...]) -> rows.Query:
    name = memories.c.metadata[USER_NAME].as_string()
    may_tell = sa.text(TELLS_A_NAME)  # in the words of the index
    told = (rows.sees_named(memories, scope), may_tell, memories.c.deleted_at.is_(None), name.is_not(None))
    return sa.select(memories).where(*told).order_by(memories.c.seq.desc())


def hashes_known(conn: sa.Connection, user_id: str, hashes: Sequence[str]) -> set[str]:
    """Return which of these hashes of texts a memory of a user has, living or deleted, of whatever scope."""
    is_known = (memories.c.user_id == user_id, rows.among(memories.c.content_hash, hashes))
    return set(conn.execute(sa.select(memories.c.content_hash).where(*is_known)).scalars())


def captured_memories(conn: sa.Connection, scope: Scope, limit: int) -> list[Memory]:
    """Return the living memories that the scope sees and that were captured and not confirmed, the newest first."""
    is_captured = memories.c.metadata[ORIGIN].as_string() == CAPTURED
    return read_memories(conn, rows.is_living(memories, scope), is_captured, order=NEWEST, limit=limit)


def learned_memories() -> sa.ColumnElement[bool]:
    """Return the condition for memories that are living, forgotten, replaced or ended: not those of an undone add."""
    columns = memories.c
    was_closed = sa.or_(columns.superseded_by.is_not(None), columns.valid_until.is_not(None))
    return sa.or_(columns.deleted_at.is_(None), columns.is_forgotten.is_(True), was_closed)


_FROM_MESSAGES = (
    sa.select(memory_sources.c.message_id, memories)
    .join(memories, memories.c.id == memory_sources.c.memory_id)
    .where(memory_sources.c.message_id.in_(rows.listed("ids")), learned_memories())
)


def counts(conn: sa.Connection, scope: Scope) -> dict[str, int]:
    """Return the number of living memories and messages of the scope, and of users of the ledger."""
    queries = {
        "memories": sa.select(sa.func.count()).where(rows.is_living(memories, scope)),
        "messages": sa.select(sa.func.count()).where(rows.is_living(messages, scope)),
        "users": sa.select(sa.func.count(vectors.c.user_id.distinct())),
    }
    return {name: conn.execute(query).scalar_one() for name, query in queries.items()}


# Memories that end at a time. They are few, and have an index of their own.


def ending_memories(conn: sa.Connection, scope: Scope) -> list[Memory]:
    """Return the living memories of exactly this scope that end at a time, the oldest first."""
    return read_memories(conn, rows.is_scope(memories, scope), *_ENDING)


def _plans(conn: sa.Connection, condition: sa.ColumnElement[bool]) -> list[Memory]:
    columns = memories.c
    return read_memories(conn, columns.deleted_at.is_(None), columns.valid_from > columns.stated_at, condition)


def plans_of(conn: sa.Connection, scope: Scope) -> list[Memory]:
    """Return the living memories of exactly a scope that were to begin after they were told, the oldest first."""
    return _plans(conn, rows.is_scope(memories, scope))


def plans_since(conn: sa.Connection, instant: datetime) -> list[Memory]:
    """Return the living memories of all users that were to begin after they were told, and not before an instant."""
    return _plans(conn, memories.c.valid_from >= instant)


def told_after(conn: sa.Connection, memory: Memory) -> list[Memory]:
    """Return the living memories of exactly the scope of one that were told later."""
    is_later = (memories.c.deleted_at.is_(None), memories.c.stated_at > memory.stated_at)
    return read_memories(conn, rows.is_scope(memories, memory.scope), *is_later)


def scopes_ending(conn: sa.Connection) -> list[tuple[Scope, Mapping[str, Any]]]:
    """Return the scope and the metadata of each living memory of all users that ends at a time."""
    columns = (memories.c[name] for name in (*rows.SCOPE, "metadata"))
    return [(rows.to_scope(row), row[-1]) for row in conn.execute(sa.select(*columns).where(*_ENDING))]


def expired_ids(conn: sa.Connection, scope: Scope, now: datetime) -> set[str]:
    """Return the ids of the living memories of the scope's user that have expired and are not closed yet."""
    found = conn.execute(_ENDING_OF_USER, {"user_id": scope.user_id})
    return {memory_id for memory_id, metadata in found if has_expired(metadata, now)}


_ENDING = (sa.text(IS_MARKED), memories.c.metadata[EXPIRES_AT].as_string().is_not(None))
_ENDING_OF_USER = sa.select(memories.c.id, memories.c.metadata).where(
    memories.c.user_id == sa.bindparam("user_id"), *_ENDING
)


# The pinned block of a scope: memories that head every summary and brief (the core memory of MemGPT), and its limit.
#
# The limit is that of the scope itself. What a scope sees may be two blocks: that of the user and that of the
# project.

# How long the pinned texts of a scope may be together: some 300 tokens, which every session pays for.
MAX_CHARS = 1_200

# The largest number that orders: one beyond the floats could not be compared with others.
MAX_PLACE = 1e9

# Metadata of a pinned memory: what it is called, what it is for, and how many characters its text may have.
LABEL, DESCRIPTION, LIMIT = "label", "description", "limit"

# How much of a label and a description is shown.
LABEL_CHARS = {LABEL: 40, DESCRIPTION: 120}

# How many pinned memories a refusal names, the longest first, and how much it quotes of each.
LISTED = 5
LISTED_CHARS = 40

# By how many characters the block of a scope grew in a write. One that changed without growing has 0 or less.
GrownBlocks = Counter[Scope]


def is_pinned(metadata: Mapping[str, Any]) -> bool:
    """Return whether a memory with this metadata is pinned: `pinned` is true, or a number that orders."""
    value = metadata.get(PINNED)
    return value is True or _is_number(value)


def is_block(metadata: Mapping[str, Any]) -> bool:
    """Return whether a pinned memory has a label, a description or a limit.

    It holds more than one fact, so no model and no newer fact closes it: agents and people edit it.
    """
    return is_pinned(metadata) and any(metadata.get(key) for key in (LABEL, DESCRIPTION, LIMIT))


def block_head(memory: Memory) -> str:
    """Return what stands before the text of a pinned memory: its address, label, description and size with its limit.

    The address has the revision, so that an edit says what it is made on. Return "" for another memory.
    """
    if not is_pinned(memory.metadata):
        return ""
    label, description = _labels(memory.metadata)
    limit = memory.metadata.get(LIMIT)
    size = f"{len(memory.text):,}/{limit:,} characters" if _is_number(limit) else ""
    about = "; ".join(filter(None, (description, size)))
    named = " ".join(filter(None, (label, about and f"({about})")))
    address = f"[{memory.id[: rows.MIN_PREFIX]}@{memory.revision}] "
    return f"{address}{named}: " if named else address


def whose(memory: Memory, scope: Scope) -> str:
    """Return "of agent NAME: " or "of run NAME: " for what a scope sees without naming that agent or run, else ""."""
    own, named = memory.scope, scope
    parts = (("agent", own.agent_id, named.agent_id), ("run", own.run_id, named.run_id))
    return "".join(f"of {part} {owner}: " for part, owner, given in parts if owner not in ("", given))


def _labels(metadata: Mapping[str, Any]) -> list[str]:
    """Return the label and the description as they are shown."""
    return [
        shorten(visible(one_line(inert(str(metadata.get(key) or "")))), chars) for key, chars in LABEL_CHARS.items()
    ]


def is_unconfirmed(metadata: Mapping[str, Any]) -> bool:
    """Return whether a memory with this metadata is from a page, a file or a tool, and nobody has confirmed it."""
    return metadata.get(ORIGIN, CAPTURED) not in (None, "", CAPTURED) and not is_pinned(metadata)


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= MAX_PLACE


def in_order(pinned: Iterable[Memory]) -> list[Memory]:
    """Return pinned memories in the order of the block: by number, then the others as they came."""
    return sorted(pinned, key=lambda memory: (memory.metadata[PINNED] is True, float(memory.metadata[PINNED])))


def pinned_memories(conn: sa.Connection, scope: Scope) -> list[Memory]:
    """Return the living memories that are pinned and that the scope sees, in the order of the block."""
    return in_order(_pinned(conn, rows.sees(memories, scope)))


def _pinned(conn: sa.Connection, condition: sa.ColumnElement[bool]) -> list[Memory]:
    marked = read_memories(conn, condition, sa.text(IS_MARKED))
    return [memory for memory in marked if is_pinned(memory.metadata)]


def note_change(blocks: GrownBlocks, old: Memory | None, new: Memory, *, is_undo: bool = False) -> None:
    """Note what the change of a memory does to the block of its scope.

    Raises InputError if a write, which is no undo, brings a `pinned` that is no order, metadata that is not JSON, which
    no search could read, or a text that is beyond its limit. What a memory of an earlier version has stays.
    """
    if not is_undo and (old is None or old.metadata != new.metadata):
        _check_metadata(new.metadata, {} if old is None else old.metadata)
    if not is_undo and _excess(new) > max(0, 0 if old is None else _excess(old)):
        head, limit = block_head(new if old is None else old) or block_head(new), new.metadata[LIMIT]
        raise InputError(
            f"{head}the text would have {len(new.text):,} characters, and its limit is {limit:,}, so nothing was "
            f"changed. Shorten it, or raise metadata.{LIMIT}"
        )
    if old is None or _shown_values(old) != _shown_values(new):
        before, after = 0 if old is None else pinned_size(old), pinned_size(new)
        if before or after:
            blocks[new.scope] += after - before


def _shown_values(memory: Memory) -> tuple[object, ...]:
    return memory.text, memory.deleted_at, *map(memory.metadata.get, (PINNED, LABEL, DESCRIPTION))


def _excess(memory: Memory) -> float:
    """Return by how many characters the text of a pinned memory is beyond its limit."""
    limit = memory.metadata.get(LIMIT)
    return len(memory.text) - limit if pinned_size(memory) and _is_number(limit) else 0


def _check_metadata(metadata: Mapping[str, Any], old: Mapping[str, Any]) -> None:
    with raised_as(InputError, "metadata is not valid JSON", ". Nothing was changed", ValueError):
        json_object(dict(metadata))
    value, limit = metadata.get(PINNED), metadata.get(LIMIT)
    if not (value is None or isinstance(value, bool) or _is_number(value) or value == old.get(PINNED)):
        raise InputError(f"metadata.{PINNED} is true, or a number that orders (1 comes first). Nothing was changed")
    if is_pinned(metadata) and limit not in (None, old.get(LIMIT)) and not (_is_number(limit) and limit > 0):
        raise InputError(f"metadata.{LIMIT} of a pinned memory is its most characters. Nothing was changed")


def check(conn: sa.Connection, blocks: GrownBlocks, *, may_exceed: bool) -> list[str]:
    """Return a note on the use of each block that a write changed.

    Raises InputError if one grew beyond the limit, unless it `may_exceed`: an undo is not refused.
    """
    notes: list[str] = []
    for scope, grown in blocks.items():
        block = _pinned(conn, rows.is_scope(memories, scope))
        chars = sum(map(pinned_size, block))
        if chars > MAX_CHARS and grown > 0 and not may_exceed:
            raise InputError(_refusal(block, chars), Remedy.UNPIN)
        beyond = ", which is too much: shorten or unpin some" if chars > MAX_CHARS else ""
        notes.append(f"pinned: {chars:,} of {MAX_CHARS:,} characters{beyond}")
    return notes


def pinned_size(memory: Memory) -> int:
    """Return how many characters a memory takes in the block; 0 if it is not in it."""
    is_in_block = memory.deleted_at is None and is_pinned(memory.metadata)
    return len(memory.text) + sum(map(len, _labels(memory.metadata))) if is_in_block else 0


def _refusal(block: list[Memory], chars: int) -> str:
    longest = sorted(block, key=pinned_size, reverse=True)[:LISTED]
    named = (
        f"[{each.id[:8]}] {pinned_size(each):,} ({shorten(one_line(each.text), LISTED_CHARS)})" for each in longest
    )
    return (
        f"what is pinned would have {chars:,} characters, and at most {MAX_CHARS:,} are shown in every session, so "
        f"nothing was changed. The longest would be: {'; '.join(named)}"
    )


# Count and read what a memory holds of a span of time.

Unit: TypeAlias = Literal["day", "month", "year"]

# How much earlier or later a day may begin somewhere than in UTC, at most.
A_DAY = timedelta(days=1)

# How much of an instant in ISO 8601 names its day, month or year.
_CHARS: dict[Unit, int] = {"day": 10, "month": 7, "year": 4}

# The condition for memories of a day, a month or a year, which is the same date in every zone.
_IS_DATE = sa.and_(memories.c.happened_at.is_not(None), memories.c.happened_precision != "")


@dataclass(frozen=True, slots=True)
class Days:
    """The days from `first` until before `end`, as they are in a zone."""

    first: date
    end: date
    zone: tzinfo | None

    def hold(self, at: sa.ColumnElement[Any]) -> sa.ColumnElement[bool]:
        """Return the condition that an exact time lies within them."""
        return sa.and_(at >= first_instant(self.first, self.zone), at < first_instant(self.end, self.zone))


def count_memories_by_time(conn: sa.Connection, scope: Scope, unit: Unit, days: Days) -> Counter[str]:
    """Return how many living memories are about each of the days, or their months or years.

    The keys are as in ISO 8601; a unit without any is not among them.
    """
    is_counted = (rows.is_living(memories, scope), *_are_about(days))
    exact = count_by_day(conn, TIME_ABOUT, days.zone, *is_counted, sa.not_(_IS_DATE))
    return _by_unit(exact + count_by_day(conn, TIME_ABOUT, UTC, *is_counted, _IS_DATE), unit)


def count_stored_memories(conn: sa.Connection, scope: Scope, unit: Unit, days: Days) -> Counter[str]:
    """Return how many of the living memories were stored on each day, in each month or year."""
    stored = memories.c.created_at
    return _by_unit(count_by_day(conn, stored, days.zone, rows.is_living(memories, scope), days.hold(stored)), unit)


def count_messages(conn: sa.Connection, scope: Scope, unit: Unit, days: Days) -> Counter[str]:
    """Return how many living messages of conversations were said on each day, in each month or year."""
    said, is_living = messages.c.said_at, rows.is_living(messages, scope)
    return _by_unit(count_by_day(conn, said, days.zone, is_living, IS_SAID, days.hold(said)), unit)


def memories_about(conn: sa.Connection, scope: Scope, days: Days, limit: int) -> list[Memory]:
    """Return up to `limit` living memories that are about some days, in the order of their times."""
    is_read = (rows.is_living(memories, scope), *_are_about(days))
    return read_memories(conn, *is_read, order=(TIME_ABOUT, memories.c.seq), limit=limit)


def conversations_within(conn: sa.Connection, scope: Scope, days: Days, limit: int) -> list[str]:
    """Return the ids of up to `limit` conversations in which something was said on some days, in that order."""
    said = messages.c.said_at
    query = sa.select(messages.c.session_id).where(rows.is_living(messages, scope), IS_SAID, days.hold(said))
    sessions = query.group_by(messages.c.session_id).order_by(sa.func.min(said), messages.c.session_id)
    return list(conn.execute(sessions.limit(limit)).scalars())


def bounds(conn: sa.Connection, scope: Scope) -> tuple[datetime, datetime] | None:
    """Return the first and the last time that living memories of a scope are about; None if there are none."""
    query = sa.select(TIME_ABOUT).where(rows.is_living(memories, scope)).limit(1)
    first = conn.execute(query.order_by(TIME_ABOUT, memories.c.seq)).scalar()
    last = conn.execute(query.order_by(TIME_ABOUT.desc(), memories.c.seq.desc())).scalar()
    return None if first is None or last is None else (first, last)


def first_stored_at(conn: sa.Connection, scope: Scope) -> datetime | None:
    """Return when the oldest row of a scope's memories was stored, deleted or not; None if there is none."""
    query = sa.select(memories.c.created_at).where(rows.sees(memories, scope)).order_by(memories.c.seq).limit(1)
    return conn.execute(query).scalar()


def living_at(
    conn: sa.Connection, scope: Scope, instant: datetime, limit: int, before: int | None
) -> list[tuple[int, str]]:
    """Return the row numbers and ids of up to `limit` memories that may have been living at an instant, newest first.

    Only the history says which were.
    """
    was_living = sa.or_(memories.c.deleted_at.is_(None), memories.c.deleted_at > instant)
    is_read = (rows.sees(memories, scope), memories.c.created_at <= instant, was_living)
    query = sa.select(memories.c.seq, memories.c.id).where(*is_read)
    query = query if before is None else query.where(memories.c.seq < before)
    return [(row.seq, row.id) for row in conn.execute(query.order_by(memories.c.seq.desc()).limit(limit))]


def _are_about(days: Days) -> tuple[sa.ColumnElement[bool], ...]:
    """Return the conditions for memories that are about some days. The first two alone can use the index."""
    begin, end = first_instant(days.first, UTC), first_instant(days.end, UTC)
    is_date = sa.and_(_IS_DATE, begin <= TIME_ABOUT, end > TIME_ABOUT)
    is_about = sa.or_(is_date, sa.and_(sa.not_(_IS_DATE), days.hold(TIME_ABOUT)))
    return begin - A_DAY <= TIME_ABOUT, end + A_DAY > TIME_ABOUT, is_about


def count_by_day(
    conn: sa.Connection, at: sa.ColumnElement[Any], zone: tzinfo | None, *conditions: sa.ColumnElement[bool]
) -> Counter[str]:
    """Return how many rows under some conditions have a time on each day of a zone. A key is "2026-11-21"."""
    minute, days = rows.minute_of(at), Counter[str]()
    for each, number in conn.execute(sa.select(minute, sa.func.count()).where(*conditions).group_by(minute)):
        days[f"{in_zone(datetime.fromisoformat(each).replace(tzinfo=UTC), zone):%Y-%m-%d}"] += number
    return days


def _by_unit(days: Counter[str], unit: Unit) -> Counter[str]:
    counts = Counter[str]()
    for day, number in days.items():
        counts[day[: _CHARS[unit]]] += number
    return counts
