"""Chroma as the vector index: one collection per user, in a folder that only this process opens."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from palimpsest.core.errors import VectorIndexError, raised_as
from palimpsest.core.protocols import Vector

# The layout of the collections. An index with another layout is rebuilt.
LAYOUT = "1"

# After so many writes Chroma saves its graph and empties its queue, which has every vector once more. Its default of
# 1,000 takes no less time, and leaves a small memory with files almost twice as large.
SYNC_THRESHOLD = 200

CONFIGURATION = {"hnsw": {"space": "cosine", "ef_search": 200}}


def collection_of(user_id: str, prefix: str) -> str:
    """Return the name of a user's collection."""
    return f"{prefix}-{hashlib.blake2b(user_id.encode(), digest_size=12).hexdigest()}"


def is_of_user(name: str, prefix: str) -> bool:
    """Return whether a collection is that of a user."""
    return re.fullmatch(rf"{re.escape(prefix)}-[0-9a-f]{{24}}", name) is not None


def by_number(found: Any) -> dict[int, Vector]:
    """Return the vectors of an answer of Chroma by the numbers of their entries."""
    numbered = zip(found["ids"], found["embeddings"], strict=True)
    return {int(item): np.asarray(vector, dtype=np.float32) for item, vector in numbered}


class ChromaIndex:
    """A vector index in Chroma. Open one with `open_folder`."""

    def __init__(self, client: Any, prefix: str) -> None:
        self._client = client
        self._prefix = prefix
        self._collections: dict[str, Any] = {}

    @classmethod
    def open_folder(cls, folder: Path, prefix: str) -> ChromaIndex:
        """Open the index in a folder that no other process has open. Raises VectorIndexError."""
        import chromadb  # noqa: PLC0415 - takes more than a second; done after the client has its first answer
        from chromadb.config import Settings  # noqa: PLC0415 - as above

        settings = Settings(anonymized_telemetry=False)
        # After a failure Chroma keeps a half-started system for the folder. The second attempt drops it.
        with suppress(VectorIndexError), _chroma_errors("could not be opened"):
            return cls(chromadb.PersistentClient(str(folder), settings), prefix)
        with _chroma_errors("could not be opened"):
            return cls(chromadb.PersistentClient(str(folder), settings), prefix)

    def upsert(self, user_id: str, seqs: Sequence[int], vectors: Vector) -> None:
        """Store vectors of shape (len(seqs), dims)."""
        with _chroma_errors("could not be written"):
            self._collection(user_id).upsert(ids=[str(seq) for seq in seqs], embeddings=vectors)

    def delete(self, user_id: str, seqs: Sequence[int]) -> None:
        """Delete vectors. Unknown numbers are ignored."""
        with _chroma_errors("could not be written"):
            self._collection(user_id).delete(ids=[str(seq) for seq in seqs])

    def query(self, user_id: str, vector: Vector, limit: int) -> list[int]:
        """Return the numbers of the nearest vectors by cosine similarity, nearest first."""
        question = {"query_embeddings": [vector], "n_results": limit, "include": []}
        with _chroma_errors("could not be queried"):
            return [int(item) for item in self._collection(user_id).query(**question)["ids"][0]]

    def fetch(self, user_id: str, seqs: Sequence[int]) -> dict[int, Vector]:
        """Return the stored vectors of shape (dims,) by number. Unknown numbers are left out."""
        if not seqs:
            return {}  # Chroma rejects an empty list
        with _chroma_errors("could not be read"):
            return by_number(self._collection(user_id).get(ids=[str(seq) for seq in seqs], include=["embeddings"]))

    def count(self) -> int:
        """Return how many vectors are stored, of all users."""
        with _chroma_errors("could not be counted"):
            named = [item for item in self._client.list_collections() if is_of_user(item.name, self._prefix)]
            return sum(int(item.count()) for item in named)

    def close(self) -> None:
        """Release the folder."""
        self._collections.clear()
        self._client.close()

    def _collection(self, user_id: str) -> Any:
        if user_id not in self._collections:
            self._collections[user_id] = self._client.get_or_create_collection(
                collection_of(user_id, self._prefix),
                embedding_function=None,  # by default Chroma attaches one that downloads a model
                configuration={"hnsw": {**CONFIGURATION["hnsw"], "sync_threshold": SYNC_THRESHOLD}},
            )
        return self._collections[user_id]


def _chroma_errors(failure: str) -> AbstractContextManager[None]:
    """Raise errors as VectorIndexError. Chroma raises its own as well as those of Rust, SQLite and pydantic."""
    return raised_as(VectorIndexError, f"the Chroma index {failure}", "", Exception)
