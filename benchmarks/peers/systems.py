"""The compared systems: how each is installed, opened in a folder, filled and searched.

All systems get vectors of the same embedder: Palimpsest opens it, and the others ask an embeddings server on loopback
that serves it. Embedders that embed questions and passages apart do so for all: the workers mark a text with one of the
`PREFIXES`, and the server removes it.

Hits are mapped to what was stored in a way that does not help a search: by the id that an add returned or the turn id
in `sources` (palimpsest), by metadata (mem0), by the id of the row (Chroma, BM25), or by the name of the entity
(server-memory), which is a number in subscript digits and therefore in no question.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import palimpsest
from harness import DATA, PALIMPSEST, Server, environment
from locomo import Conversation, messages_of
from palimpsest.core.clock import now
from palimpsest.core.models import Message, Scope
from palimpsest.store.entries import has_missing_vectors, has_partial_vectors
from palimpsest.store.ledger import open_ledger
from palimpsest.text.stopwords import FUNCTION_WORDS

MEM0 = "2.2.1"
CHROMA = "1.5.9"
RANK_BM25 = "0.2.2"
SERVER_MEMORY = "2026.8.31"
SERVER_MEMORY_PACKAGE = "@modelcontextprotocol/server-memory"

# What the workers put before a text that the embeddings server is to embed as a question or as a passage.
PREFIXES = {"query": "query: ", "passage": "passage: "}

# Seconds in which all stored texts must have their vectors.
VECTORS_WITHIN = 1800.0

WORKER = Path(__file__).with_name("worker.py")
SUBSCRIPTS = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")

# The `max_tokens` of our searches. It never cuts a reply, because no other system limits the size of its replies.
MAX_TOKENS = 20_000


def turns_of(conversation: Conversation) -> list[list[dict[str, Any]]]:
    """Return the turns of each session as messages that a client sends."""
    scope = Scope(conversation.name)
    return [[_turn(message) for message in messages_of(session, scope)] for session in conversation.sessions]


def _turn(said: Message) -> dict[str, Any]:
    at = said.said_at.isoformat()
    return {"role": said.role, "content": said.content, "name": said.name, "id": said.external_id, "at": at}


class Store:
    """A running process of a system, with its data in one folder: here a library behind a worker."""

    # Whether only someone who knows the answer could choose the best of the queries in `phrases`.
    bound = False

    def __init__(self, server: Server) -> None:
        self.server = server
        self.stored = 0
        self._begin()

    def _begin(self) -> None:
        self.server.line()  # the report that it is ready

    def add_conversation(self, conversation: Conversation) -> None:
        """Store the turns of a conversation, by default as texts that begin with the speaker's name."""
        turns = [turn for session in turns_of(conversation) for turn in session]
        self.add([f"{turn['name']}: {turn['content']}" for turn in turns], [turn["id"] for turn in turns])

    def add(self, texts: Sequence[str], keys: Sequence[str]) -> None:
        """Store texts under keys."""
        self._ask(op="add", texts=texts, keys=keys)
        self.stored += len(texts)

    def settle(self) -> None:
        """Wait until everything that was stored is found by all means."""

    def search(self, query: str, k: int) -> list[list[str]]:
        """Return the keys behind each of the first k hits, best first."""
        return [[key] for key in self._ask(op="search", query=query, k=k)]

    def phrases(self, question: str) -> list[str]:
        """Return the queries to try for a question. The first two are the question and the result of `phrase`."""
        return [question]

    def phrase(self, question: str) -> str:
        """Return the one query that a client would send to find something."""
        return question

    def schemas(self) -> list[Any] | None:
        """Return the tools with their schemas, or None if the system is not an MCP server."""
        return None

    def _ask(self, **request: Any) -> Any:
        self.server.send(request)
        answer = self.server.line()
        if "error" in answer:
            raise RuntimeError(f"{request['op']}: {answer['error']}")
        return answer["result"]


