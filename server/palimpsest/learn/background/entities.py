"""Embed the names of entities, and merge those that are surely one: Zürich and Zurich, Siemens and Siemens AG.

A name that was met before is found when a memory is stored. This is about the others. Two entities are merged if their
names are one spelling, or if the vectors of their names and of what is said of them are alike; never if their words
or an edit tell them apart, if a memory names both, or if there is a second one like them. What is doubtful stays two:
merging is easy to ask for, and a wrong merge is hard to notice. Every merge is an edit that can be undone, and is then
not made again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import numpy as np
from sqlalchemy import Connection

from palimpsest.core.entities import Merge
from palimpsest.core.models import Provenance, Scope
from palimpsest.core.protocols import Embedder, Vector
from palimpsest.learn.background.same_entity import may_be_one, spelling
from palimpsest.recall.fitted.names import NameThresholds, name_thresholds_for
from palimpsest.recall.retrieval.features import Centre, centred
from palimpsest.store.graph.matching import name_vectors
from palimpsest.store.graph.matching.name_vectors import ComparableEntity
from palimpsest.store.ledger import Ledger
from palimpsest.store.queries import vectors as vector_queries
from palimpsest.store.writes.apply import Write

logger = logging.getLogger(__name__)

BATCH = 64
"""How many names are embedded before the next look at whether to stop. Set by hand: names are short."""

RESOLVE = "resolve"
"""The stage of the edits that merge entities by their names."""


class EntityResolution:
    """Passes over the entities whose names wait to be compared. It can be interrupted and continued.

    Names that another embedder has embedded are embedded again once in each process, as the texts are.
    """

    def __init__(self, ledger: Ledger, embedder: Embedder) -> None:
        self._ledger = ledger
        self._embedder = embedder
        self._last = 0
        self._is_changed_over = False

    def run(self, stopped: Callable[[], bool]) -> bool:
        """Embed and compare names until none waits or `stopped` says so. Return whether none waits. Blocking.

        Raises EmbedderError and LedgerError. What was done so far is kept.
        """
        while not stopped():
            batch = self._next_batch()
            if not batch:
                return True
            vectors = self._embedder.embed_passages([entity.name for entity in batch], background=True)
            # Compared first: a pair whose vectors are both stored is not looked at again.
            self._merge_alike(batch, vectors)
            by_id = {entity.id: vector for entity, vector in zip(batch, vectors, strict=True)}
            self._ledger.give_name_vectors(self._embedder.fingerprint, by_id)
        return False

    def _next_batch(self) -> list[ComparableEntity]:
        """Return entities whose names have no vector, and then those whose vector is of another embedder."""
        find, fingerprint = name_vectors.names_without_vector, self._embedder.fingerprint
        with self._ledger.read() as conn:
            batch = find(conn, fingerprint, BATCH, after=0, only_new=True)
            if not batch and not self._is_changed_over:
                batch = find(conn, fingerprint, BATCH, after=self._last, only_new=False)
                self._last = batch[-1].seq if batch else self._last
                self._is_changed_over = not batch
        return batch

    def _merge_alike(self, batch: Sequence[ComparableEntity], vectors: Vector) -> None:
        for user_id in dict.fromkeys(entity.user_id for entity in batch):
            rows = [row for row, entity in enumerate(batch) if entity.user_id == user_id]
            new = [batch[row] for row in rows]
            with self._ledger.read() as conn:
                known, known_vectors = name_vectors.entities_with_vector(conn, user_id, self._embedder.fingerprint)
                entities = [*known, *new]
                matrix = np.vstack([known_vectors, vectors[rows]]) if known else vectors[rows]
                merges = self._merges(conn, entities, matrix, len(known))
            for entity, into in merges:
                scope = Scope(user_id, entity.project)
                edit = Merge(entity.id, into.id)
                self._ledger.apply(Write(scope, Provenance(RESOLVE), entity_edits=(edit,)))
                logger.info("two names are taken for one: %s and %s", entity.name, into.name)

    def _merges(
        self, conn: Connection, entities: Sequence[ComparableEntity], vectors: Vector, first_new: int
    ) -> list[tuple[ComparableEntity, ComparableEntity]]:
        """Return which entities are the same as which other ones, each in one pair at most."""
        thresholds = name_thresholds_for(self._embedder.fingerprint)
        spellings = [spelling(entity.name) for entity in entities]
        spelled: dict[frozenset[str], list[int]] = {}
        for number, key in enumerate(spellings):
            if key is not None:
                spelled.setdefault(key, []).append(number)
        taken: set[str] = set()
        merges: list[tuple[ComparableEntity, ComparableEntity]] = []
        for number in range(first_new, len(entities)):
            key = spellings[number]
            like_it = set(spelled[key]) if key is not None else set[int]()
            if thresholds is not None:
                like_it.update(np.flatnonzero(vectors @ vectors[number] >= thresholds.name).tolist())
            alike = [entities[other] for other in sorted(like_it) if _may_be_one(entities[number], entities[other])]
            # Of two that it may be, nothing says which.
            if len(alike) != 1 or taken & {entities[number].id, alike[0].id}:
                continue
            entity, into = _in_order(entities[number], alike[0])
            if self._agrees(conn, entity, into, thresholds):
                merges.append((entity, into))
                taken |= {entity.id, into.id}
        return merges

    def _agrees(
        self, conn: Connection, entity: ComparableEntity, other: ComparableEntity, thresholds: NameThresholds | None
    ) -> bool:
        """Return whether what is said of two entities agrees, and neither a memory nor an edit tells them apart."""
        if name_vectors.are_told_apart(conn, entity.id, other.id):
            return False
        if spelling(entity.name) is not None and spelling(entity.name) == spelling(other.name):
            return True
        first, second = self._context(conn, entity), self._context(conn, other)
        if thresholds is None or first is None or second is None:
            return False
        return float(first @ second) >= thresholds.context

    def _context(self, conn: Connection, entity: ComparableEntity) -> Vector | None:
        """Return the mean vector of what is said of an entity, centred, of shape (dims,); None if nothing is."""
        fingerprint = self._embedder.fingerprint
        ids = name_vectors.memories_mentioning(conn, entity.id)
        vectors = list(vector_queries.own_vectors(conn, fingerprint, "memory", ids).values())
        if not vectors:
            return None
        stored = vector_queries.centre(conn, entity.user_id, fingerprint)
        mean = np.mean(vectors, axis=0)
        return centred(mean, Centre.of(fingerprint, stored.entries, stored.mean).passage)


def _may_be_one(entity: ComparableEntity, other: ComparableEntity) -> bool:
    """Return whether two entities may be one by their words, types and projects."""
    if entity.id == other.id or entity.type != other.type or entity.type == "other":
        return False
    if entity.project != other.project and "" not in (entity.project, other.project):
        return False
    return may_be_one(entity.name, other.name)


def _in_order(entity: ComparableEntity, other: ComparableEntity) -> tuple[ComparableEntity, ComparableEntity]:
    """Return which of two is merged into which: a project's into a global one, and else the newer into the older."""
    first, second = sorted((entity, other), key=lambda item: (item.project != "", item.seq))
    return second, first
