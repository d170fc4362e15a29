"""Read the edits of a scope: what each write changed, newest first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import groupby
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, FromClause, Row, Table, exists, func, literal, null, select, union_all

from palimpsest.core.models import Edit, Event, Provenance, Scope, Step
from palimpsest.store.mapping import Query, sees
from palimpsest.store.schema import entities, entity_history, history, memories, message_history, messages


def recorded(table: Table) -> ColumnElement[datetime]:
    """Return when the edit of a row of a history was made.

    A row that was imported from another tool has the date of its content beside it. Edits of entities are never.
    """
    if "recorded_at" not in table.c:
        return table.c.updated_at
    return func.coalesce(table.c.recorded_at, table.c.updated_at)


def edits(conn: Connection, scope: Scope, limit: int, before: int | None = None) -> list[Edit]:
    """Return up to `limit` edits that the scope sees, newest first, from below number `before`."""
    numbers = sorted({number for kind in _KINDS for number in _newest(conn, scope, kind, limit, before)}, reverse=True)
    steps = union_all(*(steps_of(scope, numbers[:limit]) for steps_of in _STEPS)).subquery()
    rows = conn.execute(select(steps).order_by(steps.c.change.desc(), steps.c.kind, steps.c.seq)).all()
    return [_edit(list(group)) for _, group in groupby(rows, key=lambda row: row.change)]


class StatesAround(NamedTuple):
    """What a memory had beside its text before and after an edit; `before` is None if the edit added it."""

    number: int
    memory_id: str
    before: Mapping[str, Any] | None
    after: Mapping[str, Any]


def states_around(conn: Connection, scope: Scope, numbers: Sequence[int]) -> list[StatesAround]:
    """Return the states of the memories that edits changed, but for their texts, as far as the scope sees them."""
    earlier = history.alias("earlier")
    before = (
        select(earlier.c.state)
        .where(earlier.c.memory_id == history.c.memory_id, earlier.c.seq < history.c.seq)
        .order_by(earlier.c.seq.desc())
        .limit(1)
        .scalar_subquery()
    )
    query = select(history.c.change, history.c.memory_id, before, history.c.state).where(
        history.c.change.in_(numbers),
        history.c.event == Event.UPDATE.value,
        history.c.old_memory == history.c.new_memory,
        _is_seen(memories, history.c.memory_id, scope),
    )
    return [StatesAround(*row) for row in conn.execute(query)]


def _newest(
    conn: Connection, scope: Scope, kind: tuple[Table, ColumnElement[str], Table], limit: int, before: int | None
) -> list[int]:
    """Return the numbers of the newest edits that changed something of a kind that the scope sees."""
    changes, owner_id, owners = kind
    query = select(changes.c.change).where(_is_seen(owners, owner_id, scope))
    if before is not None:
        query = query.where(changes.c.change < before)
    return list(conn.execute(query.distinct().order_by(changes.c.change.desc()).limit(limit)).scalars())


def _is_seen(owners: FromClause, owner_id: ColumnElement[str], scope: Scope) -> ColumnElement[bool]:
    """Return the condition for rows of a history whose owner the scope sees.

    It is a subquery, so that the planner goes through the numbers of edits, and not through all rows of the scope.
    """
    return exists().where(owners.c.id == owner_id, sees(owners, scope))


_KINDS = (
    (history, history.c.memory_id, memories),
    (message_history, message_history.c.message_id, messages),
    (entity_history, entity_history.c.entity_id, entities),
)
"""What an edit changes: the rows that say so, whose they are, and the table of these."""


def _edit(rows: Sequence[Row[Any]]) -> Edit:
    first = rows[0]
    provenance = Provenance(first.stage, first.model, first.prompt, first.caller)
    return Edit(first.change, first.made_at, provenance, tuple(_step(row) for row in rows))


def _step(row: Row[Any]) -> Step:
    deleted = row.event == Event.DELETE.value
    before = None if row.kind == "message" and not deleted else row.old
    return Step(row.kind, row.owner_id, Event(row.event), before, None if deleted else row.new)


def _memory_steps(scope: Scope, numbers: Sequence[int]) -> Query:
    return select(
        history.c.change,
        history.c.seq,
        literal("memory").label("kind"),
        history.c.memory_id.label("owner_id"),
        history.c.event,
        history.c.old_memory.label("old"),
        history.c.new_memory.label("new"),
        recorded(history).label("made_at"),
        history.c.stage,
        history.c.model,
        history.c.prompt,
        history.c.caller,
    ).where(history.c.change.in_(numbers), _is_seen(memories, history.c.memory_id, scope))


def _message_steps(scope: Scope, numbers: Sequence[int]) -> Query:
    return (
        select(
            message_history.c.change,
            message_history.c.seq,
            literal("message"),
            message_history.c.message_id,
            message_history.c.event,
            messages.c.content,
            messages.c.content,
            recorded(message_history),
            message_history.c.stage,
            literal(""),
            literal(""),
            message_history.c.caller,
        )
        .join(messages, messages.c.id == message_history.c.message_id)
        .where(
            message_history.c.change.in_(numbers),
            _is_seen(messages.alias("seen"), message_history.c.message_id, scope),
        )
    )


def _entity_steps(scope: Scope, numbers: Sequence[int]) -> Query:
    return select(
        entity_history.c.change,
        entity_history.c.seq,
        literal("entity"),
        entity_history.c.entity_id,
        literal(Event.UPDATE.value),
        null(),
        entity_history.c.text,
        recorded(entity_history),
        entity_history.c.stage,
        literal(""),
        literal(""),
        entity_history.c.caller,
    ).where(entity_history.c.change.in_(numbers), _is_seen(entities, entity_history.c.entity_id, scope))


_STEPS = (_memory_steps, _message_steps, _entity_steps)