class _McpStore(Store):
    """A store of an MCP server."""

    def _begin(self) -> None:
        self.server.initialize()

    def schemas(self) -> list[Any]:
        """Return the result of `tools/list`."""
        return self.server.request("tools/list", {})["tools"]


class _PalimpsestStore(_McpStore):
    """A store of this server, called with the defaults of an agent except for `limit` and `max_tokens`."""

    def __init__(self, server: Server, ledger: Path, fingerprint: str) -> None:
        super().__init__(server)
        self._ledger, self._fingerprint = ledger, fingerprint
        self._keys: dict[str, str] = {}

    def add_conversation(self, conversation: Conversation) -> None:
        for turns in turns_of(conversation):
            self.server.call("add_memory", messages=turns, infer=False)

    def add(self, texts: Sequence[str], keys: Sequence[str]) -> None:
        for text, key in zip(texts, keys, strict=True):
            result = self.server.call("add_memory", text=text)["results"][0]
            self._keys.setdefault(result["id"], key)
            self.stored += 1

    def search(self, query: str, k: int) -> list[list[str]]:
        hits = self.server.call("search_memories", query=query, limit=k, max_tokens=MAX_TOKENS)["results"]
        return [[self._keys.get(hit["id"], str(hit["id"])), *hit["sources"]] for hit in hits]

    def settle(self) -> None:
        end = time.monotonic() + VECTORS_WITHIN
        with closing(open_ledger(self._ledger, now)) as ledger:
            while time.monotonic() < end:
                with ledger.read() as conn:
                    waits = [has(conn, self._fingerprint) for has in (has_missing_vectors, has_partial_vectors)]
                if not any(waits):
                    return
                time.sleep(0.2)
        raise RuntimeError(f"some texts have no vectors after {VECTORS_WITHIN:.0f} s")


class _ServerMemoryStore(_McpStore):
    """A store of server-memory. Each text is the only observation of an entity of its own."""

    bound = True

    def __init__(self, server: Server) -> None:
        super().__init__(server)
        self._keys: dict[str, str] = {}
        self._texts: list[str] = []

    def add(self, texts: Sequence[str], keys: Sequence[str]) -> None:
        entities: list[dict[str, Any]] = []
        for text, key in zip(texts, keys, strict=True):
            name = str(len(self._keys)).translate(SUBSCRIPTS)
            self._keys[name] = key
            self._texts.append(text.lower())
            entities.append({"name": name, "entityType": "·", "observations": [text]})
        self.server.call("create_entities", entities=entities)
        self.stored += len(entities)

    def search(self, query: str, k: int) -> list[list[str]]:
        entities = self.server.call("search_nodes", query=query)["entities"]
        return [[self._keys.get(entity["name"], str(entity["name"]))] for entity in entities[:k]]

    def phrases(self, question: str) -> list[str]:
        return [question, self.phrase(question), *_content_words(question)]

    def phrase(self, question: str) -> str:
        """Return the word of the question that is in the fewest stored texts, or the question if none is in any."""
        counts = {word: sum(word in text for text in self._texts) for word in _content_words(question)}
        return min((word for word in counts if counts[word]), key=counts.__getitem__, default=question)


def _content_words(question: str) -> list[str]:
    words = re.findall(r"\w+", question.lower())
    return list(dict.fromkeys(word for word in words if len(word) > 2 and word not in FUNCTION_WORDS["en"]))


@dataclass(frozen=True)
class Given:
    """What systems are prepared with.

    `environments` is the folder that they are installed into. `embedder` is the provider name of the embedder and
    `fingerprint` its fingerprint. The server at `base_url` serves it, with vectors of `dims` dimensions.
    """

    environments: Path
    embedder: str
    fingerprint: str
    base_url: str
    dims: int


@dataclass(frozen=True)
class System:
    """A compared system: its name, its version, and how to prepare it. What that returns opens it in a folder."""

    name: str
    version: str
    prepare: Callable[[Given], Callable[[Path], Store]]


