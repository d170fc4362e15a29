"""The graph of an open memory: dossiers, subgraphs in several formats, and edits of entities."""

import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, tzinfo
from functools import partial
from itertools import combinations, groupby
from typing import NamedTuple, TypeAlias
from xml.etree import ElementTree as ET

from sqlalchemy import Connection

from palimpsest.core import models
from palimpsest.core.clock import TimeSpan, in_zone, shown_date
from palimpsest.core.errors import InputError
from palimpsest.core.models import Entity, EntityEdit, EntityType, GraphForm, KnownRelation, Merge, Scope, Split
from palimpsest.core.validation import one_line
from palimpsest.learn.engine import OfMemory, reads
from palimpsest.learn.summaries.dossier import Dossier, described, find_entities, lines_of, read_dossier
from palimpsest.learn.summaries.summary_kinds import SHORT_ID
from palimpsest.store import entries
from palimpsest.store.apply import Write
from palimpsest.store.graph import entities as entities_module
from palimpsest.store.graph import relations as edges
from palimpsest.store.graph.entities import ListedEntity, list_entities
from palimpsest.store.graph.identity import members_of, roots_of
from palimpsest.store.memories import expired_ids
from palimpsest.text.display import visible, visible_json

# Write the graph as Mermaid, DOT, JSON or GraphML. The same graph always gives the same text.
#
# Names are people's text. In each format they are data and never syntax: control characters are visible, and
# whatever the format could read as its own is escaped.

GRAPHML = "http://graphml.graphdrawing.org/xmlns"

_MERMAID_SYNTAX = re.compile(r"[^\w .,:+@/'-]|_")

# What XML forbids besides control characters, of which none is left when this is looked for.
_NOT_IN_XML = re.compile("[\ud800-\udfff\ufffe\uffff]")

_NODE_KEYS = ("name", "type")
_EDGE_KEYS = ("relationship", "valid_from", "valid_until", "memory_id")
_RELATION_KEYS = (
    *("source", "relationship", "destination", "valid_from", "valid_until"),
    *("source_id", "destination_id", "memory_id"),
)


@dataclass(frozen=True, slots=True)
class Subgraph:
    """A part of the graph: entities, and relations between them. Both ends of each relation are among the entities."""

    entities: tuple[Entity, ...]
    relations: tuple[KnownRelation, ...]


def written(graph: Subgraph, form: GraphForm) -> str:
    """Return a graph in a format, with a line break at its end."""
    entities = sorted(graph.entities, key=lambda entity: (entity.name.casefold(), entity.name, entity.id))
    numbers = {entity.id: number for number, entity in enumerate(entities, start=1)}

    def place(item: KnownRelation) -> tuple[int, str, int, str, str]:
        source, destination = numbers[item.source_id], numbers[item.destination_id]
        return source, item.relationship, destination, item.valid_from, item.memory_id

    return _WRITERS[form](entities, sorted(graph.relations, key=place))


def as_json(entities: Sequence[Entity], relations: Sequence[KnownRelation]) -> dict[str, list[dict[str, str]]]:
    """Return a graph as JSON values, relations in Mem0's shape with their times and the ids of both ends."""
    return {
        "entities": [{"id": entity.id, "name": entity.name, "type": entity.type} for entity in entities],
        "relations": [{key: getattr(item, key) for key in _RELATION_KEYS} for item in relations],
    }


def _json(entities: Sequence[Entity], relations: Sequence[KnownRelation]) -> str:
    return visible_json(json.dumps(as_json(entities, relations), ensure_ascii=False, indent=2)) + "\n"


def _mermaid(entities: Sequence[Entity], relations: Sequence[KnownRelation]) -> str:
    """Return a flowchart: people are round, everything else has corners."""
    nodes = _node_names(entities)
    lines = ["flowchart LR"]
    for entity in entities:
        left, right = ("([", "])") if entity.type == "person" else ("[", "]")
        lines.append(f'    {nodes[entity.id]}{left}"{_in_mermaid(entity.name)}"{right}')
    for item in relations:
        label = "<br/>".join(map(_in_mermaid, _label(item)))
        lines.append(f'    {nodes[item.source_id]} -->|"{label}"| {nodes[item.destination_id]}')
    return "\n".join(lines) + "\n"


