"""Taking back: every change has a way back, which is a change too."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from palimpsest.core.errors import InputError, StaleDecisionError
from palimpsest.core.models import Decision, Event, Fact, Scope, Undo
from palimpsest.store.queries import edits as edit_queries
from palimpsest.store.queries import index_log as log_queries
from tests.support.memory import ALICE
from tests.support.recorded_ledger import WEB, RecordedLedger, memory_fields, recorded_ledger


@pytest.fixture
def book(tmp_path: Path) -> Generator[RecordedLedger]:
    with recorded_ledger(tmp_path) as opened:
        yield opened


class TestOneEdit:
    def test_plain_undo_walks_backwards_until_nothing_is_left(self, book: RecordedLedger) -> None:
        """Guards the everyday undo: called again it takes back the edit before, and not its own work."""
        memory = book.add("User likes tea")
        book.apply(ALICE, Decision(Event.UPDATE, Fact("User likes coffee"), memory.id))
        book.say("Hello")
        book.add("User likes wine", WEB)
        book.apply(ALICE, Decision(Event.ADD, Fact("User likes water"), replaces=(memory.id,)))
        for left in (
            ["Hello", "User likes coffee"],
            ["User likes coffee"],
            ["User likes tea"],
            [],
        ):
            book.undo()
            assert book.texts() == left
        with pytest.raises(InputError, match="there is no edit left to undo"):
            book.undo()
        assert book.texts(WEB) == ["User likes wine"], "another scope's edit is passed over"

    def test_plain_undo_takes_every_edit_back_once_though_states_come_again(self, book: RecordedLedger) -> None:
        """Guards against going to and fro: added, deleted and restored, a memory is as it was two edits ago."""
        memory = book.add("User likes tea")
        gone, back = (Decision(event, memory_id=memory.id) for event in (Event.DELETE, Event.ADD))
        (turn,) = book.say("Hello")
        for decision in (gone, back, gone, back):
            book.apply(ALICE, decision, replace(decision, memory_id=turn.id, kind="message"))
        both = ["Hello", "User likes tea"]
        for left in ([], both, [], both, ["User likes tea"], []):
            book.undo()
            assert book.texts() == left
        with pytest.raises(InputError, match="there is no edit left to undo"):
            book.undo()

    def test_what_an_undo_since_took_back_is_passed_over(self, book: RecordedLedger) -> None:
        """Guards plain undo after `since`, to the microsecond: what was done just before is the next to go."""
        book.add("User likes tea")
        book.clock.forward(microseconds=300)
        book.add("User likes coffee")
        instant = book.clock.at + timedelta(microseconds=1)
        book.add("User likes water")
        book.undo(since=instant)
        book.undo()
        assert book.texts() == ["User likes tea"]
        book.undo(4)
        book.undo()
        assert book.texts() == ["User likes tea"]

    def test_an_undo_is_an_edit_that_can_be_undone_and_undone_again(self, book: RecordedLedger) -> None:
        """Guards redo, any number of times: what is taken back is never lost."""
        memory = book.add("User likes tea")
        book.apply(ALICE, Decision(Event.UPDATE, Fact("User likes coffee"), memory.id))
        for texts in (["User likes tea"], ["User likes coffee"], ["User likes tea"], ["User likes coffee"]):
            book.undo(book.log()[0].number)
            assert book.texts() == texts
        assert [edit.provenance.stage for edit in book.log()] == [
            "undo 5",
            "undo 4",
            "undo 3",
            "undo 2",
            "test",
            "test",
        ]
        assert {edit.provenance.caller for edit in book.log()} == {"pytest"}

    def test_an_edit_that_was_redone_is_the_newest_again(self, book: RecordedLedger) -> None:
        """Guards plain undo after a redo."""
        book.add("User likes tea")
        book.add("User likes coffee")
        book.undo()
        book.undo(3)
        book.undo()
        assert book.texts() == ["User likes tea"]

    def test_an_edit_that_was_changed_again_since_is_refused_and_says_what_to_do(self, book: RecordedLedger) -> None:
        """Guards later work against the undo of earlier work."""
        memory, other = book.add("User likes tea"), book.add("User has a dog")
        both = (Decision(Event.UPDATE, Fact(f"{text}!"), each.id) for text, each in (("Tea", memory), ("Dog", other)))
        book.apply(ALICE, *both)
        book.apply(ALICE, Decision(Event.UPDATE, Fact("Dog?"), other.id))
        for number in (2, 3):
            with pytest.raises(InputError, match=rf"edit {number} was changed again.*palimpsest log shows.*--since"):
                book.undo(number)
        assert book.texts() == ["Dog?", "Tea!"]
        book.undo(4)
        book.undo(3)
        assert book.texts() == ["User has a dog", "User likes tea"]

    def test_an_edit_taken_back_already_is_refused(self, book: RecordedLedger) -> None:
        """Guards a retried undo by number: sent again it does not turn into a redo."""
        book.add("User likes tea")
        book.undo(1)
        rows = book.rows()
        with pytest.raises(InputError, match="changed again or undone since"):
            book.undo(1)
        assert book.rows() == rows

    def test_an_edit_is_refused_where_another_memory_says_now_what_would_come_back(self, book: RecordedLedger) -> None:
        """Guards the unique text: the twin is named, and no part of the edit is taken back."""
        memory, other = book.add("User likes tea"), book.add("User has a dog")
        gone = (Decision(Event.DELETE, memory_id=each.id) for each in (other, memory))
        book.apply(ALICE, *gone)
        twin = book.add("user likes TEA")
        rows = book.rows()
        with pytest.raises(
            InputError, match=rf"memory {twin.id[:8]} says the same as {memory.id[:8]}.*Delete that one"
        ):
            book.undo(3)
        assert (book.texts(), book.rows()) == (["user likes TEA"], rows)
        book.apply(ALICE, Decision(Event.DELETE, memory_id=twin.id))
        book.undo(3)
        assert book.texts() == ["User has a dog", "User likes tea"]

    def test_a_number_nobody_gave_is_refused(self, book: RecordedLedger) -> None:
        """Guards against a mistyped number that would do something else."""
        book.add("User likes tea")
        for number in (0, -1, 2, 10**12):
            with pytest.raises(InputError, match=rf"there is no edit {number} in this scope \(user alice\)"):
                book.undo(number)


class TestScopes:
    @pytest.mark.parametrize(
        "scope", [Scope("bob"), WEB, Scope("alice", agent_id="coder"), Scope("bob", project="web")]
    )
    def test_an_edit_of_another_scope_is_refused(self, book: RecordedLedger, scope: Scope) -> None:
        """Guards everybody's memories against the undo of somebody else, by number, by time and without either."""
        book.add("Theirs", scope)
        book.say("Theirs too", scope=scope)
        mine = Scope("alice", run_id="r1") if scope.user_id == "alice" else ALICE
        rows = book.rows()
        for wanted in (Undo(edit=1), Undo(edit=2), Undo()):
            with pytest.raises(InputError, match="in this scope"):
                book.apply(mine, undo=wanted)
        assert book.undo(since=datetime(2020, 1, 1, tzinfo=UTC), scope=mine).outcomes == ()
        assert book.rows() == rows

    def test_an_edit_that_a_scope_sees_a_part_of_is_taken_back_whereall_of_it_is_seen(
        self, book: RecordedLedger
    ) -> None:
        """Guards all-or-nothing across projects."""
        everywhere, web = book.add("User likes tea"), book.add("The site is blue", WEB)
        gone = (Decision(Event.DELETE, memory_id=each.id) for each in (everywhere, web))
        book.apply(WEB, *gone)
        with pytest.raises(InputError, match="edit 3 also belongs to another project"):
            book.undo(3)
        assert book.living() == {}
        book.undo(3, scope=WEB)
        assert (book.texts(), book.texts(WEB)) == (["User likes tea"], ["The site is blue"])

    def test_a_log_shows_a_scope_what_it_sees_newest_first_and_in_pages(self, book: RecordedLedger) -> None:
        """Guards the numbers that undo takes: none of another project's, none left out between two pages."""
        for number in range(5):
            book.add(f"Fact {number}")
            book.add(f"Secret {number}", WEB)
        with book.ledger.read() as conn:
            first = edit_queries.edits(conn, ALICE, 2)
            rest = edit_queries.edits(conn, ALICE, 10, before=first[-1].number)
        assert [edit.steps[0].after for edit in first + rest] == [f"Fact {number}" for number in (4, 3, 2, 1, 0)]
        assert [edit.number for edit in first + rest] == [9, 7, 5, 3, 1]