def _palimpsest(given: Given) -> Callable[[Path], Store]:
    def open_store(home: Path) -> Store:
        server = Server((*PALIMPSEST, "serve"), home, environment(home, embedder__provider=given.embedder))
        return _PalimpsestStore(server, home / DATA / "ledger.db", given.fingerprint)

    return open_store


def _server_memory(given: Given) -> Callable[[Path], Store]:
    folder = given.environments / "server-memory"
    package = folder / "node_modules" / SERVER_MEMORY_PACKAGE
    npm = shutil.which("npm")
    if npm is None:
        raise RuntimeError("node and npm are not on this machine")
    options = ("--prefix", str(folder), "--cache", str(folder / "cache"), "--no-audit", "--no-fund")
    _install(folder, [npm, "install", *options, f"{SERVER_MEMORY_PACKAGE}@{SERVER_MEMORY}"])

    def open_store(home: Path) -> Store:
        variables = environment(home) | {"MEMORY_FILE_PATH": str(home / "memory.jsonl")}
        return _ServerMemoryStore(Server(["node", str(package / "dist" / "index.js")], home, variables))

    return open_store


def _library(
    name: str, requirements: Sequence[str], library: str, **more: str
) -> Callable[[Given], Callable[[Path], Store]]:
    """Return how to prepare a library that runs behind a worker, in an environment with the requirements."""

    def prepare(given: Given) -> Callable[[Path], Store]:
        folder = given.environments / name
        python = str(folder / "bin" / "python")
        create, pip = [sys.executable, "-m", "venv", str(folder)], [python, "-m", "pip", "install", "--quiet"]
        _install(folder, create, [*pip, "--no-cache-dir", *requirements])

        def open_store(home: Path) -> Store:
            served = {"base_url": given.base_url, "dims": given.dims, "prefixes": PREFIXES}
            options = {"library": library, "folder": str(home), **served, **more}
            return Store(Server([python, str(WORKER), json.dumps(options)], home, _variables(home)))

        return open_store

    return prepare


def _variables(home: Path) -> Mapping[str, str]:
    """Return the environment of a library, without the settings of whoever measures."""
    foreign = ("MEM0_", "CHROMA_", "PYTHON")
    inherited = {name: value for name, value in environment(home).items() if not name.startswith(foreign)}
    own = {"MEM0_TELEMETRY": "False", "MEM0_DIR": str(home / "mem0")}
    return inherited | own | {"NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}


def _install(folder: Path, *commands: Sequence[str]) -> None:
    """Run the commands that install something into a folder, unless that was done before. Raises RuntimeError."""
    done = folder / "installed.json"
    if done.exists() and json.loads(done.read_text("utf-8")) == commands[-1]:
        return
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for command in commands:
        process = subprocess.run(command, capture_output=True, text=True, check=False)
        if process.returncode:
            print(process.stderr.strip()[-2000:], file=sys.stderr)
            raise RuntimeError(f"{Path(command[0]).name} failed with exit code {process.returncode}")
    done.write_text(json.dumps(commands[-1]), "utf-8")


_MEM0 = (f"mem0ai=={MEM0}", f"chromadb=={CHROMA}")

SYSTEMS = {
    "palimpsest": System("Palimpsest", palimpsest.__version__, _palimpsest),
    "mem0": System("mem0", f"{MEM0} with Chroma {CHROMA}", _library("mem0", _MEM0, "mem0", store="chroma")),
    "server-memory": System("server-memory", SERVER_MEMORY, _server_memory),
    "chroma": System("Chroma", CHROMA, _library("chroma", [f"chromadb=={CHROMA}"], "chroma")),
    "bm25": System("BM25", f"(rank-bm25 {RANK_BM25})", _library("bm25", [f"rank-bm25=={RANK_BM25}"], "bm25")),
    "mem0-default": System(
        "mem0 default", f"{MEM0} with Qdrant", _library("mem0-default", [_MEM0[0]], "mem0", store="qdrant")
    ),
}
