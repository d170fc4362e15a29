"""Convert rows of the ledger to models and back, and build the conditions that keep scopes apart."""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, replace
from datetime import datetime
from itertools import islice
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np
import sqlalchemy as sa
from sqlalchemy.engine import Dialect
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.types import Integer, TypeDecorator

from palimpsest.core import models
from palimpsest.core.clock import exact_iso
from palimpsest.core.errors import InputError
from palimpsest.core.protocols import Vector

# The columns of a scope.
SCOPE = ("user_id", "project", "agent_id", "run_id")

# The columns of a memory that say since when and until when it holds.
VALIDITY = ("valid_from", "valid_from_precision", "valid_until", "valid_until_precision")

# How many values one statement is made for, where many are worked on in turn.
BATCH = 500

# What may end a memory without changing what it says: the full stops of the scripts that have their own, and "!".
#
# NFKC makes the other forms of these one of them. A question mark is not among them, because a question says nothing.
FULL_STOPS = " .!。।॥۔։።။។"  # noqa: RUF001 - full stops are meant

ListedValues: TypeAlias = "sa.Select[Any]"

_T = TypeVar("_T")
_K = TypeVar("_K")


def batched(values: Iterable[_T], size: int = BATCH) -> Iterator[list[_T]]:
    """Split an iterable into lists, by default for one statement each."""
    iterator = iter(values)
    while batch := list(islice(iterator, size)):
        yield batch


def grouped(pairs: Iterable[tuple[_K, _T]]) -> dict[_K, list[_T]]:
    """Return the second parts of pairs by the first."""
    by_first: dict[_K, list[_T]] = {}
    for first, second in pairs:
        by_first.setdefault(first, []).append(second)
    return by_first


class UtcTime(TypeDecorator[datetime]):
    """An aware datetime, stored as ISO 8601 text in UTC with microseconds. Text order is time order."""

    impl = sa.String(32)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> str | None:
        """Return the instant as text in UTC. Raises ValueError for a naive time, which is a bug."""
        del dialect
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"a time without a zone reached the ledger: {value!r}")
        return exact_iso(value)

    def process_result_value(self, value: str | None, dialect: Dialect) -> datetime | None:
        """Return the instant as an aware datetime in UTC."""
        del dialect
        return None if value is None else datetime.fromisoformat(value)


def minute_of(at: sa.ColumnElement[Any]) -> sa.ColumnElement[str]:
    """Return the minute of a time as a column: days in a zone are made of minutes, and no database knows all zones."""
    return sa.func.substr(sa.cast(at, sa.String), 1, len("2026-11-21T09:30"))


class json_elements(FunctionElement[Any]):  # noqa: N801 - SQL functions are lower case, as in SQLAlchemy
    """The elements of a JSON array, one row each. Each database has its own function for it."""

    name = "json_elements"
    inherit_cache = True


class next_number(FunctionElement[int]):  # noqa: N801 - likewise
    """The next edit number: above all its arguments, none of which is NULL.

    A database that lets several writers in at a time counts by itself.
    """

    name = "next_number"
    type = Integer()
    inherit_cache = True


def listed(name: str) -> ListedValues:
    """Return a bound list of texts for IN, passed as one JSON array under `name`.

    The statement then has the same text for every length of the list, and is compiled and prepared once.
    """
    return sa.select(_values(sa.bindparam(name, type_=sa.JSON)))


def listed_numbers(name: str) -> ListedValues:
    """Return a bound list of integers for IN, as `listed` does of texts."""
    return sa.select(sa.cast(_values(sa.bindparam(name, type_=sa.JSON)), sa.BigInteger))


def _values(array: sa.BindParameter[Any]) -> sa.ColumnElement[Any]:
    return json_elements(array).table_valued("value").c.value


def rows_for(conn: sa.Connection, query: Query, ids: Sequence[str]) -> Sequence[Any]:
    """Return the rows of a query with a list of `ids`. No statement is run for an empty list, as half of them are."""
    return conn.execute(query, {"ids": ids}).all() if ids else ()


def among(column: sa.ColumnElement[Any], values: Iterable[Any]) -> sa.ColumnElement[bool]:
    """Return the condition that a column of texts or integers is one of some values, however many there are.

    As with `listed`, they are one parameter.
    """
    elements = _values(sa.bindparam(None, list(values), type_=sa.JSON, unique=True))
    return column.in_(sa.select(sa.cast(elements, sa.BigInteger) if isinstance(column.type, Integer) else elements))


# The fewest characters that are accepted as the beginning of an id.
MIN_PREFIX = 8


def long_enough(argument: str) -> str:
    """Return the beginning of an id that a caller gives. Raises InputError if it is too short."""
    prefix = argument.strip().lower()
    if len(prefix) < MIN_PREFIX:
        raise InputError(f"'{prefix[:80]}' is too short for an id. Use at least its first {MIN_PREFIX} characters")
    return prefix


