"""From when on two names are taken for one: the strictest thresholds that merge most pairs, and none wrongly.

The pairs are those of `entity_pairs.json`, and beside them all other pairs of names of one type in it, which are names
of two. The words of the names are looked at first, as the background work does.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from measures.hand_written import read_data
from palimpsest.core.entities import name_key
from palimpsest.core.protocols import Embedder
from palimpsest.learn.background.same_entity import may_be_one, spelling
from palimpsest.recall.retrieval.features import Centre, centred

TEXTS = "entity_pairs.json"

NAME_STEPS = [round(0.5 + step / 100, 2) for step in range(51)]
CONTEXT_STEPS = [round(step / 20, 2) for step in range(21)]

MAX_WRONG = 0.01
"""The share of the merges that may be wrong, also with thresholds that are lower by the margins."""

NAME_MARGIN, CONTEXT_MARGIN = 0.03, 0.05
"""How much lower the thresholds could be without wrong merges. Set by hand: there are few pairs, and what is doubtful
stays apart."""


@dataclass(frozen=True)
class Alike:
    """Two names that their words do not tell apart, how alike they and their facts are, and whether they are one."""

    names: tuple[str, str]
    name: float
    context: float
    is_one: bool


def measure(embedder: Embedder) -> dict[str, dict[str, float]]:
    """Return the thresholds by the fingerprint of the embedder. Empty if none merges at most `MAX_WRONG` wrongly."""
    pairs = [pair for pair in _pairs(embedder) if not _is_one_spelling(*pair.names)]
    spelled = sum(_is_one_spelling(*item["names"]) and item["same"] for item in read_data("entity_pairs")["pairs"])
    choices = [(name, context) for name in NAME_STEPS for context in CONTEXT_STEPS]
    right, name, context = max((_right(pairs, *choice), *choice) for choice in choices)
    same = sum(pair["same"] for pair in read_data("entity_pairs")["pairs"])
    left = sum(pair.is_one for pair in pairs)
    print(f"{embedder.fingerprint}: of {same} pairs of one, {spelled} are one spelling, and words leave {left} more")
    print(f"  name {name}, context {context}: {right} merged, {_wrong(pairs, name, context)} wrongly")
    left_out = [_left_out(pairs, index, choices) for index in range(len(pairs)) if pairs[index].name >= name - 0.1]
    print(f"  each pair left out of the fit: {left_out.count(True)} merged rightly, {left_out.count(False)} wrongly")
    for pair in pairs:
        if pair.name >= name and pair.context >= context:
            print(f"    {pair.names[0]} | {pair.names[1]}")
    return {embedder.fingerprint: {"name": name, "context": context}} if right > 0 else {}


def _is_one_spelling(first: str, second: str) -> bool:
    return spelling(first) is not None and spelling(first) == spelling(second)


def _pairs(embedder: Embedder) -> list[Alike]:
    items = read_data("entity_pairs")["pairs"]
    names = [name for item in items for name in item["names"]]
    facts = embedder.embed_passages([fact for item in items for fact in item["facts"]], background=True)
    centre = Centre.of(embedder.fingerprint, len(facts), facts.mean(axis=0))
    facts, vectors = centred(facts, centre.passage), embedder.embed_passages(names, background=True)
    kinds = [item["type"] for item in items for _ in item["names"]]
    groups = _groups(items)
    return [
        Alike(
            (names[one], names[other]),
            float(vectors[one] @ vectors[other]),
            float(facts[one] @ facts[other]),
            groups[name_key(names[one])] == groups[name_key(names[other])],
        )
        for one, other in itertools.combinations(range(len(names)), 2)
        if kinds[one] == kinds[other] and name_key(names[one]) != name_key(names[other])
        if (one // 2 == other // 2 or groups[name_key(names[one])] != groups[name_key(names[other])])
        if may_be_one(names[one], names[other])
    ]


def _groups(items: Sequence[dict[str, list[str]]]) -> dict[str, str]:
    """Return what each name is one with, by its key. A name that occurs in several pairs is one entity."""
    groups = {name_key(name): name_key(name) for item in items for name in item["names"]}
    for item in items:
        first, second = (groups[name_key(name)] for name in item["names"])
        if item["same"]:
            groups |= {key: first for key, group in groups.items() if group == second}
    return groups


def _right(pairs: Sequence[Alike], name: float, context: float) -> int:
    """Return how many merges are right; -1 if too many are wrong with lower thresholds."""
    merged = sum(pair.is_one for pair in pairs if pair.name >= name and pair.context >= context)
    wrong = _wrong(pairs, name - NAME_MARGIN, context - CONTEXT_MARGIN)
    return -1 if wrong > MAX_WRONG * (merged + wrong) else merged


def _wrong(pairs: Sequence[Alike], name: float, context: float) -> int:
    return sum(not pair.is_one for pair in pairs if pair.name >= name and pair.context >= context)


def _left_out(pairs: Sequence[Alike], index: int, choices: Sequence[tuple[float, float]]) -> bool | None:
    """Return whether thresholds fitted without a pair merge it rightly; None if they leave it apart."""
    rest = [*pairs[:index], *pairs[index + 1 :]]
    _, name, context = max((_right(rest, *choice), *choice) for choice in choices)
    pair = pairs[index]
    return pair.is_one if pair.name >= name and pair.context >= context else None
