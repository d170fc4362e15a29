"""Embedding missing vectors: after a change of embedder, and after an embedder failed."""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence

import numpy as np
import pytest

from palimpsest.core.errors import EmbedderError
from palimpsest.core.models import Decision, Event, Fact, Message, Outcome, Provenance, Scope
from palimpsest.core.protocols import Vector
from palimpsest.index.backfill import BATCH, BATCH_CHARS, Backfill
from palimpsest.store import entries, verify
from palimpsest.store.apply import Write
from palimpsest.store.ledger import Ledger
from palimpsest.store.rows import count
from palimpsest.store.schema import vectors
from tests.support.ledger_access import all_keys

HALF_PRECISION = 1e-3
"""Maximum difference between a component of a unit vector and its stored value."""

ANA, BERT = Scope("ana"), Scope("bert")


class Hashing:
    """An embedder that hashes texts. It fails after `batches` calls, if given."""

    def __init__(self, name: str, dims: int, batches: int | None = None) -> None:
        self.calls: list[list[str]] = []
        self._name = name
        self._dims = dims
        self._batches = batches

    @property
    def fingerprint(self) -> str:
        """Return the seed and the dimensions."""
        return f"hashing:{self._name}:{self._dims}"

    def embed_queries(self, texts: Sequence[str]) -> Vector:
        """Return the vectors of a passages."""
        return self.embed_passages(texts)

    def embed_passages(self, texts: Sequence[str], *, background: bool = False) -> Vector:
        """Return a unit vector that depends only on the seed and the text."""
        del background
        if self._batches is not None and len(self.calls) >= self._batches:
            raise EmbedderError("the embedder failed")
        self.calls.append(list(texts))
        vectors = np.stack([self._direction(text) for text in texts])
        return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)

    def windows(self, text: str) -> list[str]:
        """Return the sentences of the text."""
        return re.findall(r"[^.]+\.?", text)

    def _direction(self, text: str) -> Vector:
        seed = [zlib.crc32(self._name.encode()), zlib.crc32(text.encode())]
        return np.random.default_rng(seed).normal(size=self._dims).astype(np.float32)

    @property
    def texts(self) -> list[str]:
        """Return every text that was embedded, in order."""
        return [text for batch in self.calls for text in batch]


@pytest.fixture
def old() -> Hashing:
    return Hashing("old", 8)


@pytest.fixture
def new() -> Hashing:
    return Hashing("new", 12)


def write(
    ledger: Ledger, embedder: Hashing | None, *decisions: Decision, messages: Sequence[Message] = (), scope: Scope = ANA
) -> list[Outcome]:
    """Apply decisions and messages with the vectors of an embedder, or with no vectors if it is None."""
    texts = [decision.fact.text for decision in decisions if decision.fact is not None]
    texts += [message.content for message in messages]
    vectors = dict(zip(texts, embedder.embed_passages(texts), strict=True)) if embedder is not None and texts else {}
    if embedder is not None:
        embedder.calls.clear()
    fingerprint = "" if embedder is None else embedder.fingerprint
    request = Write(
        scope, Provenance("test"), tuple(messages), decisions=decisions, vectors=vectors, embedder=fingerprint
    )
    return list(ledger.apply(request).outcomes)


def add(ledger: Ledger, embedder: Hashing | None, *texts: str, scope: Scope = ANA) -> list[Outcome]:
    return write(ledger, embedder, *(Decision(Event.ADD, Fact(text)) for text in texts), scope=scope)


def facts(count: int) -> list[str]:
    return [f"fact {number}" for number in range(count)]


def keys(ledger: Ledger, embedder: Hashing, scope: Scope = ANA) -> Vector:
    with ledger.read() as conn:
        seqs, vectors = all_keys(conn, scope, embedder.fingerprint)
    return vectors[np.argsort(seqs)] if seqs else vectors


def missing(ledger: Ledger, embedder: Hashing, *, only_failed: bool = False) -> int:
    with ledger.read() as conn:
        return entries.count_missing_vectors(conn, embedder.fingerprint, only_failed=only_failed)


def centre(ledger: Ledger, embedder: Hashing, scope: Scope = ANA) -> entries.Centre:
    with ledger.read() as conn:
        return entries.centre(conn, scope.user_id, embedder.fingerprint)


