"""Score the candidates of a search: what speaks for and against each of them.

The weights were fitted on conversations (benchmarks/locomo.py) and checked against paraphrases (benchmarks/quality.py).
Around these values the results hardly change. "Z-score" means the distance from the mean of all candidates in standard
deviations, which makes parts with different units comparable.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime
from typing import cast

import numpy as np

from palimpsest.core.models import Candidate
from palimpsest.core.protocols import Vector
from palimpsest.recall.features import Candidates
from palimpsest.recall.ranking import Column, newer_first

MEANING = 0.5
"""Weight of the z-score of the cosine with the query. Fitted."""

ECHO = 0.25
"""Weight of the z-score of the cosine with the `ECHO_TOP` best candidates: texts that belong to one answer resemble
each other (pseudo-relevance feedback, Rocchio 1971). Fitted."""

ECHO_TOP = 4
"""Fitted together with `ECHO`."""

WORDS = 0.15
"""Weight of the z-score of BM25. Small, because among few matches a single common word gives a large z-score."""

COVERAGE = 3.0
"""What a candidate gains if it has all words of the query, each weighted by its inverse document frequency. Fitted."""

CHANCE = (0.34, 0.5)
"""If no candidate has more than the first share of the query's words, the words in common are chance and count nothing.
From the second share on they count in full. This recognizes queries that use other words than the memory. Fitted."""

FOREIGN = 2.0
"""How many times as much words count in a query that is not English, because the default embedder knows English best.
Set by hand."""

SPEAKER = 3.2
"""What a message gains if the query names its speaker. Fitted on conversations, where most questions are about one of
two people."""

ACTOR = 0.8
"""What a memory gains if the query names whom it is about. Less than for a message, because a memory mostly names its
subject in its text too. Fitted."""

QUESTION = 0.75
"""What a message loses that ends in a question, because questions seldom contain answers. Fitted."""

WORDING = 0.35
"""Weight of the z-score of the likeness word by word, among the first `COMPARED` candidates. Fitted."""

COMPARED = 40
"""How many candidates of an English query are compared word by word. Comparing takes time, and the candidates below
seldom reach the reply."""

LENGTH = 0.7
"""What a message gains if it is longer than `USUAL_CHARS` by the factor e^`LENGTH_SPREAD`, and loses if it is shorter
by that factor. Short messages say little. Fitted."""

USUAL_CHARS = 150
"""A little above the mean length of a message in the conversations of the benchmark, which is 127."""

LENGTH_SPREAD = 0.7
"""A little above the standard deviation of the logarithm of those lengths, which is 0.58."""

LENGTH_BOUNDS = (-1.5, 0.5)
"""How many times `LENGTH` counts at most. Long messages are not better beyond that. Fitted."""

RECENCY = 0.1
"""What a candidate of this moment gains. Small: it decides between candidates that are otherwise alike."""

RECENCY_DAYS = 365.0
"""After how many days that gain has fallen to 1/e. Set by hand; memories stay useful for years."""

OUTDATED = 2.0
"""What a message loses if all its facts were superseded: enough to come after what is current. Set by hand."""

SESSION = 0.5
"""Weight of the mean first guess of the best `SESSION_TOP` of a candidate's session: sessions have subjects. Fitted."""

SESSION_TOP = 3
"""Fitted together with `SESSION`."""

FIRST_SPEAKER = 1.6
"""Weight of a named speaker in the first guess, which is made of z-scores and therefore on another scale. Fitted."""

SECONDS_A_DAY = 86_400
TINY = 1e-9
"""A spread below this is rounding, and not a difference between candidates."""


