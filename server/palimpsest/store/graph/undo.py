"""Take edits of entities back. An undo is an edit itself, and can be taken back like the others."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, Row, select

from palimpsest.store.graph.identity.history import GraphWrite, State, record, state
from palimpsest.store.graph.states import is_present, present, restore
from palimpsest.store.graph.tables import entities, entity_history
from palimpsest.store.mapping import sees

UNDID = "undid: "
REDID = "redid: "


def is_in_effect(write: GraphWrite, number: int) -> bool:
    """Return whether what an edit did to entities is still as it left it, and no later edit has built on it."""
    rows = _rows(write, entity_history.c.change == number)
    left = state()
    for row in reversed(rows):
        left = _overlaid(left, row.after)
    return not rows or (is_present(write.conn, left) and not any(_has_later_members(write, row) for row in rows))


def revert(write: GraphWrite, condition: ColumnElement[bool]) -> None:
    """Put entities into their state before the rows of history that a condition selects, as far as the scope sees."""
    for row in _rows(write, condition):
        now = present(write.conn, row.before)
        target = _known(row.before, now)
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


def _overlaid(earlier: State, later: State) -> State:
    """Return a state with what a later one says in its places."""
    both = state({**earlier["entities"]}, {**earlier["aliases"]}, {**earlier["mentions"]})
    for entity_id, values in later["entities"].items():
        both["entities"][entity_id] = {**both["entities"].get(entity_id, {}), **values}
    for entity_id, names in later["aliases"].items():
        both["aliases"][entity_id] = {**both["aliases"].get(entity_id, {}), **names}
    for kind, owners in later["mentions"].items():
        known = both["mentions"].get(kind, {})
        both["mentions"][kind] = {**known, **{owner: {**known.get(owner, {}), **owners[owner]} for owner in owners}}
    return both


def _has_later_members(write: GraphWrite, row: Row[Any]) -> bool:
    """Return whether something was merged later into an entity that the undo of a row would merge itself."""
    merged = [
        entity_id for entity_id, values in row.before["entities"].items() if values.get("merged_into") is not None
    ]
    for entity_id in merged:
        later = select(entity_history).where(
            entity_history.c.entity_id == entity_id,
            entity_history.c.event == "merge",
            entity_history.c.seq > row.seq,
            entity_history.c.change != row.change,
        )
        if any(is_present(write.conn, merge.after) for merge in write.conn.execute(later).all()):
            return True
    return False


def _known(past: State, now: State) -> State:
    """Return what a state says of that which still exists."""
    meant = {
        kind: {owner: {key: past["mentions"][kind][owner][key] for key in keys} for owner, keys in owners.items()}
        for kind, owners in now["mentions"].items()
    }
    columns = {entity_id: past["entities"][entity_id] for entity_id in now["entities"]}
    return state(columns, {entity_id: past["aliases"][entity_id] for entity_id in now["aliases"]}, meant)


def _undone_text(text: str) -> str:
    if text.startswith(UNDID):
        return REDID + text.removeprefix(UNDID)
    return UNDID + text.removeprefix(REDID)
