"""Fit the weights of the features of memories and messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from fitting.cases import FEATURES, FIRST_GUESS, OF_OTHERS, Case
from fitting.regression import Array, Choice, conditional_logit

Columns: TypeAlias = tuple[tuple[str, str], ...]
"""The kind of entry and the name of each feature."""

COLUMNS: Columns = tuple((kind, name) for kind, names in FEATURES.items() for name in (*names, *OF_OTHERS))

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
"""The weight of all cases of a sort of store together. Facts and turns count alike, and facts with and without hints.
The mixed stores, whose turns are the same again, say how memories and messages compare, and the one memory of all what
a large one is. In the stores of what was said the facts are messages, whose questions, unlike those about the turns,
seldom name who said it. Small memories count for the relevance only."""

COMPETING = 60
"""How many of the other candidates an answer competes with, the best by a first guess: those below change nothing."""


@dataclass(frozen=True)
class Fitted:
    """The fitted weights, and for each group those that were fitted without it."""

    all: Array
    without: Mapping[str, Array]


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


def named(weights: Array, columns: Columns, kind: str) -> dict[str, float]:
    """Return the weights of memories or messages by the name of the feature, without those that are 0."""
    return {name: float(weights[number]) for number, (of, name) in enumerate(columns) if of == kind and weights[number]}
