"""What lies on a Chroma server: a collection for each user, and one whose metadata is the checkpoint of them all.

The checkpoint is beside the vectors, so all hosts see it, and it is lost or restored together with them. Each build of
the index has a name, which is part of the names of its collections. So nothing that belongs to an earlier build can
be taken for a part of the present one.
"""

from __future__ import annotations

import base64
import hashlib
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from palimpsest.core.errors import VectorIndexError
from palimpsest.core.protocols import Vector
from palimpsest.index.checkpoint import Checkpoint
from palimpsest.index.shared.connection import ChromaServer, NotThereError

LAYOUT = "chroma-server-1"
"""The layout of the collections. An index with another layout is rebuilt."""

CONFIGURATION = {"hnsw": {"space": "cosine", "ef_search": 200}}
"""The same as that of a folder's collections."""

PAGE = 500
"""How many collections are listed in one answer."""

_CHECKPOINT_KEYS = {
    "ledger": str,
    "embedder": str,
    "layout": str,
    "log_number": int,
    "log_signature": str,
}


class ReplacedError(VectorIndexError):
    """Another process has built the index anew, or deleted it."""

    def __init__(self) -> None:
        super().__init__("another process has replaced the index on the Chroma server")


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
    """The index of one ledger on a Chroma server. Blocking; every method raises VectorIndexError."""

    def __init__(self, server: ChromaServer, prefix: str) -> None:
        self.server = server
        self._prefix = prefix
        self._record = f"{prefix}-checkpoint"

    def read(self, *, is_search: bool = False) -> StoredState | None:
        """Return what is on the server, or None if there is no index, or one of another version."""
        try:
            found = self.server.get(f"collections/{self._record}", is_search=is_search)
            return _state(found["id"], found["metadata"] or {})
        except NotThereError:
            return None
        except (KeyError, TypeError) as error:
            raise VectorIndexError(f"what answers at {self.server.address} is no Chroma server") from error

    def begin(self, epoch: str) -> StoredState:
        """Delete everything of this ledger, and begin a new build, which is empty and has no checkpoint."""
        own = re.compile(rf"{re.escape(self._prefix)}-(checkpoint|([0-9a-f]{{8}}-)?[0-9a-f]{{24}})")
        names = [name for name, _ in _collections(self.server) if own.fullmatch(name)]  # earlier versions had no builds
        for name in sorted(names, key=lambda name: name != self._record):
            self._delete(name)  # the checkpoint first: without it nobody takes the rest for an index
        build = secrets.token_hex(4)
        metadata = {"build": build, "epoch": epoch}
        created = self.server.post("collections", {"name": self._record, "metadata": metadata})
        return StoredState(created["id"], build, epoch)

    def save(self, state: StoredState, checkpoint: Checkpoint) -> StoredState:
        """Store the checkpoint of a build, and return the new state. Raises ReplacedError."""
        values = {name: getattr(checkpoint, name) for name in _CHECKPOINT_KEYS}
        metadata = {"build": state.build, "epoch": state.epoch, **values}
        try:
            self.server.put(f"collections/{state.record}", {"new_metadata": metadata})
        except NotThereError as error:
            raise ReplacedError from error
        return replace(state, checkpoint=checkpoint)

    def open(self, build: str) -> SharedBuild:
        """Return the vectors of a build."""
        return SharedBuild(self.server, f"{self._prefix}-{build}")

    def close(self) -> None:
        """Close the connections."""
        self.server.close()

    def _delete(self, name: str) -> None:
        try:
            self.server.delete(f"collections/{name}")
        except NotThereError:
            return  # another process was quicker


class SharedBuild:
    """The vectors of one build of a shared index, as a `VectorIndex`. It never creates what it only reads.

    Every method raises ReplacedError if a collection that was there is gone.
    """

    def __init__(self, server: ChromaServer, prefix: str) -> None:
        self._server = server
        self._prefix = prefix
        self._ids: dict[str, str] = {}

    def upsert(self, user_id: str, seqs: Sequence[int], vectors: Vector) -> None:
        """Store vectors of shape (len(seqs), dims)."""
        if user_id not in self._ids:
            name = {"name": self._name(user_id), "configuration": CONFIGURATION, "get_or_create": True}
            self._ids[user_id] = self._server.post("collections", name)["id"]
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
        question = {"ids": [str(seq) for seq in seqs], "include": ["embeddings"]}
        found = self._post(user_id, "get", question)
        return {
            int(item): np.asarray(vector, dtype=np.float32)
            for item, vector in zip(found["ids"], found["embeddings"], strict=True)
        }

    def count(self) -> int:
        """Return how many vectors are stored, of all users. It takes a request for each user."""
        own = re.compile(rf"{re.escape(self._prefix)}-[0-9a-f]{{24}}")
        ids = [item for name, item in _collections(self._server) if own.fullmatch(name)]
        try:
            return sum(int(self._server.get(f"collections/{item}/count")) for item in ids)
        except NotThereError as error:
            raise ReplacedError from error

    def close(self) -> None:
        """Do nothing: the connection is that of the whole index."""

    def _name(self, user_id: str) -> str:
        return f"{self._prefix}-{hashlib.blake2b(user_id.encode(), digest_size=12).hexdigest()}"

    def _is_known(self, user_id: str, *, is_search: bool = False) -> bool:
        """Return whether the build has a collection of the user."""
        if user_id not in self._ids:
            try:
                self._ids[user_id] = self._server.get(f"collections/{self._name(user_id)}", is_search=is_search)["id"]
            except NotThereError:
                return False
        return True

    def _post(self, user_id: str, what: str, content: dict[str, Any], *, is_search: bool = False) -> Any:
        try:
            return self._server.post(f"collections/{self._ids[user_id]}/{what}", content, is_search=is_search)
        except NotThereError as error:
            raise ReplacedError from error


def _collections(server: ChromaServer) -> list[tuple[str, str]]:
    """Return the names and ids of all collections, which may be those of others."""
    found: list[tuple[str, str]] = []
    while True:
        page = server.get("collections", limit=PAGE, offset=len(found))
        found += [(item["name"], item["id"]) for item in page]
        if len(page) < PAGE:
            return found


def _state(record: str, metadata: dict[str, Any]) -> StoredState | None:
    """Return what the metadata of the record say, or None if this version did not write them."""
    build, epoch = metadata.get("build"), metadata.get("epoch")
    if not isinstance(build, str) or not isinstance(epoch, str):
        return None
    values = {name: metadata.get(name) for name in _CHECKPOINT_KEYS}
    if all(value is None for value in values.values()):
        return StoredState(record, build, epoch)
    if not all(type(value) is _CHECKPOINT_KEYS[name] for name, value in values.items()):
        return None
    return StoredState(record, build, epoch, Checkpoint(**cast("dict[str, Any]", values)))
