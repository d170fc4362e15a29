"""Score the candidates of a search: a feature is one function, and a part of a score is a feature times its weight.

The weights are fitted (`weights.json`, made by benchmarks/fit.py), separately for memories and messages. A feature
without a weight is not computed. "Z-score" means the distance from the mean of all candidates in standard deviations,
which makes features with different units comparable.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, time
from functools import partial
from typing import cast

import numpy as np

from palimpsest.core.clock import in_zone
from palimpsest.core.protocols import Embedder, Vector
from palimpsest.core.search.hits import Candidate
from palimpsest.recall.fitted.weights import Weights
from palimpsest.recall.folding import same_words_key
from palimpsest.recall.query import ParsedQuery
from palimpsest.recall.retrieval.features import Candidates
from palimpsest.recall.scoring.connected import CONNECTED, connected
from palimpsest.recall.scoring.conversation import (
    REPEATED,
    best_of_session,
    of_linked,
    of_question_before,
    repeated,
)
from palimpsest.recall.scoring.dates import DateMatch, date_match
from palimpsest.recall.scoring.forgetting import WEIGHT
from palimpsest.recall.scoring.pages import page_losses
from palimpsest.recall.scoring.ranking import Column
from palimpsest.recall.scoring.updates import newer_of_two, order_features
from palimpsest.text.answer_types import asked_types, can_hold
from palimpsest.text.dates.finder import dates_in
from palimpsest.text.late_interaction import gist_similarity, meaning_similarity, spelling_similarity

COMPARED = 64
"""How many of the first candidates are compared with the query by the vectors of single words. It takes time, and the
candidates below seldom reach the reply. Set by hand."""

COMPARED_FEATURES = ("gist", "wording")

USUAL_CHARS = 150
"""A little above the mean length of a message in conversations, which is 127 in LoCoMo."""

LENGTH_SPREAD = 0.7
"""A little above the standard deviation of the logarithm of those lengths, which is 0.58."""

LENGTH_BOUNDS = (-1.5, 0.5)
"""The feature of the length has no values beyond these, because long messages are not better still. Set by hand."""

RECENCY = 0.1
"""What a candidate of this moment gains. Set by hand, and small: it decides between equals."""

RECENCY_DAYS = 365.0
"""After how many days that gain has fallen to 1/e. Set by hand; memories stay useful for years."""

SUPERSEDED = 2.0
"""What a message loses if all its facts were superseded: enough to come after what is current. Set by hand, because no
data set has such messages."""

VERBATIM = 8.0
"""What a candidate gains whose text is the query, word by word. Set by hand: more than all other parts differ between
texts that are as alike, because it was asked for."""

GUESSED_SPEAKER = 1.6
"""The weight of a named speaker in the first guess that a session is judged by. Set by hand at about half of the fitted
weight, because the guess is a mean of z-scores and thus half as wide."""

SECONDS_A_DAY = 86_400
MAX_RATIO = 2
"""A text that is this many times as long as another one does not have the same words. Set by hand, so that long texts
are not compared."""

TINY = 1e-9
"""A spread below this is rounding, and not a difference between candidates."""

MIN_SPREAD = 0.05
"""The smallest standard deviation of cosines: of two memories that are equally near, neither is far better. Set by hand
at less than half of the usual deviation, which is 0.12."""


@dataclass(frozen=True, slots=True)
class SearchScoring:
    """The scoring of one search. `now` is the instant recency is measured from.

    `retention` is how well each candidate is remembered, of shape (n,); None if memories do not fade.
    """

    query: ParsedQuery
    now: datetime
    weights: Weights
    embedder: Embedder
    retention: Column | None = None

    def parts(self, candidates: Candidates) -> dict[str, Column]:
        """Return what speaks for and against each candidate, by name."""
        weigh = partial(self._weighed, np.array([entry.kind == "message" for entry in candidates.entries]))
        parts = {name: weigh(name, column) for name, column in self.features(candidates).items()}
        outdated = [entry.owner_id in candidates.outdated for entry in candidates.entries]
        parts["superseded"] = -SUPERSEDED * np.array(outdated, dtype=np.float32)
        parts["verbatim"] = VERBATIM * _verbatim(self.query, candidates)
        parts["recency"] = RECENCY * _recency([entry.at for entry in candidates.entries], self.now)
        if self.retention is not None:
            parts["faded"] = -WEIGHT * (1 - self.retention)
        for name in COMPARED_FEATURES:
            if self._is_used(name):
                parts[name] = weigh(name, self.compared_feature(name, candidates, first_rows(parts)))
        scores = np.sum(list(parts.values()), axis=0)
        if candidates.connected:
            parts[CONNECTED] = connected(candidates, scores)
            scores = scores + parts[CONNECTED]
        order = order_features(self.query, candidates, scores, self.weights.replacement)
        parts |= {name: weigh(name, column) for name, column in order.items()}
        parts |= page_losses(candidates, np.sum(list(parts.values()), axis=0))
        parts["newer of two"] = newer_of_two(self.query, candidates, np.sum(list(parts.values()), axis=0))
        parts["repeated"] = -REPEATED * repeated(candidates, np.sum(list(parts.values()), axis=0))
        return parts

    def features(self, candidates: Candidates) -> dict[str, Column]:
        """Return the features that have a weight, by name, without those of `COMPARED_FEATURES`."""
        query = self.query
        meaning = _meaning(candidates, candidates.vectors, candidates.words)
        in_context = _meaning(candidates, candidates.contexts, candidates.words_in_context)
        covered_in_context = coverage(candidates, candidates.words_in_context)
        functions: dict[str, Callable[[], Column]] = {
            "message": lambda: np.array([entry.kind == "message" for entry in candidates.entries], dtype=np.float32),
            "meaning": lambda: damped(meaning),
            "context": lambda: damped(in_context),
            "words": lambda: z_scores(candidates.bm25),
            "coverage": lambda: coverage(candidates, candidates.words),
            "coverage in context": lambda: covered_in_context,
            "number": lambda: _number(query, candidates),
            "speaker": lambda: named(query, candidates),
            "question": lambda: np.array([entry.is_question for entry in candidates.entries], dtype=np.float32),
            "length": lambda: _length(np.array([entry.chars for entry in candidates.entries])),
            "session": lambda: best_of_session(candidates.entries, self._guess(candidates, meaning + in_context)),
            "spelling": lambda: self._spelling(candidates),
            "answer type": lambda: _answer_type(query, candidates),
            "linked": lambda: of_linked(candidates, np.ones(len(candidates.entries))),
            "linked meaning": lambda: of_linked(candidates, damped(meaning)),
            "linked coverage": lambda: of_linked(candidates, covered_in_context),
            "answers": lambda: of_question_before(candidates.entries, damped(meaning)),
        }
        features = {name: feature() for name, feature in functions.items() if self._is_used(name)}
        if query.dates and (self._is_used("said") or self._is_used("told")):
            matches = [_date_match(query, entry) for entry in candidates.entries]
            features["said"] = np.array([match.said for match in matches])
            features["told"] = np.array([match.told for match in matches])
        return features

    def _guess(self, candidates: Candidates, meanings: Column) -> Column:
        """Return a first guess of the score; `meanings` are the z-scores of the texts and of their contexts."""
        return GUESSED_SPEAKER * named(self.query, candidates) + (z_scores(candidates.bm25) + meanings) / 3

    def compared_feature(self, name: str, candidates: Candidates, rows: Sequence[int]) -> Column:
        """Return a feature of `COMPARED_FEATURES` for some of the candidates, 0 for the rest."""
        column = np.zeros(len(candidates.entries), dtype=np.float32)
        if not self.query.is_english:
            return column  # the vectors of words are those of English words
        compare = gist_similarity if name == "gist" else partial(meaning_similarity, weights=candidates.weights)
        similarity = compare(self.embedder, self.query.text, texts=[candidates.entries[row].text for row in rows])
        if similarity is not None:
            column[list(rows)] = z_scores(similarity)
        return column

    def _spelling(self, candidates: Candidates) -> Column:
        """Return the likeness of the spelling if the query is not English, whose words are compared by meaning."""
        likeness = None
        if not self.query.is_english:
            likeness = spelling_similarity(candidates.weights, [entry.text for entry in candidates.entries])
        return np.zeros(len(candidates.entries)) if likeness is None else z_scores(likeness)

    def _is_used(self, name: str) -> bool:
        return bool(self.weights.memory.get(name) or self.weights.message.get(name))

    def _weighed(self, is_message: Column, name: str, feature: Column) -> Column:
        return np.where(is_message, self.weights.message.get(name, 0.0), self.weights.memory.get(name, 0.0)) * feature


def first_rows(parts: Mapping[str, Column]) -> list[int]:
    """Return the rows of the `COMPARED` best candidates by the sum of their parts."""
    return cast("list[int]", np.argsort(-np.sum(list(parts.values()), axis=0), kind="stable")[:COMPARED].tolist())


def z_scores(values: Column, counted: Column | None = None, min_spread: float = TINY) -> Column:
    """Return values in standard deviations from their mean; zeros if they are all alike.

    The mean and the deviation are those of the `counted` rows. A deviation below `min_spread` counts as that.
    """
    sample = values if counted is None else values[counted]
    if len(sample) == 0:
        return np.zeros(len(values))
    return (values - sample.mean()) / max(float(sample.std()), min_spread)


def coverage(candidates: Candidates, words: Sequence[frozenset[str]]) -> Column:
    """Return the share of the query's words that each candidate has, by weight; between 0 and 1."""
    weights = candidates.weights
    total = sum(weights.values()) or 1.0
    # Many candidates have the same few words of the query.
    shares = {own: sum(weights[word] for word in weights.keys() & own) / total for own in set(words)}
    return np.array([shares[own] for own in words])


