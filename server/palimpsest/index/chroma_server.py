"""Keep an index on a Chroma server in step with the ledger, from any number of processes."""

from __future__ import annotations

import base64
import logging
import re
import secrets
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from palimpsest.core.errors import VectorIndexError, raised_as
from palimpsest.core.models import Finding
from palimpsest.core.protocols import Progress, Vector, unseen
from palimpsest.core.settings import VectorStoreConfig
from palimpsest.core.validation import object_of
from palimpsest.index.chroma_folder import CONFIGURATION, by_number, collection_of, is_of_user
from palimpsest.index.sync import Checkpoint, IndexHits, Projection, refuse_folder
from palimpsest.store import entries as entry_queries
from palimpsest.store.ledger import Ledger
from palimpsest.text.display import counted, reason_of

# The connection to a Chroma server: its HTTP interface (version 2), time limits, and what went wrong in plain words.
#
# Chroma's own client is not used. It waits for ever while it connects, and takes more than a second to import.

DEFAULT_PORT = 8000

PLACE = "api/v2/tenants/default_tenant/databases/default_database/"

# How long a search waits for one answer. After that it scans the ledger's vectors, as do all searches until the server
# answers again: an answer takes milliseconds, and one from another continent half a second.
SEARCH_SECONDS = 3.0

# How long any other request waits. A batch of vectors takes the server half a second.
REPLY_SECONDS = 30.0

NOT_FOUND = 404


class RefusalError(VectorIndexError):
    """The server answered, and did not do what it was asked."""


class NotThereError(RefusalError):
    """The server does not have the collection."""


class ReplacedError(RefusalError):
    """Another process has built the index anew, or deleted it."""

    def __init__(self) -> None:
        super().__init__("another process has replaced the index on the Chroma server")


# What lies on a Chroma server: a collection for each user, and one whose metadata is the checkpoint of them all.
#
# The checkpoint is beside the vectors, so all hosts see it, and it is lost or restored together with them. Each
# build of the index has a name, which is part of the names of its collections. So nothing that belongs to an earlier
# build can be taken for a part of the present one.

# The layout of the collections. An index with another layout is rebuilt.
LAYOUT = "chroma-server-1"

# How many collections are listed in one answer.
PAGE = 500


@dataclass(frozen=True, slots=True)
class StoredState:
    """The build that is on the server, and its checkpoint; None while it is not complete.

    `record` is the id of the collection that says so, and `epoch` that of the ledger when the build was begun.
    """

    record: str
    build: str
    epoch: str
    checkpoint: Checkpoint | None = None


