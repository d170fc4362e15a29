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

from palimpsest.core.models import Candidate
from palimpsest.recall.features import Candidates

Column: TypeAlias = npt.NDArray[Any]
"""One number for each candidate: shape (n,), float32 or float64."""


TOP = 10
"""How many of the first candidates can be overtaken: about as many as a reply has."""

WITHIN = 12
"""How many places behind a candidate a newer one may be that overtakes it. Fitted like the weights of the scoring."""

MAX_GAP = 4.0
"""How much lower the newer memory may score. Fitted."""

MAX_GAP_FOREIGN = 8.0
"""The same if the query is not English: then words count twice as much, and scores lie further apart."""

MAX_GAP_OF_MESSAGES = 1.0
"""The same if one of the two comes from a conversation. People talk about one matter again and again without replacing
what they said, and a language model reconciles what it learns from them."""

SAME_WORDS = 0.8
"""If two candidates share at least this part of the older one's query words, they are about the same matter. Fitted."""

SAME_WORDS_FOREIGN = 0.45
"""The same if the query is not English: inflected forms often are different search tokens. Fitted."""

SAME_MEANING = 0.5
"""If the cosine of two candidates is at least this, they are about the same matter. Fitted."""

SAME_SUM = 0.7
"""If shared words and cosine add up to at least this, two candidates are about the same matter. Fitted."""


class Scoring(Protocol):
    """Score candidates for one purpose. Pure: the same candidates always get the same scores."""

    def parts(self, candidates: Candidates) -> dict[str, Column]:
        """Return what speaks for and against each candidate, by name; the score is their sum."""
        ...

    def reordered(self, order: list[int], candidates: Candidates, scores: Column) -> list[int]:
        """Return the final order of the rows, given their order by score."""
        ...


class Ranked(NamedTuple):
    """A candidate and its score, with the columns of parts that sum up to it and the candidate's row in them."""

    candidate: Candidate
    score: float
    row: int
    columns: Mapping[str, Column]

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
    by_score = np.lexsort((np.array([candidate.seq for candidate in entries]), -scores))
    order = scoring.reordered(cast("list[int]", by_score.tolist()), candidates, scores)
    return [Ranked(entries[row], float(scores[row]), row, columns) for row in order]


def squash(score: float) -> float:
    """Return a score as a number between 0 and 1, in the same order."""
    return 1 / (1 + math.exp(-score))


def newer_first(order: list[int], candidates: Candidates, scores: Column, *, english: bool) -> list[int]:
    """Return an order of rows with newer candidates before those they seem to replace.

    Each candidate is overtaken at most once, by the next one close behind it. So little is lost if the newer one was
    no replacement.
    """
    order = list(order)
    overtaken: set[int] = set()
    place = 0
    while place < min(len(order), TOP):
        old = order[place]
        behind = [] if old in overtaken else order[place + 1 : place + 1 + WITHIN]
        new = next((row for row in behind if _replaces(row, old, candidates, scores, english=english)), None)
        if new is None:
            place += 1
            continue
        overtaken.add(old)
        order.remove(new)
        order.insert(place, new)
    return order


def _replaces(new: int, old: int, candidates: Candidates, scores: Column, *, english: bool) -> bool:
    """Return whether a candidate replaces another: newer, by the same person, nearly as high, about the same matter."""
    later, earlier = candidates.entries[new], candidates.entries[old]
    if (later.kind, later.speaker) != (earlier.kind, earlier.speaker) or later.at <= earlier.at:
        return False
    if earlier.session and earlier.session == later.session:
        return False
    gap = scores[old] - scores[new]
    shared = _shared_words(new, old, candidates)
    # A small embedder finds all texts in other languages alike, so their cosine says nothing.
    vectors = candidates.vectors if english else None
    cosine = float(vectors[old] @ vectors[new]) if vectors is not None else 0.0
    if earlier.session or later.session:
        return bool(shared >= SAME_WORDS and cosine >= SAME_MEANING and gap < MAX_GAP_OF_MESSAGES)
    max_gap, same_words = (MAX_GAP, SAME_WORDS) if english else (MAX_GAP_FOREIGN, SAME_WORDS_FOREIGN)
    return bool(gap < max_gap and (shared >= same_words or cosine >= SAME_MEANING or shared + cosine >= SAME_SUM))


def _shared_words(new: int, old: int, candidates: Candidates) -> float:
    """Return the share of the older one's query words that the newer one has too, by weight."""
    weights, words = candidates.weights, candidates.words
    of_old = sum(weights.get(word, 0.0) for word in words[old])
    of_both = sum(weights.get(word, 0.0) for word in words[old] & words[new])
    return of_both / of_old if of_old else 0.0
