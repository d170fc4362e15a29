"""Taking edits back: what they changed is put into the state it had before, which is an edit like any other."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import ColumnElement, Row, and_, func, select, update

from palimpsest.core.errors import InputError
from palimpsest.core.models import UNDO, Event, Memory, Outcome, Provenance, Undo
from palimpsest.store.mapping import chunks, sees, to_memory, with_state
from palimpsest.store.schema import history, memories, message_history, messages
from palimpsest.store.writes import memories as memory_writes
from palimpsest.store.writes import messages as message_writes
from palimpsest.store.writes.transaction import Transaction, find_duplicate, record

History = Row[Any]


@dataclass(frozen=True, slots=True)
class _Span:
    """Hold the rows of history of one memory that are to be undone, first and last, and the one before them."""

    memory_id: str
    before: History | None
    last: History


def take_back(tx: Transaction, undo: Undo) -> list[Outcome]:
    """Undo what is named, as the scope sees it. Raises InputError where that cannot be done."""
    if undo.since is not None:
        tx = _named(tx, f"{UNDO} since {_exact(undo.since)}")
        return _put_back(tx, history.c.updated_at >= undo.since, message_history.c.updated_at >= undo.since)
    number = _newest_in_effect(tx) if undo.edit is None else undo.edit
    _refuse_partly_seen(tx, number)
    if not _in_effect(tx, number):
        raise InputError(
            f"change {number} was changed again or taken back since, so nothing was done; palimpsest log shows by "
            "what. Take that back first, or everything since a time with --since."
        )
    tx = _named(tx, f"{UNDO} {number}")
    return _put_back(tx, history.c.change == number, message_history.c.change == number)


def _named(tx: Transaction, stage: str) -> Transaction:
    return replace(tx, provenance=Provenance(stage, caller=tx.provenance.caller))


def _newest_in_effect(tx: Transaction) -> int:
    """Return the newest edit the scope sees that was not itself an undo and has not been taken back."""
    numbers: set[int] = set()
    for table, owner, key in _TABLES:
        query = (
            select(table.c.change)
            .join(owner, owner.c.id == table.c[key])
            .where(sees(owner, tx.scope), table.c.stage.not_like(f"{UNDO}%"))
        )
        numbers.update(tx.conn.execute(query.distinct()).scalars())
    for number in sorted(numbers, reverse=True):
        if _in_effect(tx, number):
            return number
    raise InputError("there is no change left to take back in this scope; palimpsest log shows what there was")


def _taken_back(tx: Transaction, number: int) -> bool:
    """Say whether an edit was taken back, of any memory or turn it changed, by one that was not taken back itself.

    A state alone does not tell: deleted, restored and deleted again, a memory is as the first deletion left it.
    """
    for table, _, key in _TABLES:
        columns = (table.c[key], table.c.change, table.c.stage, table.c.updated_at)
        owners = select(table.c[key]).where(table.c.change == number)
        rows = select(*columns).where(table.c[key].in_(owners), table.c.change >= number).order_by(table.c.seq.desc())
        undos: dict[str, list[str]] = {}
        for owner, change, stage, at in tx.conn.execute(rows):
            if any(_names(undo, change, at) for undo in undos.get(owner, ())):
                if change == number:
                    return True
            elif stage.startswith(UNDO):
                undos.setdefault(owner, []).append(stage.removeprefix(f"{UNDO} "))
    return False


def _names(undo: str, change: int, at: datetime) -> bool:
    """Say whether what an undo took back is an edit of that number and time."""
    return (
        datetime.fromisoformat(undo.removeprefix("since ")) <= at if undo.startswith("since ") else undo == str(change)
    )


def _exact(instant: datetime) -> str:
    """Return an instant in full, by which it is known later what was taken back."""
    return instant.astimezone(UTC).isoformat().replace("+00:00", "Z")


def _refuse_partly_seen(tx: Transaction, number: int) -> None:
    """Raise InputError for an edit the scope does not see, or sees only a part of."""
    seen = hidden = 0
    for table, owner, key in _TABLES:
        joined = select(func.count()).select_from(table).join(owner, owner.c.id == table.c[key])
        of_edit = joined.where(table.c.change == number)
        mine = tx.conn.execute(of_edit.where(sees(owner, tx.scope))).scalar_one()
        seen += mine
        hidden += tx.conn.execute(of_edit.where(owner.c.user_id == tx.scope.user_id)).scalar_one() - mine
    if not seen:
        raise InputError(f"there is no change {number} in this scope ({tx.scope}); palimpsest log lists them")
    if hidden:
        raise InputError(f"change {number} also belongs to another project, agent or run; take it back in that scope")


def _in_effect(tx: Transaction, number: int) -> bool:
    """Say whether an edit was not taken back and everything it changed is as it left it."""
    if _taken_back(tx, number):
        return False
    for span in _spans(tx, history.c.change == number):
        newest = _row(tx, span.memory_id, history.c.seq > 0)
        if newest is None or _state(newest) != _state(span.last):
            return False
        if span.before is not None and _state(span.before) == _state(span.last):
            return False
    return all(gone is (event == Event.DELETE) for _, event, gone in _turn_rows(tx, message_history.c.change == number))


def _state(row: History) -> tuple[Any, ...]:
    """Return what a memory was after a row of history; when it was last said aside, which every mention moves."""
    state = {key: value for key, value in row.state.items() if key != "valid_from"}
    return (row.new_memory, row.is_deleted, {} if row.is_deleted else state)


def _put_back(tx: Transaction, of_memories: ColumnElement[bool], of_turns: ColumnElement[bool]) -> list[Outcome]:
    """Put memories and turns into the state before the rows that the conditions name."""
    done: list[Outcome] = []
    targets: list[tuple[Memory, Memory]] = []
    for span in _spans(tx, of_memories):
        now = to_memory(tx.conn.execute(select(memories).where(memories.c.id == span.memory_id)).one())
        then = _as_before(tx, now, span.before)
        if _differ(now, then):
            targets.append((now, then))
    # All of them leave first: texts may have moved from one memory to another, and each text lives once.
    for chunk in chunks([now.id for now, _ in targets]):
        tx.conn.execute(update(memories).where(memories.c.id.in_(chunk)).values(deleted_at=tx.now))
    done += [_become(tx, now, then) for now, then in targets]
    # Of several rows of one turn the first says what it was before.
    first = {message_id: event for message_id, event, _ in reversed(_turn_rows(tx, of_turns))}
    for message_id, event in first.items():
        change = message_writes.set_deleted(tx, message_id, deleted=event == Event.ADD)
        done += [] if change.event is Event.NONE else [change]
    return done


def _differ(now: Memory, then: Memory) -> bool:
    """Say whether a memory is to change; two that are both deleted are alike."""
    if now.deleted_at is not None or then.deleted_at is not None:
        return (now.deleted_at is None) is not (then.deleted_at is None)
    return replace(then, updated_at=now.updated_at) != now


def _as_before(tx: Transaction, now: Memory, row: History | None) -> Memory:
    """Return a memory as a row of history left it; before its first row it was not there, so it is deleted."""
    if row is None:
        return replace(now, deleted_at=tx.now, superseded_by=None)
    text = (row.old_memory or now.text) if row.is_deleted else row.new_memory
    then = with_state(now, text, row.state, tx.now)
    return replace(then, deleted_at=tx.now, superseded_by=row.state.get("superseded_by")) if row.is_deleted else then


def _become(tx: Transaction, now: Memory, then: Memory) -> Outcome:
    """Write one memory as it was; with the row of history that says so."""
    if then.deleted_at is not None:
        gone = memory_writes.store(tx, now, replace(then, deleted_at=tx.now))
        record(tx, Event.DELETE, gone, old=gone.text)
        return Outcome(Event.DELETE, gone, previous=now.text)
    twin = find_duplicate(tx, then.scope, then.text)
    if twin is not None:
        raise InputError(
            f"memory {twin.id[:8]} says the same as {then.id[:8]} would again ('{then.text[:60]}'), so nothing was "
            "taken back; delete that one first"
        )
    back = memory_writes.store(tx, now, then)
    event = Event.UPDATE if now.deleted_at is None else Event.ADD
    record(tx, event, back, old=now.text if event is Event.UPDATE else None)
    return Outcome(event, back, previous=now.text if event is Event.UPDATE else None)


def _spans(tx: Transaction, condition: ColumnElement[bool]) -> list[_Span]:
    """Return, for every memory the scope sees that has rows of history of a condition, the first and last of them."""
    query = (
        select(history.c.memory_id, func.min(history.c.seq).label("first"), func.max(history.c.seq).label("last"))
        .join(memories, memories.c.id == history.c.memory_id)
        .where(condition, sees(memories, tx.scope))
        .group_by(history.c.memory_id)
        .order_by(func.min(history.c.seq))
    )
    spans: list[_Span] = []
    for found in tx.conn.execute(query).all():
        last = tx.conn.execute(select(history).where(history.c.seq == found.last)).one()
        spans.append(_Span(found.memory_id, _row(tx, found.memory_id, history.c.seq < found.first), last))
    return spans


def _row(tx: Transaction, memory_id: str, condition: ColumnElement[bool]) -> History | None:
    """Return the newest row of history of a memory that fits a condition."""
    query = select(history).where(and_(history.c.memory_id == memory_id, condition)).order_by(history.c.seq.desc())
    return tx.conn.execute(query.limit(1)).one_or_none()


def _turn_rows(tx: Transaction, condition: ColumnElement[bool]) -> list[tuple[str, str, bool]]:
    """Return the rows of history of turns the scope sees, oldest first: turn, event, whether it is forgotten now."""
    query = (
        select(message_history.c.message_id, message_history.c.event, messages.c.deleted_at.is_not(None))
        .join(messages, messages.c.id == message_history.c.message_id)
        .where(condition, sees(messages, tx.scope))
        .order_by(message_history.c.seq)
    )
    return [(message_id, event, bool(gone)) for message_id, event, gone in tx.conn.execute(query)]


_TABLES = ((history, memories, "memory_id"), (message_history, messages, "message_id"))