class TestSince:
    def test_texts_that_moved_from_one_memory_to_another_move_back(self, book: RecordedLedger) -> None:
        """Guards the unique text on the way back: the one that has it now has to let it go first."""
        one, other = book.add("User likes tea"), book.add("User likes coffee")
        instant = book.clock.at + timedelta(seconds=1)
        book.apply(ALICE, Decision(Event.UPDATE, Fact("User likes water"), one.id))
        book.apply(ALICE, Decision(Event.UPDATE, Fact("User likes tea"), other.id))
        book.apply(ALICE, Decision(Event.UPDATE, Fact("User likes coffee"), one.id))
        done = book.undo(since=instant)
        assert [change.event for change in done.outcomes] == [Event.UPDATE, Event.UPDATE]
        assert {key: value[1] for key, value in book.living().items()} == {one.id: one.text, other.id: other.text}
        book.embed()
        assert book.faults() == []

    def test_all_since_an_instant_is_one_edit_and_the_instant_itself_belongs_to_it(self, book: RecordedLedger) -> None:
        """Guards the bounds: what was written at the very instant goes too, what was a moment before it stays."""
        book.add("Before")
        book.add("At the instant")
        instant = book.clock.at
        book.add("After")
        book.say("A turn after")
        book.undo(since=instant)
        assert book.texts() == ["Before"]
        newest = book.log()[0]
        assert (newest.provenance.stage, len(newest.steps)) == (f"undo since {instant:%Y-%m-%dT%H:%M:%SZ}", 3)
        book.undo(newest.number)
        assert book.texts() == ["A turn after", "After", "At the instant", "Before"]

    def test_nothing_since_is_no_edit(self, book: RecordedLedger) -> None:
        """Guards against empty edits, and `since` against being sent again."""
        book.add("User likes tea")
        for _ in range(2):
            assert book.undo(since=book.clock.at + timedelta(hours=1)).outcomes == ()
        instant = book.clock.at - timedelta(minutes=2)
        book.undo(since=instant)
        rows = book.rows()
        assert book.undo(since=instant).outcomes == ()
        assert book.rows() == rows

    def test_a_memory_that_was_deleted_then_comes_back_with_the_text_of_then(self, book: RecordedLedger) -> None:
        """Guards what a restore gives after an undo: the text that was deleted, not one it got later."""
        memory = book.add("User likes tea", metadata={"a": 1})
        book.apply(ALICE, Decision(Event.DELETE, memory_id=memory.id))
        instant = book.clock.at + timedelta(seconds=1)
        back = Decision(Event.ADD, memory_id=memory.id)
        book.apply(ALICE, back)
        book.apply(ALICE, Decision(Event.UPDATE, Fact("User likes water", metadata={"a": 2}), memory.id))
        book.undo(since=instant)
        redo = book.log()[0].number
        assert book.living() == {}
        book.apply(ALICE, back)
        assert book.living() == {memory.id: memory_fields(memory)}
        book.undo()
        book.undo(redo)
        assert book.texts() == ["User likes water"]


