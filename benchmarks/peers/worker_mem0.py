"""A worker around mem0, with Chroma on local disk, texts stored unchanged, and vectors from a server on loopback."""

from __future__ import annotations

import importlib
from typing import Any

from worker_loop import serve

USER = "alice"


class Mem0:
    """A mem0 memory of one user. Each text is one memory, and its key is metadata."""

    def __init__(self, options: dict[str, Any]) -> None:
        folder = options["folder"]
        connection = {"api_key": "none", "openai_base_url": options["base_url"]}
        config = {
            "vector_store": {"provider": "chroma", "config": {"collection_name": "mem0", "path": f"{folder}/chroma"}},
            "embedder": {"provider": "openai", "config": {**connection, "model": "local", "embedding_dims": 256}},
            "llm": {"provider": "openai", "config": {**connection, "model": "never-called"}},
            "history_db_path": f"{folder}/history.db",
        }
        self._memory: Any = importlib.import_module("mem0").Memory.from_config(config)

    def add(self, texts: list[str], keys: list[str]) -> None:
        """Add the texts one by one."""
        for text, key in zip(texts, keys, strict=True):
            self._memory.add(text, user_id=USER, infer=False, metadata={"key": key})

    def search(self, query: str, k: int) -> list[tuple[str, str]]:
        """Search the memories of the user."""
        hits = self._memory.search(query, filters={"user_id": USER}, top_k=k)["results"]
        return [(hit["metadata"]["key"], hit["memory"]) for hit in hits]

    def embed(self, text: str) -> None:
        """Request one vector only, to measure the share of the loopback server."""
        self._memory.embedding_model.embed(text, "search")


if __name__ == "__main__":
    serve(Mem0)
