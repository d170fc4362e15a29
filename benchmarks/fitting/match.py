"""Fit how probable it is that a text is about what is asked, on questions with an answer and on far-off ones."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fitting.cases import FAR_OFF, OF_CONVERSATIONS, Case
from fitting.regression import Array, area_under_curve, logistic
from palimpsest.recall.features import CONSTANT, THRESHOLD
from palimpsest.recall.score import SIGNS, THRESHOLD_OF_OTHERS, signs

# At most this share of the questions with an answer may be taken for far-off ones. Those about conversations do not
# count, as hardly any of them is at any threshold.
FALSE_ALARMS = 0.02

# By which the best candidate of a question is chosen: about the ratio of the fitted weights.
FIRST_GUESS = {"meaning": 1.0, "words": 0.25}


def fit(found: Sequence[Case]) -> dict[str, float]:
    """Fit the weights, and print how many far-off questions are told with each group left out.

    Each sort of store counts alike, with and without other wordings, and so do both sorts of questions in it.
    """
    cases = [case for case in found if case.kind == FAR_OFF or case.answers.any()]
    rows, labels = np.array([_best(case) for case in cases]), np.array([float(case.kind != FAR_OFF) for case in cases])
    sorts = np.array([f"{case.family}, {case.mode}" for case in cases])
    amount = _amounts(sorts, labels)
    scale = rows.std(axis=0)
    scale[scale == 0] = 1.0
    logits, groups = np.zeros(len(rows)), np.array([case.group for case in cases])
    for group in set(groups.tolist()):
        others = groups != group
        logits[~others] = (rows / scale)[~others] @ logistic((rows / scale)[others], labels[others], amount[others])
    known, has_others = labels == 1, np.array([bool(case.query.also) for case in cases])
    of_facts = known & ~np.isin([case.family for case in cases], OF_CONVERSATIONS)
    thresholds = {
        name: float(np.quantile(logits[chosen], FALSE_ALARMS, weights=amount[chosen], method="inverted_cdf"))
        for name, chosen in ((THRESHOLD, of_facts & ~has_others), (THRESHOLD_OF_OTHERS, of_facts & has_others))
    }
    is_told = logits < np.where(has_others, thresholds[THRESHOLD_OF_OTHERS], thresholds[THRESHOLD])
    print("\nfar-off questions, group left out")
    for sort in sorted(set(sorts[~known].tolist())):
        far, near = (sorts == sort) & ~known, (sorts == sort) & known
        area = area_under_curve(logits[far | near], labels[far | near])
        print(f"  {sort:<16}area {area:.3f}, told {is_told[far].mean():.3f}, wrongly {is_told[near].mean():.3f}")
    weights = logistic(rows / scale, labels, amount) / scale
    fitted = dict(zip((*SIGNS, CONSTANT), map(float, weights), strict=True)) | thresholds
    print("  " + ", ".join(f"{name} {weight:.2f}" for name, weight in fitted.items()))
    return fitted


def _best(case: Case) -> list[float]:
    """Return the signs of the best candidate, and 1."""
    columns = signs(case.query, case.candidates)
    best = int(np.argmax(sum(weight * columns[name] for name, weight in FIRST_GUESS.items())))
    return [*(float(columns[name][best]) for name in SIGNS), 1.0]


def _amounts(sorts: Array, labels: Array) -> Array:
    """Return how much each case counts."""
    amount = np.zeros(len(labels))
    for sort in set(sorts.tolist()):
        for label in (0.0, 1.0):
            chosen = (sorts == sort) & (labels == label)
            amount[chosen] = len(labels) / max(int(chosen.sum()), 1) / len(set(sorts.tolist())) / 2
    return amount
