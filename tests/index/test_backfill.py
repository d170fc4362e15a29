"""Embedding anew: after a change of embedder, and what an embedder failed on."""

from __future__ import annotations

import zlib
from collections.abc import Generator, Sequence
from pathlib import Path

import numpy as np
import pytest

from palimpsest.core.errors import EmbedderError
from palimpsest.core.models import Decision, Event, Fact, Message, Outcome, Provenance, Scope
from palimpsest.core.protocols import Vector
from palimpsest.index.backfill import BATCH, embed_missing
from palimpsest.index.exact import ExactIndex
from palimpsest.index.sync import Projection
from palimpsest.store.ledger import Ledger, open_ledger
from palimpsest.store.queries import entries as entry_queries
from palimpsest.store.writes.apply import Write
from tests.support.memory import StoppedClock, all_keys, messages_from

HALF_PRECISION = 1e-3
"""How far a number of a vector of length 1 is at most from what is stored of it."""

ANA, BERT = Scope("ana"), Scope("bert")


class Hashing:
    """Embed by a seed and a hash of the text; fail after `batches` calls, where that is said."""

    def __init__(self, name: str, dims: int, batches: int | None = None) -> None:
        self.asked: list[list[str]] = []
        self._name = name
        self._dims = dims
        self._batches = batches

    @property
    def fingerprint(self) -> str:
        """Name the seed and the dimensions."""
        return f"hashing:{self._name}:{self._dims}"

    def embed(self, texts: Sequence[str]) -> Vector:
        """Return a direction of its own for each text."""
        if self._batches is not None and len(self.asked) >= self._batches:
            raise EmbedderError("the embedder is out of breath")
        self.asked.append(list(texts))
        vectors = np.stack([self._direction(text) for text in texts])
        return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)

    def embed_words(self, words: Sequence[str]) -> None:
        """Return None: nothing here asks for it."""
        del words

    def _direction(self, text: str) -> Vector:
        seed = [zlib.crc32(self._name.encode()), zlib.crc32(text.encode())]
        return np.random.default_rng(seed).normal(size=self._dims).astype(np.float32)

    @property
    def texts(self) -> list[str]:
        """Return every text that was embedded, in order."""
        return [text for batch in self.asked for text in batch]


@pytest.fixture
def ledger(tmp_path: Path) -> Generator[Ledger]:
    opened = open_ledger(tmp_path / "ledger.db", StoppedClock())
    yield opened
    opened.close()


@pytest.fixture
def another_ledger(tmp_path: Path) -> Generator[Ledger]:
    opened = open_ledger(tmp_path / "another.db", StoppedClock())
    yield opened
    opened.close()


@pytest.fixture
def old() -> Hashing:
    return Hashing("old", 8)


@pytest.fixture
def new() -> Hashing:
    return Hashing("new", 12)


def write(
    ledger: Ledger,
    embedder: Hashing | None,
    *decisions: Decision,
    messages: Sequence[Message] = (),
    scope: Scope = ANA,
) -> list[Outcome]:
    """Apply decisions and messages with the vectors of an embedder; without one they wait for theirs."""
    texts = [decision.fact.text for decision in decisions if decision.fact is not None]
    texts += [message.content for message in messages]
    vectors = dict(zip(texts, embedder.embed(texts), strict=True)) if embedder is not None and texts else {}
    if embedder is not None:
        embedder.asked.clear()
    fingerprint = "" if embedder is None else embedder.fingerprint
    given = Write(scope, Provenance("test"), tuple(messages), decisions, vectors=vectors, embedder=fingerprint)
    return list(ledger.apply(given).outcomes)


def add(ledger: Ledger, embedder: Hashing | None, *texts: str, scope: Scope = ANA) -> list[Outcome]:
    return write(ledger, embedder, *(Decision(Event.ADD, Fact(text)) for text in texts), scope=scope)


def facts(count: int) -> list[str]:
    return [f"fact {number}" for number in range(count)]


def keys(ledger: Ledger, embedder: Hashing, scope: Scope = ANA) -> Vector:
    """Return the keys of a scope, by unit number."""
    with ledger.read() as conn:
        seqs, found = all_keys(conn, scope, embedder.fingerprint)
    return found[np.argsort(seqs)] if seqs else found


def waits(ledger: Ledger, embedder: Hashing, *, only_failed: bool = False) -> int:
    with ledger.read() as conn:
        return entry_queries.count_waiting(conn, embedder.fingerprint, only_failed=only_failed)


def centre(ledger: Ledger, embedder: Hashing, scope: Scope = ANA) -> entry_queries.Centre:
    with ledger.read() as conn:
        return entry_queries.centre(conn, scope.user_id, embedder.fingerprint)


