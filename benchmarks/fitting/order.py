"""Fit the weights of the ranking: of all features, and of the order, by which a newer candidate replaces an older one.

The figures say how often an answer is first or among three, and the recall of turns.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from fitting.cases import FAR_OFF, FEATURES, FIRST_GUESS, OF_CONVERSATIONS, OF_OTHERS, Case
from fitting.pairs import Replacement
from fitting.regression import Array, Choice, conditional_logit
from palimpsest.recall.score import EXACT, REPEATED, exact_match, newer_of_two, order_features, repeated

# The kind of entry and the name of each feature.
Columns: TypeAlias = tuple[tuple[str, str], ...]

COLUMNS: Columns = tuple((kind, name) for kind, names in FEATURES.items() for name in (*names, *OF_OTHERS))
ORDER = ("replaced", "update", "former")
ORDER_COLUMNS: Columns = tuple((kind, name) for kind in ("memory", "message") for name in ORDER)
ROUNDS = 2
TOP, DEPTH = 3, 10
OTHER_WORDS = ("paraphrase", "inference")

# The weight of all cases of a sort of store together. Facts and turns count alike, and facts with and without hints.
# The mixed stores, whose turns are the same again, say how memories and messages compare, and the one memory of all
# what a large one is. In the stores of what was said the facts are messages, whose questions, unlike those about the
# turns, seldom name who said it. Small memories count for the relevance only.
SHARE = {
    "facts": 1.0,
    "hinted": 1.0,
    "all": 0.3,
    "all, hinted": 0.3,
    "few": 0.0,
    "turns": 1.0,
    "mixed": 0.05,
    "said": 0.2,
}

# How many of the other candidates an answer competes with, the best by a first guess: those below change nothing.
COMPETING = 60


@dataclass(frozen=True)
class Fitted:
    """The fitted weights, and for each group those that were fitted without it."""

    all: Array
    without: Mapping[str, Array]

    def weights(self, kind: str) -> dict[str, float]:
        """Return the weights of memories or messages by the name of the feature, without those that are 0."""
        named = zip((*COLUMNS, *ORDER_COLUMNS), map(float, self.all), strict=True)
        return {name: weight for (of, name), weight in named if of == kind and weight}


def fit_choices(cases: Sequence[Case], rows: Mapping[int, Array], prior: Fitted | None = None) -> Fitted:
    """Fit weights of rows of features by case, and without each group in turn.

    Where nothing speaks for a change they stay those of the `prior`.
    """
    answered = [case for case in cases if case.answers.any() and not case.answers.all()]
    number = {family: sum(case.family == family for case in answered) for family in SHARE}
    of_all = sum(share for family, share in SHARE.items() if number[family])
    choices = {
        id(case): _choices(case, rows[id(case)], SHARE[case.family] / of_all * len(answered) / number[case.family])
        for case in answered
        if SHARE[case.family]
    }

    def fitted(left_out: str, start: Array | None) -> Array:
        kept = [choice for case in answered if case.group != left_out for choice in choices.get(id(case), ())]
        before = None if prior is None else prior.without.get(left_out, prior.all)
        return conditional_logit(kept, before, start)

    everything = fitted("", None)
    return Fitted(everything, {group: fitted(group, everything) for group in {case.group for case in cases}})


def first_guess() -> Array:
    """Return the weights of the first guess that cases are collected by."""
    return np.array([FIRST_GUESS.get(name, 0.0) for _, name in COLUMNS])


def _choices(case: Case, rows: Array, weight: float) -> list[Choice]:
    others, answers = np.flatnonzero(~case.answers), np.flatnonzero(case.answers)
    guess = np.sum([weight * case.features[name] for name, weight in FIRST_GUESS.items()], axis=0)
    others = others[np.argsort(-guess[others], kind="stable")[:COMPETING]]
    return [Choice(rows[[answer, *others]], weight / len(answers)) for answer in answers]


def features_of(case: Case) -> Array:
    """Return the features of a case as one matrix, with columns for memories and for messages."""
    is_kind = {"message": case.is_message, "memory": ~case.is_message}
    return np.stack([case.features[name] * is_kind[kind] for kind, name in COLUMNS], axis=1)


def fit(cases: Sequence[Case], replacement: Replacement, prior: Fitted | None = None) -> Fitted:
    """Fit all weights of the ranking, and print its figures.

    The features of the order depend on the scores without them, and so on the weights. A few rounds settle both.
    """
    features = {id(case): features_of(case) for case in cases}
    number = len(COLUMNS)
    rows = {id(case): _with_order(case, features[id(case)], first_guess(), replacement) for case in cases}
    fitted = fit_choices(cases, rows, prior)
    for _ in range(ROUNDS):
        rows = {
            id(case): _with_order(case, features[id(case)], fitted.without[case.group][:number], replacement)
            for case in cases
        }
        fitted = fit_choices(cases, rows, prior)
    scores = {id(case): _final(case, rows[id(case)] @ fitted.without[case.group]) for case in cases}
    print_figures("left out", cases, scores)
    print_figures("fitted", cases, {id(case): _final(case, rows[id(case)] @ fitted.all) for case in cases})
    for kind in ("memory", "message"):
        print(f"  {kind}: " + ", ".join(f"{name} {weight:.2f}" for name, weight in fitted.weights(kind).items()))
    return fitted


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
    return np.hstack([features, np.stack([order[name] * is_kind[kind] for kind, name in ORDER_COLUMNS], axis=1)])


def print_figures(title: str, cases: Sequence[Case], scores: Mapping[int, Array]) -> None:
    """Print the figures of cases by kind, given the scores of each case's candidates."""
    results: dict[str, list[tuple[float, ...]]] = {}
    for case in cases:
        if case.kind == FAR_OFF:
            continue
        order = np.argsort(-scores[id(case)], kind="stable")
        if case.family not in OF_CONVERSATIONS:
            hits = case.answers[order]
            among = hits[: max(TOP, case.number_of_answers)].sum() / case.number_of_answers
            others = [f"{case.family}, other words"] if case.kind in OTHER_WORDS else []
            rows = [case.family, f"{case.family}, {case.kind}", *others]
            result = (float(hits[0]), float(among))
        else:
            best: list[int] = order[:DEPTH].tolist()
            shown = frozenset[str]().union(*(case.sources[row] for row in best))
            rows = [case.family, f"{case.family}, {case.kind}"]
            result = (len(shown & case.evidence) / len(case.evidence),)
        for row in rows:
            results.setdefault(row, []).append(result)
    print(f"\n{title}: first and among {TOP} for facts, recall at {DEPTH} for turns (nothing folded)")
    for row, values in sorted(results.items()):
        means = " ".join(f"{statistics.fmean(column):.3f}" for column in zip(*values, strict=True))
        print(f"  {row:<24}{len(values):>5}  {means}")