class SharedIndex:
    """The index of one ledger on a Chroma server, as the settings name it. Blocking; safe to use from several threads.

    Every method raises VectorIndexError.
    """

    def __init__(self, config: VectorStoreConfig, prefix: str) -> None:
        host = f"[{config.host}]" if ":" in (config.host or "") else config.host
        self.address = f"http://{host}:{config.port or DEFAULT_PORT}"
        self._client = httpx.Client(base_url=f"{self.address}/{PLACE}")
        self._prefix = prefix
        self._record = f"{prefix}-checkpoint"
        self._opened: SharedBuild | None = None

    def close(self) -> None:
        """Close all connections."""
        self._client.close()

    def request(
        self, method: str, path: str, content: Any = None, *, is_search: bool = False, was_there: bool = False
    ) -> Any:
        """Return the answer of the server.

        Raises NotThereError if there is no such collection, or ReplacedError if it `was_there`.
        """
        seconds = SEARCH_SECONDS if is_search else REPLY_SECONDS
        try:
            reply = self._client.request(method, path, json=content, timeout=seconds)
        except httpx.TimeoutException as error:
            raise VectorIndexError(f"the Chroma server {self.address} did not answer within {seconds:g} s") from error
        except (httpx.HTTPError, httpx.InvalidURL, RuntimeError) as error:  # RuntimeError: the client was closed
            raise VectorIndexError(
                f"the Chroma server {self.address} could not be reached: {reason_of(error)}"
            ) from error
        with raised_as(VectorIndexError, f"what answers at {self.address} is no Chroma server", "", ValueError):
            answer = reply.json()
        if reply.is_success:
            return answer
        if was_there and reply.status_code == NOT_FOUND:
            raise ReplacedError
        text = reason_of(object_of(answer).get("message") or f"HTTP {reply.status_code}")
        kind = NotThereError if reply.status_code == NOT_FOUND else RefusalError
        raise kind(f"the Chroma server {self.address} refuses: {text}")

    def collections(self) -> list[tuple[str, str]]:
        """Return the names and ids of all collections, which may be those of others."""
        found: list[tuple[str, str]] = []
        while True:
            page = self.request("GET", f"collections?limit={PAGE}&offset={len(found)}")
            found += [(item["name"], item["id"]) for item in page]
            if len(page) < PAGE:
                return found

    def read(self, *, is_search: bool = False) -> StoredState | None:
        """Return what is on the server, or None if there is no index, or one of another version."""
        try:
            found = self.request("GET", f"collections/{self._record}", is_search=is_search)
            return _state(found["id"], found["metadata"] or {})
        except NotThereError:
            return None
        except (KeyError, TypeError) as error:
            raise VectorIndexError(f"what answers at {self.address} is no Chroma server") from error

    def begin(self, epoch: str) -> StoredState:
        """Delete everything of this ledger, and begin a new build, which is empty and has no checkpoint."""
        own = re.compile(rf"{re.escape(self._prefix)}-(checkpoint|([0-9a-f]{{8}}-)?[0-9a-f]{{24}})")
        names = [name for name, _ in self.collections() if own.fullmatch(name)]  # earlier versions had no builds
        # The checkpoint first: without it nobody takes the rest for an index.
        for name in sorted(names, key=lambda name: name != self._record):
            with suppress(NotThereError):  # another process was quicker
                self.request("DELETE", f"collections/{name}")
        build = secrets.token_hex(4)
        metadata = {"build": build, "epoch": epoch}
        created = self.request("POST", "collections", {"name": self._record, "metadata": metadata})
        return StoredState(created["id"], build, epoch)

    def save(self, state: StoredState, checkpoint: Checkpoint) -> StoredState:
        """Store the checkpoint of a build, and return the new state. Raises ReplacedError."""
        metadata = {"build": state.build, "epoch": state.epoch, **asdict(checkpoint)}
        self.request("PUT", f"collections/{state.record}", {"new_metadata": metadata}, was_there=True)
        return replace(state, checkpoint=checkpoint)

    def open(self, build: str) -> SharedBuild:
        """Return the vectors of a build, and the same again for the same build."""
        prefix = f"{self._prefix}-{build}"
        if self._opened is None or self._opened.prefix != prefix:
            self._opened = SharedBuild(self, prefix)
        return self._opened


class SharedBuild:
    """The vectors of one build of a shared index, as a `VectorIndex`. It never creates what it only reads.

    Every method raises ReplacedError if a collection that was there is gone.
    """

    def __init__(self, server: SharedIndex, prefix: str) -> None:
        self.prefix = prefix
        self._server = server
        self._ids: dict[str, str] = {}

    def upsert(self, user_id: str, seqs: Sequence[int], vectors: Vector) -> None:
        """Store vectors of shape (len(seqs), dims)."""
        if user_id not in self._ids:
            name = {"name": collection_of(user_id, self.prefix), "configuration": CONFIGURATION, "get_or_create": True}
            self._ids[user_id] = self._server.request("POST", "collections", name)["id"]
        rows = np.ascontiguousarray(vectors, dtype="<f4")
        encoded = [base64.b64encode(row.tobytes()).decode("ascii") for row in rows]
        self._post(user_id, "upsert", {"ids": [str(seq) for seq in seqs], "embeddings": encoded})

    def delete(self, user_id: str, seqs: Sequence[int]) -> None:
        """Delete vectors. Unknown numbers are ignored."""
        if self._is_known(user_id):
            self._post(user_id, "delete", {"ids": [str(seq) for seq in seqs]})

    def query(self, user_id: str, vector: Vector, limit: int) -> list[int]:
        """Return the numbers of the nearest vectors by cosine similarity, nearest first."""
        if not self._is_known(user_id, is_search=True):
            return []
        question = {"query_embeddings": [vector.tolist()], "n_results": limit, "include": []}
        return [int(item) for item in self._post(user_id, "query", question, is_search=True)["ids"][0]]

    def fetch(self, user_id: str, seqs: Sequence[int]) -> dict[int, Vector]:
        """Return the stored vectors of shape (dims,) by number. Unknown numbers are left out."""
        if not seqs or not self._is_known(user_id):
            return {}
        return by_number(self._post(user_id, "get", {"ids": [str(seq) for seq in seqs], "include": ["embeddings"]}))

    def count(self) -> int:
        """Return how many vectors are stored, of all users. It takes a request for each user."""
        ids = [item for name, item in self._server.collections() if is_of_user(name, self.prefix)]
        return sum(int(self._server.request("GET", f"collections/{item}/count", was_there=True)) for item in ids)

    def close(self) -> None:
        """Do nothing: the connection is that of the whole index."""

    def _is_known(self, user_id: str, *, is_search: bool = False) -> bool:
        """Return whether the build has a collection of the user."""
        if user_id not in self._ids:
            path = f"collections/{collection_of(user_id, self.prefix)}"
            with suppress(NotThereError):
                self._ids[user_id] = self._server.request("GET", path, is_search=is_search)["id"]
        return user_id in self._ids

    def _post(self, user_id: str, what: str, content: dict[str, Any], *, is_search: bool = False) -> Any:
        path = f"collections/{self._ids[user_id]}/{what}"
        return self._server.request("POST", path, content, is_search=is_search, was_there=True)