def begins(column: sa.ColumnElement[str], prefix: str) -> sa.ColumnElement[bool]:
    """Return the condition that an id begins with hexadecimal digits. It is a range, so that it can use an index."""
    return sa.and_(column >= prefix, column < f"{prefix}g")  # "g" comes after every hexadecimal digit


def is_living(table: sa.FromClause, scope: models.Scope) -> sa.ColumnElement[bool]:
    """Return the condition for the rows that `scope` sees and that are not deleted."""
    return sa.and_(sees(table, scope), table.c.deleted_at.is_(None))


def is_deleted(table: sa.FromClause, *, deleted: bool) -> sa.ColumnElement[bool]:
    """Return the condition for the rows that are deleted, or for the others."""
    return table.c.deleted_at.is_not(None) if deleted else table.c.deleted_at.is_(None)


def count(conn: sa.Connection, *conditions: sa.ColumnElement[bool]) -> int:
    """Return how many rows of the table that conditions are about fulfil them."""
    return conn.execute(sa.select(sa.func.count()).where(*conditions)).scalar_one()


def packed(vector: Vector) -> bytes:
    """Return a vector of shape (dims,) as it is stored: float16, so that four entries fit a page of 4 kB."""
    return vector.astype(np.float16).tobytes()


def unpacked(blob: bytes) -> Vector:
    """Return a stored vector as float32 of shape (dims,)."""
    return np.frombuffer(blob, dtype=np.float16).astype(np.float32)


def unpacked_key(key: bytes, vector: bytes) -> Vector:
    """Return the stored key of an entry as a unit vector of shape (dims,). An empty key is the same as the vector."""
    return unpacked_keys([key or vector])[0]


def unpacked_keys(blobs: Sequence[bytes]) -> Vector:
    """Return stored keys as unit vectors of shape (n, dims), because half precision changes their length.

    Raises ValueError if they have different numbers of dimensions.
    """
    if len(set(map(len, blobs))) > 1:
        raise ValueError("stored vectors have different lengths")
    keys = np.frombuffer(b"".join(blobs), dtype=np.float16).reshape(len(blobs), -1).astype(np.float32)
    lengths = np.sqrt(np.einsum("ij,ij->i", keys, keys))[:, np.newaxis]
    return np.divide(keys, lengths, out=keys, where=lengths > 0)


def content_hash(text: str) -> str:
    """Return 32 hexadecimal digits that are equal for texts that differ only in case and white space.

    Descriptions of pictures do not count either, so that a message that is sent again is known, nor the marks of
    pictures that were not seen, because a hook sees the same prompt without them.
    """
    return _digest(_plain(models.PICTURES.sub(lambda mark: mark[1] or " ", text)) or models.PICTURE)


def memory_hash(text: str) -> str:
    """Return the same for the text of a memory, of which a full stop at the end says nothing either."""
    plain = _plain(text)
    return _digest(plain.rstrip(FULL_STOPS) or plain)