class TestAfterChangingTheEmbedder:
    def test_a_deleted_memory_is_not_embedded_until_it_is_restored(
        self, ledger: Ledger, old: Hashing, new: Hashing
    ) -> None:
        """Deleted memories cost no embedding, and a restored one gets its vector."""
        first, _ = add(ledger, old, "to be deleted", "to be kept")
        write(ledger, None, Decision(Event.DELETE, memory_id=first.memory.id))
        assert Backfill(ledger, new).run() == 1
        assert new.texts == ["to be kept"]
        write(ledger, None, Decision(Event.ADD, memory_id=first.memory.id))
        assert Backfill(ledger, new).run() == 1
        assert new.texts == ["to be kept", "to be deleted"]
        assert centre(ledger, new).entries == 2
        assert centre(ledger, old).entries == 0


class TestAfterFailures:
    @pytest.mark.parametrize(("only_failed", "embedded"), [(True, ["failed"]), (False, ["of the old one", "failed"])])
    def test_only_failed_embeds_only_entries_without_any_vector(
        self, ledger: Ledger, old: Hashing, new: Hashing, *, only_failed: bool, embedded: list[str]
    ) -> None:
        """Two processes with different embedders would otherwise replace each other's vectors forever."""
        add(ledger, old, "of the old one")
        add(ledger, None, "failed")
        add(ledger, new, "of the new one")
        assert missing(ledger, new, only_failed=only_failed) == len(embedded)
        assert Backfill(ledger, new, only_failed=only_failed).run() == len(embedded)
        assert new.texts == embedded
        assert missing(ledger, new, only_failed=only_failed) == 0
        assert centre(ledger, old).entries == (1 if only_failed else 0)
        assert centre(ledger, new).entries == 1 + len(embedded)

    def test_a_failure_midway_keeps_the_stored_vectors(self, ledger: Ledger, old: Hashing, new: Hashing) -> None:
        """The next attempt continues where the failed one ended."""
        add(ledger, old, *facts(3 * BATCH))
        progress_calls: list[int] = []
        failing = Hashing("new", 12, batches=2)
        with pytest.raises(EmbedderError, match="the embedder failed"):
            Backfill(ledger, failing).run(progress=lambda done, _: progress_calls.append(done))
        assert progress_calls == [BATCH, 2 * BATCH]
        assert (missing(ledger, new), centre(ledger, new).entries, centre(ledger, old).entries) == (
            BATCH,
            2 * BATCH,
            BATCH,
        )
        assert Backfill(ledger, new).run() == BATCH
        assert new.texts == facts(3 * BATCH)[2 * BATCH :]
        np.testing.assert_allclose(keys(ledger, new), new.embed_passages(facts(3 * BATCH)), atol=HALF_PRECISION)


def test_a_text_that_changes_while_it_is_embedded_keeps_its_new_vector(ledger: Ledger, old: Hashing) -> None:
    """An update is not overwritten by the slower embedding of the old text."""
    (outcome,) = add(ledger, None, "User lives in Nice")

    class Slow(Hashing):
        def embed_passages(self, texts: Sequence[str], *, background: bool = False) -> Vector:
            if "User lives in Nice" in texts:
                write(ledger, old, Decision(Event.UPDATE, Fact("User lives in Lyon"), outcome.memory.id))
            return super().embed_passages(texts, background=background)

    Backfill(ledger, Slow("old", 8)).run()
    with ledger.read() as conn:
        own = entries.own_vectors(conn, old.fingerprint, "memory", [outcome.memory.id])
    np.testing.assert_allclose(
        own[outcome.memory.id], old.embed_passages(["User lives in Lyon"])[0], atol=HALF_PRECISION
    )


def test_a_text_the_embedder_refuses_is_skipped(ledger: Ledger) -> None:
    """One text that is too long for an endpoint does not block the others."""

    class Picky(Hashing):
        def embed_passages(self, texts: Sequence[str], *, background: bool = False) -> Vector:
            if "text 70" in texts:
                raise EmbedderError("text 70 is too long")
            return super().embed_passages(texts, background=background)

    picky = Picky("picky", 8)
    add(ledger, None, *(f"text {number}" for number in range(3 * BATCH)))
    with pytest.raises(EmbedderError, match="refused, and left without a vector: 1 text"):
        Backfill(ledger, picky).run()
    with ledger.read() as conn:
        assert list(entries.missing_vectors(conn, picky.fingerprint, 10).values()) == ["text 70"]


