"""Undo: put what an edit changed into its state before that edit. An undo is an edit itself."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple

from sqlalchemy import ColumnElement, Connection, Row, Table, and_, exists, select, update

from palimpsest.core.errors import InputError
from palimpsest.core.models import BEGIN, EXPIRE, LINK, MOVE, UNDO, Event, Kind, Memory, Outcome, Provenance, Undo
from palimpsest.store import writes
from palimpsest.store.entries import Transaction
from palimpsest.store.graph import entity_edits
from palimpsest.store.history import recorded
from palimpsest.store.jobs import HOOKS
from palimpsest.store.rows import among, count, grouped, has_row, sees, state_values, to_memory, with_state
from palimpsest.store.schema import HISTORIES, entity_history, history, memories, message_history, messages
from palimpsest.store.writes import find_duplicate, record

HistoryRow = Row[Any]


class _Span(NamedTuple):
    """The history of one memory, the last of its rows that are undone, and the row before the first of them."""

    versions: Sequence[HistoryRow]
    before: HistoryRow | None
    last: HistoryRow


def undo(tx: Transaction, request: Undo) -> list[Outcome]:
    """Undo one edit or all edits since an instant, as far as the scope sees them. Raises InputError if it cannot."""
    if (since := request.since) is not None:
        # With microseconds, so that `_covers` can tell later which edits were undone.
        instant = since.astimezone(UTC).isoformat().replace("+00:00", "Z")
        tx = _as_stage(tx, f"{UNDO} since {instant}")
        return _revert(tx, lambda rows: and_(recorded(rows) >= since, rows.c.stage != MOVE))
    number = _newest_in_effect(tx) if request.edit is None else request.edit
    _refuse_partly_visible(tx, number)
    _refuse_move(tx, number)
    if not _in_effect(tx, number):
        raise InputError(
            f"edit {number} was changed again or undone since, so nothing was done. palimpsest log shows by which "
            "edit. Undo that one first, or everything since a time with --since."
        )
    return _revert(_as_stage(tx, f"{UNDO} {number}"), lambda rows: rows.c.change == number)


def _as_stage(tx: Transaction, stage: str) -> Transaction:
    return replace(tx, provenance=Provenance(stage, caller=tx.provenance.caller))


def _newest_in_effect(tx: Transaction) -> int:
    """Return the newest edit the scope sees that is not an undo and has not been undone. Raises InputError.

    What hooks captured meanwhile is passed over, what the background found out about entities and memories, and
    memories whose time had come: nobody who undoes an edit of theirs means it.
    """
    numbers: set[int] = set()
    for _, owners, table, owner_id in HISTORIES:
        query = select(table.c.change).join(owners, owners.c.id == owner_id).where(sees(owners, tx.scope))
        is_meant = (table.c.stage.not_in((MOVE, EXPIRE, BEGIN, LINK)), table.c.caller != HOOKS)
        meant = query.where(table.c.stage.not_like(f"{UNDO}%"), *is_meant)
        numbers.update(tx.conn.execute(meant.distinct()).scalars())
    for number in sorted(numbers, reverse=True):
        if _in_effect(tx, number):
            return number
    raise InputError("there is no edit left to undo in this scope. palimpsest log lists the edits")


def _undone(tx: Transaction, number: int) -> bool:
    """Return whether an edit was undone, for any memory or message it changed, by an undo that still stands.

    Comparing states is not enough: a memory that was deleted, restored and deleted again is in the state that the first
    deletion left.
    """
    for _, _, table, owner_id in HISTORIES:
        columns = (owner_id, table.c.change, table.c.stage, recorded(table))
        owners = select(owner_id).where(table.c.change == number)
        rows = select(*columns).where(owner_id.in_(owners), table.c.change >= number).order_by(table.c.seq.desc())
        undos: dict[str, list[str]] = {}
        for owner, edit, stage, at in tx.conn.execute(rows):
            if any(_covers(target, edit, at) for target in undos.get(owner, ())):
                if edit == number:
                    return True
            elif stage.startswith(UNDO):
                undos.setdefault(owner, []).append(stage.removeprefix(f"{UNDO} "))
    return False


def _covers(target: str, edit: int, at: datetime) -> bool:
    """Return whether the target of an undo, a number or "since …", covers an edit with that number and time."""
    if target.startswith("since "):
        return datetime.fromisoformat(target.removeprefix("since ")) <= at
    return target == str(edit)


def _refuse_partly_visible(tx: Transaction, number: int) -> None:
    """Raise InputError if the scope does not see the edit, or sees only a part of it."""
    visible = hidden = 0
    for _, owners, table, owner_id in HISTORIES:
        of_edit = (table.c.change == number, owners.c.id == owner_id)
        rows = count(tx.conn, *of_edit, sees(owners, tx.scope))
        visible += rows
        hidden += count(tx.conn, *of_edit, owners.c.user_id == tx.scope.user_id) - rows
    if not visible:
        raise InputError(f"there is no edit {number} in this scope ({tx.scope}). palimpsest log lists the edits")
    if hidden:
        raise InputError(f"edit {number} also belongs to another project, agent or run. Undo it in that scope")


def _refuse_move(tx: Transaction, number: int) -> None:
    """Raise InputError if an edit belongs to the move of a project, of which it is only a part."""
    moves = (select(of.rows.c.seq).filter_by(change=number, stage=MOVE) for of in HISTORIES)
    if any(has_row(tx.conn, query) for query in moves):
        fault = f"edit {number} merged two projects, which an undo cannot take back, so nothing was done"
        raise InputError(f"{fault}. palimpsest restore brings back the backup that was made before it")


def _in_effect(tx: Transaction, number: int) -> bool:
    """Return whether an edit was not undone and everything it changed is still as the edit left it."""
    if _undone(tx, number):
        return False
    for span in _spans(tx, history.c.change == number):
        # Annotations say nothing else. Only of an annotation it matters that it is the newest.
        newest = [row for row in span.versions if span.last.stage == LINK or row.stage != LINK][-1]
        if _state(newest) != _state(span.last):
            return False
        if span.before is not None and _state(span.before) == _state(span.last):
            return False
        if span.before is None and _stands_for_another(tx, span.last.memory_id):
            return False
    rows = _message_rows(tx, message_history.c.change == number)
    are_same = all(deleted is (event == Event.DELETE) for _, event, deleted in rows)
    return are_same and entity_edits.is_in_effect(tx, number)


def _stands_for_another(tx: Transaction, memory_id: str) -> bool:
    """Return whether the merge of two projects closed another memory in favour of this one: it is of both adds."""
    closed = select(history.c.seq).join(memories, memories.c.id == history.c.memory_id)
    return has_row(tx.conn, closed.where(memories.c.superseded_by == memory_id, history.c.stage == MOVE))


def _state(row: HistoryRow) -> tuple[Any, ...]:
    """Return the state of a memory after a row of history."""
    return (row.new_memory, row.is_deleted, _fate(row) if row.is_deleted else row.state)


def _fate(row: HistoryRow) -> tuple[str | None, str | None, bool]:
    """Return what a row of history says of a deleted memory: its successor, its end, and whether it is forgotten.

    Rows of an import from another tool do not say whether it is forgotten. There, it was if it has no successor.
    """
    state, successor = row.state, row.state.get("superseded_by")
    was_forgotten = successor is None and not row.stage.startswith(UNDO)
    return successor, state.get("valid_until"), state.get("is_forgotten", was_forgotten)


def _revert(tx: Transaction, condition: Callable[[Table], ColumnElement[bool]]) -> list[Outcome]:
    """Put memories, messages and entities into their state before the rows of history that a condition selects."""
    targets: list[tuple[Memory, Memory]] = []
    for span in _spans(tx, condition(history)):
        present = to_memory(tx.conn.execute(select(memories).where(memories.c.id == span.last.memory_id)).one())
        past = _before(tx, present, span.before)
        if _differ(present, past):
            targets.append((present, past))
    # All of them are deleted first: a text may have moved from one memory to another, and only one may have it.
    changed = among(memories.c.id, [present.id for present, _ in targets])
    tx.conn.execute(update(memories).where(changed).values(deleted_at=tx.now))
    outcomes = [_set_state(tx, present, past) for present, past in targets]
    # If a message has several rows, the first of them tells its state before.
    first = {message_id: event for message_id, event, _ in reversed(_message_rows(tx, condition(message_history)))}
    for message_id, event in first.items():
        outcome = writes.set_deleted(tx, message_id, deleted=event == Event.ADD)
        outcomes += [] if outcome.event is Event.NONE else [outcome]
    entity_edits.revert(tx, condition(entity_history))
    return outcomes


def _differ(present: Memory, past: Memory) -> bool:
    """Return whether two states of a memory differ. Of two deleted states it matters what became of the memory."""
    if present.deleted_at is not None and past.deleted_at is not None:
        fates = [(memory.superseded_by, memory.valid_until, memory.is_forgotten) for memory in (present, past)]
        return fates[0] != fates[1]
    return replace(past, updated_at=present.updated_at) != present


def _before(tx: Transaction, present: Memory, row: HistoryRow | None) -> Memory:
    """Return a memory as a row of history left it. Without a row it did not exist yet, which counts as deleted."""
    if row is None:
        never = replace(present, superseded_by=None, valid_until=None, valid_until_precision="", is_forgotten=False)
        return replace(never, deleted_at=tx.now)
    text = (row.old_memory or present.text) if row.is_deleted else row.new_memory
    past = with_state(present, text, row.state, tx.now)
    if not row.is_deleted:
        return past
    successor, _, is_forgotten = _fate(row)
    return replace(past, deleted_at=tx.now, superseded_by=successor, is_forgotten=is_forgotten)


def _set_state(tx: Transaction, present: Memory, past: Memory) -> Outcome:
    """Write a memory as it was before, with a row of history."""
    if past.deleted_at is not None:
        deleted = writes.update_row(tx, present, replace(past, deleted_at=tx.now))
        record(tx, Event.DELETE, deleted, old=deleted.text)
        return Outcome(Event.DELETE, deleted, previous=present.text)
    if present.deleted_at is not None:
        past = writes.without_past_end(past, tx.now)
        if past.superseded_by is not None and not writes.waits_for(tx, past):
            past = writes.freed(tx, past)  # the plan has begun, and would close it again
    if (duplicate := find_duplicate(tx.conn, past.scope, past.text)) is not None:
        raise InputError(
            f"memory {duplicate.id[:8]} says the same as {past.id[:8]} would again ('{past.text[:60]}'), so nothing "
            "was undone. Delete that one first"
        )
    restored = writes.update_row(tx, present, past)
    is_update = present.deleted_at is None
    record(tx, Event.UPDATE if is_update else Event.ADD, restored, old=present.text if is_update else None)
    return writes.updated(present, restored) if is_update else Outcome(Event.ADD, restored)


def _spans(tx: Transaction, condition: ColumnElement[bool]) -> list[_Span]:
    """Return the span of rows that fit a condition, for every memory the scope sees that has such rows."""
    is_seen = exists().where(memories.c.id == history.c.memory_id, sees(memories, tx.scope))
    changed = select(history.c.memory_id).where(condition, is_seen)
    query = select(history, condition.label("is_undone")).where(history.c.memory_id.in_(changed))
    spans: list[tuple[int, _Span]] = []
    for versions in grouped((row.memory_id, row) for row in tx.conn.execute(query.order_by(history.c.seq))).values():
        undone = [place for place, row in enumerate(versions) if row.is_undone]
        before = versions[undone[0] - 1] if undone[0] else None
        spans.append((versions[undone[0]].seq, _Span(versions, before, versions[undone[-1]])))
    return [span for _, span in sorted(spans, key=lambda item: item[0])]


def _message_rows(tx: Transaction, condition: ColumnElement[bool]) -> list[tuple[str, str, bool]]:
    """Return the rows of history of messages the scope sees, oldest first: id, event, whether it is deleted now."""
    columns = (message_history.c.message_id, message_history.c.event, messages.c.deleted_at.is_not(None))
    is_read = (messages.c.id == message_history.c.message_id, condition, sees(messages, tx.scope))
    rows = tx.conn.execute(select(*columns).where(*is_read).order_by(message_history.c.seq))
    return [(message_id, event, bool(deleted)) for message_id, event, deleted in rows]


def fate_of(conn: Connection, kind: Kind, owner_id: str) -> Literal["known", "undone", "deleted"]:
    """Return "undone" if an undo took back the add of a memory or message, "deleted" if somebody deleted it."""
    _, owners, table, key = next(of for of in HISTORIES if of.kind == kind)
    row = conn.execute(select(owners).where(owners.c.id == owner_id)).one()
    if row.deleted_at is None or (kind == "memory" and row.superseded_by is not None):
        return "known"
    newest = select(table.c.stage).where(key == owner_id).order_by(table.c.seq.desc()).limit(1)
    if conn.execute(newest).scalar_one().startswith(UNDO):
        return "undone"
    return "deleted" if kind == "message" or row.is_forgotten else "known"


def bring_back(tx: Transaction, item: Mapping[str, Any], owner_id: str) -> bool:
    """Restore a deleted memory or message as an import has it. `owner_id` is its id here. Return whether it changed."""
    if item["type"] == "message":
        return writes.set_deleted(tx, owner_id, deleted=False).event is not Event.NONE
    present = to_memory(tx.conn.execute(select(memories).where(memories.c.id == owner_id)).one())
    if find_duplicate(tx.conn, present.scope, item["text"]) is not None:
        return False
    living = replace(present, text=item["text"], deleted_at=None, **state_values(item))
    record(tx, Event.ADD, writes.update_row(tx, present, living), old=None)
    return True
