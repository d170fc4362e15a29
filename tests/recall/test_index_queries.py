"""The vector index is queried while no database connection is in use: it may be on a server that hangs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from sqlalchemy import Connection

from palimpsest.core.protocols import Vector
from palimpsest.index.sync import IndexHits, Projection
from tests.support.memory import ALICE, memory_in
from tests.support.open_connections import count_connections

pytestmark = pytest.mark.anyio


@dataclass
class WatchedIndex:
    """Pass queries on to an index, and record how many connections were in use at each."""

    index: Projection
    connections: Callable[[], int]
    in_use: list[int] = field(default_factory=list[int])

    def query(self, user_id: str, vector: Vector, limit: int) -> IndexHits | None:
        """Return the nearest entries."""
        self.in_use.append(self.connections())
        return self.index.query(user_id, vector, limit)

    def changed_since(self, conn: Connection, user_id: str, log_number: int) -> list[int] | None:
        """Return the entries that changed since."""
        return self.index.changed_since(conn, user_id, log_number)


async def test_an_add_queries_the_index_for_near_duplicates_without_a_connection(tmp_path: Path) -> None:
    """Guards the ledger: an index server that hangs must not keep a snapshot of the ledger open."""
    async with memory_in(tmp_path) as memory:
        await memory.add_text(ALICE, "User's dog is named Rex", infer=False)
        await memory.care.rebuild()
        with count_connections() as connections:
            index = WatchedIndex(memory.projection, connections)
            watched = memory.with_engine(replace(memory.engine, index=index))
            result = await watched.add_text(ALICE, "User's dog is called Rex", infer=False)
        assert result.similar[result.outcomes[0].memory.id]
        assert index.in_use
        assert set(index.in_use) == {0}


async def test_a_search_finds_what_the_index_does_not_have_yet(tmp_path: Path) -> None:
    """Guards reading one's own writes: entries that changed after the query of the index are candidates too."""
    async with memory_in(tmp_path) as memory:
        await memory.add_text(ALICE, "User's dog is named Rex", infer=False)
        await memory.care.rebuild()
        added = await memory.add_text(ALICE, "User keeps bees in the garden", infer=False)
        hits = (await memory.search(ALICE, "Which insects live behind the house?")).hits
        assert added.outcomes[0].memory.id in {hit.id for hit in hits}
