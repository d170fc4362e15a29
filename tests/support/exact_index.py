"""An exact vector index in memory: one NumPy matrix per user. The reference that other indexes are compared with."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np

from palimpsest.core.protocols import Vector


class ExactIndex:
    """A vector index that keeps every vector in memory and compares a query with all of them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users: dict[str, dict[int, Vector]] = {}
        self._matrices: dict[str, tuple[list[int], Vector]] = {}

    def upsert(self, user_id: str, seqs: Sequence[int], vectors: Vector) -> None:
        """Store vectors of shape (len(seqs), dims)."""
        with self._lock:
            self._users.setdefault(user_id, {}).update(zip(seqs, vectors, strict=True))
            self._matrices.pop(user_id, None)

    def delete(self, user_id: str, seqs: Sequence[int]) -> None:
        """Delete vectors. Unknown numbers are ignored."""
        with self._lock:
            for seq in seqs:
                self._users.get(user_id, {}).pop(seq, None)
            self._matrices.pop(user_id, None)

    def query(self, user_id: str, vector: Vector, limit: int) -> list[int]:
        """Return the numbers of the nearest vectors by cosine similarity, nearest first."""
        with self._lock:
            seqs, matrix = self._matrix(user_id)
        if not seqs:
            return []
        best = np.argsort(-(matrix @ vector), kind="stable")[:limit]
        return [seqs[row] for row in best.tolist()]

    def fetch(self, user_id: str, seqs: Sequence[int]) -> dict[int, Vector]:
        """Return the stored vectors of shape (dims,) by number. Unknown numbers are left out."""
        with self._lock:
            rows = self._users.get(user_id, {})
            return {seq: rows[seq] for seq in seqs if seq in rows}

    def count(self) -> int:
        """Return how many vectors are stored, of all users."""
        with self._lock:
            return sum(len(rows) for rows in self._users.values())

    def close(self) -> None:
        """Release the memory."""
        with self._lock:
            self._users.clear()
            self._matrices.clear()

    def _matrix(self, user_id: str) -> tuple[list[int], Vector]:
        if user_id not in self._matrices:
            rows = self._users.get(user_id, {})
            stacked = np.stack(list(rows.values())) if rows else np.zeros((0, 0), dtype=np.float32)
            self._matrices[user_id] = (list(rows), stacked)
        return self._matrices[user_id]
