"""The embedder that runs everywhere: the static word vectors in WordLlama's wheel. It needs no key and no network.

Only the two files of the wheel are read. Importing the package itself would take longer than everything else here, and
it would convert the vectors to twice their size.
"""

from __future__ import annotations

import importlib.util
import json
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from palimpsest.core.errors import EmbedderError
from palimpsest.core.protocols import Vector
from palimpsest.text.tokenizer import windows

DIMS = 256

WEIGHTS = "weights/l2_supercat_256.safetensors"
TOKENIZER = "tokenizers/l2_supercat_tokenizer_config.json"
TENSOR = "embedding.weight"

MAX_KEPT = 8_192
"""How many word vectors are cached, in at most four megabytes."""

MAX_CHARS = 8_000
"""Only the beginning of a longer text is embedded, because a mean over more words says less and less."""


class StaticEmbedder:
    """WordLlama with the weights it ships, 256 dimensions. Creating it takes about a tenth of a second."""

    def __init__(self) -> None:
        try:
            from tokenizers import Tokenizer  # noqa: PLC0415 - slow to import

            folder = _package_folder()
            self._vectors = _mapped_vectors(folder / WEIGHTS)
            self._tokenizer: Any = Tokenizer.from_file(str(folder / TOKENIZER))
            self._tokenizer.no_truncation()
        except Exception as error:  # the tokenizers package raises Exception itself
            raise EmbedderError(
                f"the static embedder could not be loaded: {error}. Reinstall palimpsest-mcp, or set embedder.provider."
            ) from error
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
        return self._unit(np.stack([self._mean(text[:MAX_CHARS]) for text in texts]))

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
        """Return the mean of a text's token vectors. Batches are slower: they wake threads for it."""
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        if not ids:
            return np.zeros(DIMS, dtype=np.float32)
        return np.asarray(self._vectors[ids].mean(axis=0, dtype=np.float32))

    @staticmethod
    def _unit(vectors: Vector) -> Vector:
        return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)


def _package_folder() -> Path:
    """Return the folder of the installed package. Raises FileNotFoundError."""
    spec = importlib.util.find_spec("wordllama")
    if spec is None or spec.origin is None:
        raise FileNotFoundError("the package wordllama is not installed")
    return Path(spec.origin).parent


def _mapped_vectors(file: Path) -> npt.NDArray[np.float16]:
    """Return the token vectors of a safetensors file, of shape (tokens, 256), without reading them into memory.

    The file begins with the length of its header in eight bytes, and the header
    (https://huggingface.co/docs/safetensors). Raises OSError, ValueError and KeyError.
    """
    with file.open("rb") as content:
        length = int.from_bytes(content.read(8), "little")
        tensor: dict[str, Any] = json.loads(content.read(length))[TENSOR]
    if tensor["dtype"] != "F16" or tensor["shape"][1:] != [DIMS]:
        raise ValueError(f"{file.name} has {tensor['dtype']} vectors of shape {tensor['shape']}")
    start = 8 + length + tensor["data_offsets"][0]
    return np.asarray(np.memmap(file, np.float16, "r", start, tuple(tensor["shape"])))
