"""Entities as a graph: nodes, and what connects them, the whole of it or the neighbourhood of one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, groupby
from typing import NamedTuple

from sqlalchemy import Connection

from palimpsest.core.entities import Entity, KnownRelation
from palimpsest.core.models import Scope
from palimpsest.learn.engine import Engine
from palimpsest.store.graph import edges, surroundings
from palimpsest.store.graph.groups import roots_of
from palimpsest.store.graph.names import ListedEntity, list_entities
from palimpsest.store.views.ending import expired_ids

MAX_NODES = 5_000
"""How many entities a drawing has: as many as a browser still moves smoothly."""

MAX_RELATIONS = 10_000
"""How many relations a drawing of everything has. Set by hand: two for each entity."""

MAX_MENTIONS = 50_000
"""How many mentions are read to see who is named together. Set by hand: about a tenth of a second."""

MAX_TOGETHER = 8
"""A memory that names more entities than this is a list, and connects none of them. Set by hand."""


class Edge(NamedTuple):
    """What connects two entities, by their ids: a relation by its name; or, with no name, memories that name both."""

    source_id: str
    destination_id: str
    name: str
    memories: int


@dataclass(frozen=True, slots=True)
class EntityGraph:
    """Entities, with how many memories mention each, and what connects them."""

    nodes: Sequence[ListedEntity]
    edges: Sequence[Edge]


class Entities:
    """The entities of an open memory as a graph. Every method raises LedgerError."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def whole(self, scope: Scope) -> EntityGraph:
        """Return the entities that were mentioned last, up to `MAX_NODES`, and what connects them."""
        return await self._engine.read(lambda conn: self._whole(conn, scope))

    async def around(self, scope: Scope, entity: Entity, hops: int, limit: int) -> EntityGraph:
        """Return what is at most `hops` steps away from an entity: itself, then up to `limit` others, nearest first."""

        def read(conn: Connection) -> EntityGraph:
            whole = self._whole(conn, scope)
            near = _near(whole.edges, entity.id, hops, limit)
            nodes = [node for node in whole.nodes if node.entity.id in near]
            kept = [edge for edge in whole.edges if edge.source_id in near and edge.destination_id in near]
            return EntityGraph(nodes, kept)

        return await self._engine.read(read)

    def _whole(self, conn: Connection, scope: Scope) -> EntityGraph:
        nodes = list_entities(conn, scope, MAX_NODES)
        ids = {node.entity.id for node in nodes}
        expired = expired_ids(conn, scope, self._engine.clock())
        found = edges.relations_of(conn, scope, ids, limit=MAX_RELATIONS)
        stated = [item for item in found if item.memory_id not in expired]
        return EntityGraph(nodes, [edge for edge in _edges(conn, scope, stated) if ids.issuperset(edge[:2])])


def _edges(conn: Connection, scope: Scope, stated: Sequence[KnownRelation]) -> list[Edge]:
    """Return relations as edges, and edges between entities that memories only name together."""
    counts = Counter((item.source_id, item.destination_id, item.relationship) for item in stated)
    related = {frozenset(key[:2]) for key in counts}
    together = Counter(pair for pair in _pairs(conn, scope) if frozenset(pair) not in related)
    return [
        *(Edge(*key, number) for key, number in counts.items()),
        *(Edge(*pair, "", number) for pair, number in together.items()),
    ]


def _pairs(conn: Connection, scope: Scope) -> list[tuple[str, str]]:
    """Return the ids of every two entities that a memory names. The user is left out: nearly everything names them."""
    rows = surroundings.owners_and_entities(conn, scope, MAX_MENTIONS)
    roots = roots_of(conn, {entity_id for _, entity_id in rows})
    pairs: list[tuple[str, str]] = []
    for _, group in groupby(rows, key=lambda row: row[0]):
        named = {roots[entity_id].id for _, entity_id in group if entity_id in roots and not roots[entity_id].is_user}
        if len(named) <= MAX_TOGETHER:
            pairs += combinations(sorted(named), 2)
    return pairs


def _near(connections: Sequence[Edge], start: str, hops: int, limit: int) -> set[str]:
    """Return an id with up to `limit` others that are at most `hops` steps away, those with the most memories first."""
    weights: dict[str, Counter[str]] = {}
    for edge in connections:
        weights.setdefault(edge.source_id, Counter())[edge.destination_id] += edge.memories
        weights.setdefault(edge.destination_id, Counter())[edge.source_id] += edge.memories
    near, reached = {start}, [start]
    for _ in range(hops):
        further = Counter[str]()
        for one in reached:
            further.update({other: n for other, n in weights.get(one, Counter[str]()).items() if other not in near})
        reached = [other for other, _ in further.most_common(limit + 1 - len(near))]
        near.update(reached)
    return near
