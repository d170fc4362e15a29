"""Fit how probable it is that a newer fact replaces an older one, on the updates of personas."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fitting.regression import Array, logistic
from measures.personas import Persona
from palimpsest.core.models import key_text
from palimpsest.core.protocols import Embedder
from palimpsest.recall.features import CONSTANT, THRESHOLD, Centre, centred, pair_features, probability
from palimpsest.text.tokenizer import search_tokens

FEATURES = ("cosine", "shared", "nearest older", "nearest newer", "change words", "changed")
RECALLS = (0.6, 0.7, 0.8, 0.9)

NAMED = 0.8
"""The threshold names this share of what new facts replace. Set by hand: more would name twice as many others."""


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


def _chances(pairs: Pairs, weights: dict[str, float]) -> Array:
    columns = {name: pairs.rows[:, number] for number, name in enumerate(FEATURES)}
    return probability(columns, weights)