def _state(record: str, metadata: dict[str, Any]) -> StoredState | None:
    """Return what the metadata of the record say, or None if this version did not write them."""
    build, epoch = metadata.get("build"), metadata.get("epoch")
    if not isinstance(build, str) or not isinstance(epoch, str):
        return None
    values = {field.name: metadata[field.name] for field in fields(Checkpoint) if field.name in metadata}
    checkpoint = Checkpoint.from_values(values)
    return StoredState(record, build, epoch, checkpoint) if checkpoint is not None or not values else None


# Keep an index on a server in step with the ledger, from any number of processes and hosts.
#
# One process at a time writes to the index: the one that holds a lock of the ledger's database, for the time of one
# operation. The others do not wait for it. They query what is there, and take what the index has not applied yet
# from the index log, as with every index. The checkpoint is on the server. Each query reads it first, so a query
# knows what the index holds at that moment, whoever has written to it, and also after the server has lost its data
# or has been restored from an older copy.
#
# A process that loses the lock while it writes, such as one whose connection to the database broke, notices before
# its next batch that the checkpoint is not the one it stored.

logger = logging.getLogger(__name__)

# Rows in one write. The server holds no lock of this interpreter. Measured with 384 dimensions: 500 rows a second in
# batches of 50, and 800 in batches of 500.
BATCH = 500

# How long a rebuild or an erasure waits for the process that writes.
TURN_SECONDS = 2 * REPLY_SECONDS

# How often they look whether it is their turn.
POLL_SECONDS = 0.05


