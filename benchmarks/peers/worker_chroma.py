"""A worker around plain Chroma on local disk.

With a `base_url` its vectors come from the embeddings server there, else from its own default model.
"""

from __future__ import annotations

import importlib
from typing import Any

from worker_loop import serve


class Chroma:
    """One Chroma collection. The key of a text is its id."""

    def __init__(self, options: dict[str, Any]) -> None:
        chromadb: Any = importlib.import_module("chromadb")
        client = chromadb.PersistentClient(f"{options['folder']}/chroma")
        self._server: Any = None
        if "base_url" in options:
            self._server = importlib.import_module("httpx").Client(base_url=options["base_url"], timeout=600)
            self._prefixes: dict[str, str] = options["prefixes"]
            self._collection = client.get_or_create_collection("memories", embedding_function=None)
        else:
            self._collection = client.get_or_create_collection("memories")

    def add(self, texts: list[str], keys: list[str]) -> None:
        """Add the texts in one batch."""
        vectors = {} if self._server is None else {"embeddings": self._embed("passage", texts)}
        self._collection.add(ids=keys, documents=texts, **vectors)

    def search(self, query: str, k: int) -> list[tuple[str, str]]:
        """Query the collection."""
        if self._server is None:
            arguments: dict[str, Any] = {"query_texts": [query]}
        else:
            arguments = {"query_embeddings": self._embed("query", [query])}
        result = self._collection.query(**arguments, n_results=k, include=["documents"])
        return list(zip(result["ids"][0], result["documents"][0], strict=True))

    def _embed(self, kind: str, texts: list[str]) -> list[list[float]]:
        request = {"model": "local", "input": [self._prefixes[kind] + text for text in texts]}
        reply = self._server.post("embeddings", json=request)
        reply.raise_for_status()
        return [item["embedding"] for item in reply.json()["data"]]


if __name__ == "__main__":
    serve(Chroma)
