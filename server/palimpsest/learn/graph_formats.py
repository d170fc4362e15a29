"""Write the graph as Mermaid, DOT, JSON or GraphML. The same graph always gives the same text.

Names are people's text. In each format they are data and never syntax: control characters are visible, and whatever the
format could read as its own is escaped.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args
from xml.etree import ElementTree as ET

from palimpsest.core.models import Entity, KnownRelation
from palimpsest.core.validation import one_line
from palimpsest.text.display import visible, visible_json

GraphForm: TypeAlias = Literal["mermaid", "dot", "json", "graphml"]

GRAPH_FORMS: tuple[GraphForm, ...] = get_args(GraphForm)

GRAPHML = "http://graphml.graphdrawing.org/xmlns"

_MERMAID_SYNTAX = re.compile(r"[^\w .,:+@/'-]|_")
_NOT_IN_XML = re.compile("[\ud800-\udfff\ufffe\uffff]")
"""What XML forbids besides control characters, of which none is left when this is looked for."""

_NODE_KEYS = ("name", "type")
_EDGE_KEYS = ("relationship", "valid_from", "valid_until", "memory_id")


@dataclass(frozen=True, slots=True)
class Subgraph:
    """A part of the graph: entities, and relations between them. Both ends of each relation are among the entities."""

    entities: tuple[Entity, ...]
    relations: tuple[KnownRelation, ...]


def written(graph: Subgraph, form: GraphForm) -> str:
    """Return a graph in a format, with a line break at its end."""
    entities = sorted(graph.entities, key=lambda entity: (entity.name.casefold(), entity.name, entity.id))
    numbers = {entity.id: number for number, entity in enumerate(entities, start=1)}
    relations = sorted(
        graph.relations,
        key=lambda item: (
            numbers[item.source_id],
            item.relationship,
            numbers[item.destination_id],
            item.valid_from,
            item.memory_id,
        ),
    )
    return _WRITERS[form](entities, relations)


def as_json(entities: Sequence[Entity], relations: Sequence[KnownRelation]) -> dict[str, list[dict[str, str]]]:
    """Return a graph as JSON values, relations in Mem0's shape with their times and the ids of both ends."""
    return {
        "entities": [{"id": entity.id, "name": entity.name, "type": entity.type} for entity in entities],
        "relations": [
            {
                "source": item.source,
                "relationship": item.relationship,
                "destination": item.destination,
                "valid_from": item.valid_from,
                "valid_until": item.valid_until,
                "source_id": item.source_id,
                "destination_id": item.destination_id,
                "memory_id": item.memory_id,
            }
            for item in relations
        ],
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
        node = ET.SubElement(graph, "node", id=entity.id)
        _put_data(node, {"name": entity.name, "type": entity.type})
    for item in relations:
        edge = ET.SubElement(graph, "edge", source=item.source_id, target=item.destination_id)
        _put_data(edge, {key: getattr(item, key) for key in _EDGE_KEYS})
    ET.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ET.tostring(root, encoding="unicode")}\n'


def _put_data(element: ET.Element, values: Mapping[str, str]) -> None:
    for key, value in values.items():
        if value:
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
    since = f"since {item.valid_from}" if item.valid_from else ""
    until = f"until {item.valid_until}" if item.valid_until else ""
    return [line for line in (item.relationship, since, until) if line]


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
