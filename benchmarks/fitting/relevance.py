"""Fit how probable it is that the best hit answers, on questions with and without an answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fitting.cases import Case
from fitting.order import Ordered
from fitting.regression import Array, area_under_curve, logistic
from palimpsest.recall.features import CONSTANT, THRESHOLD, Ranked
from palimpsest.recall.relevance import (
    DROP,
    FALL,
    IN_SMALL_MEMORIES,
    SMALL,
    SMALL_THRESHOLD,
    relevance_features,
    relevance_model,
)

SHARE = {"facts": 0.7, "hinted": 0.7, "few": 0.75, "turns": 1.0, "mixed": 0.25, "said": 1.0}
"""The weight of all cases of a sort of store together, as in the ranking. Here facts that are messages count as much as
turns: other signs speak for an answer where the question names nobody. A memory begins small, so small ones count, too;
most are not."""

OF_SIZE = (SMALL, *(f"{SMALL}, {name}" for name in IN_SMALL_MEMORIES))
"""The signs of small memories. Only memories are fitted in small stores."""

FALSE_ALARMS = 0.03
"""At most this share of the questions with an answer may be called unknown."""

TURNS = 50
"""How often the two thresholds are computed in turn. Set by hand: they stand still after some ten turns."""

ASKED = 10
"""How many hits of a case the fall of the relevance is fitted on: as many as a reply has."""


@dataclass(frozen=True)
class Sign:
    """The signs of one case, and whether its question has an answer among the facts."""

    group: str
    family: str
    values: Mapping[str, float]
    known: bool


def fit(cases: Sequence[Case], ordered: Ordered) -> dict[str, dict[str, float]]:
    """Fit the relevance by the sort of the best hit, and print the figures with each group left out."""
    relevance: dict[str, dict[str, float]] = {}
    for sort in ("memory", "message", "speaker"):
        of_sort = [case for case in cases if relevance_model(case.query, _ranked(case, ordered)[0].candidate) == sort]
        print(f"\nunknown questions, left out, best hit: {sort}")
        relevance[sort] = _fit_sort(of_sort, ordered, without=() if sort == "memory" else OF_SIZE)
    return relevance


def _fit_sort(cases: Sequence[Case], ordered: Ordered, without: Sequence[str]) -> dict[str, float]:
    signs = [_sign(case, ordered) for case in cases]
    names = tuple(name for name in signs[0].values if name not in without)
    rows = np.array([[*(sign.values[name] for name in names), 1.0] for sign in signs])
    scale = rows.std(axis=0)
    scale[scale == 0] = 1.0
    labels, amount = np.array([float(sign.known) for sign in signs]), _amounts(signs)
    groups = np.array([sign.group for sign in signs])
    chances = np.zeros(len(rows))
    for group in {sign.group for sign in signs}:
        others = groups != group
        weights = logistic((rows / scale)[others], labels[others], amount[others])
        chances[~others] = (rows / scale)[~others] @ weights
    _print(chances, labels, signs)
    weights = logistic(rows / scale, labels, amount) / scale
    fitted = dict(zip((*names, CONSTANT), map(float, weights), strict=True))
    print(
        "  "
        + ", ".join(f"{name} {weight * size:.2f}" for (name, weight), size in zip(fitted.items(), scale, strict=True))
    )
    fitted |= _thresholds(chances, amount, signs)
    fitted |= _after_the_best(cases, ordered, dict(zip(map(id, cases), rows @ weights, strict=True)))
    print(
        f"  drop {fitted[DROP]:.2f}, fall {fitted[FALL]:.2f}, threshold {fitted[THRESHOLD]:.2f}, "
        f"in an empty memory {fitted.get(SMALL_THRESHOLD, 0.0):+.2f}"
    )
    return fitted


def _thresholds(chances: Array, amount: Array, signs: Sequence[Sign]) -> dict[str, float]:
    """Return the logit below which a best hit is weak, and what is added to it in an empty memory.

    Of large and of small memories, each calls as many questions with an answer unknown as `FALSE_ALARMS` says. What is
    added fades with the size, so both depend on each other a little, and are found in turns.
    """
    known, few = np.array([sign.known for sign in signs]), np.array([sign.family == "few" for sign in signs])
    of_many, of_few = known & ~few, known & few
    if not of_few.any():
        return {THRESHOLD: _lowest(chances[of_many], amount[of_many])}
    small = np.array([sign.values[SMALL] for sign in signs])
    threshold = added = 0.0
    for _ in range(TURNS):
        threshold = _lowest((chances - added * small)[of_many], amount[of_many])
        added = _lowest(((chances - threshold) / small)[of_few], amount[of_few])
    return {THRESHOLD: threshold, SMALL_THRESHOLD: added}


def _lowest(values: Array, amount: Array) -> float:
    """Return the value that a share of `FALSE_ALARMS` is below."""
    return float(np.quantile(values, FALSE_ALARMS, weights=amount, method="inverted_cdf"))


def _sign(case: Case, ordered: Ordered) -> Sign:
    values = relevance_features(case.query, case.candidates, _ranked(case, ordered))
    return Sign(case.group, case.family, values, bool(case.number_of_answers))


def _ranked(case: Case, ordered: Ordered) -> list[Ranked]:
    scores, columns = ordered.scores[id(case)], {"speaker": ordered.speaker[id(case)]}
    order: list[int] = np.argsort(-scores, kind="stable").tolist()
    return [Ranked(case.candidates.entries[row], float(scores[row]), row, columns) for row in order]


def _amounts(signs: Sequence[Sign]) -> Array:
    """Return how much each case counts, so that each sort of store has the share that it has in the ranking."""
    number = {family: sum(sign.family == family for sign in signs) for family in SHARE}
    total = sum(share for family, share in SHARE.items() if number[family])
    return np.array([len(signs) * SHARE[sign.family] / total / number[sign.family] for sign in signs])


def _print(chances: Array, labels: Array, signs: Sequence[Sign]) -> None:
    for family in sorted({sign.family for sign in signs}):
        of_family = np.array([sign.family == family for sign in signs])
        known, unknown = chances[of_family & (labels == 1)], chances[of_family & (labels == 0)]
        if len(unknown) and len(known):
            threshold = np.quantile(known, FALSE_ALARMS)
            area = area_under_curve(chances[of_family], labels[of_family])
            told = float((unknown < threshold).mean())
            print(f"  {family}: area {area:.3f}, told at {FALSE_ALARMS:.0%} false alarms {told:.3f}")


def _after_the_best(cases: Sequence[Case], ordered: Ordered, logits: Mapping[int, float]) -> dict[str, float]:
    """Return how much lower the logit of the second hit is, and by how much it falls for each point of score."""
    rows: list[tuple[float, float]] = []
    labels: list[float] = []
    offset: list[float] = []
    for case in cases:
        scores = ordered.scores[id(case)]
        order: list[int] = np.argsort(-scores, kind="stable").tolist()
        for row in order[1:ASKED]:
            rows.append((float(scores[order[0]] - scores[row]), 1.0))
            labels.append(float(case.answers[row]))
            offset.append(logits[id(case)])
    fall, drop = logistic(np.array(rows), np.array(labels), offset=np.array(offset))
    return {FALL: max(-float(fall), 0.0), DROP: max(-float(drop), 0.0)}