class TestAfterAChangeOfEmbedder:
    def test_everything_gets_a_vector_of_the_new_one(self, ledger: Ledger, old: Hashing, new: Hashing) -> None:
        """Guards the switch: the keys that are searched are the new embedder's, and the old ones are gone."""
        add(ledger, old, *facts(5))
        assert (waits(ledger, old), waits(ledger, new)) == (0, 5)
        assert embed_missing(ledger, new) == 5
        assert (waits(ledger, old), waits(ledger, new)) == (5, 0)
        assert new.texts == facts(5), "oldest first"
        np.testing.assert_allclose(keys(ledger, new), new.embed(facts(5)), atol=HALF_PRECISION)
        assert len(keys(ledger, old)) == 0

    def test_the_mean_of_each_user_moves_along(self, ledger: Ledger, old: Hashing, new: Hashing) -> None:
        """Guards recall, which centres on the mean: the old one empties and the new one fills, user by user."""
        add(ledger, old, *facts(5))
        add(ledger, old, "another's", "and more", scope=BERT)
        embed_missing(ledger, new)
        for scope, count in ((ANA, 5), (BERT, 2)):
            assert centre(ledger, old, scope) == entry_queries.Centre(0, None)
            moved = centre(ledger, new, scope)
            assert moved.units == count
            assert moved.mean is not None
            np.testing.assert_allclose(moved.mean, keys(ledger, new, scope).mean(axis=0), atol=1e-6)

    def test_contextual_keys_are_made_of_the_new_vectors_only(
        self, ledger: Ledger, another_ledger: Ledger, old: Hashing, new: Hashing
    ) -> None:
        """Guards the sums: a turn's neighbours and a memory's sources join when they are embedded too."""
        said = messages_from(("user", "first turn"), ("assistant", "second turn"), ("user", "third turn"), scope=ANA)
        learnt = Decision(Event.ADD, Fact("a fact", sources=(said[1].id,)))
        write(ledger, old, learnt, messages=said)
        fresh = Hashing("new", 12)
        embed_missing(ledger, new)
        found = keys(ledger, new)
        write(another_ledger, fresh, learnt, messages=said)
        np.testing.assert_allclose(found, keys(another_ledger, fresh), atol=1e-6)
        own = new.embed([message.content for message in said])
        assert not np.allclose(found[:3], own, atol=1e-2), "the context is in the keys"

    def test_what_is_deleted_is_not_embedded_until_it_comes_back(
        self, ledger: Ledger, old: Hashing, new: Hashing
    ) -> None:
        """Guards against paying for what is forgotten, and against a restored memory without a vector."""
        first, _ = add(ledger, old, "to be deleted", "to be kept")
        write(ledger, None, Decision(Event.DELETE, memory_id=first.memory.id))
        assert embed_missing(ledger, new) == 1
        assert new.texts == ["to be kept"]
        write(ledger, None, Decision(Event.ADD, memory_id=first.memory.id))
        assert embed_missing(ledger, new) == 1
        assert new.texts == ["to be kept", "to be deleted"]
        assert centre(ledger, new).units == 2
        assert centre(ledger, old).units == 0

    def test_the_way_back_is_the_same(self, ledger: Ledger, old: Hashing, new: Hashing) -> None:
        """Guards a setting that is tried and taken back: the first keys and their mean come again."""
        add(ledger, old, *facts(5))
        before, mean = keys(ledger, old), centre(ledger, old).mean
        embed_missing(ledger, new)
        assert embed_missing(ledger, old) == 5
        np.testing.assert_allclose(keys(ledger, old), before, atol=1e-6)
        again = centre(ledger, old).mean
        assert mean is not None
        assert again is not None
        np.testing.assert_allclose(again, mean, atol=1e-6)

    def test_the_index_follows(self, ledger: Ledger, old: Hashing, new: Hashing) -> None:
        """Guards the change log: whatever gets a vector is told to the index."""
        add(ledger, old, *facts(5))
        projection = Projection(ledger, new.fingerprint, lambda _: ExactIndex(), None, layout="exact")
        projection.open()
        assert projection.count() == 0
        embed_missing(ledger, new)
        projection.catch_up()
        assert projection.count() == 5
        projection.close()

    def test_where_nothing_waits_nobody_is_asked(self, ledger: Ledger, new: Hashing) -> None:
        """Guards every ordinary start: no embedder call, no progress, no write."""
        add(ledger, new, *facts(3))
        told: list[tuple[int, int]] = []
        assert embed_missing(ledger, new, progress=lambda done, total: told.append((done, total))) == 0
        assert (new.asked, told) == ([], [])

    def test_progress_is_told_batch_by_batch_up_to_the_total(self, ledger: Ledger, old: Hashing, new: Hashing) -> None:
        """Guards the bar of a long re-embedding, and the size of what one request holds."""
        add(ledger, old, *facts(2 * BATCH + 2))
        told: list[tuple[int, int]] = []
        total = 2 * BATCH + 2
        assert embed_missing(ledger, new, progress=lambda done, all_: told.append((done, all_))) == total
        assert told == [(BATCH, total), (2 * BATCH, total), (total, total)]
        assert [len(batch) for batch in new.asked] == [BATCH, BATCH, 2]


