"""How candidates become an order: fusion, names, recency, folding and the token budget.

Pure functions over numbers and hits; nothing here reads or writes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime
from typing import cast

import numpy as np

from palimpsest.lexicon import count_tokens
from palimpsest.ports import Vector
from palimpsest.records import Hit

LEXICAL_SHARE = 0.5
NAME_BOOST = 0.5
RECENCY_BOOST = 0.1
SESSION_SHARE = 0.3
OUTDATED_PENALTY = 1.0
"""In units of the fused z-score; measured by benchmarks/locomo.py, flat around these values."""

RECENCY_DAYS = 365.0
"""After how many days the recency boost has fallen to 1/e."""

TINY = 1e-9
"""Below this a length or a spread is none."""

BM25_K1 = 1.2
BM25_B = 0.75


@dataclass(frozen=True, slots=True)
class Signals:
    """Hold what is known of one candidate besides its two similarities."""

    names_speaker: bool = False
    outdated: bool = False
    at: datetime | None = None


def centred(vectors: Vector, mean: Vector | None) -> Vector:
    """Return vectors of shape (..., dims) with the mean taken out, each of length 1 again.

    Removing the common component (Mu & Viswanath 2018, "All-but-the-Top") spreads what a small embedder
    crowds together; the mean must be the collection's own.
    """
    moved = vectors if mean is None else vectors - mean
    lengths = np.linalg.norm(moved, axis=-1, keepdims=True)
    return (moved / np.maximum(lengths, TINY)).astype(np.float32)


def nearest(units: Sequence[int], keys: Vector, asked: Vector, limit: int) -> dict[int, float]:
    """Return the dot products of the `limit` nearest of `keys`, shape (len(units), dims), by unit."""
    if not units:
        return {}
    scores = keys @ asked
    best = np.argsort(-scores, kind="stable")[:limit]
    return {units[i]: float(scores[i]) for i in best.tolist()}


def trust_in_words(frequency: Mapping[str, int], words: AbstractSet[str], units: int) -> float:
    """Return how far a match by words can be trusted, between 0 and 1.

    It falls when less than half of what is asked, by inverse document frequency, stands anywhere in the
    collection: a question in other words matches a small collection by "is" and "the" alone.
    """
    weight = {word: math.log(1 + max(units, 1) / (1 + frequency.get(word, 0))) for word in words}
    total = sum(weight.values())
    return min(1.0, 2 * sum(weight[word] for word in words if word in frequency) / total) if total else 0.0


def fuse(
    dense: Mapping[int, float], lexical: Mapping[int, float], candidates: Sequence[int], trust: float = 1.0
) -> dict[int, float]:
    """Return a score by candidate: the weighted sum of the z-scores of its two similarities; any real number.

    `trust`, between 0 and 1, lowers the weight of the words. A candidate missing from `dense` or `lexical` counts as
    the lowest there. Adding normalized scores beats reciprocal-rank fusion here (Bruch et al. 2023 find the same).
    """
    share = LEXICAL_SHARE * trust
    total = (1 - share) * _z_scores(candidates, dense) + share * _z_scores(candidates, lexical)
    return dict(zip(candidates, cast("list[float]", total.tolist()), strict=True))


def _z_scores(ids: Sequence[int], scores: Mapping[int, float]) -> Vector:
    floor = min(scores.values(), default=0.0)
    values = np.array([scores.get(unit, min(floor, 0.0)) for unit in ids], dtype=np.float32)
    spread = float(values.std()) if len(ids) else 0.0
    return (values - values.mean()) / spread if spread > TINY else np.zeros_like(values)


def boost(signal: Signals, now: datetime) -> float:
    """Return what the signals of a candidate add to its fused score."""
    gain = NAME_BOOST if signal.names_speaker else 0.0
    if signal.outdated:
        gain -= OUTDATED_PENALTY
    if signal.at is not None:
        age_days = max((now - signal.at).total_seconds() / 86_400, 0.0)
        gain += RECENCY_BOOST * math.exp(-age_days / RECENCY_DAYS)
    return gain


def with_session_prior(scores: Mapping[int, float], sessions: Mapping[int, str]) -> dict[int, float]:
    """Return the scores, raised where the rest of a candidate's session scores well too.

    What belongs together is said together: a session gives its candidates a share of the mean of its best three,
    of which those it lacks, and those below the average of all, count 0.
    """
    by_session: dict[str, list[float]] = {}
    for candidate, session in sessions.items():
        by_session.setdefault(session, []).append(max(scores[candidate], 0.0))
    prior = {session: sum(sorted(found, reverse=True)[:3]) / 3 for session, found in by_session.items()}
    return {
        candidate: score + SESSION_SHARE * prior.get(sessions.get(candidate, ""), 0.0)
        for candidate, score in scores.items()
    }


def squash(score: float) -> float:
    """Return a fused score as a number between 0 and 1, in the same order."""
    return 1 / (1 + math.exp(-score))


def bm25(documents: Sequence[Sequence[str]], query: AbstractSet[str]) -> list[float]:
    """Return the BM25 score of each document (a list of tokens) for a query (Robertson & Zaragoza 2009)."""
    if not documents:
        return []
    mean_length = sum(map(len, documents)) / len(documents) or 1.0
    frequency = {word: sum(1 for document in documents if word in document) for word in query}
    scores: list[float] = []
    for document in documents:
        score = 0.0
        for word in query:
            times = document.count(word)
            rarity = math.log(1 + (len(documents) - frequency[word] + 0.5) / (frequency[word] + 0.5))
            length = 1 - BM25_B + BM25_B * len(document) / mean_length
            score += rarity * times * (BM25_K1 + 1) / (times + BM25_K1 * length)
        scores.append(score)
    return scores


def fold(hits: Sequence[Hit]) -> list[Hit]:
    """Return the hits in order without those that only repeat what stands above them.

    A hit repeats when every message behind it is behind hits already taken.
    """
    seen: set[str] = set()
    taken: list[Hit] = []
    for hit in hits:
        if hit.origins and seen.issuperset(hit.origins):
            continue
        seen.update(hit.origins)
        taken.append(hit)
    return taken


def within_budget(hits: Sequence[Hit], limit: int, max_tokens: int) -> list[Hit]:
    """Return the first hits whose texts fit `max_tokens`, at most `limit`; a hit too long to fit is passed over."""
    taken: list[Hit] = []
    left = max_tokens
    for hit in hits:
        if len(taken) == limit:
            break
        cost = hit_tokens(hit)
        if cost <= left:
            taken.append(hit)
            left -= cost
    return taken


def hit_tokens(hit: Hit) -> int:
    """Return what one hit costs in the reply, in tokens: its text and the line it stands on."""
    return count_tokens(hit.text) + 14
