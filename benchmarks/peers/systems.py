"""The compared systems: how each is installed, opened in a folder, filled and searched.

In the first table every system gets vectors of the same embedder: Palimpsest opens it, and the others ask an embeddings
server on loopback that serves it. Embedders that embed questions and passages apart do so for all: the workers mark a
text with one of the `PREFIXES`, and the server removes it. In the second table the systems have their own defaults.

Hits are mapped to what was stored in a way that does not help a search: by the id that an add returned or the turn id
in `sources` (palimpsest), by metadata (mem0), by the id of the row (Chroma, BM25), or by the name of the entity
(server-memory), which is a number in subscript digits and therefore in no question.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import palimpsest
from palimpsest.core.clock import now
from palimpsest.store.entries import has_missing_vectors, has_partial_vectors
from palimpsest.store.ledger import open_ledger
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

PREFIXES = {"query": "query: ", "passage": "passage: "}
"""What the workers put before a text that the embeddings server is to embed as a question or as a passage."""

OPENAI_KEY = "OPENAI_API_KEY"
VECTORS_WITHIN = 1800.0  # seconds in which all stored texts must have their vectors

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

    def settle(self) -> None:
        """Wait until everything that was stored is found by all means."""

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
    """A store of this server, called with the defaults of an agent except for `limit` and `max_tokens`.

    `embedder` is the fingerprint of the embedder, and `ledger` the file of the ledger.
    """

    def __init__(self, child: Child, ledger: Path, embedder: str) -> None:
        super().__init__(child)
        self._ledger = ledger
        self._embedder = embedder
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

    def settle(self) -> None:
        end = time.monotonic() + VECTORS_WITHIN
        with closing(open_ledger(self._ledger, now)) as ledger:
            while True:
                with ledger.read() as conn:
                    waits = has_missing_vectors(conn, self._embedder) or has_partial_vectors(conn, self._embedder)
                if not waits:
                    return
                if time.monotonic() > end:
                    raise PeerError(f"some texts have no vectors after {VECTORS_WITHIN:.0f} s")
                time.sleep(0.2)

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


@dataclass(frozen=True)
class Preparation:
    """What systems are prepared with.

    `environments` is the folder that they are installed into. `embedder` is the provider name of the embedder and
    `fingerprint` its fingerprint. The server at `base_url` serves it, with vectors of `dims` dimensions.
    """

    environments: Path
    embedder: str
    fingerprint: str
    base_url: str
    dims: int

    @property
    def served(self) -> dict[str, Any]:
        """Return the options of a worker that asks the server for vectors."""
        return {"base_url": self.base_url, "dims": self.dims, "prefixes": PREFIXES}


def _content_words(question: str) -> list[str]:
    words = re.findall(r"\w+", question.lower())
    return list(dict.fromkeys(word for word in words if len(word) > 2 and word not in FUNCTION_WORDS["en"]))


def _palimpsest(given: Preparation) -> System:
    def open_store(home: Path) -> Store:
        command = [sys.executable, "-m", "palimpsest", "serve"]
        variables = {"PALIMPSEST_DATA_DIR": str(home / "data"), "PALIMPSEST_EMBEDDER__PROVIDER": given.embedder}
        child = Child(command, home, variables)
        return _PalimpsestStore(child, home / "data" / "ledger.db", given.fingerprint)

    return System("Palimpsest", palimpsest.__version__, open_store)


def _server_memory(given: Preparation) -> System:
    package = npm_package(given.environments, "server-memory", SERVER_MEMORY_PACKAGE, SERVER_MEMORY)
    command = ["node", str(package / "dist" / "index.js")]

    def open_store(home: Path) -> Store:
        return _ServerMemoryStore(Child(command, home, {"MEMORY_FILE_PATH": str(home / "memory.jsonl")}))

    return System("server-memory", SERVER_MEMORY, open_store)


def _worker(
    python: str, script: str, options: dict[str, Any], home: Path, variables: Mapping[str, str] | None = None
) -> Child:
    worker_options = json.dumps({"folder": str(home), **options})
    own = {"MEM0_TELEMETRY": "False", "MEM0_DIR": str(home / "mem0")}
    return Child([python, str(HERE / script), worker_options], home, own | dict(variables or {}))


def _mem0(given: Preparation) -> System:
    python = python_with(given.environments, "mem0", [f"mem0ai=={MEM0}", f"chromadb=={CHROMA}"])
    options = {"store": "chroma", **given.served}
    return System(
        "mem0",
        f"{MEM0} with Chroma {CHROMA}",
        lambda home: _Mem0Store(_worker(python, "worker_mem0.py", options, home)),
    )


def _mem0_default(given: Preparation) -> System:
    """Return mem0 as it comes: Qdrant in a folder, and OpenAI's embedder if there is a key for it."""
    key = os.environ.get(OPENAI_KEY)
    python = python_with(given.environments, "mem0-default", [f"mem0ai=={MEM0}"])
    options = {"store": "qdrant", **({} if key else given.served)}
    variables = {OPENAI_KEY: key} if key else {}
    vectors = "text-embedding-3-small" if key else f"our vectors, because there is no {OPENAI_KEY}"
    return System(
        "mem0 default",
        f"{MEM0} with Qdrant and {vectors}",
        lambda home: _Mem0Store(_worker(python, "worker_mem0.py", options, home, variables)),
    )


def _chroma(given: Preparation) -> System:
    python = python_with(given.environments, "chroma", [f"chromadb=={CHROMA}"])
    return System(
        "Chroma",
        f"{CHROMA}",
        lambda home: _WorkerStore(_worker(python, "worker_chroma.py", given.served, home)),
    )


def _chroma_default(given: Preparation) -> System:
    models = Path.home() / ".cache" / "chroma" / "onnx_models"
    if not all((models / "all-MiniLM-L6-v2" / "onnx" / file).is_file() for file in ONNX_FILES):
        raise PeerError("its default ONNX model is not on this machine, and nothing is downloaded")
    python = python_with(given.environments, "chroma-default", [f"chromadb=={CHROMA}"])

    def open_store(home: Path) -> Store:
        link = home / ".cache" / "chroma" / "onnx_models"
        link.parent.mkdir(parents=True, exist_ok=True)
        if not link.exists():
            link.symlink_to(models)
        return _WorkerStore(_worker(python, "worker_chroma.py", {}, home))

    return System("Chroma default", f"{CHROMA} with all-MiniLM-L6-v2", open_store)


def _bm25(given: Preparation) -> System:
    python = python_with(given.environments, "bm25", [f"rank-bm25=={RANK_BM25}"])
    return System(
        "BM25", f"(rank-bm25 {RANK_BM25})", lambda home: _WorkerStore(_worker(python, "worker_bm25.py", {}, home))
    )


SYSTEMS: dict[str, Callable[[Preparation], System]] = {
    "palimpsest": _palimpsest,
    "mem0": _mem0,
    "server-memory": _server_memory,
    "chroma": _chroma,
    "bm25": _bm25,
    "mem0-default": _mem0_default,
    "chroma-default": _chroma_default,
}
"""How each system is prepared."""

WITH_DEFAULTS = ("palimpsest", "mem0-default", "chroma-default")
"""The systems of the second table, which have their own default stores and embedders."""
