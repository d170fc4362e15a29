"""The default embedder: WordLlama's static vectors, which come inside its wheel. No key, no network, 256 dims."""

from __future__ import annotations

import importlib
import logging
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from palimpsest.core.errors import EmbedderError
from palimpsest.core.protocols import Vector

DIMS = 256

MAX_KEPT = 8_192
"""Words whose vectors are kept: four megabytes at most."""

FEW = 4
"""So many texts are embedded one by one: the threads of a batch take longer to wake than they save."""

MAX_CHARS = 8_000
"""Of a longer text only the beginning is embedded: the mean over more words says ever less."""

MAX_BATCH_CHARS = 64_000
"""Bounds the memory of one batch, whose texts are padded to the longest."""


class LocalEmbedder:
    """Embed with the weights that WordLlama ships. Building one takes about half a second."""

    def __init__(self) -> None:
        root = logging.getLogger()
        before = (root.level, list(root.handlers))
        try:
            wordllama: Any = importlib.import_module("wordllama")  # it has no types; slow to import
            folder = Path(wordllama.__file__).parent
            self._model: Any = wordllama.WordLlama.load(cache_dir=folder, disable_download=True)
            # They are stored in half precision and loaded in full; kept as they were they take half the memory.
            self._model.embedding = self._model.embedding.astype(np.float16)
        except (ImportError, FileNotFoundError) as error:
            raise EmbedderError(
                f"the local embedder could not be loaded: {error}. Reinstall palimpsest-mcp, or set embedder.provider."
            ) from error
        finally:
            # The package configures the root logger when imported; logging is the application's business.
            root.level = before[0]
            root.handlers[:] = before[1]
        self._turn = threading.Lock()
        self._rows: dict[str, int] = {}
        # All at once: one that grew with every new word would leave the heap in pieces.
        self._words = np.empty((MAX_KEPT, DIMS), dtype=np.float16)

    @property
    def fingerprint(self) -> str:
        """Name the weights."""
        return "local:wordllama-l2-supercat:256"

    def embed(self, texts: Sequence[str]) -> Vector:
        """Return unit vectors of shape (len(texts), 256)."""
        if not texts:
            return np.zeros((0, DIMS), dtype=np.float32)
        if len(texts) <= FEW:
            return self._unit(np.stack([self._mean(text[:MAX_CHARS]) for text in texts]))
        order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
        vectors = np.empty((len(texts), DIMS), dtype=np.float32)
        for batch in _batches([(i, texts[i][:MAX_CHARS]) for i in order]):
            raw = np.asarray(self._model.embed([text for _, text in batch]), dtype=np.float32)
            vectors[[i for i, _ in batch]] = raw
        return self._unit(vectors)

    def embed_words(self, words: Sequence[str]) -> Vector:
        """Return unit vectors of single words, shape (len(words), 256); those once made are kept, up to `MAX_KEPT`."""
        with self._turn:
            if new := [word for word in dict.fromkeys(words) if word not in self._rows]:
                if len(self._rows) + len(new) > len(self._words):
                    self._rows, new = {}, list(dict.fromkeys(words))
                    if len(new) > len(self._words):
                        self._words = np.empty((len(new), DIMS), dtype=np.float16)
                start = len(self._rows)
                self._words[start : start + len(new)] = self._unit(np.stack([self._mean(word) for word in new]))
                self._rows.update({word: row for row, word in enumerate(new, start=start)})
            rows = [self._rows[word] for word in words]
            return self._words[rows].astype(np.float32)

    def _mean(self, text: str) -> Vector:
        """Return the mean of a text's tokens: what the package does with a batch, without waking threads for it."""
        ids: list[int] = self._model.tokenizer.encode(text, add_special_tokens=False).ids
        if not ids:
            return np.zeros(DIMS, dtype=np.float32)
        return np.asarray(self._model.embedding[ids].mean(axis=0, dtype=np.float32))

    @staticmethod
    def _unit(vectors: Vector) -> Vector:
        return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)


def _batches(texts: Sequence[tuple[int, str]]) -> Iterator[list[tuple[int, str]]]:
    """Cut texts, shortest first, into batches whose padded size stays bounded."""
    batch: list[tuple[int, str]] = []
    for item in texts:
        if batch and (len(batch) + 1) * len(item[1]) > MAX_BATCH_CHARS:
            yield batch
            batch = []
        batch.append(item)
    yield batch
