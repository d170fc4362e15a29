"""A worker around plain Chroma on local disk, with our local vectors or with its own default model."""

from __future__ import annotations

import importlib
import sys
from typing import Any

from worker_loop import serve


class Chroma:
    """Keep one collection; a text's key is its id."""

    def __init__(self, options: dict[str, Any]) -> None:
        chromadb: Any = importlib.import_module("chromadb")
        self._embedder: Any = None
        client = chromadb.PersistentClient(f"{options['folder']}/chroma")
        if options["vectors"] == "local":
            sys.path.append(options["package"])  # last, so that this environment's own packages come first
            self._embedder = importlib.import_module("palimpsest.embed.static").LocalEmbedder()
            self._collection = client.get_or_create_collection("memories", embedding_function=None)
        else:
            self._collection = client.get_or_create_collection("memories")

    def add(self, texts: list[str], keys: list[str]) -> None:
        """Add the texts in one batch."""
        vectors = {} if self._embedder is None else {"embeddings": self._embedder.embed(texts)}
        self._collection.add(ids=keys, documents=texts, **vectors)

    def search(self, query: str, k: int) -> list[tuple[str, str]]:
        """Query the collection."""
        if self._embedder is None:
            asked: dict[str, Any] = {"query_texts": [query]}
        else:
            asked = {"query_embeddings": self._embedder.embed([query])}
        found = self._collection.query(**asked, n_results=k, include=["documents"])
        return list(zip(found["ids"][0], found["documents"][0], strict=True))


if __name__ == "__main__":
    serve(Chroma)
