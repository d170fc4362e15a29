"""Find relations that can have one value only, and that living memories give several."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from palimpsest.core.models import Memory, Scope, has_expired
from palimpsest.learn.engine import Engine
from palimpsest.store.graph.groups import roots_of
from palimpsest.store.graph.matching.conflicts import RelationRow, merged_into, relations_like, relations_named
from palimpsest.store.graph.names import as_shown
from palimpsest.store.mapping import is_seen
from palimpsest.store.queries import memories as memory_queries
from palimpsest.text.relations import SINGLE_VALUED

MAX_READ = 100_000
"""How many relations are read, the newest of them. Set by hand: what a long life says, in less than a second."""


@dataclass(frozen=True, slots=True)
class Value:
    """A value of a relation, and the memories that state it, the newest first."""

    name: str
    memories: tuple[Memory, ...]


@dataclass(frozen=True, slots=True)
class Conflict:
    """A relation of a source that has several values, such as Alice, lives in. The value stated last comes first."""

    source: str
    relation: str
    values: tuple[Value, ...]


@dataclass(slots=True)
class _Stated:
    """What living memories say of a source by one relation: for each value their ids, the newest first."""

    source_id: str
    relation: str
    values: dict[str, list[str]] = field(default_factory=dict[str, list[str]])


@dataclass(frozen=True, slots=True)
class _Contested:
    """The same with two values or more, each stated by memories of one scope that hold now."""

    source_id: str
    relation: str
    values: Mapping[str, Sequence[Memory]]


def conflicts(engine: Engine, scope: Scope, memory_id: str = "") -> list[Conflict]:
    """Return the conflicts of a scope's own project, or those of one memory, the newest memories first. Blocking.

    A plan contradicts nothing, nor does what has ended, nor a memory that itself states several of the values: it tells
    of a change. Raises LedgerError.
    """
    now = engine.clock()
    with engine.ledger.read() as conn:
        if memory_id:
            rows = relations_like(conn, memory_id, SINGLE_VALUED, MAX_READ)
        else:
            named = relations_named(conn, scope.user_id, SINGLE_VALUED, MAX_READ)
            rows = _contestable(named, merged_into(conn, scope.user_id))
        roots = roots_of(conn, {end for row in rows for end in (row.source_id, row.destination_id)})
        stated = _stated(rows, {entity_id: root.id for entity_id, root in roots.items()})
        ids = {memory_id for found in stated for of_value in found.values.values() for memory_id in of_value}
        memories = memory_queries.memories_by_id(conn, sorted(ids)).values()
        current = {memory.id: memory for memory in memories if _is_current(memory, scope, now)}
        contested = [found for one in stated for found in _by_scope(one, current)]
        ends = {end for found in contested for end in (found.source_id, *found.values)}
        shown = as_shown(conn, scope, {root.id: root for root in roots.values() if root.id in ends})
    return [
        Conflict(
            shown[found.source_id].name,
            found.relation.replace("_", " "),
            tuple(Value(shown[value].name, tuple(of_value)) for value, of_value in found.values.items()),
        )
        for found in contested
    ]


def _contestable(rows: Sequence[RelationRow], merged: Mapping[str, str]) -> list[RelationRow]:
    """Return the relations whose source has another one of the same key with another value."""

    def root_of(entity_id: str) -> str:
        passed: set[str] = set()  # a circle of merges ends as well
        while entity_id in merged and entity_id not in passed:
            passed.add(entity_id)
            entity_id = merged[entity_id]
        return entity_id

    values: dict[tuple[str, str], set[str]] = {}
    for row in rows:
        values.setdefault((root_of(row.source_id), row.key), set()).add(root_of(row.destination_id))
    return [row for row in rows if len(values[root_of(row.source_id), row.key]) > 1]


def _stated(rows: Sequence[RelationRow], root_ids: Mapping[str, str]) -> list[_Stated]:
    """Return the relations that have several values. What was merged into an entity counts as that entity."""
    stated: dict[tuple[str, str], _Stated] = {}
    for row in rows:
        source, value = root_ids.get(row.source_id), root_ids.get(row.destination_id)
        if source is not None and value is not None:
            of_relation = stated.setdefault((source, row.key), _Stated(source, row.name))
            of_relation.values.setdefault(value, []).append(row.memory_id)
    return [found for found in stated.values() if len(found.values) > 1]


def _is_current(memory: Memory, scope: Scope, now: datetime) -> bool:
    """Return whether a memory of the scope's own project, which the scope sees, holds now."""
    if memory.scope.project != scope.project or not is_seen(scope, memory.scope):
        return False
    begins_later = memory.valid_from is not None and memory.valid_from > now
    return memory.deleted_at is None and not begins_later and not has_expired(memory.metadata, now)


def _by_scope(found: _Stated, current: Mapping[str, Memory]) -> Iterator[_Contested]:
    """Yield a relation for each scope whose memories give it several values."""
    times_stated = Counter(memory_id for of_value in found.values.values() for memory_id in set(of_value))
    by_scope: dict[Scope, dict[str, list[Memory]]] = {}
    for value, ids in found.values.items():
        for memory_id in dict.fromkeys(ids):
            if memory_id in current and times_stated[memory_id] == 1:
                memory = current[memory_id]
                by_scope.setdefault(memory.scope, {}).setdefault(value, []).append(memory)
    for values in by_scope.values():
        if len(values) > 1:
            yield _Contested(found.source_id, found.relation, values)