class TestOthersWork:
    def test_a_decision_on_what_was_taken_back_meanwhile_is_made_again(self, book: RecordedLedger) -> None:
        """Guards decide-then-apply against an undo in between, whatever it brought back or took away."""
        memory = book.add("User lives in Nice")
        book.apply(ALICE, Decision(Event.DELETE, memory_id=memory.id))
        with book.ledger.read() as conn:
            seen = log_queries.newest_log_number(conn)
        book.undo()
        with pytest.raises(StaleDecisionError):
            book.apply(ALICE, Decision(Event.ADD, Fact("User lives in Lyon")), based_on=seen)
        read = {memory.id: 3}
        book.undo()
        with pytest.raises(StaleDecisionError):
            book.apply(ALICE, Decision(Event.ADD, Fact("User lives in Lyon")), read=read)
        assert book.living() == {}

    def test_a_turn_that_is_forgotten_and_back_is_a_neighbour_again(self, book: RecordedLedger) -> None:
        """Guards the keys of a turn's neighbours and of the facts it bore through its forgetting and return."""
        first, middle, last = book.say("What do you play?", "The cello.", "Nice.")
        book.apply(ALICE, Decision(Event.ADD, Fact("User plays the cello", sources=(middle.id,))))
        everything = book.living()
        book.apply(
            ALICE, *(Decision(Event.DELETE, memory_id=each.id, kind="message") for each in (first, middle, last))
        )
        assert book.faults() == []
        book.undo()
        assert (book.living(), book.faults()) == (everything, [])
