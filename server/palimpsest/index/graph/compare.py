"""Say in what state a graph database is, and compare it with the ledger row by row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from palimpsest.core.protocols import Progress
from palimpsest.index.graph.copy import BATCH, GraphCopy, edge_properties, node_properties
from palimpsest.index.graph.sync import GraphProjection, foreign_text
from palimpsest.store.graph import projected
from palimpsest.text.counting import counted


@dataclass(frozen=True, slots=True)
class Condition:
    """The state of a graph database in words. `ok` is False if somebody has to do something."""

    text: str
    ok: bool = True


async def condition(projection: GraphProjection) -> Condition:
    """Return in what state the database is. Raises GraphStoreError if it cannot be used, and LedgerError."""
    server = projection.server
    name = f"{server.provider} at {server.address}"
    async with projection.connect() as copy:
        checkpoint = await copy.checkpoint()
        if checkpoint is None:
            return Condition(f"{name}: nothing of this ledger yet; a server fills it in the background")
        standing = await projection.read(checkpoint.standing)
        if standing == "foreign":
            return Condition(foreign_text(server.address), ok=False)
        if standing == "outdated":
            return Condition(f"{name}: it shows an earlier state of the ledger; the next server fills it anew")
        if checkpoint.phase != "following":
            return Condition(f"{name}: it is being filled; a server goes on with it in the background")
        behind = await projection.read(checkpoint.behind)
        nodes, edges = await copy.counts()
    text = f"{name}: {counted(nodes, 'entity')}, {counted(edges, 'relation')}, {counted(behind, 'change')} behind"
    return Condition(text)


async def differences(projection: GraphProjection, progress: Progress) -> str:
    """Return how the database differs from the ledger, "" if it does not, once it has caught up.

    Raises GraphStoreError and LedgerError.
    """
    await projection.catch_up()
    wrong_edges = wrong_nodes = edges = last = done = 0
    entity_ids: set[str] = set()
    async with projection.connect() as copy:
        total = await projection.read(projected.count_memories_that_mention)
        while rows := await projection.read(lambda conn: projected.memories_that_mention(conn, last, BATCH)):  # noqa: B023 - called at once
            memory_ids = [memory_id for _, memory_id in rows]
            part = await projection.read(lambda conn: projected.part_of(conn, memory_ids))  # noqa: B023 - called at once
            wrong_edges += await _wrong_edges(copy, memory_ids, part.edges)
            wrong_nodes += await _wrong_nodes(copy, part.nodes)
            edges += len(part.edges)
            entity_ids.update(node.id for node in part.nodes)
            last = rows[-1][0]
            done += len(rows)
            progress(done, max(done, total))
        nodes_there, edges_there = await copy.counts()
    faults = {
        "entities are missing or wrong": wrong_nodes,
        "relations are missing or wrong": wrong_edges,
        "entities too many": max(nodes_there - len(entity_ids), 0),
        "relations too many": max(edges_there - edges, 0),
    }
    return ", ".join(f"{count} {what}" for what, count in faults.items() if count)


async def _wrong_nodes(copy: GraphCopy, nodes: tuple[projected.Node, ...]) -> int:
    stored = await copy.nodes([node.id for node in nodes])
    return sum(not _has(stored.get(node.id, {}), node_properties(node)) for node in nodes)


async def _wrong_edges(copy: GraphCopy, memory_ids: list[str], edges: tuple[projected.Edge, ...]) -> int:
    stored = {properties["id"]: (source, to, properties) for source, to, properties in await copy.edges(memory_ids)}
    wrong = 0
    for edge in edges:
        source, destination, properties = stored.pop(edge.id, ("", "", {}))
        is_there = (source, destination) == (edge.source_id, edge.destination_id)
        wrong += not (is_there and _has(properties, edge_properties(edge)))
    return wrong + len(stored)


def _has(stored: dict[str, Any], expected: dict[str, Any]) -> bool:
    """Return whether a node or an edge has these properties; none is the same as None."""
    return all(stored.get(key) == value for key, value in expected.items())
