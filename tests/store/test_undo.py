"""Undo: every edit can be undone, and an undo is an edit itself."""

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
from tests.support.databases import DATABASES
from tests.support.memory import ALICE
from tests.support.recorded_ledger import WEB, RecordedLedger, memory_fields, recorded_ledger


@pytest.fixture(params=DATABASES)
def book(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[RecordedLedger]:
    """Yield an empty recorded ledger in each database."""
    with recorded_ledger(tmp_path, DATABASES[request.param]) as opened:
        yield opened


class TestOneEdit:
    def test_undo_goes_back_until_nothing_is_left(self, book: RecordedLedger) -> None:
        """Called again, undo goes one edit further back and does not undo its own edit."""
        memory = book.add("User likes tea")
        book.apply(ALICE, Decision(Event.UPDATE, Fact("User likes coffee"), memory.id))
        book.say("Hello")
        book.add("User likes wine", WEB)
        book.apply(ALICE, Decision(Event.ADD, Fact("User likes water"), replaces=(memory.id,)))
        for expected in (
            ["Hello", "User likes coffee"],
            ["User likes coffee"],
            ["User likes tea"],
            [],
        ):
            book.undo()
            assert book.texts() == expected
        with pytest.raises(InputError, match="there is no edit left to undo"):
            book.undo()
        assert book.texts(WEB) == ["User likes wine"], "an edit of another scope is skipped"

    def test_undo_undoes_each_edit_once_although_states_repeat(self, book: RecordedLedger) -> None:
        """A restored memory has an earlier state again. Undo must not go back and forth between the two."""
        memory = book.add("User likes tea")
        deletion, restoration = (Decision(event, memory_id=memory.id) for event in (Event.DELETE, Event.ADD))
        (turn,) = book.say("Hello")
        for decision in (deletion, restoration, deletion, restoration):
            book.apply(ALICE, decision, replace(decision, memory_id=turn.id, kind="message"))
        both = ["Hello", "User likes tea"]
        for expected in ([], both, [], both, ["User likes tea"], []):
            book.undo()
            assert book.texts() == expected
        with pytest.raises(InputError, match="there is no edit left to undo"):
            book.undo()

    def test_undo_skips_edits_that_undo_since_has_undone(self, book: RecordedLedger) -> None:
        """After `since`, the next undo takes the edit just before, to the microsecond."""
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

    def test_an_undo_can_be_undone_repeatedly(self, book: RecordedLedger) -> None:
        """An undo can be undone any number of times, so nothing is lost."""
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
        """After a redo, undo starts with the edit that was redone."""
        book.add("User likes tea")
        book.add("User likes coffee")
        book.undo()
        book.undo(3)
        book.undo()
        assert book.texts() == ["User likes tea"]

    def test_undoing_an_edit_that_was_changed_again_is_refused(self, book: RecordedLedger) -> None:
        """Undoing an earlier edit must not discard later work."""
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

    def test_undoing_an_edit_twice_is_refused(self, book: RecordedLedger) -> None:
        """A repeated undo by number must not become a redo."""
        book.add("User likes tea")
        book.undo(1)
        rows = book.rows()
        with pytest.raises(InputError, match="edit 1 was changed again or undone since"):
            book.undo(1)
        assert book.rows() == rows

    def test_an_undo_that_would_duplicate_a_living_memory_is_refused(self, book: RecordedLedger) -> None:
        """No two living memories have the same text: the duplicate is named, and nothing is undone."""
        memory, other = book.add("User likes tea"), book.add("User has a dog")
        deletions = (Decision(Event.DELETE, memory_id=each.id) for each in (other, memory))
        book.apply(ALICE, *deletions)
        twin = book.add("user likes TEA")
        rows = book.rows()
        duplicate = rf"memory {twin.id[:8]} says the same as {memory.id[:8]}.*nothing was undone. Delete that one first"
        with pytest.raises(InputError, match=duplicate):
            book.undo(3)
        assert (book.texts(), book.rows()) == (["user likes TEA"], rows)
        book.apply(ALICE, Decision(Event.DELETE, memory_id=twin.id))
        book.undo(3)
        assert book.texts() == ["User has a dog", "User likes tea"]

    def test_an_unknown_number_is_refused(self, book: RecordedLedger) -> None:
        """A mistyped number must not undo another edit."""
        book.add("User likes tea")
        for number in (0, -1, 2, 10**12):
            with pytest.raises(InputError, match=rf"there is no edit {number} in this scope \(user alice\)"):
                book.undo(number)


class TestScopes:
    @pytest.mark.parametrize(
        "scope", [Scope("bob"), WEB, Scope("alice", agent_id="coder"), Scope("bob", project="web")]
    )
    def test_an_edit_of_another_scope_is_refused(self, book: RecordedLedger, scope: Scope) -> None:
        """Nobody can undo the edits of another scope, by number, by time or without either."""
        book.add("Theirs", scope)
        book.say("Theirs too", scope=scope)
        mine = Scope("alice", run_id="r1") if scope.user_id == "alice" else ALICE
        rows = book.rows()
        for request in (Undo(edit=1), Undo(edit=2), Undo()):
            with pytest.raises(InputError, match="in this scope"):
                book.apply(mine, undo=request)
        assert book.undo(since=datetime(2020, 1, 1, tzinfo=UTC), scope=mine).outcomes == ()
        assert book.rows() == rows

    def test_an_edit_is_undone_in_a_scope_that_sees_all_of_it(self, book: RecordedLedger) -> None:
        """An edit is undone as a whole, also across projects."""
        everywhere, web = book.add("User likes tea"), book.add("The site is blue", WEB)
        deletions = (Decision(Event.DELETE, memory_id=each.id) for each in (everywhere, web))
        book.apply(WEB, *deletions)
        with pytest.raises(InputError, match="edit 3 also belongs to another project"):
            book.undo(3)
        assert book.living() == {}
        book.undo(3, scope=WEB)
        assert (book.texts(), book.texts(WEB)) == (["User likes tea"], ["The site is blue"])

    def test_the_log_of_a_scope_is_paged_newest_first(self, book: RecordedLedger) -> None:
        """The log has no edit of another project, and none is missing between two pages."""
        for number in range(5):
            book.add(f"Fact {number}")
            book.add(f"Secret {number}", WEB)
        with book.ledger.read() as conn:
            first = edit_queries.edits(conn, ALICE, 2)
            rest = edit_queries.edits(conn, ALICE, 10, before=first[-1].number)
        assert [edit.steps[0].after for edit in first + rest] == [f"Fact {number}" for number in (4, 3, 2, 1, 0)]
        assert [edit.number for edit in first + rest] == [9, 7, 5, 3, 1]


class TestSince:
    def test_texts_that_moved_between_memories_move_back(self, book: RecordedLedger) -> None:
        """No two living memories have the same text, so the order of the steps matters."""
        one, other = book.add("User likes tea"), book.add("User likes coffee")
        instant = book.clock.at + timedelta(seconds=1)
        book.apply(ALICE, Decision(Event.UPDATE, Fact("User likes water"), one.id))
        book.apply(ALICE, Decision(Event.UPDATE, Fact("User likes tea"), other.id))
        book.apply(ALICE, Decision(Event.UPDATE, Fact("User likes coffee"), one.id))
        applied = book.undo(since=instant)
        assert [change.event for change in applied.outcomes] == [Event.UPDATE, Event.UPDATE]
        assert {key: value[1] for key, value in book.living().items()} == {one.id: one.text, other.id: other.text}
        book.embed()
        assert book.faults() == []

    def test_undo_since_an_instant_is_one_edit_and_includes_the_instant(self, book: RecordedLedger) -> None:
        """An edit at the very instant is undone, and one just before it is not."""
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

    def test_undoing_nothing_is_not_an_edit(self, book: RecordedLedger) -> None:
        """Undoing nothing writes no edit, and a repeated `since` does nothing."""
        book.add("User likes tea")
        for _ in range(2):
            assert book.undo(since=book.clock.at + timedelta(hours=1)).outcomes == ()
        instant = book.clock.at - timedelta(minutes=2)
        book.undo(since=instant)
        rows = book.rows()
        assert book.undo(since=instant).outcomes == ()
        assert book.rows() == rows

    def test_a_restore_after_undo_since_has_the_deleted_text(self, book: RecordedLedger) -> None:
        """After the undo, a restore brings back the text that was deleted, not a later one."""
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


class TestOtherWrites:
    def test_a_decision_is_stale_after_an_undo(self, book: RecordedLedger) -> None:
        """An undo between a decision and its write makes the decision stale."""
        memory = book.add("User lives in Nice")
        book.apply(ALICE, Decision(Event.DELETE, memory_id=memory.id))
        with book.ledger.read() as conn:
            log_number = log_queries.newest_log_number(conn)
        book.undo()
        with pytest.raises(StaleDecisionError):
            book.apply(ALICE, Decision(Event.ADD, Fact("User lives in Lyon")), based_on=log_number)
        read = {memory.id: 3}
        book.undo()
        with pytest.raises(StaleDecisionError):
            book.apply(ALICE, Decision(Event.ADD, Fact("User lives in Lyon")), read=read)
        assert book.living() == {}

    def test_a_restored_message_is_a_neighbour_again(self, book: RecordedLedger) -> None:
        """Deleting and restoring messages updates the keys of their neighbours and of their memories."""
        first, middle, last = book.say("What do you play?", "The cello.", "Nice.")
        book.apply(ALICE, Decision(Event.ADD, Fact("User plays the cello", sources=(middle.id,))))
        everything = book.living()
        book.apply(
            ALICE, *(Decision(Event.DELETE, memory_id=each.id, kind="message") for each in (first, middle, last))
        )
        assert book.faults() == []
        book.undo()
        assert (book.living(), book.faults()) == (everything, [])
