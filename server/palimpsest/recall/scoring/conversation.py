"""What candidates say about each other: those of one session, a question and its answer, a message and its memories."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np

from palimpsest.core.search.hits import Candidate
from palimpsest.recall.retrieval.features import Candidates
from palimpsest.recall.scoring.ranking import Column

REPEATED = 4.0
"""What a memory or a message loses whose other half stands above it. Set by hand: enough to leave its place to what
the reply does not say yet, and not so much that a good hit is lost."""

SESSION_TOP = 3
"""How many messages of a session stand for it. Set by hand: more are seldom about one question."""


def best_of_session(entries: Sequence[Candidate], guess: Column) -> Column:
    """Return for each candidate how well the best of its session match by a first guess: sessions have subjects."""
    by_session: dict[str, list[float]] = {}
    for entry, score in zip(entries, cast("list[float]", guess.tolist()), strict=True):
        if entry.session:
            by_session.setdefault(entry.session, []).append(max(score, 0.0))
    means = {name: sum(sorted(scores, reverse=True)[:SESSION_TOP]) / SESSION_TOP for name, scores in by_session.items()}
    return np.array([means.get(entry.session, 0.0) for entry in entries])


def of_question_before(entries: Sequence[Candidate], meaning: Column) -> Column:
    """Return for each message how well the question matches that was asked just before it; 0 for all others."""
    row_of = {(entry.session, entry.seq): row for row, entry in enumerate(entries) if entry.is_question}
    before = [row_of.get((entry.session, entry.seq - 1)) if entry.session else None for entry in entries]
    return np.array([0.0 if row is None else max(float(meaning[row]), 0.0) for row in before])


def of_linked(candidates: Candidates, feature: Column) -> Column:
    """Return for each memory the highest value of its messages, for each message that of its memories; 0 without any.

    What was said and what was learned from it are two wordings of one matter, and each finds the other.
    """
    highest = np.full(len(candidates.entries), -np.inf)
    for memory, message in candidates.linked:
        highest[memory] = max(highest[memory], feature[message])
        highest[message] = max(highest[message], feature[memory])
    return np.where(np.isinf(highest), 0.0, highest)


def repeated(candidates: Candidates, scores: Column) -> Column:
    """Return 1 for each memory or message with a candidate above it that it is linked to, else 0.

    One that is itself such a repetition does not count.
    """
    repeats = np.zeros(len(scores))
    if not candidates.linked:
        return repeats
    others: dict[int, list[int]] = {}
    for memory, message in candidates.linked:
        others.setdefault(memory, []).append(message)
        others.setdefault(message, []).append(memory)
    above: set[int] = set()
    for row in cast("list[int]", np.argsort(-scores, kind="stable").tolist()):
        if above.isdisjoint(others.get(row, ())):
            above.add(row)
        else:
            repeats[row] = 1.0
    return repeats