def _plain(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def _digest(plain: str) -> str:
    return hashlib.blake2b(plain.encode(), digest_size=16).hexdigest()


def sees(table: sa.FromClause, scope: models.Scope) -> sa.ColumnElement[bool]:
    """Return the condition for the rows that `scope` sees.

    These are the user's rows, general or of the project. If an agent is given, they are its own and those of no agent;
    if a run is given, they are those of the run. Entities belong to no agent and no run.
    """
    if not scope.with_general and not scope.project:
        return sa.false()  # of a scope that sees a project alone, whose project was taken away
    return _sees(table, scope_parts(scope), seen_values(scope))


def sees_named(table: sa.Table, parts: tuple[bool, ...]) -> sa.ColumnElement[bool]:
    """Return the condition of `sees` with the values of a scope as parameters (`scope_values`).

    `parts` is `scope_parts` of the scope. A statement can then be built once for each combination of them.
    """
    return _sees(table, parts, {**{name: sa.bindparam(name) for name in SCOPE}, "beside": "", "shared": ""})


def owns(table: sa.FromClause, scope: models.Scope) -> sa.ColumnElement[bool]:
    """Return the condition for the rows that `scope` sees and that belong to its own project and agent."""
    return sa.and_(sees(table, replace(scope, with_shared=False)), table.c.project == scope.project)


def _sees(table: sa.FromClause, parts: tuple[bool, ...], values: Mapping[str, Any]) -> sa.ColumnElement[bool]:
    has_both, has_agent, has_shared, has_run = parts
    columns = table.c
    seen = [columns.user_id == values["user_id"]]
    for name, is_given, other in (
        ("project", True, values["beside"] if has_both else None),
        ("agent_id", has_agent, values["shared"] if has_shared else None),
        ("run_id", has_run, None),
    ):
        if is_given and name in columns:
            is_own = columns[name] == values[name]
            seen.append(is_own if other is None else sa.or_(columns[name] == other, is_own))
    return sa.and_(*seen)


def scope_parts(scope: models.Scope) -> tuple[bool, ...]:
    """Return what the condition of a scope depends on.

    That is whether it sees two projects, its own and what is general; whether it names an agent, and sees what belongs
    to none beside it; and whether it names a run.
    """
    return scope.beside != scope.project, bool(scope.agent_id), scope.shared != scope.agent_id, bool(scope.run_id)


Query: TypeAlias = "sa.Select[*tuple[Any, ...]]"


def is_seen(scope: models.Scope, owner: models.Scope) -> bool:
    """Return whether `scope` sees a row of `owner`, as `sees` does in SQL.

    It is used for rows that are looked up by number. With `sees` in the same statement the query planner may go through
    all rows of the scope instead.
    """
    return (
        owner.user_id == scope.user_id
        and owner.project in (scope.beside, scope.project)
        and (scope.with_general or scope.project != "")
        and (not scope.agent_id or owner.agent_id in (scope.shared, scope.agent_id))
        and scope.run_id in ("", owner.run_id)
    )


def is_scope(table: sa.Table, scope: models.Scope) -> sa.ColumnElement[bool]:
    """Return the condition for the rows of exactly this scope."""
    return sa.and_(*(table.c[name] == value for name, value in scope_values(scope).items()))


def is_named_scope(table: sa.Table) -> sa.ColumnElement[bool]:
    """Return the condition of `is_scope` with the values of the scope as parameters (`scope_values`)."""
    return sa.and_(*(table.c[name] == sa.bindparam(name) for name in SCOPE))


def agree(one: sa.FromClause, other: sa.FromClause, names: Iterable[str] = SCOPE) -> sa.ColumnElement[bool]:
    """Return the condition that two rows have the same values of some columns, those of the scope if none are named."""
    return sa.and_(*(one.c[name] == other.c[name] for name in names))


def in_both(
    table: sa.Table, names: Sequence[str], user_id: str, project: str, other: str
) -> tuple[sa.FromClause, sa.FromClause, sa.ColumnElement[bool]]:
    """Return a table twice, and the condition for a row of one project and one of another with the same values.

    The values are those of the columns `names`, and of the agent and the run.
    """
    ours, theirs = table.alias("ours"), table.alias("theirs")
    of_projects = (ours.c.user_id == user_id, ours.c.project == project, theirs.c.project == other)
    return ours, theirs, sa.and_(*of_projects, agree(ours, theirs, ("user_id", "agent_id", "run_id", *names)))


def has_row(conn: sa.Connection, query: Query, values: Mapping[str, Any] | None = None) -> bool:
    """Return whether a query, with the values of its parameters, finds anything."""
    return conn.execute(query.limit(1), values).first() is not None


def scope_values(scope: models.Scope) -> dict[str, str]:
    """Return a scope as the values of its columns."""
    return {name: getattr(scope, name) for name in SCOPE}


def seen_values(scope: models.Scope) -> dict[str, str]:
    """Return `scope_values`, and as "beside" and "shared" the other project and agent that the scope sees."""
    return {**scope_values(scope), "beside": scope.beside, "shared": scope.shared}


def to_scope(row: sa.Row[Any]) -> models.Scope:
    """Return the scope of a row that has its columns."""
    return models.Scope(row.user_id, row.project, row.agent_id, row.run_id)


def to_memory(row: sa.Row[Any]) -> models.Memory:
    """Return a row of `memories` as a model."""
    values = {field.name: field.from_column(getattr(row, field.name)) for field in MEMORY_FIELDS}
    return models.Memory(id=row.id, scope=to_scope(row), text=row.text, **values)


def _made_of(kind: Callable[..., _T]) -> Callable[[Sequence[Sequence[Any]] | None], tuple[_T, ...]]:
    """Return what makes values of a kind of the lists of their parts, which a column may lack."""
    return lambda stored: tuple(kind(*parts) for parts in stored or ())


# Return the relations that a memory states, from `[[source, name, destination], …]`, perhaps with `since` and `until`.
to_relations = _made_of(models.Relation)


def _as_lists(values: Iterable[models.NamedEntity | models.Relation | models.Link]) -> list[list[str]]:
    """Return values as the lists of their parts, without the last ones that are None: times a relation lacks."""
    lists = [list(astuple(value)) for value in values]
    return [parts[: max(place for place, part in enumerate(parts, 1) if part is not None)] for parts in lists]


def _same(value: Any) -> Any:
    return value


class MemoryField(NamedTuple):
    """A field of a memory: its name, how its column has it, and what it is in history states that lack it."""

    name: str
    to_column: Callable[[Any], Any] = _same
    from_column: Callable[[Any], Any] = _same
    default: Any = None
    in_state: bool = True


# All fields of a memory but its id, its scope and its text. The row, the state in the history, exports and imports are
# made from this list, so a new field is added here, to `Memory`, to the table and to the lines of an export.
MEMORY_FIELDS = (
    MemoryField("metadata", dict),
    MemoryField("keywords", list, tuple),
    MemoryField("tags", list, tuple),
    MemoryField("happened_at"),
    MemoryField("happened_precision", default=""),
    MemoryField("stated_at"),
    MemoryField("valid_from"),
    MemoryField("valid_from_precision", default=""),
    MemoryField("valid_until"),
    MemoryField("valid_until_precision", default=""),
    MemoryField("superseded_by"),
    MemoryField("is_forgotten", default=False),
    MemoryField("entities", _as_lists, _made_of(models.NamedEntity)),
    MemoryField("relations", _as_lists, to_relations),
    MemoryField("context", default=""),
    MemoryField("links", _as_lists, _made_of(models.Link)),
    MemoryField("actor_id", in_state=False),
    MemoryField("role", in_state=False),
    MemoryField("created_at", in_state=False),
    MemoryField("updated_at", in_state=False),
    MemoryField("deleted_at", in_state=False),
    MemoryField("revision", in_state=False),
)

_STATE_FIELDS = tuple(field for field in MEMORY_FIELDS if field.in_state)

# What a memory names and states.
STATEMENTS = ("entities", "relations")

_TIMES = ("happened_at", "stated_at", "valid_from", "valid_until")


def memory_columns(memory: models.Memory, names: Collection[str] | None = None) -> dict[str, Any]:
    """Return the fields of a memory as the values of its columns; all of them, or those of these names."""
    return {
        field.name: field.to_column(getattr(memory, field.name))
        for field in MEMORY_FIELDS
        if names is None or field.name in names
    }


def memory_state(memory: models.Memory) -> dict[str, Any]:
    """Return what a row of history keeps of a memory besides its text, as JSON values."""
    columns = memory_columns(memory, [field.name for field in _STATE_FIELDS])
    return {name: value.isoformat() if isinstance(value, datetime) else value for name, value in columns.items()}


def state_values(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a living memory that a state, or an item of an export, gives. Times stay as they are."""
    values = {field.name: field.from_column(state.get(field.name, field.default)) for field in _STATE_FIELDS}
    return {**values, "is_forgotten": False}


def with_state(memory: models.Memory, text: str, state: Mapping[str, Any], updated_at: datetime) -> models.Memory:
    """Return a memory as it was after a row of history.

    A row that an import brought may not say what the text names. If the text is the present one, it names the same.
    """
    values = state_values(state)
    values |= {name: to_time(values[name]) for name in _TIMES}
    if text == memory.text:
        values |= {name: getattr(memory, name) for name in STATEMENTS if name not in state}
    stated_at = values.pop("stated_at") or memory.stated_at
    return replace(memory, text=text, stated_at=stated_at, updated_at=updated_at, deleted_at=None, **values)


def to_time(value: str | None) -> datetime | None:
    """Return a time in the state of a row of history."""
    return datetime.fromisoformat(value) if value else None


def to_message(row: sa.Row[Any]) -> models.Message:
    """Return a row of `messages` as a model."""
    return models.Message(scope=to_scope(row), **{name: getattr(row, name) for name in MESSAGE_FIELDS})


_WHAT_IS_SAID = ("role", "name", "content", "external_id", "session_id", "said_at")

# All fields of a message but its scope.
MESSAGE_FIELDS = ("id", *_WHAT_IS_SAID, "created_at", "deleted_at")


def to_history(row: sa.Row[Any], sources: tuple[str, ...]) -> models.Version:
    """Return a row of `history` as a model."""
    same = ("id", "memory_id", "old_memory", "new_memory", "created_at", "updated_at", "is_deleted", "actor_id", "role")
    return models.Version(
        **{name: getattr(row, name) for name in same},
        event=models.Event(row.event),
        provenance=models.Provenance(row.stage, row.model, row.prompt, row.caller),
        sources=sources,
        edit=row.change,
        labels=models.labels_of(row.state),
        said_at=to_time(row.state.get("stated_at")),
        superseded_by=row.state.get("superseded_by") if row.is_deleted else None,
    )


def to_summary(row: sa.Row[Any]) -> models.Summary:
    """Return a row of `summaries` as a model."""
    return models.Summary(to_scope(row), row.kind, row.text, row.seq, row.created_at)
