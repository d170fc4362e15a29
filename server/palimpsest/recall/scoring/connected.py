"""What a memory gains because it is linked with the best one of a search (A-Mem, section 3.4)."""

from __future__ import annotations

import numpy as np

from palimpsest.recall.retrieval.features import Candidates
from palimpsest.recall.scoring.ranking import Column

CONNECTED = "connected"
"""The name of the part of a score."""

DISTANCE = 1.0
"""How far below the best memory one is put that it is linked with. Chosen by the first half of the questions of
benchmarks/two_hops.json: with 0.3 a few more answers are among the first three hits, and fewer everyday answers are."""


def connected(candidates: Candidates, scores: Column) -> Column:
    """Return what each candidate gains by being linked with the best memory. Shape (n,).

    It comes to stand below that one, and no candidate loses anything, so what answers by itself stays first.
    """
    gains = np.zeros(len(scores))
    of_memories = np.array([entry.kind == "memory" for entry in candidates.entries])
    best = int(np.argmax(np.where(of_memories, scores, -np.inf)))
    linked = [row for row, other in candidates.connected if other == best]
    gains[linked] = np.maximum(scores[best] - DISTANCE - scores[linked], 0.0)
    return gains
