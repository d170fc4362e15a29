"""Undo: every edit can be undone, and an undo is an edit itself."""

from __future__ import annotations

from collections.abc import Generator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from palimpsest.core.errors import InputError
from palimpsest.core.models import Decision, Event, Fact, Scope, Undo
from palimpsest.store import history, memories
from palimpsest.store import messages as message_queries
from palimpsest.store.ledger import Ledger
from tests.support.graph import Graph
from tests.support.graph_cases import GraphCase, graph_cases
from tests.support.memory import ALICE, StoppedClock
from tests.support.recorded_ledger import WEB, RecordedLedger, recorded_ledger


@pytest.fixture
def recorded(tmp_path: Path) -> Generator[RecordedLedger]:
    """Yield an empty recorded ledger."""
    with recorded_ledger(tmp_path) as opened:
        yield opened


CASES = graph_cases(Path(__file__).with_name("undo_cases.json"))


@pytest.mark.parametrize("case", CASES)
def test_undo(ledger: Ledger, clock: StoppedClock, case: str) -> None:
    GraphCase(Graph(ledger, clock)).play(*CASES[case], ["sound"])


def test_an_old_fact_that_came_late_is_undone_once(recorded: RecordedLedger) -> None:
    """It was stored as closed, and after the undo nothing says that the newer memory replaced it."""
    rome = recorded.add("User lives in Rome")
    late = Decision(Event.NONE, memory_id=rome.id, outdated=(Fact("User lives in Oslo"),))
    (_, oslo) = recorded.apply(ALICE, late).outcomes
    assert [change.memory.id for change in recorded.undo().outcomes] == [oslo.memory.id]
    with recorded.ledger.read() as conn:
        assert history.predecessors(conn, rome.id) == []
        undone = memories.memories_by_id(conn, [oslo.memory.id])[oslo.memory.id]
    assert not undone.is_forgotten
    recorded.undo()
    assert recorded.live_texts() == [], "the next undo goes one edit further back"
    recorded.undo(3)
    with recorded.ledger.read() as conn:
        (old,) = history.predecessors(conn, rome.id)
    assert (old.memory.text, old.memory.valid_until) == ("User lives in Oslo", oslo.memory.valid_until)


def test_forgetting_a_memory_forgets_what_it_replaced_until_it_is_undone(recorded: RecordedLedger) -> None:
    """One undo brings back the memory, and the turns behind it and behind those that it replaced."""
    first, second = recorded.store_messages("I'm married to Mark", "Mark and I divorced")
    old = recorded.add("User is married to Mark", sources=(first.id,))
    divorce = Fact("User and Mark divorced", sources=(second.id,))
    (new,) = recorded.apply(ALICE, Decision(Event.ADD, divorce, replaces=(old.id,))).outcomes
    messages = [first.id, second.id]
    forget = Decision(Event.DELETE, memory_id=new.memory.id, forgets=True)
    forgotten = recorded.apply(ALICE, forget).outcomes
    assert [change.memory.text for change in forgotten] == ["User and Mark divorced", "User is married to Mark"]
    with recorded.ledger.read() as conn:
        assert message_queries.outdated_or_forgotten(conn, messages) == (set(), set(messages))
    (again,) = recorded.apply(ALICE, forget).outcomes
    assert again.event is Event.NONE
    recorded.undo()
    with recorded.ledger.read() as conn:
        assert message_queries.outdated_or_forgotten(conn, messages) == ({first.id}, set())
    assert "User and Mark divorced" in recorded.live_texts()


@pytest.mark.few_by_day(1)
@pytest.mark.parametrize("scope", [Scope("bob"), Scope("alice", agent_id="coder")])
def test_an_edit_of_another_scope_is_refused(recorded: RecordedLedger, scope: Scope) -> None:
    recorded.add("Theirs", scope)
    recorded.store_messages("Theirs too", scope=scope)
    other_scope = Scope("alice", run_id="r1") if scope.user_id == "alice" else ALICE
    rows = recorded.history_rows()
    for request in (Undo(edit=1), Undo(edit=2), Undo()):
        with pytest.raises(InputError, match="in this scope"):
            recorded.apply(other_scope, undo=request)
    assert recorded.undo(since=datetime(2020, 1, 1, tzinfo=UTC), scope=other_scope).outcomes == ()
    assert recorded.history_rows() == rows


def test_the_log_of_a_scope_is_paged_newest_first(recorded: RecordedLedger) -> None:
    for number in range(5):
        recorded.add(f"Fact {number}")
        recorded.add(f"Secret {number}", WEB)
    with recorded.ledger.read() as conn:
        first = history.edits(conn, ALICE, 2)
        rest = history.edits(conn, ALICE, 10, before=first[-1].number)
    assert [edit.steps[0].after for edit in first + rest] == [f"Fact {number}" for number in (4, 3, 2, 1, 0)]
    assert [edit.number for edit in first + rest] == [9, 7, 5, 3, 1]


def test_undo_since_an_instant_is_one_edit_and_includes_the_instant(recorded: RecordedLedger) -> None:
    recorded.add("Before")
    recorded.add("At the instant")
    instant = recorded.clock.at
    recorded.add("After")
    recorded.store_messages("A message after")
    recorded.undo(since=instant)
    assert recorded.live_texts() == ["Before"]
    newest = recorded.edits()[0]
    assert (newest.provenance.stage, len(newest.steps)) == (f"undo since {instant:%Y-%m-%dT%H:%M:%SZ}", 3)
    recorded.undo(newest.number)
    assert recorded.live_texts() == ["A message after", "After", "At the instant", "Before"]
