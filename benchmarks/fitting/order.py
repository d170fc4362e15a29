"""Fit the weights of all features, with those of the order: that a newer candidate replaces an older one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fitting import ranking
from fitting.cases import Case
from fitting.figures import print_figures
from fitting.pairs import Replacement
from fitting.regression import Array
from palimpsest.recall.score import EXACT, REPEATED, exact_match, newer_of_two, order_features, repeated

FEATURES = ("replaced", "update", "former")
ROUNDS = 2
COLUMNS = tuple((kind, name) for kind in ("memory", "message") for name in FEATURES)


@dataclass(frozen=True)
class Ordered:
    """The fitted weights."""

    fitted: ranking.Fitted

    def weights(self, kind: str) -> dict[str, float]:
        """Return the weights of memories or messages by the name of the feature."""
        return ranking.named(self.fitted.all, (*ranking.COLUMNS, *COLUMNS), kind)


def fit(cases: Sequence[Case], replacement: Replacement, prior: ranking.Fitted | None = None) -> Ordered:
    """Fit all weights of the ranking, and print its figures.

    The features of the order depend on the scores without them, and so on the weights. A few rounds settle both.
    """
    features = {id(case): ranking.features_of(case) for case in cases}
    number = len(ranking.COLUMNS)
    rows = {id(case): _with_order(case, features[id(case)], ranking.first_guess(), replacement) for case in cases}
    fitted = ranking.fit_choices(cases, rows, prior)
    for _ in range(ROUNDS):
        rows = {
            id(case): _with_order(case, features[id(case)], fitted.without[case.group][:number], replacement)
            for case in cases
        }
        fitted = ranking.fit_choices(cases, rows, prior)
    scores = {id(case): _final(case, rows[id(case)] @ fitted.without[case.group]) for case in cases}
    print_figures("left out", cases, scores)
    print_figures("fitted", cases, {id(case): _final(case, rows[id(case)] @ fitted.all) for case in cases})
    ordered = Ordered(fitted)
    for kind in ("memory", "message"):
        print(f"  {kind}: " + ", ".join(f"{name} {weight:.2f}" for name, weight in ordered.weights(kind).items()))
    return ordered


def _final(case: Case, scores: Array) -> Array:
    """Return the scores with what is not fitted: exact parts, the newer of two, and what repeats a hit above it."""
    scores = scores + EXACT * exact_match(case.query, case.candidates)
    scores = scores + newer_of_two(case.query, case.candidates, scores)
    return scores - REPEATED * repeated(case.candidates, scores)


def _with_order(case: Case, features: Array, weights: Array, replacement: Replacement) -> Array:
    """Return the features of a case with those of the order, which follow from the scores by the weights."""
    pair_weights = replacement.without.get(case.group, replacement.weights)
    order = order_features(case.query, case.candidates, features @ weights, pair_weights)
    is_kind = {"message": case.is_message, "memory": ~case.is_message}
    return np.hstack([features, np.stack([order[name] * is_kind[kind] for kind, name in COLUMNS], axis=1)])
