"""How candidates become an order: what speaks for each, part by part; then folding and the token budget.

Pure functions over numbers and hits; nothing here reads or writes. A score is a sum of parts, so that every place in
the order can be explained. The weights were fitted on conversations (benchmarks/locomo.py), held against paraphrases
(benchmarks/quality.py), and are flat around these values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from palimpsest.core.models import Candidate, Hit
from palimpsest.core.protocols import Vector
from palimpsest.text.tokenizer import count_tokens

MEANING = 0.5
"""Weight of the z-score of the likeness in meaning."""

ECHO = 0.25
"""Weight of the z-score of the likeness to the best four: what belongs to an answer resembles it (Rocchio 1971)."""

ECHO_OF = 4

WORDS = 0.15
"""Weight of the z-score of BM25. Small: one common word in common makes a large z-score among few matches."""

COVERAGE = 3.0
"""What it is worth to hold all words that are asked for, each weighing its inverse document frequency."""

CHANCE = (0.34, 0.5)
"""Where no candidate holds more than the first share of what is asked, words in common are chance and count nothing;
from the second share on they count in full. A question in other words than the memory's is told by that."""

FOREIGN = 2.0
"""How many times as much words count in a question of another language: a small embedder hardly knows it."""

SPEAKER = 3.2
"""What it is worth that the one who is asked about said it; a memory about them gets `ACTOR`."""

ACTOR = 0.8
ASKS = 0.75
"""What a turn loses that ends in a question: questions seldom hold answers."""

WORDING = 0.35
"""Weight of the z-score of how near the words are to those asked for, among the first `READ_CLOSELY`."""

READ_CLOSELY = 40

LENGTH = 0.7
"""What a turn loses that is shorter by the factor e^`LENGTH_SPREAD`, or gains; at most `LENGTH_BOUNDS` times."""

USUAL_CHARS = 150
LENGTH_SPREAD = 0.7
LENGTH_BOUNDS = (-1.5, 0.5)

RECENCY = 0.1
RECENCY_DAYS = 365.0
"""After how many days what recency adds has fallen to 1/e."""

OUTDATED = 2.0
"""What a turn loses all of whose facts were superseded."""

SESSION = 0.5
"""What a candidate gets of how well the best three of its session do at first sight: sessions have subjects."""

FIRST_SPEAKER = 1.6
"""At first sight, that is by the z-scores of meaning and words, what it counts for who said it."""

REPLACED_AMONG = 10
REPLACED_WITHIN = 12
REPLACED_BEHIND = 4.0
TALKED_BEHIND = 1.0
"""Among how many of the first an older one gives way, to one how many places and how much score behind it; less where
it is of a conversation, in which one matter is talked of again and again and a model reconciles what it learns."""

SAME_ASKED = 0.8
SAME_ASKED_FOREIGN = 0.45
SAME_MEANING = 0.5
SAME_BOTH = 0.7
"""From what share of the asked words in common, what cosine, or what sum of both on, two speak of one matter."""

TINY = 1e-9
"""Below this a length or a spread is none."""


@dataclass(frozen=True, slots=True)
class Likeness:
    """Hold how each of n candidates is like the question: by meaning, by BM25, and by the words it holds.

    `keys`, of shape (n, dims), and `asked`, of shape (dims,), are centred; None where nothing was embedded. `words` are
    the search tokens of each text and of what stands around it, `asked_for` the words of the question with the weight
    of each; `english` says that it is put in the language that the embedder knows best. `wording` tells of texts how
    near their words are to those asked for, shape (n,), or None where that cannot be told.
    """

    keys: Vector | None
    asked: Vector | None
    bm25: Sequence[float]
    words: Sequence[AbstractSet[str]]
    asked_for: Mapping[str, float]
    english: bool = True
    wording: Callable[[Sequence[str]], Vector | None] | None = None


class Ranked(NamedTuple):
    """Hold a candidate and its score, with the columns of parts which that is the sum of, and its row in them."""

    candidate: Candidate
    score: float
    row: int
    columns: Mapping[str, Vector]

    @property
    def parts(self) -> dict[str, float]:
        """Return what speaks for it and against it, by name."""
        return {name: float(column[self.row]) for name, column in self.columns.items()}