def _dot(entities: Sequence[Entity], relations: Sequence[KnownRelation]) -> str:
    nodes = _node_names(entities)
    lines = ["digraph palimpsest {", "    rankdir=LR;", "    node [shape=box];"]
    for entity in entities:
        shape = ", shape=ellipse" if entity.type == "person" else ""
        lines.append(f"    {nodes[entity.id]} [label={_in_dot(entity.name)}, tooltip={_in_dot(entity.type)}{shape}];")
    for item in relations:
        ends = f"{nodes[item.source_id]} -> {nodes[item.destination_id]}"
        lines.append(f"    {ends} [label={_in_dot(*_label(item))}];")
    return "\n".join([*lines, "}"]) + "\n"


def _graphml(entities: Sequence[Entity], relations: Sequence[KnownRelation]) -> str:
    root = ET.Element("graphml", xmlns=GRAPHML)
    for owner, keys in (("node", _NODE_KEYS), ("edge", _EDGE_KEYS)):
        for key in keys:
            ET.SubElement(root, "key", {"id": key, "for": owner, "attr.name": key, "attr.type": "string"})
    graph = ET.SubElement(root, "graph", edgedefault="directed")
    for entity in entities:
        _put_data(ET.SubElement(graph, "node", id=entity.id), entity, _NODE_KEYS)
    for item in relations:
        _put_data(ET.SubElement(graph, "edge", source=item.source_id, target=item.destination_id), item, _EDGE_KEYS)
    ET.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ET.tostring(root, encoding="unicode")}\n'


def _put_data(element: ET.Element, owner: Entity | KnownRelation, keys: Sequence[str]) -> None:
    for key in keys:
        if value := str(getattr(owner, key)):
            ET.SubElement(element, "data", key=key).text = _NOT_IN_XML.sub("\ufffd", _plain(value))


_WRITERS: Mapping[GraphForm, Callable[[Sequence[Entity], Sequence[KnownRelation]], str]] = {
    "mermaid": _mermaid,
    "dot": _dot,
    "json": _json,
    "graphml": _graphml,
}


def _node_names(entities: Sequence[Entity]) -> dict[str, str]:
    return {entity.id: f"n{number}" for number, entity in enumerate(entities, start=1)}


def _label(item: KnownRelation) -> list[str]:
    """Return the lines at an edge: what the relation is, and since and until when it holds."""
    times = (("since", item.valid_from), ("until", item.valid_until))
    return [*([item.relationship] if item.relationship else []), *(f"{word} {time}" for word, time in times if time)]


def _plain(text: str) -> str:
    """Return a text on one line, with its control characters visible."""
    return visible(one_line(text))


def _in_mermaid(text: str) -> str:
    """Return a text for a quoted label. What is no letter or digit may mean something there, so it has its number."""
    return _MERMAID_SYNTAX.sub(lambda match: f"#{ord(match[0])};", _plain(text))


def _in_dot(*lines: str) -> str:
    r"""Return lines as a quoted string of DOT, in which `\n` parts lines and no other escape or entity is left."""
    escaped = (_plain(line).replace("\\", "\\\\").replace('"', '\\"').replace("&", "&amp;") for line in lines)
    return '"' + "\\n".join(escaped) + '"'


# Entities as a graph: nodes, and what connects them, the whole of it or the neighbourhood of one.

# How many entities a drawing has: as many as a browser still moves smoothly.
MAX_NODES = 5_000

# How many relations a drawing of everything has: two for each entity.
MAX_RELATIONS = 10_000

# How many mentions are read to see who is named together: about a tenth of a second.
MAX_MENTIONS = 50_000

# A memory that names more entities than this is a list, and connects none of them.
MAX_TOGETHER = 8


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


# Entities, and what connects them.
EntityGraph: TypeAlias = tuple[Sequence[Node], Sequence[Edge]]

# The graph of an open memory: entities, relations, and the edits of them.

# Among how many relations, the newest, those are looked for that held at a time: some tenths of a second.
MAX_HELD = 5_000


@dataclass(frozen=True, slots=True)
class EntityEdited:
    """What an edit of entities did. `edit` is its number, by which it is undone; None if nothing had to change."""

    text: str
    edit: int | None


