"""The systems compared: how each is prepared, opened over a folder, filled and asked.

Hits are mapped to what was stored without helping a search: by the id that an add returned or the turn id kept in
`sources` (palimpsest), by metadata (mem0), by the row's id (Chroma, BM25), by the entity's name (server-memory), which
is a number in subscript digits, so that no question holds it.
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
from peers.given import Turn

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
"""What Chroma looks for; where one is missing it downloads all."""

HERE = Path(__file__).parent
SUBSCRIPTS = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")
ROOM = 20_000
"""Our search's `max_tokens`: as much as it takes, since no other system cuts its reply by size."""


class Store:
    """One running process over one folder."""

    initialized: float | None = None
    """Seconds from spawn to the answer to `initialize`, for MCP servers."""

    beside: Callable[[str], object] | None = None
    """Something else done with a text, timed for a note under the table."""

    bound = False
    """Whether `phrases` holds queries of which only who knows the answer can tell the best."""

    def __init__(self, child: Child) -> None:
        self.child = child
        self.stored = 0

    def add_turns(self, turns: Sequence[Turn]) -> None:
        """Store a conversation's turns; by default as texts that begin with the speaker's name."""
        self.add_many([turn.told for turn in turns], [turn.key for turn in turns])

    def add_many(self, texts: Sequence[str], keys: Sequence[str]) -> None:
        """Store many texts under keys; by default one by one."""
        for text, key in zip(texts, keys, strict=True):
            self.add(text, key)

    def add(self, text: str, key: str) -> None:
        """Store one text under a key; by default as a batch of one."""
        self.add_many([text], [key])

    def search(self, query: str, k: int) -> list[list[str]]:
        """Return the keys behind each of the first k hits, best first."""
        raise NotImplementedError

    def phrases(self, question: str) -> list[str]:
        """Return the queries by which to look for a question's answer, the question and what `phrase` gives first."""
        return [question, self.phrase(question)] if self.bound else [question]

    def phrase(self, question: str) -> str:
        """Return the one query that a client would send to find something."""
        return question

    def schemas(self) -> list[Any] | None:
        """Return the tools with their schemas, None where the system is no MCP server."""
        return None

    def ten_hits(self, questions: Sequence[str]) -> list[dict[str, Any]]:
        """Return whole replies of ten hits, of an MCP server."""
        del questions
        return []

    def close(self) -> None:
        """End the process."""
        self.child.close()


class _Server(Store):
    """Speak MCP."""

    def __init__(self, child: Child) -> None:
        super().__init__(child)
        child.request("initialize", INITIALIZE)
        self.initialized = child.age()
        child.notify("notifications/initialized")

    def schemas(self) -> list[Any]:
        """Return what `tools/list` gives."""
        return self.child.request("tools/list", {})["tools"]


class _PalimpsestStore(_Server):
    """Call this server's tools, with the defaults of an agent's call but for `limit` and `max_tokens`."""

    def __init__(self, child: Child) -> None:
        super().__init__(child)
        self._keys: dict[str, str] = {}
        self.beside = self._store_as_is

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
        found: list[dict[str, Any]] = self._found(query, k)["structuredContent"]["results"]
        return [[self._keys.get(hit["id"], str(hit["id"])), *hit["sources"]] for hit in found]

    def ten_hits(self, questions: Sequence[str]) -> list[dict[str, Any]]:
        replies = [self._found(question, 10) for question in questions[:20]]
        return [reply for reply in replies if len(reply["structuredContent"]["results"]) == 10]

    def _store_as_is(self, text: str) -> None:
        self.child.tool("add_memory", {"text": text, "infer": False})
        self.stored += 1

    def _found(self, query: str, k: int) -> dict[str, Any]:
        return self.child.tool("search_memories", {"query": query, "limit": k, "max_tokens": ROOM})


class _ServerMemoryStore(_Server):
    """Keep every text as the one observation of an entity of its own."""

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
        found: list[dict[str, Any]] = self.child.tool("search_nodes", {"query": query})["structuredContent"]["entities"]
        return [[self._keys.get(entity["name"], str(entity["name"]))] for entity in found[:k]]

    def phrases(self, question: str) -> list[str]:
        return [*super().phrases(question), *_content_words(question)]

    def phrase(self, question: str) -> str:
        """Return the word of the question that the fewest stored texts hold, the question where none does."""
        held = {word: self._holding(word) for word in _content_words(question)}
        return min((word for word in held if held[word]), key=held.__getitem__, default=question)

    def ten_hits(self, questions: Sequence[str]) -> list[dict[str, Any]]:
        words = {word for question in questions for word in _content_words(question)}
        fitting = sorted(word for word in words if self._holding(word) == 10)
        return [self.child.tool("search_nodes", {"query": word}) for word in fitting[:20]]

    def _holding(self, word: str) -> int:
        return sum(word in text for text in self._texts)


class _WorkerStore(Store):
    """Ask a worker around a library."""

    def __init__(self, child: Child) -> None:
        super().__init__(child)
        child.line()  # it says that it is ready

    def add_many(self, texts: Sequence[str], keys: Sequence[str]) -> None:
        self.child.call("add", texts=list(texts), keys=list(keys))
        self.stored += len(texts)

    def search(self, query: str, k: int) -> list[list[str]]:
        return [[key] for key, _ in self.child.call("search", query=query, k=k)["hits"]]


class _Mem0Store(_WorkerStore):
    """Ask the worker around mem0, whose vectors come from another process."""

    def __init__(self, child: Child) -> None:
        super().__init__(child)
        self.beside = self._embed

    def _embed(self, text: str) -> None:
        self.child.call("embed", text=text)


@dataclass(frozen=True)
class System:
    """Name a system and its version, and say how to run it over a folder."""

    name: str
    version: str
    open: Callable[[Path], Store]


def _content_words(question: str) -> list[str]:
    words = re.findall(r"\w+", question.lower())
    return list(dict.fromkeys(word for word in words if len(word) > 2 and word not in FUNCTION_WORDS["en"]))


def _palimpsest(environments: Path, base_url: str) -> System:
    del environments, base_url

    def opened(home: Path) -> Store:
        command = [sys.executable, "-m", "palimpsest", "serve"]
        return _PalimpsestStore(Child(command, home, {"PALIMPSEST_DATA_DIR": str(home / "data")}))

    return System("Palimpsest", palimpsest.__version__, opened)


def _server_memory(environments: Path, base_url: str) -> System:
    del base_url
    package = npm_package(environments, "server-memory", SERVER_MEMORY_PACKAGE, SERVER_MEMORY)
    started = ["node", str(package / "dist" / "index.js")]

    def opened(home: Path) -> Store:
        return _ServerMemoryStore(Child(started, home, {"MEMORY_FILE_PATH": str(home / "memory.jsonl")}))

    return System("server-memory", SERVER_MEMORY, opened)


def _worker(python: str, script: str, options: dict[str, Any], home: Path) -> Child:
    given = json.dumps({"folder": str(home), **options})
    variables = {"MEM0_TELEMETRY": "False", "MEM0_DIR": str(home / "mem0")}
    return Child([python, str(HERE / script), given], home, variables)


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

    def opened(home: Path) -> Store:
        link = home / ".cache" / "chroma" / "onnx_models"
        link.parent.mkdir(parents=True, exist_ok=True)
        if not link.exists():
            link.symlink_to(models)
        return _WorkerStore(_worker(python, "worker_chroma.py", {"vectors": "own"}, home))

    return System("Chroma default", f"{CHROMA} with all-MiniLM-L6-v2", opened)


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
"""How each system is prepared: of the folder for environments and the URL of the embeddings server."""
