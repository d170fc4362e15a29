"""A worker around mem0, with texts stored unchanged and its data on local disk.

With a `base_url` its vectors come from the server there, else from mem0's default embedder.
"""

from __future__ import annotations

import importlib
from typing import Any

from worker_loop import serve

USER = "alice"


class Mem0:
    """A mem0 memory of one user. Each text is one memory, and its key is metadata."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._memory: Any = importlib.import_module("mem0").Memory.from_config(_config(options))
        if "prefixes" in options:
            _mark_texts(self._memory.embedding_model, options["prefixes"])

    def add(self, texts: list[str], keys: list[str]) -> None:
        """Add the texts one by one."""
        for text, key in zip(texts, keys, strict=True):
            self._memory.add(text, user_id=USER, infer=False, metadata={"key": key})

    def search(self, query: str, k: int) -> list[tuple[str, str]]:
        """Search the memories of the user."""
        hits = self._memory.search(query, filters={"user_id": USER}, top_k=k)["results"]
        return [(hit["metadata"]["key"], hit["memory"]) for hit in hits]

    def embed(self, text: str) -> None:
        """Request one vector only, to measure the share of the embeddings server."""
        self._memory.embedding_model.embed(text, "search")


def _config(options: dict[str, Any]) -> dict[str, Any]:
    folder = options["folder"]
    config: dict[str, Any] = {
        "llm": {"provider": "openai", "config": {"api_key": "none", "model": "never-called"}},
        "history_db_path": f"{folder}/history.db",
    }
    if "base_url" in options:
        connection = {"api_key": "none", "openai_base_url": options["base_url"]}
        embedding = {**connection, "model": "local", "embedding_dims": options["dims"]}
        config["embedder"] = {"provider": "openai", "config": embedding}
    if options["store"] == "chroma":
        store: dict[str, Any] = {"collection_name": "mem0", "path": f"{folder}/chroma"}
    else:
        store = {"path": f"{folder}/qdrant", "on_disk": True}
        store |= {"embedding_model_dims": options["dims"]} if "dims" in options else {}
    return config | {"vector_store": {"provider": options["store"], "config": store}}


def _mark_texts(model: Any, prefixes: dict[str, str]) -> None:
    """Let an embedder put a prefix before every text that says whether it is a question or a passage."""
    embed, embed_batch = model.embed, model.embed_batch

    def prefix(action: str | None) -> str:
        return prefixes["query" if action == "search" else "passage"]

    def marked(text: str, memory_action: str | None = None) -> Any:
        return embed(prefix(memory_action) + text, memory_action)

    def marked_batch(texts: list[str], memory_action: str = "add") -> Any:
        return embed_batch([prefix(memory_action) + text for text in texts], memory_action)

    model.embed, model.embed_batch = marked, marked_batch


if __name__ == "__main__":
    serve(Mem0)
