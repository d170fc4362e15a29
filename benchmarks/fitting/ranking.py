"""Fit the weights of the features of memories and messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from embedders import QUICK
from fitting.cases import FEATURES, FIRST_GUESS, OF_WORDS, Case
from fitting.regression import Array, Choice, conditional_logit

Columns: TypeAlias = tuple[tuple[str, str], ...]
"""The kind of entry and the name of each feature."""

NOT_OF_WORDS = (("message", "meaning"), ("message", "coverage"))
"""What gets no weight with mean word vectors: it would be below zero, as the features of words say the same better."""

SHARE = {"facts": 1.0, "few": 0.0, "turns": 1.0, "mixed": 0.25, "said": 0.1}
"""The weight of all cases of a sort of store together. Facts and turns count alike. The mixed stores, whose turns are
the same again, say how memories and messages compare. In the last sort the facts are messages, whose questions, unlike
those about the turns, seldom name who said it. Both repeat what the others have, and count a quarter. Small memories
count for the relevance only."""


@dataclass(frozen=True)
class Fitted:
    """The fitted weights, and for each group those that were fitted without it."""

    all: Array
    without: Mapping[str, Array]


def columns_for(embedder: str) -> Columns:
    """Return the kinds and the names of the features that get a weight."""
    if embedder != QUICK:
        return tuple((kind, name) for kind, names in FEATURES.items() for name in names)
    columns = ((kind, name) for kind, names in FEATURES.items() for name in (*names, *OF_WORDS))
    return tuple(column for column in columns if column not in NOT_OF_WORDS)


def fit_choices(cases: Sequence[Case], rows: Mapping[int, Array]) -> Fitted:
    """Fit weights of rows of features by case, and without each group in turn."""
    answered = [case for case in cases if case.answers.any() and not case.answers.all()]
    number = {family: sum(case.family == family for case in answered) for family in SHARE}
    of_all = sum(SHARE.values())
    choices = {
        id(case): _choices(case, rows[id(case)], SHARE[case.family] / of_all * len(answered) / number[case.family])
        for case in answered
    }
    everything = conditional_logit([choice for case in answered for choice in choices[id(case)]])
    without = {
        group: conditional_logit(
            [choice for case in answered if case.group != group for choice in choices[id(case)]], everything
        )
        for group in {case.group for case in cases}
    }
    return Fitted(everything, without)


def first_guess(columns: Columns) -> Array:
    """Return the weights of the first guess that cases are collected by."""
    return np.array([FIRST_GUESS.get(name, 0.0) for _, name in columns])


def _choices(case: Case, rows: Array, weight: float) -> list[Choice]:
    others, answers = np.flatnonzero(~case.answers), np.flatnonzero(case.answers)
    return [Choice(rows[[answer, *others]], weight / len(answers)) for answer in answers]


def features_of(case: Case, columns: Columns) -> Array:
    """Return the features of a case as one matrix, with columns for memories and for messages."""
    is_kind = {"message": case.is_message, "memory": ~case.is_message}
    return np.stack([case.features[name] * is_kind[kind] for kind, name in columns], axis=1)


def named(weights: Array, columns: Columns, kind: str) -> dict[str, float]:
    """Return the weights of memories or messages by the name of the feature."""
    return {name: float(weights[number]) for number, (of, name) in enumerate(columns) if of == kind}
