"""The edits of a scope as a person reads them: newest first, with what each did to which memory or turn."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any, TypeAlias

from sqlalchemy import Connection, Row, Select, literal, select, union_all

from palimpsest.core.models import Edit, Event, Provenance, Scope, Step
from palimpsest.store.mapping import sees
from palimpsest.store.schema import history, memories, message_history, messages

Query: TypeAlias = "Select[*tuple[Any, ...]]"


def edits(conn: Connection, scope: Scope, limit: int, before: int | None = None) -> list[Edit]:
    """Return up to `limit` edits the scope sees, newest first, from below number `before`."""
    every = union_all(_of_memories(scope, before), _of_turns(scope, before)).subquery()
    newest = select(every.c.change).distinct().order_by(every.c.change.desc()).limit(limit)
    rows = conn.execute(
        select(every).where(every.c.change.in_(newest)).order_by(every.c.change.desc(), every.c.kind, every.c.seq)
    ).all()
    return [_edit(list(group)) for _, group in groupby(rows, key=lambda row: row.change)]


def _edit(rows: Sequence[Row[Any]]) -> Edit:
    first = rows[0]
    made_by = Provenance(first.stage, first.model, first.prompt, first.caller)
    return Edit(first.change, first.updated_at, made_by, tuple(_step(row) for row in rows))


def _step(row: Row[Any]) -> Step:
    gone = row.event == Event.DELETE.value
    before = row.old if gone or row.kind == "memory" else None
    return Step(row.kind, row.owner_id, Event(row.event), before, None if gone else row.new)


def _of_memories(scope: Scope, before: int | None) -> Query:
    query = (
        select(
            history.c.change,
            history.c.seq,
            literal("memory").label("kind"),
            history.c.memory_id.label("owner_id"),
            history.c.event,
            history.c.old_memory.label("old"),
            history.c.new_memory.label("new"),
            history.c.updated_at,
            history.c.stage,
            history.c.model,
            history.c.prompt,
            history.c.caller,
        )
        .join(memories, memories.c.id == history.c.memory_id)
        .where(sees(memories, scope))
    )
    return query if before is None else query.where(history.c.change < before)


def _of_turns(scope: Scope, before: int | None) -> Query:
    query = (
        select(
            message_history.c.change,
            message_history.c.seq,
            literal("message"),
            message_history.c.message_id,
            message_history.c.event,
            messages.c.content,
            messages.c.content,
            message_history.c.updated_at,
            message_history.c.stage,
            literal(""),
            literal(""),
            message_history.c.caller,
        )
        .join(messages, messages.c.id == message_history.c.message_id)
        .where(sees(messages, scope))
    )
    return query if before is None else query.where(message_history.c.change < before)
