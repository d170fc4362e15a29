"""Candidates by meaning: from the vector index, or by an exact scan where that serves better."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import islice
from typing import Protocol, cast

import numpy as np
from sqlalchemy import Connection

from palimpsest.core.models import Kind, Scope
from palimpsest.core.protocols import Vector
from palimpsest.recall import ranking
from palimpsest.store.queries import entries as entry_queries

WIDE_SHARE = 0.2
"""Where the scope sees less than this share of what the index gives, it is scanned: the index returns others'."""


class NearestUnits(Protocol):
    """Give the units nearest to a vector, as far as the projection can at this moment."""

    def nearest(self, conn: Connection, user_id: str, vector: Vector, limit: int) -> list[int] | None:
        """Return unit numbers, among them all that changed lately; None when there is no index to ask."""
        ...


@dataclass(frozen=True, slots=True)
class Sought:
    """Hold what is sought: a vector of an embedder, of shape (dims,), centred on `mean`; how many; of which kind.

    With `allowed` only those units are candidates.
    """

    embedder: str
    vector: Vector
    mean: Vector | None
    limit: int
    kind: Kind | None = None
    allowed: AbstractSet[int] | None = None


def nearest_units(conn: Connection, index: NearestUnits, scope: Scope, sought: Sought) -> list[int]:
    """Return about as many living units as are wanted that the scope sees, the nearest among them."""
    narrow = entry_queries.is_narrow(conn, scope)
    found = None if narrow else index.nearest(conn, scope.user_id, sought.vector, sought.limit)
    if found is not None:
        seen = entry_queries.seen(conn, scope, found, sought.kind)
        if is_wide(found, len(seen), sought.limit):
            return seen
    return nearest_scanned(conn, scope, sought)


def is_wide(found: Sequence[int], seen: int, limit: int) -> bool:
    """Say whether a scope that sees so many of what an index gave for a limit can be searched with that index."""
    return len(found) < limit or seen >= WIDE_SHARE * limit


def nearest_scanned(conn: Connection, scope: Scope, sought: Sought) -> list[int]:
    """Return the nearest units that the scope sees, exactly, by comparing with all of them."""
    likeness: list[Vector] = []
    seqs: list[int] = []
    for some, keys in entry_queries.scope_keys(conn, scope, sought.embedder, sought.kind):
        likeness.append(ranking.centred(keys, sought.mean) @ sought.vector)
        seqs += some
    if not seqs:
        return []
    order = cast("list[int]", np.argsort(-np.concatenate(likeness), kind="stable").tolist())
    allowed = sought.allowed
    return list(islice((seqs[row] for row in order if allowed is None or seqs[row] in allowed), sought.limit))
