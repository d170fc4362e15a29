"""Undo: every edit can be undone, and an undo is an edit itself."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from palimpsest.core.errors import InputError, StaleDecisionError
from palimpsest.core.models import Decision, Event, Fact, Scope, Undo
from palimpsest.store import entries, history, memories
from palimpsest.store import messages as message_queries
from tests.support.memory import ALICE
from tests.support.recorded_ledger import WEB, RecordedLedger, memory_fields, recorded_ledger


@pytest.fixture
def recorded(tmp_path: Path) -> Generator[RecordedLedger]:
    """Yield an empty recorded ledger."""
    with recorded_ledger(tmp_path) as opened:
        yield opened


class TestOneEdit:
    @pytest.mark.nightly
    def test_undo_goes_back_until_nothing_is_left(self, recorded: RecordedLedger) -> None:
        """Called again, undo goes one edit further back and does not undo its own edit."""
        memory = recorded.add("User likes tea")
        recorded.apply(ALICE, Decision(Event.UPDATE, Fact("User likes coffee"), memory.id))
        recorded.store_messages("Hello")
        recorded.add("User likes wine", WEB)
        recorded.apply(ALICE, Decision(Event.ADD, Fact("User likes water"), replaces=(memory.id,)))
        for expected in (
            ["Hello", "User likes coffee"],
            ["User likes coffee"],
            ["User likes tea"],
            [],
        ):
            recorded.undo()
            assert recorded.live_texts() == expected
        with pytest.raises(InputError, match="there is no edit left to undo"):
            recorded.undo()
        assert recorded.live_texts(WEB) == ["User likes wine"], "an edit of another scope is skipped"

    @pytest.mark.nightly
    def test_undo_undoes_each_edit_once_although_states_repeat(self, recorded: RecordedLedger) -> None:
        """A restored memory has an earlier state again. Undo must not go back and forth between the two."""
        memory = recorded.add("User likes tea")
        deletion, restoration = (Decision(event, memory_id=memory.id) for event in (Event.DELETE, Event.ADD))
        (message,) = recorded.store_messages("Hello")
        for decision in (deletion, restoration, deletion, restoration):
            recorded.apply(ALICE, decision, replace(decision, memory_id=message.id, kind="message"))
        both = ["Hello", "User likes tea"]
        for expected in ([], both, [], both, ["User likes tea"], []):
            recorded.undo()
            assert recorded.live_texts() == expected
        with pytest.raises(InputError, match="there is no edit left to undo"):
            recorded.undo()

    def test_an_old_fact_that_came_late_is_undone_once(self, recorded: RecordedLedger) -> None:
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

    def test_forgetting_a_memory_forgets_what_it_replaced_until_it_is_undone(self, recorded: RecordedLedger) -> None:
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

    @pytest.mark.nightly
    def test_a_closed_memory_can_be_forgotten(self, recorded: RecordedLedger) -> None:
        """The memory that replaced it stays, and an undo closes it again."""
        (first,) = recorded.store_messages("I live in Rome")
        rome = recorded.add("User lives in Rome", sources=(first.id,))
        (oslo,) = recorded.apply(ALICE, Decision(Event.ADD, Fact("User lives in Oslo"), replaces=(rome.id,))).outcomes
        recorded.apply(ALICE, Decision(Event.DELETE, memory_id=rome.id, forgets=True))
        with recorded.ledger.read() as conn:
            assert message_queries.outdated_or_forgotten(conn, [first.id]) == (set(), {first.id})
            assert history.predecessors(conn, oslo.memory.id) == [], "its history does not name it either"
        recorded.undo()
        with recorded.ledger.read() as conn:
            assert message_queries.outdated_or_forgotten(conn, [first.id]) == ({first.id}, set())
        assert "User lives in Oslo" in recorded.live_texts()

    def test_undo_skips_edits_that_undo_since_has_undone(self, recorded: RecordedLedger) -> None:
        """After `since`, the next undo takes the edit just before, to the microsecond."""
        recorded.add("User likes tea")
        recorded.clock.forward(microseconds=300)
        recorded.add("User likes coffee")
        instant = recorded.clock.at + timedelta(microseconds=1)
        recorded.add("User likes water")
        recorded.undo(since=instant)
        recorded.undo()
        assert recorded.live_texts() == ["User likes tea"]
        recorded.undo(4)
        recorded.undo()
        assert recorded.live_texts() == ["User likes tea"]

    def test_an_undo_can_be_undone_repeatedly(self, recorded: RecordedLedger) -> None:
        """An undo can be undone any number of times, so nothing is lost."""
        memory = recorded.add("User likes tea")
        recorded.apply(ALICE, Decision(Event.UPDATE, Fact("User likes coffee"), memory.id))
        for texts in (["User likes tea"], ["User likes coffee"], ["User likes tea"], ["User likes coffee"]):
            recorded.undo(recorded.edits()[0].number)
            assert recorded.live_texts() == texts
        assert [edit.provenance.stage for edit in recorded.edits()] == [
            "undo 5",
            "undo 4",
            "undo 3",
            "undo 2",
            "test",
            "test",
        ]
        assert {edit.provenance.caller for edit in recorded.edits()} == {"pytest"}

    def test_an_edit_that_was_redone_is_the_newest_again(self, recorded: RecordedLedger) -> None:
        """After a redo, undo starts with the edit that was redone."""
        recorded.add("User likes tea")
        recorded.add("User likes coffee")
        recorded.undo()
        recorded.undo(3)
        recorded.undo()
        assert recorded.live_texts() == ["User likes tea"]

    def test_undoing_an_edit_that_was_changed_again_is_refused(self, recorded: RecordedLedger) -> None:
        """Undoing an earlier edit must not discard later work."""
        memory, other = recorded.add("User likes tea"), recorded.add("User has a dog")
        both = (Decision(Event.UPDATE, Fact(f"{text}!"), owner.id) for text, owner in (("Tea", memory), ("Dog", other)))
        recorded.apply(ALICE, *both)
        recorded.apply(ALICE, Decision(Event.UPDATE, Fact("Dog?"), other.id))
        for number in (2, 3):
            with pytest.raises(InputError, match=rf"edit {number} was changed again.*palimpsest log shows.*--since"):
                recorded.undo(number)
        assert recorded.live_texts() == ["Dog?", "Tea!"]
        recorded.undo(4)
        recorded.undo(3)
        assert recorded.live_texts() == ["User has a dog", "User likes tea"]

    def test_undoing_an_edit_twice_is_refused(self, recorded: RecordedLedger) -> None:
        """A repeated undo by number must not become a redo."""
        recorded.add("User likes tea")
        recorded.undo(1)
        rows = recorded.history_rows()
        with pytest.raises(InputError, match="edit 1 was changed again or undone since"):
            recorded.undo(1)
        assert recorded.history_rows() == rows

    def test_an_undo_that_would_duplicate_a_living_memory_is_refused(self, recorded: RecordedLedger) -> None:
        """No two living memories have the same text: the duplicate is named, and nothing is undone."""
        memory, other = recorded.add("User likes tea"), recorded.add("User has a dog")
        deletions = (Decision(Event.DELETE, memory_id=owner.id) for owner in (other, memory))
        recorded.apply(ALICE, *deletions)
        twin = recorded.add("user likes TEA")
        rows = recorded.history_rows()
        duplicate = rf"memory {twin.id[:8]} says the same as {memory.id[:8]}.*nothing was undone. Delete that one first"
        with pytest.raises(InputError, match=duplicate):
            recorded.undo(3)
        assert (recorded.live_texts(), recorded.history_rows()) == (["user likes TEA"], rows)
        recorded.apply(ALICE, Decision(Event.DELETE, memory_id=twin.id))
        recorded.undo(3)
        assert recorded.live_texts() == ["User has a dog", "User likes tea"]

    def test_an_unknown_number_is_refused(self, recorded: RecordedLedger) -> None:
        """A mistyped number must not undo another edit."""
        recorded.add("User likes tea")
        for number in (0, -1, 2, 10**12):
            with pytest.raises(InputError, match=rf"there is no edit {number} in this scope \(user alice\)"):
                recorded.undo(number)


class TestScopes:
    @pytest.mark.few_by_day(1)
    @pytest.mark.parametrize(
        "scope", [Scope("bob"), WEB, Scope("alice", agent_id="coder"), Scope("bob", project="web")]
    )
    def test_an_edit_of_another_scope_is_refused(self, recorded: RecordedLedger, scope: Scope) -> None:
        """Nobody can undo the edits of another scope, by number, by time or without either."""
        recorded.add("Theirs", scope)
        recorded.store_messages("Theirs too", scope=scope)
        other_scope = Scope("alice", run_id="r1") if scope.user_id == "alice" else ALICE
        rows = recorded.history_rows()
        for request in (Undo(edit=1), Undo(edit=2), Undo()):
            with pytest.raises(InputError, match="in this scope"):
                recorded.apply(other_scope, undo=request)
        assert recorded.undo(since=datetime(2020, 1, 1, tzinfo=UTC), scope=other_scope).outcomes == ()
        assert recorded.history_rows() == rows

    def test_an_edit_is_undone_in_a_scope_that_sees_all_of_it(self, recorded: RecordedLedger) -> None:
        """An edit is undone as a whole, also across projects."""
        everywhere, web = recorded.add("User likes tea"), recorded.add("The site is blue", WEB)
        deletions = (Decision(Event.DELETE, memory_id=owner.id) for owner in (everywhere, web))
        recorded.apply(WEB, *deletions)
        with pytest.raises(InputError, match="edit 3 also belongs to another project"):
            recorded.undo(3)
        assert recorded.live_entries() == {}
        recorded.undo(3, scope=WEB)
        assert (recorded.live_texts(), recorded.live_texts(WEB)) == (["User likes tea"], ["The site is blue"])

    def test_the_log_of_a_scope_is_paged_newest_first(self, recorded: RecordedLedger) -> None:
        """The log has no edit of another project, and none is missing between two pages."""
        for number in range(5):
            recorded.add(f"Fact {number}")
            recorded.add(f"Secret {number}", WEB)
        with recorded.ledger.read() as conn:
            first = history.edits(conn, ALICE, 2)
            rest = history.edits(conn, ALICE, 10, before=first[-1].number)
        assert [edit.steps[0].after for edit in first + rest] == [f"Fact {number}" for number in (4, 3, 2, 1, 0)]
        assert [edit.number for edit in first + rest] == [9, 7, 5, 3, 1]


class TestSince:
    def test_texts_that_moved_between_memories_move_back(self, recorded: RecordedLedger) -> None:
        """No two living memories have the same text, so the order of the steps matters."""
        one, other = recorded.add("User likes tea"), recorded.add("User likes coffee")
        instant = recorded.clock.at + timedelta(seconds=1)
        recorded.apply(ALICE, Decision(Event.UPDATE, Fact("User likes water"), one.id))
        recorded.apply(ALICE, Decision(Event.UPDATE, Fact("User likes tea"), other.id))
        recorded.apply(ALICE, Decision(Event.UPDATE, Fact("User likes coffee"), one.id))
        applied = recorded.undo(since=instant)
        assert [change.event for change in applied.outcomes] == [Event.UPDATE, Event.UPDATE]
        assert {key: value[1] for key, value in recorded.live_entries().items()} == {
            one.id: one.text,
            other.id: other.text,
        }
        recorded.embed_missing()
        assert recorded.faults() == []

    def test_undo_since_an_instant_is_one_edit_and_includes_the_instant(self, recorded: RecordedLedger) -> None:
        """An edit at the very instant is undone, and one just before it is not."""
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

    def test_undoing_nothing_is_not_an_edit(self, recorded: RecordedLedger) -> None:
        """Undoing nothing writes no edit, and a repeated `since` does nothing."""
        recorded.add("User likes tea")
        for _ in range(2):
            assert recorded.undo(since=recorded.clock.at + timedelta(hours=1)).outcomes == ()
        instant = recorded.clock.at - timedelta(minutes=2)
        recorded.undo(since=instant)
        rows = recorded.history_rows()
        assert recorded.undo(since=instant).outcomes == ()
        assert recorded.history_rows() == rows

    def test_a_restore_after_undo_since_has_the_deleted_text(self, recorded: RecordedLedger) -> None:
        """After the undo, a restore brings back the text that was deleted, not a later one."""
        memory = recorded.add("User likes tea", metadata={"a": 1})
        recorded.apply(ALICE, Decision(Event.DELETE, memory_id=memory.id))
        instant = recorded.clock.at + timedelta(seconds=1)
        back = Decision(Event.ADD, memory_id=memory.id)
        recorded.apply(ALICE, back)
        recorded.apply(ALICE, Decision(Event.UPDATE, Fact("User likes water", metadata={"a": 2}), memory.id))
        recorded.undo(since=instant)
        redo = recorded.edits()[0].number
        assert recorded.live_entries() == {}
        recorded.apply(ALICE, back)
        assert recorded.live_entries() == {memory.id: memory_fields(memory)}
        recorded.undo()
        recorded.undo(redo)
        assert recorded.live_texts() == ["User likes water"]


class TestOtherWrites:
    def test_a_decision_is_stale_after_an_undo(self, recorded: RecordedLedger) -> None:
        """An undo between a decision and its write makes the decision stale."""
        memory = recorded.add("User lives in Nice")
        recorded.apply(ALICE, Decision(Event.DELETE, memory_id=memory.id))
        with recorded.ledger.read() as conn:
            log_number = entries.newest_log_number(conn)
        recorded.undo()
        with pytest.raises(StaleDecisionError):
            recorded.apply(ALICE, Decision(Event.ADD, Fact("User lives in Lyon")), based_on=log_number)
        read = {memory.id: 3}
        recorded.undo()
        with pytest.raises(StaleDecisionError):
            recorded.apply(ALICE, Decision(Event.ADD, Fact("User lives in Lyon")), read=read)
        assert recorded.live_entries() == {}

    def test_a_restored_message_is_a_neighbour_again(self, recorded: RecordedLedger) -> None:
        """Deleting and restoring messages updates the keys of their neighbours and of their memories."""
        first, middle, last = recorded.store_messages("What do you play?", "The cello.", "Nice.")
        recorded.apply(ALICE, Decision(Event.ADD, Fact("User plays the cello", sources=(middle.id,))))
        everything = recorded.live_entries()
        recorded.apply(
            ALICE, *(Decision(Event.DELETE, memory_id=owner.id, kind="message") for owner in (first, middle, last))
        )
        assert recorded.faults() == []
        recorded.undo()
        assert (recorded.live_entries(), recorded.faults()) == (everything, [])
