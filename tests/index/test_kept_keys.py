"""The keys in memory: they agree with the ledger at every query, have a bound, and leave nothing after a purge."""

from __future__ import annotations

import random
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from palimpsest.core.models import Decision, Event, Fact, Scope
from palimpsest.index import sync
from palimpsest.index.sync import KeptKeys, Projection
from palimpsest.store.ledger import Ledger
from tests.support.ledger_access import all_keys, ledger_in
from tests.support.projections import (
    EMBEDDER,
    Indexes,
    add,
    direction,
    entry_of,
    facts,
    nearest,
    projected,
    write,
)

# The dimensions of the vectors of `direction`.
DIMS = 8


@pytest.fixture
def closed(ledger: Ledger, exact: Indexes, root: Path) -> Generator[Projection]:
    """Yield a projection that is never opened: what is found is found in memory."""
    with projected(ledger, exact.open, root) as projection:
        yield projection


@pytest.fixture
def kept(ledger: Ledger, closed: Projection) -> KeptKeys:
    return KeptKeys(ledger, closed)


def agrees(ledger: Ledger, kept: KeptKeys, user: str = "ana") -> bool:
    """Return whether the keys in memory are answered in exactly the order of the ledger's keys."""
    with ledger.read() as conn:
        seqs, keys = all_keys(conn, Scope(user), EMBEDDER)
    question = direction("question")
    order = np.lexsort((np.array(seqs), -(keys @ question)))
    hits = kept.query(user, question, len(seqs) + 10)
    few = kept.query(user, question, 3)
    assert hits is not None
    assert few is not None
    assert few.entries == hits.entries[:3]
    return list(hits.entries) == [seqs[row] for row in order.tolist()]


class TestFollowing:
    @pytest.mark.few_by_day(1)
    @pytest.mark.parametrize("seed", range(3))
    def test_any_order_of_writes_gives_the_keys_of_the_ledger(self, ledger: Ledger, kept: KeptKeys, seed: int) -> None:
        """What changed is followed."""
        choice = random.Random(seed)  # noqa: S311 - not a secret
        living, deleted = [outcome.memory.id for outcome in add(ledger, *facts(5))], list[str]()
        for step in range(40):
            match choice.choice(["add", "update", "delete", "restore", "other"]):
                case "update" if living:
                    write(ledger, Decision(Event.UPDATE, Fact(f"changed {step}"), choice.choice(living)))
                case "delete" if len(living) > 1:
                    deleted.append(living.pop(choice.randrange(len(living))))
                    write(ledger, Decision(Event.DELETE, memory_id=deleted[-1]))
                case "restore" if deleted:
                    living.append(deleted.pop())
                    write(ledger, Decision(Event.ADD, memory_id=living[-1]))
                case "other":
                    add(ledger, f"of another user {step}", user="bert")
                case _:
                    count = choice.randint(1, 3)
                    living += [outcome.memory.id for outcome in add(ledger, *facts(count, start=100 * (step + 1)))]
            assert agrees(ledger, kept)

    def test_queries_and_writes_in_many_threads(
        self, ledger: Ledger, kept: KeptKeys, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A query sees at least what was written before it began."""
        monkeypatch.setattr(sync, "MAX_WAIT", 60.0)  # a slow machine is no failure
        add(ledger, *facts(5))

        def write_and_query(number: int) -> bool:
            (outcome,) = add(ledger, f"by thread {number}")
            hits = nearest(ledger, kept, f"by thread {number}", 1)
            return hits is not None and hits[0] == entry_of(ledger, outcome)

        with ThreadPoolExecutor(4) as pool:
            assert all(pool.map(write_and_query, range(40)))
        assert agrees(ledger, kept)


class TestErasure:
    def test_a_purge_by_another_process_is_noticed_by_the_next_query_of_any_user(
        self, tmp_path: Path, ledger: Ledger, kept: KeptKeys
    ) -> None:
        """Erased keys do not stay in memory because their user never searches again."""
        (outcome,) = add(ledger, "to be erased")
        add(ledger, "of bert", user="bert")
        assert nearest(ledger, kept, "to be erased", 1) == [1]
        assert nearest(ledger, kept, "of bert", 1, user="bert") == [2]
        with ledger_in(tmp_path) as other:
            other.purge(Scope("ana"), [outcome.memory.id])
        assert nearest(ledger, kept, "of bert", 1, user="bert") == [2]
        assert list(kept.users) == ["bert"]
        assert nearest(ledger, kept, "to be erased") is None, "nothing is left, and the index is closed"


class TestBound:
    def test_a_user_with_more_keys_is_left_to_the_index(
        self, ledger: Ledger, exact: Indexes, root: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Chroma takes about as long for any number of keys, and has them on disk."""
        monkeypatch.setattr(sync, "MAX_NUMBERS", 3 * DIMS)
        with projected(ledger, exact.open, root) as projection:
            kept = KeptKeys(ledger, projection)
            outcomes = add(ledger, *facts(4))
            assert nearest(ledger, kept, "fact 1") is None
            projection.open()
            assert nearest(ledger, kept, "fact 1", 1) == [2]
            assert list(kept.users) == []
            write(ledger, Decision(Event.DELETE, memory_id=outcomes[0].memory.id))
            assert nearest(ledger, kept, "fact 1", 1) == [2]
            assert list(kept.users) == ["ana"]
            add(ledger, "one more")
            projection.catch_up()
            assert nearest(ledger, kept, "one more", 1) == [5]
            assert list(kept.users) == [], "they have grown too many"
