"""What the engine asks of the world outside: a language model, an embedder, a vector index."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

Vector: TypeAlias = npt.NDArray[np.float32]
"""One embedding of shape (dims,), or several of shape (n, dims); float32, each row of length 1."""


Progress: TypeAlias = Callable[[int, int], None]
"""Called with the units of work that are done and their total."""

ReportProgress: TypeAlias = Callable[[str], Awaitable[None]]
"""Hears how far a long call is, in a few words."""


class LanguageModel(Protocol):
    """Answer a prompt. Raise `ModelError` when that fails; never return an empty answer instead."""

    @property
    def name(self) -> str:
        """Name the model, for the history."""
        ...

    async def complete(self, messages: Sequence[Mapping[str, str]], schema: Mapping[str, Any] | None) -> str:
        """Return the model's reply to `[{"role", "content"}]` as text.

        With a JSON schema the reply should be one JSON value of that schema, as far as the endpoint can
        promise it. Raises ModelError.
        """
        ...

    async def check(self) -> None:
        """Raise ModelError if the model cannot be asked now."""
        ...

    async def aclose(self) -> None:
        """Release the connections."""
        ...


class Embedder(Protocol):
    """Turn texts into vectors. Blocking: call it in a worker thread."""

    @property
    def fingerprint(self) -> str:
        """Name what makes two vectors comparable: provider, model and dimensions."""
        ...

    def embed(self, texts: Sequence[str]) -> Vector:
        """Return unit vectors of shape (len(texts), dims). Raises EmbedderError."""
        ...

    def embed_words(self, words: Sequence[str]) -> Vector | None:
        """Return unit vectors of single words, shape (len(words), dims), by the thousand a millisecond.

        None where the embedder has no such vectors, as one has not that has to read a whole text.
        """
        ...


class VectorIndex(Protocol):
    """Find the nearest vectors of one user. Blocking: call it in a worker thread.

    Keys are unit numbers of the ledger. Raises VectorIndexError.
    """

    def upsert(self, user_id: str, seqs: Sequence[int], vectors: Vector) -> None:
        """Store vectors of shape (len(seqs), dims), over those already there."""
        ...

    def delete(self, user_id: str, seqs: Sequence[int]) -> None:
        """Drop vectors; unknown numbers are no error."""
        ...

    def query(self, user_id: str, vector: Vector, limit: int) -> list[int]:
        """Return the numbers of the nearest vectors by cosine, nearest first."""
        ...

    def fetch(self, user_id: str, seqs: Sequence[int]) -> dict[int, Vector]:
        """Return the stored vectors of shape (dims,) by number; unknown numbers are left out."""
        ...

    def count(self) -> int:
        """Return how many vectors are stored, of all users."""
        ...

    def clear(self) -> None:
        """Drop every vector of every user."""
        ...

    def close(self) -> None:
        """Release files and connections."""
        ...