class SharedProjection(Projection):
    """A projection onto an index that several processes share.

    `open_shared` connects to the server. `root` is the folder of indexes that this machine may have had before.
    """

    shared = True
    batch = BATCH

    def __init__(
        self, ledger: Ledger, embedder: str, open_shared: Callable[[], SharedIndex], root: Path, *, layout: str
    ) -> None:
        super().__init__(ledger, embedder, refuse_folder, root, layout=layout)
        self._open_shared = open_shared
        self._server: SharedIndex | None = None
        self._written: StoredState | None = None
        self._seen: StoredState | None = None

    def open(self, progress: Progress = unseen) -> None:
        """Connect, and build the index or catch up unless another process is writing.

        Raises VectorIndexError and LedgerError.
        """
        with self._operation():
            self.state = "building"
            self._prepare()
            self._work_if_alone(progress, is_counted=True)

    def catch_up(self) -> None:
        """Apply the rest of the index log, or build the index anew, unless another process is writing.

        Raises VectorIndexError and LedgerError.
        """
        with self._operation():
            if self._server is not None and self.state != "broken":
                self._work_if_alone(unseen)

    def erase(self) -> None:
        """Erase every vector that was stored before the last purge. The next round builds the index anew.

        It waits for the process that is writing, which may erase them. Raises VectorIndexError and LedgerError.
        """
        with closing(self._open_shared()) as server, self._our_turn():
            state, epoch = server.read(), self._ledger.read_with(entry_queries.epoch)
            if state is None or state.epoch != epoch:
                server.begin(epoch)
        self._changes_seen = True

    def query(self, user_id: str, vector: Vector, limit: int) -> IndexHits | None:
        """Return the nearest entries that the index has, or None if it cannot be queried now.

        Call it with no ledger connection open. Entries that changed after `log_number` may be missing or out of
        date; `changed_since` returns them.
        """
        if (server := self._server) is None or self.state == "broken":
            return None
        try:
            if (seen := self._look(server)) is not None:
                entries = seen[1].query(user_id, vector, limit)
                # Who has no collection has no vectors, or the build is gone.
                if entries or self._look(server) == seen:
                    return IndexHits(tuple(entries), seen[0].log_number)
        except RefusalError as error:  # one that is being deleted refuses
            logger.info("%s", error)
        except VectorIndexError as error:
            if server is self._server:  # else it was closed
                self._failed(error)
            return None
        self._changes_seen = True  # the background looks what is the matter with the index
        return None

    def condition(self) -> Finding:
        """Compare the checkpoint on the server with the ledger, for `palimpsest doctor`. Nothing is changed.

        Raises VectorIndexError and LedgerError.
        """
        with closing(self._open_shared()) as server:
            seen = self._look(server)
        of_server = f"Chroma server {server.address}"
        if seen is None:
            return Finding("index", f"{of_server}: no whole index yet; a server builds it at its first search")
        behind = self._ledger.read_with(entry_queries.newest_log_number) - seen[0].log_number
        return Finding("index", f"{of_server}: {counted(behind, 'change')} behind")

    def _look(self, server: SharedIndex) -> tuple[Checkpoint, SharedBuild] | None:
        """Return the checkpoint that the index has now, and its vectors. Return None if it is not complete or valid."""
        if (state := server.read(is_search=True)) is None or state.checkpoint is None:
            return None
        if self._seen != state:
            with self._ledger.read() as conn:
                if not state.checkpoint.is_valid(self.initial_checkpoint, conn):
                    return None
            self._seen = state
        return state.checkpoint, server.open(state.build)

    def _work_if_alone(self, progress: Progress, *, is_counted: bool = False) -> None:
        """Bring the index up to date unless another process is writing to it, and say whether it can be queried."""
        server = self._required_server()
        with suppress(ReplacedError), self._ledger.database.alone_at("index") as is_our_turn:
            if is_our_turn:
                self._follow(progress, is_counted=is_counted)
        if (seen := self._look(server)) is not None:
            self._index = seen[1]
        self.state, self.fault = "building" if seen is None else "ready", ""

    def _follow(self, progress: Progress, *, is_counted: bool = False) -> None:
        """Apply the rest of the index log, or build the index anew. It must be our turn."""
        server = self._required_server()
        self._written = server.read()
        if (seen := self._look(server)) is not None:
            checkpoint, self._index = seen
            if self._apply_log(checkpoint, progress) and (not is_counted or self._is_complete()):
                return
        self._build(progress)

    def _begin_build(self) -> None:
        server = self._required_server()
        self._written = server.begin(self._ledger.read_with(entry_queries.epoch))
        self._index = server.open(self._written.build)

    def _save_checkpoint(self, reached: Checkpoint) -> None:
        if self._written is None:
            raise ReplacedError
        self._written = self._required_server().save(self._written, reached)
        self._checkpoint = reached

    def _may_go_on(self) -> bool:
        """Return whether this process is to write another batch. Raises ReplacedError if another process writes."""
        if not super()._may_go_on():
            return False
        if self._required_server().read() != self._written:
            raise ReplacedError
        return True

    @property
    def log_number(self) -> int:
        """Return the last row of the index log that this process knows to be applied."""
        return 0 if self._seen is None or self._seen.checkpoint is None else self._seen.checkpoint.log_number

    @contextmanager
    def _our_turn(self) -> Generator[None]:
        end = time.monotonic() + TURN_SECONDS
        while True:
            with self._ledger.database.alone_at("index") as is_our_turn:
                if is_our_turn:
                    yield
                    return
            if self._stopping.wait(POLL_SECONDS) or time.monotonic() > end:
                raise VectorIndexError(f"another process has been writing for {TURN_SECONDS:g} s; try again later")

    def _prepare(self) -> None:
        """Connect anew. What is there is read, so that a server that does not answer is noticed."""
        self._close_index()
        self._server = self._open_shared()
        self._server.read(is_search=True)

    def _close_index(self) -> None:
        if self._server is not None:
            self._server.close()
        self._server = self._index = self._written = self._seen = None

    def _required_server(self) -> SharedIndex:
        if self._server is None:
            raise VectorIndexError(f"the index is {self.state}")
        return self._server