def centred(vectors: Vector, mean: Vector | None) -> Vector:
    """Return vectors of shape (..., dims) with the mean taken out, each of length 1 again.

    Removing the common component (Mu & Viswanath 2018, "All-but-the-Top") spreads what a small embedder
    crowds together; the mean must be the collection's own.
    """
    moved = vectors if mean is None else vectors - mean
    lengths = np.linalg.norm(moved, axis=-1, keepdims=True)
    return (moved / np.maximum(lengths, TINY)).astype(np.float32)


def rarity(frequency: Mapping[str, int], words: Sequence[str], units: int) -> dict[str, float]:
    """Return the inverse document frequency of each word among `units`; always positive."""
    return {word: math.log(1 + max(units, 1) / (1 + frequency.get(word, 0))) for word in words}


def ranked(
    candidates: Sequence[Candidate],
    likeness: Likeness,
    named: AbstractSet[str],
    outdated: AbstractSet[str],
    now: datetime,
) -> list[Ranked]:
    """Return the candidates, best first. `named` are those asked about, `outdated` ids of turns that hold no more.

    Adding normalized scores beats reciprocal-rank fusion here (Bruch et al. 2023 find the same).
    """
    if not candidates:
        return []
    words = _z_scores(np.array(likeness.bm25, dtype=np.float32))
    coverage = _coverage(likeness)
    none, enough = CHANCE
    trust = min(max((float(coverage.max()) - none) / (enough - none), 0.0), 1.0) if likeness.english else FOREIGN
    parts = {
        "words": WORDS * trust * words,
        "coverage": COVERAGE * trust * coverage,
        "speaker": np.array([_speaks(each, named) for each in candidates] if named else np.zeros(len(candidates))),
        "question": np.array([-ASKS if each.is_question else 0.0 for each in candidates]),
        "length": _length(np.array([each.chars for each in candidates])),
        "recency": _recency([each.at for each in candidates], now),
        "outdated": np.array([-OUTDATED if each.owner_id in outdated else 0.0 for each in candidates]),
    }
    guess = words + FIRST_SPEAKER * np.array([each.speaker in named for each in candidates], dtype=np.float32)
    keys = likeness.keys
    if keys is not None and likeness.asked is not None:
        meaning = _z_scores(keys @ likeness.asked)
        parts["meaning"] = MEANING * meaning
        guess = (guess + meaning) / 2
    prior = _session_prior(candidates, guess)
    parts["session"] = SESSION * prior
    if keys is not None:
        best = np.argsort(-(guess + prior), kind="stable")[:ECHO_OF]
        parts["echo"] = ECHO * _z_scores(keys @ keys[best].mean(axis=0))
    total = cast("Vector", np.sum(list(parts.values()), axis=0))
    if likeness.wording is not None:
        number = READ_CLOSELY if likeness.english else len(candidates)
        parts["wording"] = _read_closely(candidates, likeness.wording, total, number)
        total = total + parts["wording"]
    order = cast("list[int]", np.lexsort((np.array([each.seq for each in candidates]), -total)).tolist())
    return [
        Ranked(candidates[i], float(total[i]), i, parts) for i in _current_first(order, candidates, likeness, total)
    ]


def _read_closely(
    candidates: Sequence[Candidate], wording: Callable[[Sequence[str]], Vector | None], total: Vector, number: int
) -> Vector:
    """Return what the words of the first add for each candidate; nothing for the others."""
    first = cast("list[int]", np.argsort(-total, kind="stable")[:number].tolist())
    near = wording([candidates[row].text for row in first])
    added = np.zeros(len(candidates), dtype=np.float32)
    if near is not None:
        added[first] = WORDING * _z_scores(near)
    return added


def _current_first(order: list[int], candidates: Sequence[Candidate], likeness: Likeness, total: Vector) -> list[int]:
    """Return the order with what is newer before what it seems to replace: the same asked for, of the same one.

    What was said in passing is less like a question than what it makes outdated was, said outright: likeness alone
    would tell the old. Each is overtaken once, by the next that stands close behind it, so that little is lost where it
    was no replacement.
    """
    order = list(order)
    overtaken: set[int] = set()
    place = 0
    while place < min(len(order), REPLACED_AMONG):
        old = order[place]
        behind = [] if old in overtaken else order[place + 1 : place + 1 + REPLACED_WITHIN]
        new = next((each for each in behind if _replaces(each, old, candidates, likeness, total)), None)
        if new is None:
            place += 1
            continue
        overtaken.add(old)
        order.remove(new)
        order.insert(place, new)
    return order


