"""Chroma as the vector index: one collection a user, in a folder no other process has open, or on a server."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from palimpsest.core.errors import VectorIndexError
from palimpsest.core.protocols import Vector

SERVER_TIMEOUT = 30.0
"""Seconds for one request to a Chroma server."""

FORMAT = "1"
"""Changes when collections are laid out otherwise; an index of another format is rebuilt."""

_T = TypeVar("_T")


class ChromaIndex:
    """Keep vectors in Chroma; of a query only ids come back. Build it with `open_folder` or `open_server`."""

    def __init__(self, client: Any, prefix: str, close: Callable[[], None]) -> None:
        self._client = client
        self._prefix = prefix
        self._close = close
        self._collections: dict[str, Any] = {}

    @classmethod
    def open_folder(cls, folder: Path, prefix: str) -> ChromaIndex:
        """Open the index in a folder that this process alone may use. Raises VectorIndexError."""

        def opened() -> ChromaIndex:
            chromadb, config = _chromadb()
            client = chromadb.PersistentClient(path=str(folder), settings=config(anonymized_telemetry=False))
            return cls(client, prefix, client.close)

        try:
            return _mapped("could not be opened", opened)
        except VectorIndexError:
            # After a failure Chroma keeps a half-started system for the folder; asking again drops it.
            return _mapped("could not be opened", opened)

    @classmethod
    def open_server(cls, host: str, port: int, prefix: str) -> ChromaIndex:
        """Connect to a Chroma server. Raises VectorIndexError."""

        def opened() -> ChromaIndex:
            chromadb, config = _chromadb()
            client = chromadb.HttpClient(host=host, port=port, settings=config(anonymized_telemetry=False))
            session = client._server._session  # noqa: SLF001 - Chroma closes it nowhere and waits on it for ever
            session.timeout = SERVER_TIMEOUT
            client.heartbeat()

            def close() -> None:
                client.close()
                session.close()

            return cls(client, prefix, close)

        return _mapped(f"on {host}:{port} could not be reached", opened)

    def upsert(self, user_id: str, seqs: Sequence[int], vectors: Vector) -> None:
        """Store vectors of shape (len(seqs), dims)."""
        ids = [str(seq) for seq in seqs]
        _mapped("could not be written", lambda: self._with(user_id, lambda c: c.upsert(ids=ids, embeddings=vectors)))

    def delete(self, user_id: str, seqs: Sequence[int]) -> None:
        """Drop vectors; unknown numbers are no error."""
        ids = [str(seq) for seq in seqs]
        _mapped("could not be written", lambda: self._with(user_id, lambda c: c.delete(ids=ids)))

    def query(self, user_id: str, vector: Vector, limit: int) -> list[int]:
        """Return the numbers of the nearest vectors by cosine, nearest first."""

        def asked(collection: Any) -> list[int]:
            found = collection.query(query_embeddings=[vector], n_results=limit, include=[])
            return [int(item) for item in found["ids"][0]]

        return _mapped("could not be queried", lambda: self._with(user_id, asked))

    def fetch(self, user_id: str, seqs: Sequence[int]) -> dict[int, Vector]:
        """Return the stored vectors by number."""
        if not seqs:
            return {}  # Chroma takes no empty list
        ids = [str(seq) for seq in seqs]

        def got(collection: Any) -> dict[int, Vector]:
            found = collection.get(ids=ids, include=["embeddings"])
            return {
                int(name): np.asarray(vector, dtype=np.float32)
                for name, vector in zip(found["ids"], found["embeddings"], strict=True)
            }

        return _mapped("could not be read", lambda: self._with(user_id, got))

    def count(self) -> int:
        """Return how many vectors are stored, of all users."""
        return _mapped("could not be counted", lambda: sum(int(each.count()) for each in self._ours()))

    def clear(self) -> None:
        """Drop every vector of every user."""

        def cleared() -> None:
            for collection in self._ours():
                self._client.delete_collection(collection.name)
            self._collections.clear()

        _mapped("could not be cleared", cleared)

    def close(self) -> None:
        """Let the folder or the connection go."""
        self._collections.clear()
        self._close()

    def _ours(self) -> list[Any]:
        own = re.compile(rf"{re.escape(self._prefix)}-[0-9a-f]{{24}}")
        return [each for each in self._client.list_collections() if own.fullmatch(each.name)]

    def _with(self, user_id: str, action: Callable[[Any], _T]) -> _T:
        """Act on a user's collection; on a server another process may have made it anew since it was looked up."""
        known = self._collections.get(user_id)
        if known is not None:
            from chromadb.errors import NotFoundError  # noqa: PLC0415 - with Chroma, after the first use

            try:
                return action(known)
            except NotFoundError:
                del self._collections[user_id]
        return action(self._collection(user_id))

    def _collection(self, user_id: str) -> Any:
        if user_id not in self._collections:
            digest = hashlib.blake2b(user_id.encode(), digest_size=12).hexdigest()
            self._collections[user_id] = self._client.get_or_create_collection(
                f"{self._prefix}-{digest}",
                embedding_function=None,  # else Chroma attaches one that downloads a model
                configuration={"hnsw": {"space": "cosine", "ef_search": 200}},
            )
        return self._collections[user_id]


def _chromadb() -> tuple[Any, Any]:
    import chromadb  # noqa: PLC0415 - more than a second; only after the client has been answered
    from chromadb.config import Settings  # noqa: PLC0415 - likewise

    return chromadb, Settings


def _mapped(what: str, action: Callable[[], _T]) -> _T:
    """Raise whatever Chroma raises as ours: it throws its own, Rust's, SQLite's and pydantic's errors alike."""
    try:
        return action()
    except Exception as error:  # nothing is swallowed
        raise VectorIndexError(f"the Chroma index {what}: {error}") from error
