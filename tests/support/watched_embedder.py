"""An embedder that records its calls, and one without word vectors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from palimpsest.core.protocols import Embedder, Vector
from palimpsest.memory import Memory


def _nothing() -> None:
    """Do nothing."""


@dataclass
class WatchedEmbedder:
    """Pass everything on to an embedder. `before` runs ahead of texts and questions, `before_words` ahead of words."""

    embedder: Embedder
    before: Callable[[], None] = _nothing
    before_words: Callable[[], None] = _nothing
    texts: list[tuple[str, ...]] = field(default_factory=list[tuple[str, ...]])
    queries: list[str] = field(default_factory=list[str])
    words: list[tuple[str, ...]] = field(default_factory=list[tuple[str, ...]])

    @property
    def fingerprint(self) -> str:
        """Return the fingerprint of the embedder."""
        return self.embedder.fingerprint

    def embed_query(self, text: str) -> Vector:
        """Return the vector of a question."""
        self.before()
        self.queries.append(text)
        return self.embedder.embed_query(text)

    def embed_passages(self, texts: Sequence[str], *, background: bool = False) -> Vector:
        """Return the vectors of stored texts."""
        self.before()
        self.texts.append(tuple(texts))
        return self.embedder.embed_passages(texts, background=background)

    def windows(self, text: str) -> list[str]:
        """Return the windows of a text."""
        return self.embedder.windows(text)

    def embed_words(self, words: Sequence[str]) -> Vector | None:
        """Return the vectors of words."""
        self.before_words()
        self.words.append(tuple(words))
        return self.embedder.embed_words(words)


class WholeTextEmbedder:
    """An embedder that reads whole texts: it has no vectors of words."""

    fingerprint = "whole text"

    def embed_query(self, text: str) -> Vector:
        """Return the vector of every text."""
        return self.embed_passages([text])[0]

    def embed_passages(self, texts: Sequence[str], *, background: bool = False) -> Vector:
        """Return the same vector for every text."""
        del background
        return np.ones((len(texts), 2), dtype=np.float32)

    def windows(self, text: str) -> list[str]:
        """Return the text."""
        return [text]

    def embed_words(self, words: Sequence[str]) -> None:
        """Return None: there are no word vectors."""
        del words


def watched(memory: Memory, before: Callable[[], None] = _nothing) -> tuple[Memory, WatchedEmbedder]:
    """Return the same memory with a watched embedder, and that embedder."""
    embedder = WatchedEmbedder(memory.engine.embedder, before)
    return replace(memory, engine=replace(memory.engine, embedder=embedder)), embedder