class TestAfterFailures:
    @pytest.mark.parametrize(("only_failed", "embedded"), [(True, ["failed"]), (False, ["of the old one", "failed"])])
    def test_only_what_failed_is_embedded_where_that_is_asked(
        self, ledger: Ledger, old: Hashing, new: Hashing, *, only_failed: bool, embedded: list[str]
    ) -> None:
        """Guards two processes with different embedders from embedding each other's texts for ever."""
        add(ledger, old, "of the old one")
        add(ledger, None, "failed")
        add(ledger, new, "of the new one")
        assert waits(ledger, new, only_failed=only_failed) == len(embedded)
        assert embed_missing(ledger, new, only_failed=only_failed) == len(embedded)
        assert new.texts == embedded
        assert waits(ledger, new, only_failed=only_failed) == 0
        assert centre(ledger, old).units == (1 if only_failed else 0)
        assert centre(ledger, new).units == 1 + len(embedded)

    def test_a_failure_midway_keeps_what_was_done(self, ledger: Ledger, old: Hashing, new: Hashing) -> None:
        """Guards a long re-embedding over a network: the next try begins where this one ended."""
        add(ledger, old, *facts(3 * BATCH))
        told: list[int] = []
        breathless = Hashing("new", 12, batches=2)
        with pytest.raises(EmbedderError, match="out of breath"):
            embed_missing(ledger, breathless, progress=lambda done, _: told.append(done))
        assert told == [BATCH, 2 * BATCH]
        assert (waits(ledger, new), centre(ledger, new).units, centre(ledger, old).units) == (
            BATCH,
            2 * BATCH,
            BATCH,
        )
        assert embed_missing(ledger, new) == BATCH
        assert new.texts == facts(3 * BATCH)[2 * BATCH :]
        np.testing.assert_allclose(keys(ledger, new), new.embed(facts(3 * BATCH)), atol=HALF_PRECISION)

    def test_it_ends_after_the_batch_at_hand_when_it_is_stopped(
        self, ledger: Ledger, old: Hashing, new: Hashing
    ) -> None:
        """Guards the end of the process: it waits for one batch and not for all."""
        add(ledger, old, *facts(2 * BATCH))
        assert embed_missing(ledger, new, stopped=lambda: len(new.asked) > 0) == BATCH
        assert waits(ledger, new) == BATCH
        assert embed_missing(ledger, new, stopped=lambda: True) == 0
        assert waits(ledger, new) == BATCH


def test_a_text_that_changes_while_it_is_embedded_keeps_its_new_vector(ledger: Ledger, old: Hashing) -> None:
    """Guards an update against the slower embedding of the text it replaced."""
    (change,) = add(ledger, None, "User lives in Nice")

    class Slow(Hashing):
        def embed(self, texts: Sequence[str]) -> Vector:
            if "User lives in Nice" in texts:
                write(ledger, old, Decision(Event.UPDATE, Fact("User lives in Lyon"), change.memory.id))
            return super().embed(texts)

    embed_missing(ledger, Slow("old", 8))
    with ledger.read() as conn:
        own = entry_queries.own_vectors(conn, old.fingerprint, "memory", [change.memory.id])
    np.testing.assert_allclose(own[change.memory.id], old.embed(["User lives in Lyon"])[0], atol=HALF_PRECISION)


def test_a_text_the_embedder_refuses_is_passed_over(ledger: Ledger) -> None:
    """Guards all that waits behind one text that is too long for an endpoint."""

    class Picky(Hashing):
        def embed(self, texts: Sequence[str]) -> Vector:
            if "text 70" in texts:
                raise EmbedderError("text 70 is too long")
            return super().embed(texts)

    picky = Picky("picky", 8)
    add(ledger, None, *(f"text {number}" for number in range(3 * BATCH)))
    with pytest.raises(EmbedderError, match="1 texts were refused"):
        embed_missing(ledger, picky)
    with ledger.read() as conn:
        assert [unit.text for unit in entry_queries.waiting(conn, picky.fingerprint, 10)] == ["text 70"]
