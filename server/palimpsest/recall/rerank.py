"""Rerank the first candidates of a search by a model that reads each text together with the question.

A reranker knows nothing of time, of who is meant, or of what replaced what. So it does not decide alone: its scores
are added to our own, with the same spread. Two texts that it hardly tells apart, such as a fact and its update, keep
our order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

import numpy as np

from palimpsest.recall.features import TINY, Ranked

RERANKED = 20
"""How many candidates are judged. Of a hit that is not among the first twenty, a reply hardly shows anything."""

PART = "reranker"


def reranked(ranked: Sequence[Ranked], scores: Mapping[int, float]) -> Sequence[Ranked]:
    """Return the candidates with those that a reranker judged in their new order, before all others.

    `scores` are the reranker's, by the candidates' numbers.
    """
    judged = [item for item in ranked if item.candidate.seq in scores]
    if not judged:
        return ranked
    own = np.array([item.score for item in judged])
    theirs = np.array([scores[item.candidate.seq] for item in judged])
    gains = own.std() * (theirs - theirs.mean()) / max(float(theirs.std()), TINY)
    column = np.zeros(len(next(iter(judged[0].columns.values()))))
    column[[item.row for item in judged]] = gains
    columns = {**judged[0].columns, PART: column}
    order = cast("list[int]", np.argsort(-(own + gains), kind="stable").tolist())
    others = [item for item in ranked if item.candidate.seq not in scores]
    new = [judged[place]._replace(score=float(own[place] + gains[place]), columns=columns) for place in order]
    return [*new, *others]
