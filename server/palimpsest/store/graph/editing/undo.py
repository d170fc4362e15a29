"""Take edits of entities back. An undo is an edit itself, and can be taken back like the others."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, Row, select

from palimpsest.store.graph.editing.states import is_present, present, restore
from palimpsest.store.graph.groups import members_of
from palimpsest.store.graph.identity.history import ENTITY, GraphWrite, State, record, to_state
from palimpsest.store.graph.tables import entities, entity_history
from palimpsest.store.mapping import sees

UNDID = "undid: "
REDID = "redid: "


def is_in_effect(write: GraphWrite, number: int) -> bool:
    """Return whether what an edit did to entities is still as it left it, and no later edit has built on it."""
    rows = _rows(write, entity_history.c.change == number)
    left: State = {}
    for row in reversed(rows):
        left |= to_state(row.after)
    return not rows or (is_present(write.conn, left) and not any(_has_later_members(write, row) for row in rows))


def revert(write: GraphWrite, condition: ColumnElement[bool]) -> None:
    """Put entities into their state before the rows of history that a condition selects, as far as the scope sees."""
    for row in _rows(write, condition):
        before = to_state(row.before)
        now = present(write.conn, before)
        target = {place: before[place] for place in now}
        if now != target:
            restore(write.conn, target)
            record(write, row.entity_id, "undo", (now, target), _undone_text(row.text))


def _rows(write: GraphWrite, condition: ColumnElement[bool]) -> list[Row[Any]]:
    """Return the rows of history of entities that the scope sees, newest first."""
    query = (
        select(entity_history)
        .join(entities, entities.c.id == entity_history.c.entity_id)
        .where(condition, sees(entities, write.scope))
        .order_by(entity_history.c.seq.desc())
    )
    return list(write.conn.execute(query).all())


def _has_later_members(write: GraphWrite, row: Row[Any]) -> bool:
    """Return whether something was merged later into an entity that the undo of a row would merge itself."""
    before = to_state(row.before)
    merged = [place[1] for place, value in before.items() if place[0] == ENTITY and place[2] == "merged_into" and value]
    later = select(entity_history).where(
        entity_history.c.entity_id.in_(list(members_of(write.conn, merged))),
        entity_history.c.event == "merge",
        entity_history.c.seq > row.seq,
        entity_history.c.change != row.change,
    )
    merges = [to_state(merge.after) for merge in write.conn.execute(later).all()]
    return any(not set(merged).isdisjoint(after.values()) and is_present(write.conn, after) for after in merges)


def _undone_text(text: str) -> str:
    if text.startswith(UNDID):
        return REDID + text.removeprefix(UNDID)
    return UNDID + text.removeprefix(REDID)
