"""Fit how probable it is that a newer fact replaces an older one: on the updates of personas, and with an agent's help.

With help, facts have hints and relations: the pairs are those of `change_pairs.json`, with `change_pairs_help.json`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fitting.regression import Array, logistic
from measures.near_duplicates import helped_pairs
from measures.personas import Persona
from palimpsest.core.models import key_text
from palimpsest.core.protocols import Embedder
from palimpsest.recall.features import (
    CONSTANT,
    THRESHOLD,
    Centre,
    centred,
    change_features,
    pair_features,
    probability,
)
from palimpsest.text.tokenizer import search_tokens

FEATURES = ("cosine", "shared", "nearest older", "nearest newer", "change words", "changed")
RECALLS = (0.6, 0.7, 0.8, 0.9)

# The threshold names this share of what new facts replace. Set by hand: more would name twice as many others.
NAMED = 0.8


@dataclass(frozen=True)
class Pairs:
    """The features of all pairs of a newer and an older fact of one persona, and which are updates."""

    rows: Array
    labels: Array


@dataclass(frozen=True)
class Replacement:
    """The fitted weights, and for each persona those that were fitted without it."""

    weights: dict[str, float]
    without: dict[str, dict[str, float]]


def fit(personas: Sequence[Persona], embedder: Embedder) -> Replacement:
    """Fit the weights, and print the precision at some recalls with each persona left out.

    The facts are embedded without and with their hints.
    """
    pairs = {
        persona.name: _joined([_pairs(persona, embedder, with_hints=hinted) for hinted in (False, True)])
        for persona in personas
    }
    without = {name: _fitted([pairs[other] for other in pairs if other != name]) for name in pairs}
    chances = np.concatenate([_chances(pairs[name], without[name]) for name in pairs])
    labels = np.concatenate([found.labels for found in pairs.values()])
    order = np.argsort(-chances, kind="stable")
    hits = np.cumsum(labels[order])
    threshold = 1.0
    print("\nupdates named, persona left out")
    for recall in RECALLS:
        enough = int(np.argmax(hits >= recall * labels.sum()))
        at = f"at probability {chances[order][enough]:.2f}"
        print(f"  recall {recall:.1f}: precision {hits[enough] / (enough + 1):.3f} {at}")
        if recall == NAMED:
            threshold = float(chances[order][enough])
    weights = _fitted(list(pairs.values())) | {THRESHOLD: threshold}
    print("  " + ", ".join(f"{name} {weight:.2f}" for name, weight in weights.items()))
    return Replacement(weights, without)


def _joined(parts: Sequence[Pairs]) -> Pairs:
    return Pairs(np.concatenate([part.rows for part in parts]), np.concatenate([part.labels for part in parts]))


def _pairs(persona: Persona, embedder: Embedder, *, with_hints: bool) -> Pairs:
    texts = [fact.text for fact in persona.facts]
    vectors = embedder.embed_passages([key_text(fact.text, fact.hints if with_hints else ()) for fact in persona.facts])
    vectors = centred(vectors, Centre.of(embedder.fingerprint, len(vectors), vectors.mean(axis=0)).passage)
    times = np.array([fact.at.timestamp() for fact in persona.facts])
    is_older = times[np.newaxis, :] < times[:, np.newaxis]
    features = pair_features(vectors, [frozenset(search_tokens(text)) for text in texts], texts, is_older)
    numbers = {fact.id: number for number, fact in enumerate(persona.facts)}
    updates = np.zeros(is_older.shape, dtype=bool)
    for older, newer in persona.updates:
        updates[numbers[newer], numbers[older]] = True
    rows = np.stack([features[name][is_older] for name in FEATURES] + [np.ones(int(is_older.sum()))], axis=1)
    return Pairs(rows, updates[is_older].astype(float))


def _fitted(pairs: Sequence[Pairs]) -> dict[str, float]:
    weights = logistic(np.concatenate([found.rows for found in pairs]), np.concatenate([f.labels for f in pairs]))
    return dict(zip((*FEATURES, CONSTANT), map(float, weights), strict=True))


def _chances(pairs: Pairs, weights: dict[str, float], names: Sequence[str] = FEATURES) -> Array:
    columns = {name: pairs.rows[:, number] for number, name in enumerate(names)}
    return probability(columns, weights)


CHANGES: tuple[str, ...] = ("cosine", "lead", "ends", "same source", "kept")

# The threshold: what is more probable than not is named. Set by hand: half of the pairs that change nothing were
# written to look like changes, which is rare where people tell of their days.
LIKELY = 0.5


def fit_changes(embedder: Embedder) -> dict[str, float]:
    """Fit the weights with help on the first half of the pairs, and print what is named in both halves.

    Repeated facts are left out: to name them is right, and nothing is changed.
    """
    halves = {half: _changes(embedder, half) for half in (1, 2)}
    rows, labels = halves[1].rows, halves[1].labels
    fitted = logistic(rows, labels)
    weights: dict[str, float] = dict(zip((*CHANGES, CONSTANT), map(float, fitted), strict=True))
    chances = {half: _chances(found, weights, CHANGES) for half, found in halves.items()}
    weights[THRESHOLD] = LIKELY
    for half, found in halves.items():
        is_named = chances[half] >= weights[THRESHOLD]
        changed, unchanged = (is_named[found.labels == label].mean() for label in (1, 0))
        print(f"  half {half}: {changed:.3f} of the changes named, {unchanged:.3f} of the others")
    return weights


def _changes(embedder: Embedder, half: int) -> Pairs:
    rows: list[Array] = []
    labels: list[float] = []
    pairs = [pair for pair in helped_pairs() if pair.half == half]
    for user in dict.fromkeys(pair.user for pair in pairs):
        own = [pair for pair in pairs if pair.user == user]
        vectors = embedder.embed_passages([each.key_text for pair in own for each in (pair.old, pair.new)])
        vectors = centred(vectors, Centre.of(embedder.fingerprint, len(vectors), vectors.mean(axis=0)).passage)
        older = [pair.old for pair in own]
        for number, pair in enumerate(own):
            if pair.kind != "repeat":
                features = change_features(vectors[::2] @ vectors[2 * number + 1], pair.new, older)
                rows.append(np.array([*(features[name][number] for name in CHANGES), 1.0]))
                labels.append(float(pair.changes))
    return Pairs(np.stack(rows), np.array(labels))
