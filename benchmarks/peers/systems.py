"""The compared systems: how each is installed, opened in a folder, filled and searched.

Hits are mapped to what was stored in a way that does not help a search: by the id that an add returned or the turn id
in `sources` (palimpsest), by metadata (mem0), by the id of the row (Chroma, BM25), or by the name of the entity
(server-memory), which is a number in subscript digits and therefore in no question.
"""

from __future__ import annotations

import importlib.metadata
import json
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import palimpsest
from palimpsest.text.stopwords import FUNCTION_WORDS
from peers.child import INITIALIZE, Child, PeerError
from peers.environments import npm_package, python_with
from peers.workload import Turn

MEM0 = "2.2.1"
CHROMA = "1.5.9"
RANK_BM25 = "0.2.2"
SERVER_MEMORY = "2026.8.31"
SERVER_MEMORY_PACKAGE = "@modelcontextprotocol/server-memory"

ONNX_FILES = (
    "config.json",
    "model.onnx",
    "special_tokens_map.json",
    "tokenizer_config.json",
    "tokenizer.json",
    "vocab.txt",
)
"""The files that Chroma looks for. If one is missing, it downloads all of them."""

HERE = Path(__file__).parent
SUBSCRIPTS = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")
MAX_TOKENS = 20_000
"""The `max_tokens` of our searches. It never cuts a reply, because no other system limits the size of its replies."""


class Store:
    """A running process of a system, with its data in one folder."""

    initialized: float | None = None
    """Seconds from spawn to the answer to `initialize`, for MCP servers."""

    extra_operation: Callable[[str], object] | None = None
    """Another operation on a text, which is timed for a note under the table."""

    bound = False
    """Whether only someone who knows the answer could choose the best of the queries in `phrases`."""

    def __init__(self, child: Child) -> None:
        self.child = child
        self.stored = 0

    def add_turns(self, turns: Sequence[Turn]) -> None:
        """Store the turns of a conversation, by default as texts that begin with the speaker's name."""
        self.add_many([turn.text_with_speaker for turn in turns], [turn.key for turn in turns])

    def add_many(self, texts: Sequence[str], keys: Sequence[str]) -> None:
        """Store texts under keys, by default one by one."""
        for text, key in zip(texts, keys, strict=True):
            self.add(text, key)

    def add(self, text: str, key: str) -> None:
        """Store one text under a key, by default as a batch of one."""
        self.add_many([text], [key])

    def search(self, query: str, k: int) -> list[list[str]]:
        """Return the keys behind each of the first k hits, best first."""
        raise NotImplementedError

    def phrases(self, question: str) -> list[str]:
        """Return the queries to try for a question. The first two are the question and the result of `phrase`."""
        return [question, self.phrase(question)] if self.bound else [question]

    def phrase(self, question: str) -> str:
        """Return the one query that a client would send to find something."""
        return question

    def schemas(self) -> list[Any] | None:
        """Return the tools with their schemas, or None if the system is not an MCP server."""
        return None

    def ten_hits(self, questions: Sequence[str]) -> list[dict[str, Any]]:
        """Return whole replies with ten hits, if the system is an MCP server."""
        del questions
        return []

    def close(self) -> None:
        """End the process."""
        self.child.close()


class _Server(Store):
    """A store of an MCP server."""

    def __init__(self, child: Child) -> None:
        super().__init__(child)
        child.request("initialize", INITIALIZE)
        self.initialized = child.age()
        child.notify("notifications/initialized")

    def schemas(self) -> list[Any]:
        """Return the result of `tools/list`."""
        return self.child.request("tools/list", {})["tools"]