def _replaces(new: int, old: int, candidates: Sequence[Candidate], likeness: Likeness, total: Vector) -> bool:
    """Say whether a candidate is newer than another, of the same one, nearly as good, and answers the same."""
    later, earlier = candidates[new], candidates[old]
    if (later.kind, later.speaker) != (earlier.kind, earlier.speaker) or later.at <= earlier.at:
        return False
    if earlier.session and earlier.session == later.session:
        return False
    weights = likeness.asked_for
    asked = sum(weights.get(word, 0.0) for word in likeness.words[old])
    both = sum(weights.get(word, 0.0) for word in likeness.words[old] & likeness.words[new])
    shared = both / asked if asked else 0.0
    known = likeness.keys if likeness.english else None  # in other languages all is alike to a small embedder
    cosine = float(known[old] @ known[new]) if known is not None else 0.0
    if earlier.session or later.session:
        return shared >= SAME_ASKED and cosine >= SAME_MEANING and total[old] - total[new] < TALKED_BEHIND
    near = total[old] - total[new] < REPLACED_BEHIND * (1.0 if likeness.english else FOREIGN)
    enough = SAME_ASKED if likeness.english else SAME_ASKED_FOREIGN
    return near and (shared >= enough or cosine >= SAME_MEANING or shared + cosine >= SAME_BOTH)


def _z_scores(values: Vector) -> Vector:
    spread = float(values.std()) if len(values) else 0.0
    return (values - values.mean()) / spread if spread > TINY else np.zeros_like(values)


def _coverage(likeness: Likeness) -> Vector:
    """Return the share of what is asked that stands in each candidate, by weight; between 0 and 1."""
    weights = likeness.asked_for
    asked, total = weights.keys(), sum(weights.values()) or 1.0
    held = [asked & words if words else () for words in likeness.words]
    return np.array([sum(weights[word] for word in words) / total for words in held])


def _speaks(candidate: Candidate, named: AbstractSet[str]) -> float:
    if candidate.speaker not in named:
        return 0.0
    return SPEAKER if candidate.kind == "message" else ACTOR


def _length(chars: npt.NDArray[Any]) -> Vector:
    spreads = np.log(np.maximum(chars, 1) / USUAL_CHARS) / LENGTH_SPREAD
    return np.where(chars > 0, LENGTH * np.clip(spreads, *LENGTH_BOUNDS), 0.0)


def _recency(times: Sequence[datetime], now: datetime) -> npt.NDArray[np.float64]:
    days = np.array([(now - at).total_seconds() for at in times], dtype=np.float32) / 86_400
    return RECENCY * np.exp(-np.maximum(days, 0.0) / RECENCY_DAYS)


def _session_prior(candidates: Sequence[Candidate], scores: npt.NDArray[Any]) -> Vector:
    """Return for each candidate the mean of the best three of its session, of which those it lacks count 0."""
    by_session: dict[str, list[float]] = {}
    for candidate, score in zip(candidates, cast("list[float]", scores.tolist()), strict=True):
        if candidate.session:
            by_session.setdefault(candidate.session, []).append(max(score, 0.0))
    prior = {session: sum(sorted(found, reverse=True)[:3]) / 3 for session, found in by_session.items()}
    return np.array([prior.get(each.session, 0.0) for each in candidates])


def squash(score: float) -> float:
    """Return a score as a number between 0 and 1, in the same order."""
    return 1 / (1 + math.exp(-score))


def fold(hits: Sequence[Hit]) -> list[Hit]:
    """Return the hits in order without those that only repeat what stands above them.

    A hit repeats when every message behind it is behind hits already taken, or when one of them has its words.
    """
    seen: set[str] = set()
    said: set[str] = set()
    taken: list[Hit] = []
    for hit in hits:
        words = " ".join(hit.text.casefold().split())
        if words in said or (hit.message_ids and seen.issuperset(hit.message_ids)):
            continue
        seen.update(hit.message_ids)
        said.add(words)
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
