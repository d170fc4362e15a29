"""Embedding missing vectors: after a change of embedder, and after an embedder failed."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from palimpsest.core.errors import EmbedderError
from palimpsest.core.models import Decision, Event, Fact, Provenance, Relation, Scope
from palimpsest.core.protocols import Vector
from palimpsest.index.backfill import BATCH, Backfill, embed_relations
from palimpsest.store import entries, verify
from palimpsest.store.apply import Write
from palimpsest.store.graph.relations import relation_keys
from palimpsest.store.ledger import Ledger
from palimpsest.store.purge import erase_from_graph
from tests.support.ledger_access import ignore_progress
from tests.support.projections import direction, facts

# Maximum difference between a component of a unit vector and its stored value.
HALF_PRECISION = 1e-3

ANA = Scope("ana")
LONG = "First part. A second part. And a third one."


class Hashing:
    """An embedder whose vectors depend on its name and the text. `before` is called before each call with its texts."""

    def __init__(self, name: str, dims: int, before: Callable[[Sequence[str]], object] = len) -> None:
        self.texts: list[str] = []
        self.calls = 0
        self.before = before
        self.dims = dims
        self.fingerprint = f"hashing:{name}:{dims}"

    def embed_queries(self, texts: Sequence[str]) -> Vector:
        """Return the vectors of passages."""
        return self.embed_passages(texts)

    def embed_passages(self, texts: Sequence[str], *, background: bool = False) -> Vector:
        """Return unit vectors."""
        del background
        self.before(texts)
        self.texts += texts
        self.calls += 1
        return np.stack([direction(f"{self.fingerprint} {text}", self.dims) for text in texts])

    def windows(self, text: str) -> list[str]:
        """Return the sentences of the text."""
        return re.findall(r"[^.]+\.?", text)


@pytest.fixture
def old() -> Hashing:
    return Hashing("old", 8)


@pytest.fixture
def new() -> Hashing:
    return Hashing("new", 12)


def write(ledger: Ledger, embedder: Hashing | None, *decisions: Decision, first_windows: bool = False) -> list[str]:
    """Apply decisions with the vectors of an embedder, or with none, and return the ids of the memories."""
    texts = [decision.fact.text for decision in decisions if decision.fact is not None]
    write = Write(ANA, Provenance("test"), decisions=decisions)
    if embedder is not None:
        shown = [embedder.windows(text)[0] if first_windows else text for text in texts]
        made = dict(zip(texts, embedder.embed_passages(shown), strict=True))
        partial = frozenset(texts if first_windows else ())
        write = replace(write, vectors=made, embedder=embedder.fingerprint, partial=partial)
        embedder.texts.clear()
        embedder.calls = 0
    return [outcome.memory.id for outcome in ledger.apply(write).outcomes]


def add(ledger: Ledger, embedder: Hashing | None, *texts: str, first_windows: bool = False) -> list[str]:
    decisions = (Decision(Event.ADD, Fact(text)) for text in texts)
    return write(ledger, embedder, *decisions, first_windows=first_windows)


def missing(ledger: Ledger, embedder: Hashing) -> int:
    return ledger.read_with(entries.count_missing_vectors, embedder.fingerprint)


def embedded(ledger: Ledger, embedder: Hashing) -> int:
    """Return how many living keys the embedder has made."""
    return ledger.read_with(entries.centre, ANA.user_id, embedder.fingerprint).entries


def own_vector(ledger: Ledger, embedder: Hashing, memory_id: str) -> Vector:
    return ledger.read_with(entries.own_vectors, embedder.fingerprint, "memory", [memory_id])[memory_id]


def test_a_deleted_memory_is_not_embedded_until_it_is_restored(ledger: Ledger, old: Hashing, new: Hashing) -> None:
    first, _ = add(ledger, old, "to be deleted", "to be kept")
    write(ledger, None, Decision(Event.DELETE, memory_id=first))
    assert Backfill(ledger, new).run() == 1
    assert new.texts == ["to be kept"]
    write(ledger, None, Decision(Event.ADD, memory_id=first))
    assert Backfill(ledger, new).run() == 1
    assert new.texts == ["to be kept", "to be deleted"]
    assert (embedded(ledger, new), embedded(ledger, old)) == (2, 0)


def test_the_vectors_of_relations_follow_those_of_their_memories(ledger: Ledger, old: Hashing, new: Hashing) -> None:
    """They are of the embedder of the memory, and go with the relation, whatever takes it away."""

    def stored(embedder: Hashing) -> list[str]:
        return ledger.read_with(relation_keys, ANA.user_id, embedder.fingerprint, 10)[0]

    def change(kind: Event, **rest: Any) -> list[str]:
        return write(ledger, None, Decision(kind, **rest))

    lives = Relation("Ana", "lives_in", "Lyon")
    (first,) = write(ledger, old, Decision(Event.ADD, Fact("Ana lives in Lyon", relations=(lives,))))
    embed_relations(ledger, new)
    assert new.texts == []
    embed_relations(ledger, old)
    assert (old.texts, stored(old)) == (["Ana lives in Lyon"], [first])
    Backfill(ledger, new).run()
    embed_relations(ledger, new)
    assert (stored(old), stored(new)) == ([], [first])
    fact = Fact("Ana lives in Nice", relations=(Relation("Ana", "lives in", "Nice"),))
    change(Event.UPDATE, memory_id=first, fact=fact, sets_relations=True)
    assert stored(new) == []
    Backfill(ledger, new).run()
    embed_relations(ledger, new)
    assert stored(new) == [first]
    ledger.run(erase_from_graph, ANA.user_id, [first], [])
    assert stored(new) == []


def test_only_failed_embeds_only_entries_without_any_vector(ledger: Ledger, old: Hashing, new: Hashing) -> None:
    """Two processes with different embedders would otherwise replace each other's vectors forever."""
    add(ledger, old, "of the old one")
    add(ledger, None, "failed")
    add(ledger, new, "of the new one")
    assert Backfill(ledger, new, only_failed=True).run() == missing(ledger, new) == 1
    assert Backfill(ledger, new).run() == 1
    assert new.texts == ["failed", "of the old one"]
    assert (missing(ledger, new), embedded(ledger, old), embedded(ledger, new)) == (0, 0, 3)


