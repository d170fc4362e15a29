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
from palimpsest.core.filters import Test
from palimpsest.core.models import Candidate, Hit, Kind, Scope
from palimpsest.core.protocols import Vector
from palimpsest.store.queries import vectors as vector_queries

TINY = 1e-9
"""A vector shorter than this has no direction. Far below the rounding of float32 for vectors of length 1."""

_KINDS: tuple[Kind, ...] = ("memory", "message")


@dataclass(frozen=True, slots=True)
class PoolSize:
    """How many entries are requested by meaning and by words, and how many of the nearest are kept (None: all)."""

    by_meaning: int
    by_words: int
    kept: int | None = None


@dataclass(frozen=True, slots=True)
class CandidateRequest:
    """What to retrieve candidates for.

    `words` are the search tokens of the query. `vector`, of shape (dims,), is its vector before centring, or None if
    it could not be embedded. `kind` and `filter` limit which entries are candidates. With `whole_texts` entries are
    compared as texts of their own: by all the words and the vector of the text itself, without its context. With
    `as_of` the candidates are what was believed at that instant; they are always compared as whole texts.
    """

    scope: Scope
    words: Sequence[str]
    vector: Vector | None
    pool: PoolSize
    kind: Kind | None = None
    filter: Test | None = None
    whole_texts: bool = False
    as_of: datetime | None = None


@dataclass(frozen=True, slots=True)
class Candidates:
    """The n candidates of one query with everything they are ranked by. All columns are in the order of `entries`.

    `vectors`, of shape (n, dims), and `query_vector`, of shape (dims,), are centred on one mean; None if nothing was
    embedded. A row of `vectors` without a vector is zero and False in `has_vector`. `bm25` has shape (n,). `words` are
    search tokens of each entry, at least those that the query asks for; `weights` are the inverse document frequencies
    of the query's words. `outdated` are the ids of messages whose facts were all superseded. `past` holds the hit of
    each candidate as it was at the instant of `as_of`, and is None without one. `errors` say what could not be used.
    """

    entries: Sequence[Candidate]
    vectors: Vector | None
    has_vector: npt.NDArray[np.bool_]
    query_vector: Vector | None
    bm25: npt.NDArray[np.float32]
    words: Sequence[AbstractSet[str]]
    weights: Mapping[str, float]
    outdated: AbstractSet[str] = frozenset()
    past: Mapping[int, Hit] | None = None
    errors: Sequence[FullTextError | EmbedderError] = ()


def centred(vectors: Vector, mean: Vector | None) -> Vector:
    """Return vectors of shape (..., dims) minus the mean, each of length 1 again.

    Removing the common component (Mu & Viswanath 2018, "All-but-the-Top") spreads out what a small embedder crowds
    together. The mean must be the collection's own.
    """
    moved = vectors if mean is None else vectors - mean
    lengths = np.linalg.norm(moved, axis=-1, keepdims=True)
    return (moved / np.maximum(lengths, TINY)).astype(np.float32)


def rarity(frequency: Mapping[str, int], words: Iterable[str], entries: int) -> dict[str, float]:
    """Return the inverse document frequency of each word among `entries` entries; always positive."""
    return {word: math.log(1 + max(entries, 1) / (1 + frequency.get(word, 0))) for word in words}


def own_vectors(conn: Connection, embedder: str, candidates: Sequence[Candidate]) -> dict[str, Vector]:
    """Return the vectors of the candidates' own texts by owner, as far as the ledger has them."""
    vectors: dict[str, Vector] = {}
    for kind in _KINDS:
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
