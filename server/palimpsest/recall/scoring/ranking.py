"""Order candidates by a score that is a sum of parts.

Nothing here reads or writes. Because a score is a sum of named parts, every place in the order can be explained. Which
parts there are is up to a scoring: `scoring.SearchScoring` for searches, `similar.LikenessScoring` for near-duplicates.
A new feature is a column of `Candidates` and a part of a scoring.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from palimpsest.core.search.hits import Candidate
from palimpsest.recall.retrieval.features import Candidates

Column: TypeAlias = npt.NDArray[Any]
"""One number for each candidate: shape (n,), float32 or float64."""


class Scoring(Protocol):
    """Score candidates for one purpose. Pure: the same candidates always get the same scores."""

    def parts(self, candidates: Candidates) -> dict[str, Column]:
        """Return what speaks for and against each candidate, by name; the score is their sum."""
        ...


class Ranked(NamedTuple):
    """A candidate and its score, with the columns of parts that sum up to it and the candidate's row in them.

    `relevance` is the probability that the candidate answers the query; 0 if it was not asked for.
    """

    candidate: Candidate
    score: float
    row: int
    columns: Mapping[str, Column]
    relevance: float = 0.0

    @property
    def parts(self) -> dict[str, float]:
        """Return what speaks for and against the candidate, by name."""
        return {name: float(column[self.row]) for name, column in self.columns.items()}


def rank(candidates: Candidates, scoring: Scoring) -> list[Ranked]:
    """Return the candidates, best first; those of equal score by their number.

    Adding normalized scores beats reciprocal-rank fusion here (Bruch et al. 2023 find the same).
    """
    entries = candidates.entries
    if not entries:
        return []
    columns = scoring.parts(candidates)
    scores = cast("Column", np.sum(list(columns.values()), axis=0))
    order = cast("list[int]", np.lexsort((np.array([candidate.seq for candidate in entries]), -scores)).tolist())
    return [Ranked(entries[row], float(scores[row]), row, columns) for row in order]


def squash(score: float) -> float:
    """Return a score as a number between 0 and 1, in the same order."""
    return 1 / (1 + math.exp(-score))