class _PalimpsestStore(_Server):
    """A store of this server, called with the defaults of an agent except for `limit` and `max_tokens`."""

    def __init__(self, child: Child) -> None:
        super().__init__(child)
        self._keys: dict[str, str] = {}
        self.extra_operation = self._store_as_is

    def add_turns(self, turns: Sequence[Turn]) -> None:
        for session in sorted({turn.session for turn in turns}):
            messages = [
                {"role": "user", "content": turn.text, "name": turn.speaker, "id": turn.key, "at": turn.at}
                for turn in turns
                if turn.session == session
            ]
            self.child.tool("add_memory", {"messages": messages, "infer": False})

    def add(self, text: str, key: str) -> None:
        result = self.child.tool("add_memory", {"text": text})["structuredContent"]["results"][0]
        self._keys.setdefault(result["id"], key)
        self.stored += 1

    def search(self, query: str, k: int) -> list[list[str]]:
        hits: list[dict[str, Any]] = self._search(query, k)["structuredContent"]["results"]
        return [[self._keys.get(hit["id"], str(hit["id"])), *hit["sources"]] for hit in hits]

    def ten_hits(self, questions: Sequence[str]) -> list[dict[str, Any]]:
        replies = [self._search(question, 10) for question in questions[:20]]
        return [reply for reply in replies if len(reply["structuredContent"]["results"]) == 10]

    def _store_as_is(self, text: str) -> None:
        self.child.tool("add_memory", {"text": text, "infer": False})
        self.stored += 1

    def _search(self, query: str, k: int) -> dict[str, Any]:
        return self.child.tool("search_memories", {"query": query, "limit": k, "max_tokens": MAX_TOKENS})


class _ServerMemoryStore(_Server):
    """A store of server-memory. Each text is the only observation of an entity of its own."""

    bound = True

    def __init__(self, child: Child) -> None:
        super().__init__(child)
        self._keys: dict[str, str] = {}
        self._texts: list[str] = []

    def add_many(self, texts: Sequence[str], keys: Sequence[str]) -> None:
        entities: list[dict[str, Any]] = []
        for text, key in zip(texts, keys, strict=True):
            name = str(len(self._keys)).translate(SUBSCRIPTS)
            self._keys[name] = key
            self._texts.append(text.lower())
            entities.append({"name": name, "entityType": "·", "observations": [text]})
        self.child.tool("create_entities", {"entities": entities})
        self.stored += len(entities)

    def search(self, query: str, k: int) -> list[list[str]]:
        reply = self.child.tool("search_nodes", {"query": query})
        entities: list[dict[str, Any]] = reply["structuredContent"]["entities"]
        return [[self._keys.get(entity["name"], str(entity["name"]))] for entity in entities[:k]]

    def phrases(self, question: str) -> list[str]:
        return [*super().phrases(question), *_content_words(question)]

    def phrase(self, question: str) -> str:
        """Return the word of the question that is in the fewest stored texts, or the question if none is in any."""
        counts = {word: self._count_texts(word) for word in _content_words(question)}
        return min((word for word in counts if counts[word]), key=counts.__getitem__, default=question)

    def ten_hits(self, questions: Sequence[str]) -> list[dict[str, Any]]:
        words = {word for question in questions for word in _content_words(question)}
        words_in_ten_texts = sorted(word for word in words if self._count_texts(word) == 10)
        return [self.child.tool("search_nodes", {"query": word}) for word in words_in_ten_texts[:20]]

    def _count_texts(self, word: str) -> int:
        return sum(word in text for text in self._texts)


class _WorkerStore(Store):
    """A store of a library, called through a worker."""

    def __init__(self, child: Child) -> None:
        super().__init__(child)
        child.line()  # the report that it is ready

    def add_many(self, texts: Sequence[str], keys: Sequence[str]) -> None:
        self.child.call("add", texts=list(texts), keys=list(keys))
        self.stored += len(texts)

    def search(self, query: str, k: int) -> list[list[str]]:
        return [[key] for key, _ in self.child.call("search", query=query, k=k)["hits"]]


class _Mem0Store(_WorkerStore):
    """A store of mem0, called through a worker. Its vectors come from another process."""

    def __init__(self, child: Child) -> None:
        super().__init__(child)
        self.extra_operation = self._embed

    def _embed(self, text: str) -> None:
        self.child.call("embed", text=text)


