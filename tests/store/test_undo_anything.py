"""Random edits in random order: undo restores the earlier state, and no row of history is lost."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from palimpsest.core.errors import InputError
from palimpsest.core.models import PINNED, Decision, Event, Fact, Kind, Scope
from palimpsest.store import history
from tests.support.examples import examples
from tests.support.memory import ALICE
from tests.support.recorded_ledger import SCOPES, WEB, LiveEntries, RecordedLedger, memory_fields, recorded_ledger
from tests.support.stores import ledger_folder

TEXTS = ("User likes tea", "user  LIKES tea", "User likes coffee", "User likes water")
"""Few texts, two of them equal except for case and spaces, so that memories often have the same text."""

LONG = "User likes " + "very " * 130 + "strong tea"
"""Two of these are more than the pinned block may hold."""

LABELS: tuple[dict[str, Any], ...] = (
    {},
    {"metadata": {"a": 1}},
    {"metadata": {"a": None, "b": [2]}},
    {"tags": ("x",)},
    {"metadata": {PINNED: True}},
    {"metadata": {PINNED: 2}},
)
DAYS = (None, datetime(2025, 1, 2, tzinfo=UTC), datetime(2027, 3, 4, tzinfo=UTC))


@dataclass(frozen=True)
class Step:
    """The next operation. `one` and `other` choose among the memories, messages or edits that exist."""

    what: str
    scope: Scope
    one: int
    other: int
    text: str
    labels: dict[str, Any]
    day: datetime | None


STEPS = st.builds(
    Step,
    what=st.sampled_from(
        ("add", "pin", "replace", "update", "delete", "restore", "say", "learn", "embed", "undo", "since")
    ),
    scope=st.sampled_from((ALICE, ALICE, WEB)),
    one=st.integers(0, 11),
    other=st.integers(0, 11),
    text=st.sampled_from(TEXTS),
    labels=st.sampled_from(LABELS),
    day=st.sampled_from(DAYS),
)


def _chosen(owners: Sequence[tuple[Kind, str]], *numbers: int) -> list[tuple[Kind, str]]:
    """Return the owners that the numbers choose, each once, or none if there are no owners."""
    return list(dict.fromkeys(owners[number % len(owners)] for number in numbers)) if owners else []


def _do(recorded: RecordedLedger, step: Step) -> None:
    """Carry out one step. Raises InputError if it is refused."""
    fact = Fact(step.text, happened_at=step.day, **step.labels)
    owners, living = recorded.entries_ever_seen(step.scope), recorded.live_entries()
    living_memories = [owner for owner in owners if owner[1] in living and owner[0] == "memory"]
    memory_ids = [memory_id for _, memory_id in _chosen(living_memories, step.one, step.other)]
    match step.what:
        case "add" | "pin":
            pinned = Fact(f"{LONG} {step.one}", metadata={PINNED: step.one})
            recorded.apply(step.scope, Decision(Event.ADD, fact if step.what == "add" else pinned))
        case "replace":
            recorded.apply(step.scope, Decision(Event.ADD, fact, replaces=tuple(memory_ids)))
        case "update" if memory_ids:
            fact_of_update = fact if step.other % 3 else Fact("", happened_at=step.day, **step.labels)
            recorded.apply(step.scope, Decision(Event.UPDATE, fact_of_update, memory_ids[0]))
        case "delete":
            chosen = _chosen(owners, step.one, step.other, step.one + step.other)
            recorded.apply(
                step.scope, *(Decision(Event.DELETE, memory_id=owner_id, kind=kind) for kind, owner_id in chosen)
            )
        case "restore" if owners:
            ((kind, owner),) = _chosen(owners, step.one)
            recorded.apply(step.scope, Decision(Event.ADD, memory_id=owner, kind=kind))
        case "say":
            recorded.store_messages(*TEXTS[: 1 + step.one % 3], scope=step.scope)
        case "learn":
            sources = tuple(message.id for message in recorded.store_messages(step.text, scope=step.scope))
            facts = [Fact(text, sources, happened_at=step.day) for text in (step.text, *TEXTS[step.one % 4 :])]
            known = zip((Event.UPDATE, Event.DELETE, Event.NONE), memory_ids, strict=False)
            decisions = [Decision(event, facts[-1], memory_id) for event, memory_id in known]
            recorded.apply(step.scope, *decisions, Decision(Event.ADD, facts[0]), learned_from=sources)
        case "embed":
            recorded.embed_missing()
        case "undo":
            _undo(recorded, step)
        case "since":
            _undo_since(recorded, step.one, step.scope)
        case _:
            pass


def _undo(recorded: RecordedLedger, step: Step) -> None:
    """Undo one edit or the newest: what it changed is as it was before the edit. Undoing the undo restores the rest."""
    edits = recorded.edits(step.scope)
    number = edits[step.one % len(edits)].number if edits and step.other % 3 else None
    was = recorded.live_entries()
    recorded.undo(number, scope=step.scope)
    undone = recorded.edits()[0]
    number = int(undone.provenance.stage.removeprefix("undo "))
    then, now = recorded.states_by_edit[number], recorded.live_entries()
    (edit,) = (candidate for candidate in recorded.edits() if candidate.number == number)
    owners = {step.owner_id for step in edit.steps}
    assert {owner_id: now.get(owner_id) for owner_id in owners} == {owner_id: then.get(owner_id) for owner_id in owners}
    assert {owner_id: now[owner_id] for owner_id in now if owner_id not in owners} == {
        owner_id: was[owner_id] for owner_id in was if owner_id not in owners
    }
    if step.other % 2:
        recorded.undo(undone.number, scope=step.scope)
        assert recorded.live_entries() == was


def _undo_since(recorded: RecordedLedger, number: int, scope: Scope) -> None:
    """Undo everything since an instant: what the scope sees is as it was then, and the rest is unchanged."""
    was = recorded.live_entries()
    instant, then = (
        recorded.states_by_time[number % len(recorded.states_by_time)]
        if recorded.states_by_time
        else (recorded.clock.at, was)
    )
    try:
        recorded.undo(since=instant, scope=scope)
    except InputError as error:
        raise AssertionError("undo since an instant is never refused") from error
    seen = SCOPES if scope == WEB else (ALICE,)
    kept = {key: value for key, value in was.items() if value[0] not in seen}
    assert recorded.live_entries() == {key: value for key, value in then.items() if value[0] in seen} | kept


def _assert_history_knows_every_instant(recorded: RecordedLedger) -> None:
    """Compare what the history says of the time just before each write with what was recorded then."""
    for instant, then in recorded.states_by_time:
        with recorded.ledger.read() as conn:
            memories = history.memories_at(conn, WEB, instant - timedelta(seconds=1))
            messages = history.messages_at(conn, WEB, instant - timedelta(seconds=1))
        live: LiveEntries = {memory.id: memory_fields(memory) for memory in memories}
        assert live | {message.id: (message.scope, message.content) for message in messages} == then


def _assert_each_edit_is_undone_once(recorded: RecordedLedger) -> None:
    """Undo one edit after another until none is left, each exactly once."""
    stages: list[str] = []
    with contextlib.suppress(InputError):
        while len(stages) < 100:
            recorded.undo(scope=WEB)
            stages.append(recorded.edits()[0].provenance.stage)
    assert len(set(stages)) == len(stages)


@examples(20)
@given(steps=st.lists(STEPS, min_size=5, max_size=14), instants=st.lists(st.integers(0, 13), min_size=1, max_size=3))
def test_every_edit_can_be_undone_and_nothing_is_lost(steps: list[Step], instants: list[int]) -> None:
    with ledger_folder() as folder, recorded_ledger(folder) as recorded:
        rows = recorded.history_rows()
        for step in steps:
            was = recorded.live_entries()
            try:
                _do(recorded, step)
            except InputError:
                assert (recorded.live_entries(), recorded.history_rows()) == (was, rows)
            assert recorded.history_rows()[: len(rows)] == rows
            rows = recorded.history_rows()
        for number in instants:
            _undo_since(recorded, number, WEB)
        assert recorded.history_rows()[: len(rows)] == rows
        _assert_each_edit_is_undone_once(recorded)
        _assert_history_knows_every_instant(recorded)
        assert recorded.faults() == []