LONG = "First part. A second part. And a third one."
LONG_WEIGHTS = [11, 15, 17]
"""How many characters the windows have."""


def add_long(ledger: Ledger, embedder: Hashing, text: str = LONG) -> str:
    """Add a memory with the vector of its first window only, as a call does, and return its id."""
    (vector,) = embedder.embed_passages(embedder.windows(text)[:1])
    embedder.calls.clear()
    decision = Decision(Event.ADD, Fact(text))
    partial = frozenset([text])
    (outcome,) = ledger.apply(
        Write(
            ANA,
            Provenance("test"),
            decisions=(decision,),
            vectors={text: vector},
            embedder=embedder.fingerprint,
            partial=partial,
        )
    ).outcomes
    return outcome.memory.id


def own_vector(ledger: Ledger, embedder: Hashing, memory_id: str) -> Vector:
    with ledger.read() as conn:
        return entries.own_vectors(conn, embedder.fingerprint, "memory", [memory_id])[memory_id]


def waiting(ledger: Ledger, embedder: Hashing) -> tuple[int, int]:
    """Return how many entries have no vector, and how many only that of their first window."""
    with ledger.read() as conn:
        total = entries.count_missing_vectors(conn, embedder.fingerprint)
        without = count(conn, vectors.c.live.is_(True), vectors.c.embedder != embedder.fingerprint)
        assert entries.has_missing_vectors(conn, embedder.fingerprint) == (without > 0)
        assert entries.has_partial_vectors(conn, embedder.fingerprint) == (total > without)
    return without, total - without


class TestLongTexts:
    def test_a_long_text_has_the_mean_vector_of_its_windows(self, ledger: Ledger, new: Hashing) -> None:
        """A longer window says more about the text."""
        (outcome,) = add(ledger, None, LONG)
        assert Backfill(ledger, new).run() == 1
        expected = np.array(LONG_WEIGHTS, dtype=np.float32) @ new.embed_passages(new.windows(LONG))
        expected /= np.linalg.norm(expected)
        np.testing.assert_allclose(own_vector(ledger, new, outcome.memory.id), expected, atol=HALF_PRECISION)

    def test_until_then_it_has_the_vector_of_its_first_window(self, ledger: Ledger, new: Hashing) -> None:
        """It can be found at once, and the rest is not forgotten."""
        memory_id = add_long(ledger, new)
        first = new.embed_passages(["First part."])[0]
        np.testing.assert_allclose(own_vector(ledger, new, memory_id), first, atol=HALF_PRECISION)
        assert waiting(ledger, new) == (0, 1)
        assert Backfill(ledger, new, only_failed=True).run() == 1
        assert waiting(ledger, new) == (0, 0)
        assert not np.allclose(own_vector(ledger, new, memory_id), first, atol=0.1)
        assert ledger.read_with(verify.verify, ledger.database, lambda _done, _total: None).texts() == []

    def test_a_long_text_that_is_interrupted_is_begun_again(self, ledger: Ledger, new: Hashing) -> None:
        """A server can stop in the middle of a text, and stores no vector of a part of it."""
        text = "word word. " * BATCH_CHARS
        add(ledger, None, text)
        assert Backfill(ledger, new).run(stopped=lambda: len(new.calls) == 2) == 0
        assert waiting(ledger, new) == (1, 0)
        assert Backfill(ledger, new).run() == 1
        assert max(sum(map(len, call)) for call in new.calls) <= BATCH_CHARS

    def test_a_pass_goes_on_where_it_stopped(self, ledger: Ledger, old: Hashing, new: Hashing) -> None:
        """Two servers with different embedders make one pass each, and not one after the other for ever."""
        add(ledger, old, *facts(3 * BATCH))
        backfill = Backfill(ledger, new)
        assert backfill.run(lambda: len(new.calls) > 0) == BATCH
        assert not backfill.is_finished
        assert Backfill(ledger, old).run() == BATCH, "the other server"
        assert backfill.run(lambda: False) == 3 * BATCH
        assert backfill.is_finished
        assert missing(ledger, new) == BATCH
        assert backfill.run(lambda: False) == 3 * BATCH, "nothing more is done"
        assert missing(ledger, new) == BATCH
