"""Entities as a graph: nodes, and what connects them, the whole of it or the neighbourhood of one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, groupby
from typing import NamedTuple

from sqlalchemy import Connection

from palimpsest.core.entities import Entity
from palimpsest.core.models import Scope
from palimpsest.learn.engine import Engine
from palimpsest.store.graph import edges, surroundings
from palimpsest.store.graph.groups import members_of, roots_of
from palimpsest.store.graph.names import list_entities
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


class Node(NamedTuple):
    """An entity, and how many of the memories that were read mention it."""

    entity: Entity
    memories: int


@dataclass(frozen=True, slots=True)
class EntityGraph:
    """Entities, and what connects them."""

    nodes: Sequence[Node]
    edges: Sequence[Edge]


class Entities:
    """The entities of an open memory as a graph. Every method raises LedgerError."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def whole(self, scope: Scope) -> EntityGraph:
        """Return the entities that were mentioned last, up to `MAX_NODES`, and what connects them."""

        def read(conn: Connection) -> EntityGraph:
            nodes = [Node(listed.entity, listed.mentions) for listed in list_entities(conn, scope, MAX_NODES)]
            ids = {node.entity.id for node in nodes}
            return EntityGraph(nodes, _within(ids, self._edges(conn, scope, ids, _named_by(conn, scope))))

        return await self._engine.read(read)

    async def around(self, scope: Scope, entity: Entity, hops: int, limit: int) -> EntityGraph:
        """Return what is at most `hops` steps away from an entity: itself and up to `limit` others."""

        def read(conn: Connection) -> EntityGraph:
            near = {entity.id}
            for _ in range(hops):
                near = _near(self._edges(conn, scope, near, _named_by(conn, scope, near)), entity.id, hops, limit)
            named = _named_by(conn, scope, near)
            counts = Counter(root.id for roots in named for root in roots)
            nodes = [Node(each, counts[each.id]) for each in surroundings.entities_with_ids(conn, scope, near)]
            return EntityGraph(nodes, _within(near, self._edges(conn, scope, near, named)))

        return await self._engine.read(read)

    def _edges(
        self, conn: Connection, scope: Scope, ids: Collection[str], named: Sequence[Collection[Entity]]
    ) -> list[Edge]:
        """Return relations of entities as edges, and edges between those that memories only name together."""
        expired = expired_ids(conn, scope, self._engine.clock())
        stated = edges.relations_of(conn, scope, ids, limit=MAX_RELATIONS)
        counts = Counter(
            (item.source_id, item.destination_id, item.relationship) for item in stated if item.memory_id not in expired
        )
        related = {frozenset(key[:2]) for key in counts}
        together = Counter(pair for pair in _pairs(named) if frozenset(pair) not in related)
        return [
            *(Edge(*key, number) for key, number in counts.items()),
            *(Edge(*pair, "", number) for pair, number in together.items()),
        ]


def _within(ids: Collection[str], found: Sequence[Edge]) -> list[Edge]:
    """Return the edges between two of some entities."""
    return [edge for edge in found if edge.source_id in ids and edge.destination_id in ids]


def _named_by(conn: Connection, scope: Scope, ids: Collection[str] | None = None) -> list[Collection[Entity]]:
    """Return the entities that each of the newest memories names; with `ids` of those that name one of these."""
    about = None if ids is None else list(members_of(conn, ids))
    rows = surroundings.owners_and_entities(conn, scope, MAX_MENTIONS, about)
    roots = roots_of(conn, {entity_id for _, entity_id in rows})
    return [
        {roots[entity_id].id: roots[entity_id] for _, entity_id in group if entity_id in roots}.values()
        for _, group in groupby(rows, key=lambda row: row[0])
    ]


def _pairs(named: Sequence[Collection[Entity]]) -> Iterator[tuple[str, str]]:
    """Yield the ids of every two entities that a memory names. The user is left out: nearly everything names them."""
    for of_memory in named:
        ids = sorted(entity.id for entity in of_memory if not entity.is_user)
        if len(ids) <= MAX_TOGETHER:
            yield from combinations(ids, 2)


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
