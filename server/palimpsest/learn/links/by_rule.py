"""Link memories without a model: those near to each other that name the same entity, or that are much alike."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from sqlalchemy import Connection

from palimpsest.core.models import Annotation, Link
from palimpsest.learn.links.nearest import Neighbourhood, annotation_of
from palimpsest.store.graph.matching.named import NamedIn, entities_of

MIN_LIKENESS = 0.55
"""From which likeness two memories are linked that name no entity in common."""

MAX_MENTIONS = 12
"""How many memories an entity is named by at most to connect two of them. What everything speaks of connects nothing:
with 25, half of the answers that links bring among the first three hits stay below them (benchmarks/two_hops.py)."""


def links_by_rule(conn: Connection, neighbourhoods: Sequence[Neighbourhood]) -> list[Annotation]:
    """Return the links of new memories, as far as they have any. Contexts and tags stay as they are."""
    ids = {memory.id for near in neighbourhoods for memory in (near.memory, *(item.memory for item in near.nearest))}
    named = entities_of(conn, sorted(ids))
    found = [replace(annotation_of(near.memory), links=tuple(_links(near, named))) for near in neighbourhoods]
    return [annotation for annotation in found if annotation.links]


def _links(near: Neighbourhood, named: Mapping[str, Sequence[NamedIn]]) -> Iterator[Link]:
    own = {entity.id: entity.name for entity in named.get(near.memory.id, ()) if entity.memories <= MAX_MENTIONS}
    for item in near.nearest:
        common = sorted({own[entity.id] for entity in named.get(item.memory.id, ()) if entity.id in own})
        if common:
            yield Link(item.memory.id, f"both mention {', '.join(common)}")
        elif item.likeness >= MIN_LIKENESS:
            yield Link(item.memory.id, "they are much alike")
