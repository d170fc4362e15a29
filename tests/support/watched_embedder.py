"""An embedder that records its calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from palimpsest.core.protocols import Embedder, Vector
from palimpsest.memory import Memory


def _nothing() -> None:
    """Do nothing."""


@dataclass
class WatchedEmbedder:
    """Pass everything on to an embedder. `before` runs ahead of texts and questions."""

    embedder: Embedder
    before: Callable[[], None] = _nothing
    texts: list[tuple[str, ...]] = field(default_factory=list[tuple[str, ...]])
    queries: list[str] = field(default_factory=list[str])

    @property
    def fingerprint(self) -> str:
        """Return the fingerprint of the embedder."""
        return self.embedder.fingerprint

    def embed_queries(self, texts: Sequence[str]) -> Vector:
        """Return the vectors of questions."""
        self.before()
        self.queries.extend(texts)
        return self.embedder.embed_queries(texts)

    def embed_passages(self, texts: Sequence[str], *, background: bool = False) -> Vector:
        """Return the vectors of stored texts."""
        self.before()
        self.texts.append(tuple(texts))
        return self.embedder.embed_passages(texts, background=background)

    def windows(self, text: str) -> list[str]:
        """Return the windows of a text."""
        return self.embedder.windows(text)


def watched(memory: Memory, before: Callable[[], None] = _nothing) -> tuple[Memory, WatchedEmbedder]:
    """Return the same memory with a watched embedder, and that embedder."""
    embedder = WatchedEmbedder(memory.engine.embedder, before)
    return replace(memory, engine=replace(memory.engine, embedder=embedder)), embedder