@dataclass(frozen=True, slots=True)
class SearchScoring:
    """The scoring of one search.

    `now` is the instant recency is measured from. `speakers` are the people the query names. `english` says whether the
    query is in the language that the default embedder knows best. `compare_words` returns how alike the words of texts
    and of the query are, shape (n,), or None if it cannot tell.
    """

    now: datetime
    speakers: AbstractSet[str] = frozenset()
    english: bool = True
    compare_words: Callable[[Sequence[str]], Vector | None] | None = None

    def parts(self, candidates: Candidates) -> dict[str, Column]:
        """Return what speaks for and against each candidate, by name."""
        entries = candidates.entries
        bm25 = _z_scores(candidates.bm25)
        coverage = _coverage(candidates)
        trust = _trust_in_words(coverage) if self.english else FOREIGN
        parts: dict[str, Column] = {
            "words": WORDS * trust * bm25,
            "coverage": COVERAGE * trust * coverage,
            "speaker": np.array([self._speaker(candidate) for candidate in entries]),
            "question": np.array([-QUESTION if candidate.is_question else 0.0 for candidate in entries]),
            "length": _length(np.array([candidate.chars for candidate in entries])),
            "recency": _recency([candidate.at for candidate in entries], self.now),
            "outdated": np.array([-OUTDATED if entry.owner_id in candidates.outdated else 0.0 for entry in entries]),
        }
        guess = bm25 + FIRST_SPEAKER * np.array([entry.speaker in self.speakers for entry in entries], dtype=np.float32)
        vectors = candidates.vectors
        if vectors is not None and candidates.query_vector is not None:
            meaning = _z_scores(vectors @ candidates.query_vector)
            parts["meaning"] = MEANING * meaning
            guess = (guess + meaning) / 2
        prior = _session_prior(entries, guess)
        parts["session"] = SESSION * prior
        if vectors is not None:
            best = np.argsort(-(guess + prior), kind="stable")[:ECHO_TOP]
            parts["echo"] = ECHO * _z_scores(vectors @ vectors[best].mean(axis=0))
        if self.compare_words is not None:
            parts["wording"] = self._wording(entries, parts, self.compare_words)
        return parts

    def reordered(self, order: list[int], candidates: Candidates, scores: Column) -> list[int]:
        """Return the order with newer candidates before those they seem to replace."""
        return newer_first(order, candidates, scores, english=self.english)

    def _speaker(self, candidate: Candidate) -> float:
        if candidate.speaker not in self.speakers:
            return 0.0
        return SPEAKER if candidate.kind == "message" else ACTOR

    def _wording(
        self,
        entries: Sequence[Candidate],
        parts: Mapping[str, Column],
        compare_words: Callable[[Sequence[str]], Vector | None],
    ) -> Column:
        """Return what the likeness word by word adds for the first candidates by the other parts, 0 for the rest.

        Spelling, which queries in other languages are compared by, is cheap enough for all candidates.
        """
        scores = np.sum(list(parts.values()), axis=0)
        number = COMPARED if self.english else len(entries)
        first = cast("list[int]", np.argsort(-scores, kind="stable")[:number].tolist())
        likeness = compare_words([entries[row].text for row in first])
        added = np.zeros(len(entries), dtype=np.float32)
        if likeness is not None:
            added[first] = WORDING * _z_scores(likeness)
        return added


def _z_scores(values: Column) -> Column:
    spread = float(values.std()) if len(values) else 0.0
    return (values - values.mean()) / spread if spread > TINY else np.zeros_like(values)


def _coverage(candidates: Candidates) -> Column:
    """Return the share of the query's words that each candidate has, by weight; between 0 and 1."""
    weights = candidates.weights
    query_words, total = weights.keys(), sum(weights.values()) or 1.0
    common = [query_words & words if words else () for words in candidates.words]
    return np.array([sum(weights[word] for word in words) / total for words in common])


def _trust_in_words(coverage: Column) -> float:
    """Return how much words in common count, from 0 (chance) to 1."""
    none, full = CHANCE
    return min(max((float(coverage.max()) - none) / (full - none), 0.0), 1.0)


def _length(chars: Column) -> Column:
    spreads = np.log(np.maximum(chars, 1) / USUAL_CHARS) / LENGTH_SPREAD
    return np.where(chars > 0, LENGTH * np.clip(spreads, *LENGTH_BOUNDS), 0.0)


def _recency(times: Sequence[datetime], now: datetime) -> Column:
    days = np.array([(now - at).total_seconds() for at in times], dtype=np.float32) / SECONDS_A_DAY
    return RECENCY * np.exp(-np.maximum(days, 0.0) / RECENCY_DAYS)


def _session_prior(entries: Sequence[Candidate], guess: Column) -> Column:
    """Return for each candidate the mean of the best of its session; missing and negative ones count 0."""
    by_session: dict[str, list[float]] = {}
    for candidate, score in zip(entries, cast("list[float]", guess.tolist()), strict=True):
        if candidate.session:
            by_session.setdefault(candidate.session, []).append(max(score, 0.0))
    prior = {
        session: sum(sorted(scores, reverse=True)[:SESSION_TOP]) / SESSION_TOP for session, scores in by_session.items()
    }
    return np.array([prior.get(candidate.session, 0.0) for candidate in entries])