@dataclass(frozen=True)
class System:
    """A compared system: its name, its version, and how to open it in a folder."""

    name: str
    version: str
    open: Callable[[Path], Store]


def _content_words(question: str) -> list[str]:
    words = re.findall(r"\w+", question.lower())
    return list(dict.fromkeys(word for word in words if len(word) > 2 and word not in FUNCTION_WORDS["en"]))


def _palimpsest(environments: Path, base_url: str) -> System:
    del environments, base_url

    def open_store(home: Path) -> Store:
        command = [sys.executable, "-m", "palimpsest", "serve"]
        return _PalimpsestStore(Child(command, home, {"PALIMPSEST_DATA_DIR": str(home / "data")}))

    return System("Palimpsest", palimpsest.__version__, open_store)


def _server_memory(environments: Path, base_url: str) -> System:
    del base_url
    package = npm_package(environments, "server-memory", SERVER_MEMORY_PACKAGE, SERVER_MEMORY)
    command = ["node", str(package / "dist" / "index.js")]

    def open_store(home: Path) -> Store:
        return _ServerMemoryStore(Child(command, home, {"MEMORY_FILE_PATH": str(home / "memory.jsonl")}))

    return System("server-memory", SERVER_MEMORY, open_store)


def _worker(python: str, script: str, options: dict[str, Any], home: Path) -> Child:
    worker_options = json.dumps({"folder": str(home), **options})
    variables = {"MEM0_TELEMETRY": "False", "MEM0_DIR": str(home / "mem0")}
    return Child([python, str(HERE / script), worker_options], home, variables)


def _mem0(environments: Path, base_url: str) -> System:
    python = python_with(environments, "mem0", [f"mem0ai=={MEM0}", f"chromadb=={CHROMA}"])
    options = {"base_url": base_url}
    return System(
        "mem0",
        f"{MEM0} with Chroma {CHROMA}",
        lambda home: _Mem0Store(_worker(python, "worker_mem0.py", options, home)),
    )


def _chroma(environments: Path, base_url: str) -> System:
    del base_url
    wordllama = f"wordllama=={importlib.metadata.version('wordllama')}"
    python = python_with(environments, "chroma", [f"chromadb=={CHROMA}", wordllama])
    options = {"vectors": "local", "package": str(Path(palimpsest.__file__).parents[1])}
    return System(
        "Chroma",
        f"{CHROMA} with our local vectors",
        lambda home: _WorkerStore(_worker(python, "worker_chroma.py", options, home)),
    )


def _chroma_default(environments: Path, base_url: str) -> System:
    del base_url
    models = Path.home() / ".cache" / "chroma" / "onnx_models"
    if not all((models / "all-MiniLM-L6-v2" / "onnx" / file).is_file() for file in ONNX_FILES):
        raise PeerError("its default ONNX model is not on this machine, and nothing is downloaded")
    python = python_with(environments, "chroma-default", [f"chromadb=={CHROMA}"])

    def open_store(home: Path) -> Store:
        link = home / ".cache" / "chroma" / "onnx_models"
        link.parent.mkdir(parents=True, exist_ok=True)
        if not link.exists():
            link.symlink_to(models)
        return _WorkerStore(_worker(python, "worker_chroma.py", {"vectors": "own"}, home))

    return System("Chroma default", f"{CHROMA} with all-MiniLM-L6-v2", open_store)


def _bm25(environments: Path, base_url: str) -> System:
    del base_url
    python = python_with(environments, "bm25", [f"rank-bm25=={RANK_BM25}"])
    return System(
        "BM25", f"(rank-bm25 {RANK_BM25})", lambda home: _WorkerStore(_worker(python, "worker_bm25.py", {}, home))
    )


SYSTEMS: dict[str, Callable[[Path, str], System]] = {
    "palimpsest": _palimpsest,
    "mem0": _mem0,
    "server-memory": _server_memory,
    "chroma": _chroma,
    "chroma-default": _chroma_default,
    "bm25": _bm25,
}
"""How each system is prepared, given the folder for environments and the URL of the embeddings server."""