class Graph(OfMemory):
    """The graph in a memory, as `memory.graph`. An entity is named by a name it goes by, or by its id.

    Every method raises PalimpsestError.
    """

    async def entities(
        self,
        scope: Scope,
        *,
        type: EntityType | None = None,  # noqa: A002 - as an entity has it
        limit: int = 20,
    ) -> Sequence[ListedEntity]:
        """Return up to `limit` entities that living memories mention, the one mentioned last first."""
        found = await self.engine.read(lambda conn: entities_module.list_entities(conn, scope, limit, of_type=type))
        return [item._replace(mentioned_at=in_zone(item.mentioned_at, self.zone)) for item in found]

    async def names(self, scope: Scope, beginning: str, limit: int) -> Sequence[str]:
        """Return up to `limit` names of entities that begin so."""
        return await self.engine.read(lambda conn: entities_module.names_beginning(conn, scope, beginning, limit))

    @reads
    def dossiers(
        self,
        conn: Connection,
        scope: Scope,
        name: str,
        *,
        as_of: datetime | None = None,
        held_at: TimeSpan | None = None,
    ) -> Sequence[Dossier]:
        """Return what is known about the entities of a name, which for most names is one.

        `as_of` is what was known then, and `held_at` what held in the world then. Raises InputError if there is none.
        """
        found = find_entities(conn, scope, name, as_of=as_of)
        read = partial(read_dossier, conn, scope, now=self.engine.clock(), as_of=as_of, held_at=held_at)
        return [read(entity) for entity in found]

    async def lines(self, scope: Scope, name: str) -> Sequence[str]:
        """Return the dossiers of the entities of a name as lines, within the tokens of one."""
        return [line for lines in lines_of(await self.dossiers(scope, name)) for line in lines]

    @reads
    def subgraph(
        self,
        conn: Connection,
        scope: Scope,
        *,
        about: str = "",
        limit: int = 100,
        as_of: datetime | None = None,
        held_at: TimeSpan | None = None,
    ) -> Subgraph:
        """Return up to `limit` relations that hold now, or held then, the newest first, and the entities at their ends.

        `as_of` and `held_at` are as in `dossiers`.

        `about` is a name: then only what is connected with the entities of the name, and these.
        """
        found = find_entities(conn, scope, about, as_of=as_of) if about else ()
        ids = [entity.id for entity in found] if about else entities_module.all_ids(conn, scope)
        relations = self._relations(conn, scope, ids, as_of=as_of, held_at=held_at, limit=limit)
        ends = {end for item in relations for end in (item.source_id, item.destination_id)}
        by_id = {entity.id: entity for entity in (*found, *entities_module.entities_with_ids(conn, scope, ends))}
        return Subgraph(tuple(by_id.values()), tuple(relations))

    def _relations(
        self,
        conn: Connection,
        scope: Scope,
        ids: Iterable[str],
        *,
        as_of: datetime | None,
        held_at: TimeSpan | None,
        limit: int,
    ) -> list[KnownRelation]:
        """Return relations of entities that hold now, or held then. What has expired holds no more, closed or not."""
        if held_at is not None:
            known = edges.relations_of(conn, scope, ids, as_of=as_of, ever=True, limit=MAX_HELD)
            return [item for item in known if item.may_hold_in(held_at)][:limit]
        found = edges.relations_of(conn, scope, ids, as_of=as_of, limit=limit)
        if as_of is not None:
            return found
        now = self.engine.clock()
        expired = expired_ids(conn, scope, now)
        return [item for item in found if item.memory_id not in expired and not item.has_ended(now)]

    @reads
    def whole(self, conn: Connection, scope: Scope) -> EntityGraph:
        """Return the entities that were mentioned last, up to `MAX_NODES`, and what connects them."""
        nodes = [Node(listed.entity, listed.mentions) for listed in list_entities(conn, scope, MAX_NODES)]
        ids = {node.entity.id for node in nodes}
        return nodes, _within(ids, self._edges(conn, scope, ids, _named_by(conn, scope)))

    @reads
    def around(self, conn: Connection, scope: Scope, entity: Entity, hops: int, limit: int) -> EntityGraph:
        """Return what is at most `hops` steps away from an entity: itself and up to `limit` others."""
        near = {entity.id}
        for _ in range(hops):
            near = _near(self._edges(conn, scope, near, _named_by(conn, scope, near)), entity.id, hops, limit)
        named = _named_by(conn, scope, near)
        counts = Counter(root.id for roots in named for root in roots)
        nodes = [Node(each, counts[each.id]) for each in entities_module.entities_with_ids(conn, scope, near)]
        return nodes, _within(near, self._edges(conn, scope, near, named))

    def _edges(
        self, conn: Connection, scope: Scope, ids: Collection[str], named: Sequence[Collection[Entity]]
    ) -> list[Edge]:
        """Return relations of entities as edges, and edges between those that memories only name together."""
        stated = self._relations(conn, scope, ids, as_of=None, held_at=None, limit=MAX_RELATIONS)
        counts = Counter((item.source_id, item.destination_id, item.relationship) for item in stated)
        related = {frozenset(key[:2]) for key in counts}
        together = Counter(pair for pair in _pairs(named) if frozenset(pair) not in related)
        return [
            *(Edge(*key, number) for key, number in counts.items()),
            *(Edge(*pair, "", number) for pair, number in together.items()),
        ]

    async def merge(self, scope: Scope, name: str, into: str, *, caller: str = "") -> EntityEdited:
        """Say that two entities are the same. The second one's name is the one that is shown."""

        def plan(conn: Connection) -> EntityEdit:
            return Merge(_one(conn, scope, name, self.zone).id, _one(conn, scope, into, self.zone).id)

        return await self._edit(scope, "merge of entities", plan, caller)

    async def split(
        self, scope: Scope, name: str, memory_ids: Sequence[str], *, new_name: str = "", caller: str = ""
    ) -> EntityEdited:
        """Say that some memories are about another entity than the one they name, called `new_name` or the same."""

        def plan(conn: Connection) -> EntityEdit:
            entity = _one(conn, scope, name, self.zone)
            ids = tuple(entries.find_memory(conn, scope, memory_id).id for memory_id in memory_ids)
            return Split(entity.id, ids, new_name or entity.name)

        return await self._edit(scope, "split of an entity", plan, caller)

    async def rename(
        self,
        scope: Scope,
        name: str,
        new_name: str,
        *,
        type: EntityType | None = None,  # noqa: A002 - as an entity has it
        caller: str = "",
    ) -> EntityEdited:
        """Give an entity another name, another type, or both. The old name still means it."""

        def plan(conn: Connection) -> EntityEdit:
            return models.Rename(_one(conn, scope, name, self.zone).id, new_name, type)

        return await self._edit(scope, "rename of an entity", plan, caller)

    async def _edit(
        self, scope: Scope, stage: str, plan: Callable[[Connection], EntityEdit], caller: str
    ) -> EntityEdited:
        """Carry out what is planned from the ledger as one edit of its own."""
        ledger = self.engine.ledger

        def work() -> EntityEdited:
            edit = ledger.read_with(plan)
            applied = ledger.apply(Write(scope, models.Provenance(stage, caller=caller), entity_edits=(edit,)))
            lines = applied.entity_edits
            return EntityEdited("\n".join(lines) or "nothing had to change", applied.edit if lines else None)

        return await self.engine.write(work)


def _one(conn: Connection, scope: Scope, name: str, zone: tzinfo | None) -> Entity:
    """Return the only entity of a name. Raises InputError that lists them if there are several."""
    found = find_entities(conn, scope, name)
    if len(found) == 1:
        return found[0]
    choices = "; ".join(
        f"{entity.id[:SHORT_ID]} {described(entity)}"
        + (f" of project {entity.project}" if entity.project else "")
        + f", since {shown_date(in_zone(entity.created_at, zone))}"
        for entity in found
    )
    raise InputError(f"several entities are called '{name}'. Nothing was changed. Use the id of one: {choices}")


def _within(ids: Collection[str], found: Sequence[Edge]) -> list[Edge]:
    """Return the edges between two of some entities."""
    return [edge for edge in found if edge.source_id in ids and edge.destination_id in ids]


def _named_by(conn: Connection, scope: Scope, ids: Collection[str] | None = None) -> list[Collection[Entity]]:
    """Return the entities that each of the newest memories names; with `ids` of those that name one of these."""
    about = None if ids is None else list(members_of(conn, ids))
    rows = entities_module.owners_and_entities(conn, scope, MAX_MENTIONS, about)
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