def test_a_text_that_changes_while_it_is_embedded_keeps_its_new_vector(ledger: Ledger, old: Hashing) -> None:
    """An update is not overwritten by the slower embedding of the old text."""
    (memory_id,) = add(ledger, None, "User lives in Nice")
    change = Decision(Event.UPDATE, Fact("User lives in Lyon"), memory_id)
    slow = Hashing("old", 8, lambda _: write(ledger, old, change))
    Backfill(ledger, slow).run(stopped=lambda: slow.calls > 0)
    expected = old.embed_passages(["User lives in Lyon"])[0]
    np.testing.assert_allclose(own_vector(ledger, old, memory_id), expected, atol=HALF_PRECISION)


def test_a_text_the_embedder_refuses_is_skipped(ledger: Ledger) -> None:
    """One text that is too long for an endpoint does not block the others."""

    def refuse(texts: Sequence[str]) -> None:
        if "fact 70" in texts:
            raise EmbedderError("it is too long")

    picky = Hashing("picky", 8, refuse)
    add(ledger, None, *facts(3 * BATCH))
    with pytest.raises(EmbedderError, match="refused, and left without a vector: 1 text"):
        Backfill(ledger, picky).run()
    assert list(ledger.read_with(entries.missing_vectors, picky.fingerprint, 10).values()) == ["fact 70"]


def test_a_long_text_has_the_vector_of_its_first_window_until_it_has_the_mean_of_all(
    ledger: Ledger, new: Hashing
) -> None:
    """It can be found at once, and the rest is not forgotten. A longer window says more about the text."""
    (memory_id,) = add(ledger, new, LONG, first_windows=True)
    first = new.embed_passages(["First part."])[0]
    np.testing.assert_allclose(own_vector(ledger, new, memory_id), first, atol=HALF_PRECISION)
    assert missing(ledger, new) == 1
    assert Backfill(ledger, new, only_failed=True).run() == 1
    assert missing(ledger, new) == 0
    expected = np.array([len(part) for part in new.windows(LONG)], dtype=np.float32) @ new.embed_passages(
        new.windows(LONG)
    )
    expected /= np.linalg.norm(expected)
    np.testing.assert_allclose(own_vector(ledger, new, memory_id), expected, atol=HALF_PRECISION)
    assert ledger.read_with(verify.verify, ledger.database, ignore_progress).texts() == []


def test_a_pass_goes_on_where_it_stopped(ledger: Ledger, old: Hashing, new: Hashing) -> None:
    """Two servers with different embedders make one pass each, and not one after the other for ever."""
    add(ledger, old, *facts(3 * BATCH))
    backfill = Backfill(ledger, new)
    assert backfill.run(lambda: new.calls > 0) == BATCH
    assert not backfill.is_finished
    assert Backfill(ledger, old).run() == BATCH, "the other server"
    assert backfill.run(lambda: False) == 3 * BATCH
    assert backfill.is_finished
    assert missing(ledger, new) == BATCH
    assert backfill.run(lambda: False) == 3 * BATCH, "nothing more is done"
    assert missing(ledger, new) == BATCH
