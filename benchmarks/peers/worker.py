"""A worker around a library: one line of JSON in, one out. It runs in the environment of a peer and needs no package.

    python worker.py {"library": "mem0", "folder": …, …}

Operations: {"op": "add", "texts": […], "keys": […]} and {"op": "search", "query": …, "k": 10}. A search is answered
with the keys of the first k hits, best first. Vectors come from the embeddings server at `base_url`; what says whether
a text is a question or a passage is one of the `prefixes` before it.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

USER = "alice"


class Bm25:
    """A BM25 index, rebuilt on every add, because the library cannot extend one. The texts are in a file."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._library: Any = importlib.import_module("rank_bm25")
        self._file = Path(options["folder"]) / "texts.jsonl"
        lines = self._file.read_text("utf-8").splitlines() if self._file.exists() else []
        self._keys: list[str] = []
        self._words: list[list[str]] = []
        self._index: Any = None
        self._extend([json.loads(line) for line in lines])

    def _extend(self, items: list[list[str]]) -> None:
        self._keys += [key for key, _ in items]
        self._words += [re.findall(r"\w+", text.lower()) or [text] for _, text in items]
        if self._words:
            self._index = self._library.BM25Okapi(self._words)

    def add(self, texts: list[str], keys: list[str]) -> None:
        """Append the texts to the file and index them."""
        items = [[key, text] for key, text in zip(keys, texts, strict=True)]
        with self._file.open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(item) + "\n" for item in items)
        self._extend(items)

    def search(self, query: str, k: int) -> list[str]:
        """Return the keys of the texts with the highest scores, without those that share no word with the query."""
        scores = self._index.get_scores(re.findall(r"\w+", query.lower()) or [query])
        return [self._keys[number] for number in scores.argsort()[::-1][:k] if scores[number] > 0]


class Chroma:
    """One collection of plain Chroma on local disk. The key of a text is its id."""

    def __init__(self, options: dict[str, Any]) -> None:
        client = importlib.import_module("chromadb").PersistentClient(f"{options['folder']}/chroma")
        self._server: Any = importlib.import_module("httpx").Client(base_url=options["base_url"], timeout=600)
        self._prefixes: dict[str, str] = options["prefixes"]
        self._collection = client.get_or_create_collection("memories", embedding_function=None)

    def add(self, texts: list[str], keys: list[str]) -> None:
        """Add the texts in one batch."""
        self._collection.add(ids=keys, documents=texts, embeddings=self._embed("passage", texts))

    def search(self, query: str, k: int) -> list[str]:
        """Query the collection."""
        vectors = self._embed("query", [query])
        return self._collection.query(query_embeddings=vectors, n_results=k, include=["documents"])["ids"][0]

    def _embed(self, kind: str, texts: list[str]) -> list[list[float]]:
        request = {"model": "local", "input": [self._prefixes[kind] + text for text in texts]}
        return [item["embedding"] for item in self._server.post("embeddings", json=request).json()["data"]]


def mem0_config(folder: str, base_url: str, dims: int, llm: dict[str, Any], store: str = "qdrant") -> dict[str, Any]:
    """Return mem0's configuration: its data in a folder, vectors of an embeddings server, and a language model."""
    vectors = {"model": "local", "api_key": "none", "openai_base_url": base_url, "embedding_dims": dims}
    stores: dict[str, dict[str, Any]] = {
        "chroma": {"collection_name": "mem0", "path": f"{folder}/chroma"},
        "qdrant": {"path": f"{folder}/qdrant", "on_disk": True, "embedding_model_dims": dims},
    }
    return {
        "llm": {"provider": "openai", "config": llm},
        "embedder": {"provider": "openai", "config": vectors},
        "vector_store": {"provider": store, "config": stores[store]},
        "history_db_path": f"{folder}/history.db",
    }


class Mem0:
    """A mem0 memory of one user with Chroma or Qdrant. Each text is stored unchanged, and its key is metadata."""

    def __init__(self, options: dict[str, Any]) -> None:
        llm = {"api_key": "none", "model": "never-called"}
        config = mem0_config(options["folder"], options["base_url"], options["dims"], llm, options["store"])
        self._memory: Any = importlib.import_module("mem0").Memory.from_config(config)
        _mark_texts(self._memory.embedding_model, options["prefixes"])

    def add(self, texts: list[str], keys: list[str]) -> None:
        """Add the texts one by one."""
        for text, key in zip(texts, keys, strict=True):
            self._memory.add(text, user_id=USER, infer=False, metadata={"key": key})

    def search(self, query: str, k: int) -> list[str]:
        """Search the memories of the user."""
        hits = self._memory.search(query, filters={"user_id": USER}, top_k=k)["results"]
        return [hit["metadata"]["key"] for hit in hits]


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


LIBRARIES = {"bm25": Bm25, "chroma": Chroma, "mem0": Mem0}


def main() -> None:
    """Build the library, report that it is ready, and answer until the input ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what the library prints must not be mixed with the answers
    options = json.loads(sys.argv[1])
    library = LIBRARIES[options["library"]](options)
    print(json.dumps({"ready": True}), file=answers, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = {"result": getattr(library, request.pop("op"))(**request)}
        except Exception as error:  # noqa: BLE001 - libraries raise anything, and the caller must get it as an answer
            answer = {"error": f"{type(error).__name__}: {error}"[:500]}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