def named(query: ParsedQuery, candidates: Candidates) -> Column:
    """Return 1 for messages of a speaker whom the query names, and for memories that are about one; else 0."""
    return np.array(
        [
            entry.speaker in query.speakers or (entry.kind == "memory" and not query.names.isdisjoint(words))
            for entry, words in zip(candidates.entries, candidates.words, strict=True)
        ],
        dtype=np.float32,
    )


def _meaning(candidates: Candidates, vectors: Vector | None, words: Sequence[frozenset[str]]) -> Column:
    """Return the z-scores of the cosines with the query. Where there is no vector, the words stand in for it."""
    if vectors is None or candidates.query_vector is None:
        return z_scores(coverage(candidates, words))
    has_vector = candidates.has_vector
    by_vectors = z_scores(vectors @ candidates.query_vector, has_vector, MIN_SPREAD)
    if has_vector.all():
        return by_vectors
    return np.where(has_vector, by_vectors, z_scores(coverage(candidates, words)))


def damped(z_scores: Column) -> Column:
    """Return the logarithm of 1 and more for the distance from the mean: far above it, nearer is hardly better."""
    return np.sign(z_scores) * np.log1p(np.abs(z_scores))


def _answer_type(query: ParsedQuery, candidates: Candidates) -> Column:
    """Return 1 for candidates that have a number or a time, if the query asks for one; else 0."""
    kinds = asked_types(query.text) - {"person"}  # nearly every message has a capital letter
    return np.array([any(can_hold(entry.text, kind) for kind in kinds) for entry in candidates.entries], np.float32)


