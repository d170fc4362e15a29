"""The copy of a ledger's graph in a graph database: what is read from it and written to it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, TypeVar

from palimpsest.core.clock import exact_iso
from palimpsest.index.graph import cypher
from palimpsest.index.graph.checkpoint import GraphCheckpoint
from palimpsest.index.graph.connection import GraphConnection
from palimpsest.index.graph.cypher import Statement
from palimpsest.store.graph.projected import Edge, Node, Part

BATCH = 100
"""Rows in one statement. Set by hand: it takes some ten milliseconds, and one server deadlocked at 500 rows."""

_T = TypeVar("_T")


class GraphCopy:
    """The nodes and edges of one ledger in a graph database. Every method raises GraphStoreError."""

    def __init__(self, database: GraphConnection, ledger: str) -> None:
        self._database = database
        self._ledger = ledger

    async def checkpoint(self) -> GraphCheckpoint | None:
        """Return how much of the ledger it shows, or None if that is nothing, or written by another version."""
        rows = await self._database.run(self._statement(cypher.READ_CHECKPOINT))
        return GraphCheckpoint.read(rows[0]["checkpoint"]) if rows else None

    async def move_to(self, checkpoint: GraphCheckpoint) -> None:
        """Write the checkpoint alone."""
        await self._database.run(self._moved(checkpoint))

    async def prepare(self) -> None:
        """Create the indexes that statements are quick with."""
        await self._database.create_indexes()

    async def clear(self) -> None:
        """Remove all nodes of the ledger with their edges, a thousand at a time."""
        while (await self._database.run(self._statement(cypher.REMOVE_SOME)))[0]["removed"]:
            pass

    async def put(self, part: Part, checkpoint: GraphCheckpoint) -> None:
        """Bring it into the state of a part of the graph, and write the checkpoint, in one transaction."""
        await self._database.run(*self._changes(part), self._moved(checkpoint))

    def _changes(self, part: Part) -> Iterator[Statement]:
        yield self._statement(cypher.REMOVE_EDGES, memory_ids=list(part.memory_ids))
        for nodes in _batches(part.nodes):
            yield self._statement(cypher.PUT_NODES, rows=[node_properties(node) for node in nodes])
        for edges in _batches(part.edges):
            rows = [
                {"source_id": edge.source_id, "destination_id": edge.destination_id, **edge_properties(edge)}
                for edge in edges
            ]
            yield self._statement(cypher.PUT_EDGES, rows=rows)
        for ids in _batches(part.hidden):
            yield self._statement(cypher.REMOVE_NODES, ids=list(ids))

    async def counts(self) -> tuple[int, int]:
        """Return the number of nodes and of edges."""
        [nodes] = await self._database.run(self._statement(cypher.COUNT_NODES))
        [edges] = await self._database.run(self._statement(cypher.COUNT_EDGES))
        return nodes["count"], edges["count"]

    async def nodes(self, ids: Sequence[str]) -> dict[str, dict[str, Any]]:
        """Return the properties of nodes by id, as `node_properties` gives them."""
        rows = await self._database.run(self._statement(cypher.NODES, ids=list(ids)))
        return {row["properties"]["id"]: row["properties"] for row in rows}

    async def edges(self, memory_ids: Sequence[str]) -> list[tuple[str, str, dict[str, Any]]]:
        """Return the edges of memories: the ids of source and destination, and what `edge_properties` gives."""
        rows = await self._database.run(self._statement(cypher.EDGES, memory_ids=list(memory_ids)))
        return [(row["source_id"], row["destination_id"], row["properties"]) for row in rows]

    def _statement(self, text: cypher.Text, **parameters: Any) -> Statement:
        return Statement(text, {"ledger": self._ledger, **parameters})

    def _moved(self, checkpoint: GraphCheckpoint) -> Statement:
        return self._statement(cypher.WRITE_CHECKPOINT, values=checkpoint.values())


def node_properties(node: Node) -> dict[str, Any]:
    """Return an entity as the properties of a node, without the id of the ledger."""
    return {
        "id": node.id,
        "user_id": node.user_id,
        "project": node.project,
        "name": node.name,
        "type": node.type,
        "aliases": list(node.aliases),
        "is_user": node.is_user,
    }


def edge_properties(edge: Edge) -> dict[str, Any]:
    """Return a relation as the properties of an edge. Times are ISO 8601 in UTC; None is no property at all."""
    return {
        "id": edge.id,
        "name": edge.name,
        "memory_id": edge.memory_id,
        "text": edge.text,
        "valid_from": exact_iso(edge.valid_from),
        "valid_until": _iso(edge.valid_until),
        "created_at": exact_iso(edge.created_at),
        "expired_at": _iso(edge.expired_at),
        "is_current": edge.expired_at is None,
    }


def _iso(time: datetime | None) -> str | None:
    return None if time is None else exact_iso(time)


def _batches(values: Sequence[_T]) -> Iterator[Sequence[_T]]:
    return (values[start : start + BATCH] for start in range(0, len(values), BATCH))
