"""Regressions with an L2 penalty, by Newton's method: a conditional logit for orders, a logistic one for chances."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]

# The L2 penalty. Between 0.1 and 5 the left-out figures hardly change.
PENALTY = 1.0

STEPS = 40
CLOSE = 1e-3
SMALLEST_STEP = 1e-3


@dataclass(frozen=True)
class Choice:
    """One answer and what it competes with: rows of features, the answer first, and the weight of the choice."""

    rows: Array
    weight: float


def conditional_logit(choices: Sequence[Choice], prior: Array | None = None, start: Array | None = None) -> Array:
    """Return the weights that make each answer the most probable of its rows (McFadden 1974).

    The probability of a row is the softmax of rows · weights, as in ListNet with one relevant item. The penalty draws
    the weights to the `prior`, by default to 0.
    """
    most = max(len(choice.rows) for choice in choices)
    size = choices[0].rows.shape[1]
    rows = np.zeros((len(choices), most, size), dtype=np.float64)
    is_row = np.zeros((len(choices), most), dtype=bool)
    for number, choice in enumerate(choices):
        rows[number, : len(choice.rows)] = choice.rows
        is_row[number, : len(choice.rows)] = True
    amount = np.array([choice.weight for choice in choices])
    centre: Array = np.asarray(np.zeros(size) if prior is None else prior)

    def loss(weights: Array) -> tuple[float, Array]:
        scores = np.where(is_row, rows @ weights, -np.inf)
        scores = scores - scores.max(axis=1, keepdims=True)
        chances = np.exp(scores)
        chances /= chances.sum(axis=1, keepdims=True)
        away = weights - centre
        return PENALTY / 2 * float(away @ away) - float(amount @ np.log(chances[:, 0] + 1e-300)), chances

    weights: Array = centre if start is None else start
    value, chances = loss(weights)
    for _ in range(STEPS):
        means = np.einsum("ij,ijk->ik", chances, rows)
        slope = PENALTY * (weights - centre) - (amount[:, np.newaxis] * (rows[:, 0] - means)).sum(axis=0)
        spread = (rows * np.sqrt(chances * amount[:, np.newaxis])[:, :, np.newaxis]).reshape(-1, size)
        curve = PENALTY * np.eye(size) + spread.T @ spread - (means * amount[:, np.newaxis]).T @ means
        step = _solved(curve, slope)
        length = 1.0
        while length > SMALLEST_STEP and loss(weights - length * step)[0] > value:
            length /= 2
        weights = weights - length * step
        value, chances = loss(weights)
        if np.abs(length * step).max() < CLOSE:
            break
    return weights


def _solved(matrix: Array, vector: Array) -> Array:
    return np.asarray(np.linalg.solve(matrix, vector))


def logistic(rows: Array, labels: Array, amount: Array | None = None) -> Array:
    """Return the weights of a logistic regression. The last column of the rows is the constant, without a penalty.

    `amount` is how much each row counts.
    """
    size = rows.shape[1]
    penalties = np.append(np.full(size - 1, PENALTY), 1e-6)
    amount = np.ones(len(labels)) if amount is None else amount
    signs = 2 * labels - 1

    def loss(weights: Array) -> float:
        unlikely = np.logaddexp(0, -signs * (rows @ weights))
        return float(amount @ unlikely + penalties @ weights**2 / 2)

    weights = np.zeros(size, dtype=np.float64)
    for _ in range(STEPS):
        chances = 1 / (1 + np.exp(-np.clip(rows @ weights, -30, 30)))
        slope = rows.T @ (amount * (chances - labels)) + penalties * weights
        curve = (rows * (amount * chances * (1 - chances))[:, np.newaxis]).T @ rows + np.diag(penalties)
        step, length = _solved(curve, slope), 1.0
        while length > SMALLEST_STEP and loss(weights - length * step) > loss(weights):
            length /= 2
        weights = weights - length * step
        if np.abs(length * step).max() < CLOSE:
            break
    return weights


def area_under_curve(scores: Array, labels: Array) -> float:
    """Return how probable it is that a random positive has a higher score than a random negative."""
    order = np.argsort(scores, kind="stable")
    ranks = np.empty(len(scores))
    ranks[order] = np.arange(1, len(scores) + 1)
    positives = int(labels.sum())
    negatives = len(labels) - positives
    return float((ranks[labels == 1].sum() - positives * (positives + 1) / 2) / (positives * negatives))
