"""Keep the vectors of the last questions: agents ask the same again, and one call may embed a question twice."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence

from palimpsest.core.protocols import Embedder, Vector
from palimpsest.text.windows import first_words

KEPT = 256
"""How many vectors are kept: half a megabyte at 384 dimensions. Set by hand."""


class QuestionCache:
    """An embedder that cuts questions to their first words and keeps their vectors. It passes on everything else.

    Raises EmbedderError as the embedder does. A failure is not kept.
    """

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self._lock = threading.Lock()
        self._vectors: OrderedDict[tuple[str, str], Vector] = OrderedDict()

    @property
    def fingerprint(self) -> str:
        """Return the fingerprint of the embedder."""
        return self._embedder.fingerprint

    def embed_query(self, text: str) -> Vector:
        """Return the unit vector of a question, of shape (dims,). It cannot be written to."""
        key = (self.fingerprint, first_words(text))
        with self._lock:
            if key in self._vectors:
                self._vectors.move_to_end(key)
                return self._vectors[key]
        vector = self._embedder.embed_query(key[1])
        vector.flags.writeable = False
        with self._lock:
            self._vectors[key] = vector
            if len(self._vectors) > KEPT:
                self._vectors.popitem(last=False)
        return vector

    def embed_passages(self, texts: Sequence[str], *, background: bool = False) -> Vector:
        """Return the unit vectors of passages, of shape (len(texts), dims)."""
        return self._embedder.embed_passages(texts, background=background)

    def windows(self, text: str) -> list[str]:
        """Return the windows in which a text is embedded."""
        return self._embedder.windows(text)

    def embed_words(self, words: Sequence[str]) -> Vector | None:
        """Return the unit vectors of words, of shape (len(words), dims), if there are any."""
        return self._embedder.embed_words(words)
