"""What candidates are requested by, and the features they are ranked by."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime

import numpy as np
import numpy.typing as npt
from sqlalchemy import Connection

from palimpsest.core.errors import EmbedderError, FullTextError
from palimpsest.core.models import Kind, Scope
from palimpsest.core.protocols import Vector
from palimpsest.core.search.hits import Candidate, Hit
from palimpsest.recall.fitted.weights import means_for
from palimpsest.recall.retrieval.filtering import HitFilter
from palimpsest.store.queries import vectors as vector_queries

TINY = 1e-9
"""A vector shorter than this has no direction. Far below the rounding of float32 for vectors of length 1."""

PRIOR_ENTRIES = 20
"""How many entries the embedder's mean of passages in general counts for in the centre of a collection. Set by hand:
twenty vectors have a mean of their own."""

KINDS: tuple[Kind, ...] = ("memory", "message")


@dataclass(frozen=True, slots=True)
class PoolSize:
    """How many entries are requested by meaning and by words, and how many of the nearest are kept (None: all)."""

    by_meaning: int
    by_words: int
    kept: int | None = None


@dataclass(frozen=True, slots=True)
class CandidateRequest:
    """What to retrieve candidates for.

    `words` are the search tokens to look for, and `names` those of the people it names. `vector`, of shape (dims,), is
    the vector before centring, or None if it could not be embedded. `kind` and `filter` limit which entries are
    candidates. With `whole_texts` the request is a text to compare with others, not a question: `vector` is that of a
    passage, and all the words of each candidate are returned. With `as_of` the candidates are what was believed then.
    With `follows_links` what a candidate is linked with is a candidate too.
    """

    scope: Scope
    words: Sequence[str]
    vector: Vector | None
    pool: PoolSize
    names: AbstractSet[str] = frozenset()
    kind: Kind | None = None
    filter: HitFilter | None = None
    whole_texts: bool = False
    as_of: datetime | None = None
    follows_links: bool = False


@dataclass(frozen=True, slots=True)
class Candidates:
    """The n candidates of one query with everything they are ranked by. All columns are in the order of `entries`.

    `vectors` are those of the texts and `contexts` those of the texts in their context, both of shape (n, dims);
    `query_vector` has shape (dims,). All are centred, and None if nothing was embedded. A row without a vector is zero
    and False in `has_vector`. `bm25` has shape (n,). `words` are search tokens of each text and `words_in_context`
    those of its context too, at least the ones that the query asks for; `weights` are the inverse document frequencies
    of the query's words among the `collection` entries. `outdated` are the ids of messages whose facts were all
    superseded. `linked` are pairs of rows: a memory, and a message it was learned from. `connected` are pairs of rows
    of memories with a link between them, in both directions. `past` holds the hit of each candidate as it was at the
    instant of `as_of`, and is None without one. `errors` say what could not be used.
    """

    entries: Sequence[Candidate]
    vectors: Vector | None
    contexts: Vector | None
    has_vector: npt.NDArray[np.bool_]
    query_vector: Vector | None
    bm25: npt.NDArray[np.float32]
    words: Sequence[frozenset[str]]
    words_in_context: Sequence[frozenset[str]]
    weights: Mapping[str, float]
    collection: int
    outdated: AbstractSet[str] = frozenset()
    linked: Sequence[tuple[int, int]] = ()
    past: Mapping[int, Hit] | None = None
    errors: Sequence[FullTextError | EmbedderError] = ()
    connected: Sequence[tuple[int, int]] = ()


@dataclass(frozen=True, slots=True)
class Centre:
    """The mean vectors that questions and passages are compared less of, each of shape (dims,); None for no mean."""

    question: Vector | None
    passage: Vector | None

    @classmethod
    def of(cls, fingerprint: str, entries: int, mean: Vector | None) -> Centre:
        """Return the centre of a collection of so many entries with this mean.

        The mean of few vectors is unreliable: of a single vector it is that vector, and centring would leave nothing.
        So it is mixed with the embedder's mean of passages in general, or shrunk if that is not known.
        """
        means = means_for(fingerprint)
        if mean is None:
            return cls(means.question, means.passage)
        share = entries / (entries + PRIOR_ENTRIES)
        passage = share * mean + (0.0 if means.passage is None else (1 - share) * means.passage)
        return cls(passage if means.question is None else means.question, passage)


def centred(vectors: Vector, mean: Vector | None) -> Vector:
    """Return vectors of shape (..., dims) minus the mean, each of length 1 again.

    Removing the common component (Mu & Viswanath 2018, "All-but-the-Top") spreads out what a small embedder crowds
    together.
    """
    moved = vectors if mean is None else vectors - mean
    lengths = np.linalg.norm(moved, axis=-1, keepdims=True)
    return (moved / np.maximum(lengths, TINY)).astype(np.float32)


def rarity(frequency: Mapping[str, int], words: Iterable[str], entries: int) -> dict[str, float]:
    """Return the inverse document frequency of each word among `entries` entries; always positive."""
    return {word: math.log(1 + max(entries, 1) / (1 + frequency.get(word, 0))) for word in words}


def linked_rows(candidates: Sequence[Candidate], learned_from: Iterable[tuple[str, str]]) -> list[tuple[int, int]]:
    """Return the rows of each memory and message that are both candidates, given pairs of their ids."""
    rows = {(entry.kind, entry.owner_id): row for row, entry in enumerate(candidates)}
    pairs = [(rows.get(("memory", memory)), rows.get(("message", message))) for memory, message in learned_from]
    return [(memory, message) for memory, message in pairs if memory is not None and message is not None]


def own_vectors(conn: Connection, embedder: str, candidates: Sequence[Candidate]) -> dict[str, Vector]:
    """Return the vectors of the candidates' own texts by owner, as far as the ledger has them."""
    vectors: dict[str, Vector] = {}
    for kind in KINDS:
        ids = [candidate.owner_id for candidate in candidates if candidate.kind == kind]
        vectors |= vector_queries.own_vectors(conn, embedder, kind, ids)
    return vectors


def stacked(vectors: Sequence[Vector | None]) -> tuple[Vector | None, npt.NDArray[np.bool_]]:
    """Return vectors as one matrix of shape (n, dims), with zeros for None, and which rows have one.

    The matrix is None if there is no vector at all.
    """
    has_vector = np.array([vector is not None for vector in vectors], dtype=np.bool_)
    empty = next((np.zeros_like(vector) for vector in vectors if vector is not None), None)
    if empty is None:
        return None, has_vector
    return np.stack([empty if vector is None else vector for vector in vectors]), has_vector