def _number(query: ParsedQuery, candidates: Candidates) -> Column:
    """Return how many of the query's versions, ports, codes and years each candidate has, by their rarity."""
    rarest = math.log1p(candidates.collection)
    weights = {word: candidates.weights.get(word, 0.0) / rarest for word in query.numbers} if rarest else {}
    return np.array([sum(weights[word] for word in weights.keys() & own) for own in candidates.words])


def _verbatim(query: ParsedQuery, candidates: Candidates) -> Column:
    """Return 1 for candidates whose text is the query, but for punctuation, case and white space; else 0."""
    asked, words, most = same_words_key(query.text), frozenset(query.words), MAX_RATIO * len(query.text)
    return np.array(
        [
            words <= own and len(entry.text) <= most and same_words_key(entry.text) == asked
            for entry, own in zip(candidates.entries, candidates.words, strict=True)
        ],
        dtype=np.float32,
    )


def _date_match(query: ParsedQuery, entry: Candidate) -> DateMatch:
    # What is known to the day is stored as that day's beginning in UTC, and is that day in every zone.
    is_day = entry.at.time() == time()
    at = entry.at.replace(tzinfo=query.zone) if is_day else in_zone(entry.at, query.zone)
    return date_match(query.dates, at, dates_in(entry.text, at, guesses=True))


def _length(chars: Column) -> Column:
    spreads = np.log(np.maximum(chars, 1) / USUAL_CHARS) / LENGTH_SPREAD
    return np.where(chars > 0, np.clip(spreads, *LENGTH_BOUNDS), 0.0)


def _recency(times: Sequence[datetime], now: datetime) -> Column:
    days = np.array([(now - at).total_seconds() for at in times], dtype=np.float32) / SECONDS_A_DAY
    return np.exp(-np.maximum(days, 0.0) / RECENCY_DAYS)
