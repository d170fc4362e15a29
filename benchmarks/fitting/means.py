"""The mean vectors of questions and of passages in general, over the hand-written texts beside the benchmarks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fitting.regression import Array
from palimpsest.core.protocols import Embedder

TEXTS = "paraphrases.json, languages.json and updates.json"
DIGITS = 5


def measure(folder: Path, embedder: Embedder) -> dict[str, dict[str, list[float]]]:
    """Return the means by the fingerprint of the embedder, each as a list of dims numbers."""
    questions, passages = _texts(folder)
    print(f"{len(questions)} questions, {len(passages)} passages")
    return {
        embedder.fingerprint: {
            "question": _mean(embedder.embed_queries(questions)),
            "passage": _mean(embedder.embed_passages(passages, background=True)),
        }
    }


def _mean(vectors: Array) -> list[float]:
    return [round(float(number), DIGITS) for number in vectors.mean(axis=0)]


def _texts(folder: Path) -> tuple[list[str], list[str]]:
    def read(name: str) -> Any:
        return json.loads((folder / f"{name}.json").read_text("utf-8"))

    lives = read("paraphrases")["lives"]
    languages = [fact for group in read("languages")["languages"].values() for fact in group]
    updates = read("updates")["pairs"]
    questions = [asked["question"] for life in lives for asked in life["asked"]]
    questions += [fact["question"] for fact in languages] + [pair["question"] for pair in updates]
    passages = [text for life in lives for text in life["memories"]] + [fact["fact"] for fact in languages]
    return questions, passages + [pair[age] for pair in updates for age in ("old", "new")]
