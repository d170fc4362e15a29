"""The embedder that runs everywhere: the static word vectors in WordLlama's wheel. It needs no key and no network."""

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
from palimpsest.text.windows import windows

DIMS = 256

MAX_KEPT = 8_192
"""How many word vectors are cached, in at most four megabytes."""

FEW = 4
"""Up to this many texts are embedded one by one, because waking the threads of a batch takes longer."""

MAX_CHARS = 8_000
"""Only the beginning of a longer text is embedded, because a mean over more words says less and less."""

MAX_BATCH_CHARS = 64_000
"""Limits the memory of one batch, whose texts are padded to the longest one."""


class StaticEmbedder:
    """WordLlama with the weights it ships, 256 dimensions. Creating it takes about half a second."""

    def __init__(self) -> None:
        root = logging.getLogger()
        before = (root.level, list(root.handlers))
        try:
            wordllama: Any = importlib.import_module("wordllama")  # has no types, and is slow to import
            folder = Path(wordllama.__file__).parent
            self._model: Any = wordllama.WordLlama.load(cache_dir=folder, disable_download=True)
            # The file stores half precision, and loading converts it to single precision. Half needs half the memory.
            self._model.embedding = self._model.embedding.astype(np.float16)
        except (ImportError, FileNotFoundError) as error:
            raise EmbedderError(
                f"the static embedder could not be loaded: {error}. Reinstall palimpsest-mcp, or set embedder.provider."
            ) from error
        finally:
            # Importing the package configures the root logger, which is up to the application.
            root.level = before[0]
            root.handlers[:] = before[1]
        self._words_lock = threading.Lock()
        self._rows: dict[str, int] = {}
        # Allocated at once, because growing it word by word would fragment the heap.
        self._words = np.empty((MAX_KEPT, DIMS), dtype=np.float16)

    @property
    def fingerprint(self) -> str:
        """Return provider, weights and dimensions."""
        return "local:wordllama-l2-supercat:256"

    def embed_query(self, text: str) -> Vector:
        """Return the unit vector of a question, of shape (256,), as that of a passage."""
        return self.embed_passages([text])[0]

    def embed_passages(self, texts: Sequence[str], *, background: bool = False) -> Vector:
        """Return unit vectors of shape (len(texts), 256)."""
        del background  # it takes no time worth speaking of
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

    def windows(self, text: str) -> list[str]:
        """Return the windows in which a text is embedded, each of up to 8,000 characters."""
        return windows(text, MAX_CHARS)

    def embed_words(self, words: Sequence[str]) -> Vector:
        """Return unit vectors of single words, shape (len(words), 256). Up to `MAX_KEPT` are cached."""
        with self._words_lock:
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
        """Return the mean of a text's token vectors, as the package does for a batch, but without its threads."""
        ids: list[int] = self._model.tokenizer.encode(text, add_special_tokens=False).ids
        if not ids:
            return np.zeros(DIMS, dtype=np.float32)
        return np.asarray(self._model.embedding[ids].mean(axis=0, dtype=np.float32))

    @staticmethod
    def _unit(vectors: Vector) -> Vector:
        return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)


def _batches(texts: Sequence[tuple[int, str]]) -> Iterator[list[tuple[int, str]]]:
    """Yield batches of texts whose padded size is limited. The texts come sorted, the shortest first."""
    batch: list[tuple[int, str]] = []
    for item in texts:
        if batch and (len(batch) + 1) * len(item[1]) > MAX_BATCH_CHARS:
            yield batch
            batch = []
        batch.append(item)
    yield batch
