"""Figures of a ranking: how often an answer is first or among three, and the recall of turns."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

import numpy as np

from fitting.cases import FAR_OFF, OF_CONVERSATIONS, Case
from fitting.regression import Array

TOP, DEPTH = 3, 10
OTHER_WORDS = ("paraphrase", "inference")


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
