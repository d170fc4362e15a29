"""A worker around plain Chroma on local disk, with our local vectors or with its own default model."""

from __future__ import annotations

import importlib
import sys
from typing import Any

from worker_loop import serve


class Chroma:
    """One Chroma collection. The key of a text is its id."""

    def __init__(self, options: dict[str, Any]) -> None:
        chromadb: Any = importlib.import_module("chromadb")
        self._embedder: Any = None
        client = chromadb.PersistentClient(f"{options['folder']}/chroma")
        if options["vectors"] == "local":
            sys.path.append(options["package"])  # at the end, so that the packages of this environment come first
            self._embedder = importlib.import_module("palimpsest.embed.static").StaticEmbedder()
            self._collection = client.get_or_create_collection("memories", embedding_function=None)
        else:
            self._collection = client.get_or_create_collection("memories")

    def add(self, texts: list[str], keys: list[str]) -> None:
        """Add the texts in one batch."""
        vectors = {} if self._embedder is None else {"embeddings": self._embedder.embed_passages(texts)}
        self._collection.add(ids=keys, documents=texts, **vectors)

    def search(self, query: str, k: int) -> list[tuple[str, str]]:
        """Query the collection."""
        if self._embedder is None:
            arguments: dict[str, Any] = {"query_texts": [query]}
        else:
            arguments = {"query_embeddings": [self._embedder.embed_query(query)]}
        result = self._collection.query(**arguments, n_results=k, include=["documents"])
        return list(zip(result["ids"][0], result["documents"][0], strict=True))


if __name__ == "__main__":
    serve(Chroma)
