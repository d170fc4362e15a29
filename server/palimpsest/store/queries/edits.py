"""Read the edits of a scope: what each write changed, newest first."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import groupby
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Table, func, literal, null, select, union_all

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
    steps = union_all(*(steps_of(scope, before) for steps_of in _STEPS)).subquery()
    newest = select(steps.c.change).distinct().order_by(steps.c.change.desc()).limit(limit)
    rows = conn.execute(
        select(steps).where(steps.c.change.in_(newest)).order_by(steps.c.change.desc(), steps.c.kind, steps.c.seq)
    ).all()
    return [_edit(list(group)) for _, group in groupby(rows, key=lambda row: row.change)]


def _edit(rows: Sequence[Row[Any]]) -> Edit:
    first = rows[0]
    provenance = Provenance(first.stage, first.model, first.prompt, first.caller)
    return Edit(first.change, first.made_at, provenance, tuple(_step(row) for row in rows))


def _step(row: Row[Any]) -> Step:
    deleted = row.event == Event.DELETE.value
    before = None if row.kind == "message" and not deleted else row.old
    return Step(row.kind, row.owner_id, Event(row.event), before, None if deleted else row.new)


def _memory_steps(scope: Scope, before: int | None) -> Query:
    query = (
        select(
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
        )
        .join(memories, memories.c.id == history.c.memory_id)
        .where(sees(memories, scope))
    )
    return query if before is None else query.where(history.c.change < before)


def _message_steps(scope: Scope, before: int | None) -> Query:
    query = (
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
        .where(sees(messages, scope))
    )
    return query if before is None else query.where(message_history.c.change < before)


def _entity_steps(scope: Scope, before: int | None) -> Query:
    query = (
        select(
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
        )
        .join(entities, entities.c.id == entity_history.c.entity_id)
        .where(sees(entities, scope))
    )
    return query if before is None else query.where(entity_history.c.change < before)


_STEPS = (_memory_steps, _message_steps, _entity_steps)
