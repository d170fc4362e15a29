"""The fitted numbers of the ranking: weights of the features, and mean vectors of questions and passages.

`benchmarks/fit.py` writes both files and says in them what they were fitted on. Nothing else changes them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np

from palimpsest.core.protocols import Vector

CONSTANT, THRESHOLD = "constant", "threshold"
"""Keys of the fitted numbers besides the features: the constant of a logistic regression, and the probability that
counts as a yes."""

SENTENCE, STATIC = "e5", "static"
"""The two sets of weights: for embedders that read whole sentences, and for mean word vectors."""


@dataclass(frozen=True, slots=True)
class Weights:
    """The weights for one sort of embedder, by the name of the feature.

    `memory` and `message` make the score of a candidate, `replacement` the probability that one text replaces another,
    and `relevance` the one that the best hit answers, by whether it is a memory or a message.
    """

    memory: Mapping[str, float]
    message: Mapping[str, float]
    replacement: Mapping[str, float]
    relevance: Mapping[str, Mapping[str, float]]


@dataclass(frozen=True, slots=True)
class Means:
    """The mean vectors of questions and of passages in general, each of shape (dims,); None if they are not known."""

    question: Vector | None = None
    passage: Vector | None = None


@cache
def weights_for(fingerprint: str) -> Weights:
    """Return the weights for the embedder with this fingerprint."""
    sets = _read("weights.json")["weights"]
    chosen: dict[str, Any] = sets[weights_name(fingerprint)]
    return Weights(**chosen)


def weights_name(fingerprint: str) -> str:
    """Return which set of weights is for the embedder with this fingerprint."""
    return STATIC if fingerprint.startswith("local:") else SENTENCE


@cache
def means_for(fingerprint: str) -> Means:
    """Return the mean vectors of the embedder with this fingerprint."""
    known = _read("means.json")["means"].get(fingerprint)
    if known is None:
        return Means()
    return Means(np.array(known["question"], dtype=np.float32), np.array(known["passage"], dtype=np.float32))


def _read(name: str) -> Any:
    return json.loads((files("palimpsest.recall.fitted") / name).read_text("utf-8"))
