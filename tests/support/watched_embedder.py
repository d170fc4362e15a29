"""An embedder that records what it is asked for, and a count of the database connections in use."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from sqlalchemy import event
from sqlalchemy.pool import Pool

from palimpsest.core.protocols import Embedder, Vector
from palimpsest.memory import Memory


def _nothing() -> None:
    """Do nothing."""


@dataclass
class WatchedEmbedder:
    """Pass everything on to an embedder. `before` runs ahead of each call."""

    embedder: Embedder
    before: Callable[[], None] = _nothing
    texts: list[tuple[str, ...]] = field(default_factory=list[tuple[str, ...]])
    words: list[tuple[str, ...]] = field(default_factory=list[tuple[str, ...]])

    @property
    def fingerprint(self) -> str:
        """Return the fingerprint of the embedder."""
        return self.embedder.fingerprint

    def embed(self, texts: Sequence[str]) -> Vector:
        """Return the vectors of texts."""
        self.before()
        self.texts.append(tuple(texts))
        return self.embedder.embed(texts)

    def embed_words(self, words: Sequence[str]) -> Vector | None:
        """Return the vectors of words."""
        self.before()
        self.words.append(tuple(words))
        return self.embedder.embed_words(words)


def watched(memory: Memory, before: Callable[[], None] = _nothing) -> tuple[Memory, WatchedEmbedder]:
    """Return the same memory with a watched embedder, and that embedder."""
    embedder = WatchedEmbedder(memory.engine.embedder, before)
    return Memory(memory.settings, replace(memory.engine, embedder=embedder), memory.projection, None), embedder


@dataclass
class ConnectionCount:
    """How many database connections are in use."""

    now: int = 0


@contextmanager
def connection_count() -> Generator[ConnectionCount]:
    """Count the database connections of this process that are in use."""
    count = ConnectionCount()

    def checked_out(*_: Any) -> None:
        count.now += 1

    def checked_in(*_: Any) -> None:
        count.now -= 1

    event.listen(Pool, "checkout", checked_out)
    event.listen(Pool, "checkin", checked_in)
    try:
        yield count
    finally:
        event.remove(Pool, "checkout", checked_out)
        event.remove(Pool, "checkin", checked_in)
