"""The projection: it catches up with the ledger, answers queries, is shared between processes, and can be stopped."""

from __future__ import annotations

from pathlib import Path

import pytest

from palimpsest.core.errors import VectorIndexError
from palimpsest.core.models import Decision, Event, Fact
from palimpsest.index.sync import BATCH
from palimpsest.store import contextual_keys
from palimpsest.store.documents import EmbeddedText
from palimpsest.store.ledger import Ledger
from tests.support.projections import (
    EMBEDDER,
    Indexes,
    add,
    agrees,
    direction,
    entry_of,
    facts,
    ignore,
    nearest,
    opened,
    projected,
    write,
)


class TestCatchingUp:
    @pytest.mark.few_by_day(1)
    def test_added_changed_and_deleted_memories_are_followed(
        self, ledger: Ledger, indexes: Indexes, root: Path
    ) -> None:
        """After catching up, the index holds exactly the ledger's keys."""
        with opened(ledger, indexes.open, root) as projection:
            first, second, third = add(ledger, "one", "two", "three")
            projection.catch_up()
            assert agrees(ledger, indexes.last)
            changed = write(ledger, Decision(Event.UPDATE, Fact("two, but otherwise"), second.memory.id))[0]
            deleted_entry = entry_of(ledger, third)
            write(ledger, Decision(Event.DELETE, memory_id=third.memory.id))
            projection.catch_up()
            assert agrees(ledger, indexes.last)
            assert deleted_entry in indexes.last.deleted
            assert nearest(ledger, projection, "two, but otherwise", 1) == [entry_of(ledger, changed)]
            assert deleted_entry not in (nearest(ledger, projection, "three", 9) or [deleted_entry])
            write(ledger, Decision(Event.ADD, memory_id=third.memory.id))
            projection.catch_up()
            assert agrees(ledger, indexes.last)
            assert nearest(ledger, projection, "three", 1) == [deleted_entry], "a restored memory keeps its number"
            assert first.memory.text == "one"

    @pytest.mark.few_by_day(1)
    def test_a_memory_is_in_the_index_while_it_has_a_vector(self, ledger: Ledger, indexes: Indexes, root: Path) -> None:
        """It enters when its vector comes later, and an old text's vector never represents a new text without one."""
        with opened(ledger, indexes.open, root) as projection:
            (outcome,) = add(ledger, "not embedded", embedder="")
            projection.catch_up()
            assert projection.count() == 0
            seq = entry_of(ledger, outcome)
            embedded = {seq: EmbeddedText("not embedded", EMBEDDER, direction("not embedded"))}
            ledger.run(contextual_keys.give_vectors, ledger.full_text, embedded, ledger.clock())
            projection.catch_up()
            assert agrees(ledger, indexes.last)
            assert nearest(ledger, projection, "not embedded") == [seq]
            write(ledger, Decision(Event.UPDATE, Fact("new"), outcome.memory.id), embedder="")
            projection.catch_up()
            assert projection.count() == 0

    @pytest.mark.few_by_day(1)
    def test_changes_made_during_a_build_are_in_the_index(self, ledger: Ledger, indexes: Indexes, root: Path) -> None:
        """Changes made during the fill are applied from the log afterwards."""
        doomed, *_ = add(ledger, *facts(BATCH + 10))

        def write_during_build(_call: str) -> None:
            indexes.last.before = ignore
            add(ledger, "came meanwhile")
            write(ledger, Decision(Event.DELETE, memory_id=doomed.memory.id))

        indexes.before = write_during_build
        with opened(ledger, indexes.open, root) as projection:
            assert projection.state == "ready"
            assert agrees(ledger, indexes.last)


class TestQuery:
    @pytest.mark.few_by_day(1)
    def test_entries_changed_since_the_checkpoint_are_returned_too(
        self, ledger: Ledger, indexes: Indexes, root: Path
    ) -> None:
        """A new fact is found before the index has it."""
        old, changed = add(ledger, "old", "to be changed")
        with opened(ledger, indexes.open, root) as projection:
            (new,) = add(ledger, "new")
            add(ledger, "of someone else", user="bert")
            write(ledger, Decision(Event.UPDATE, Fact("changed"), changed.memory.id))
            entries = nearest(ledger, projection, "old", 1)
            assert entries is not None
            assert entries[0] == entry_of(ledger, old)
            assert {entry_of(ledger, new), 2} <= set(entries)
            assert len(set(entries)) == 3, "changes of other users are not returned"

    def test_a_failed_query_makes_the_index_broken(self, ledger: Ledger, exact: Indexes, root: Path) -> None:
        """Searches go on without the index, and `fault` keeps the error for `doctor`."""
        add(ledger, "one")

        def fail(_call: str) -> None:
            raise VectorIndexError("Error finding id")

        with opened(ledger, exact.open, root) as projection:
            exact.last.before = fail
            assert nearest(ledger, projection, "one") is None
            assert (projection.state, projection.fault) == ("broken", "Error finding id")
            exact.last.before = ignore
            assert nearest(ledger, projection, "one") is None, "a broken index is not queried again"
            projection.rebuild()
            assert nearest(ledger, projection, "one") == [1]


class TestStopping:
    @pytest.mark.few_by_day(1)
    def test_a_stopped_build_ends_early_and_the_next_start_builds_again(
        self, ledger: Ledger, indexes: Indexes, root: Path
    ) -> None:
        """The end of the process does not wait for a long build, and a partial index is never used."""
        add(ledger, *facts(3 * BATCH))
        with projected(ledger, indexes.open, root) as projection:
            indexes.before = lambda _: projection.stop()
            projection.open()
            assert len(indexes.last.upserted) == BATCH
            assert projection.state != "ready"
            assert nearest(ledger, projection, "fact 1") is None
        assert not (root / "0" / "checkpoint.json").exists()
        indexes.before = ignore
        with opened(ledger, indexes.open, root):
            assert len(indexes.last.upserted) == 3 * BATCH
            assert agrees(ledger, indexes.last)
