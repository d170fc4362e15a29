"""The official MCP memory server's file: a graph of entities and relations without times, one JSON object per line.

In that server, an observation is read beside the name of its entity. Here, every memory has to be understood alone, so
the entity's name is put in front of an observation that does not contain it.
"""

import re
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from palimpsest.admin.importers import records
from palimpsest.admin.importers.records import ImportedFile, Reading, text_of
from palimpsest.core.validation import list_of, object_of, one_line

UNUSABLE = "entries without a name or a text"

# What an entity and a relation are known by. Some writers leave the type out.
_ENTITY, _RELATION = {"name", "observations"}, {"from", "to", "relationType"}


def read(source: records.SourceFile, now: datetime) -> ImportedFile | None:
    """Return one memory per observation and per relation, and one per entity that has neither.

    All memories have the time `now`, because the file has no times. Takes JSON lines and the saved JSON reply of the
    server's `read_graph`. Return None if the file has no entity and no relation.
    """
    graph = object_of(source.value)
    values = [*list_of(graph.get("entities")), *list_of(graph.get("relations"))] or source.items
    items = [object_of(value) for value in values]
    entities = [item for item in items if item.keys() >= _ENTITY]
    others = [item for item in items if not item.keys() >= _ENTITY]
    relations = [item for item in others if item.keys() >= _RELATION]
    if not entities and not relations:
        return None
    reading = Reading(now)
    reading.skipped[UNUSABLE] += len(others) - len(relations)
    tags = {_line(entity.get("name")): records.tags_of(entity.get("entityType")) for entity in entities}
    related = {_line(relation.get(end)) for relation in relations for end in ("from", "to")}
    texts = [(_line(entity.get("name")), text) for entity in entities for text in _entity_texts(entity, related)]
    texts += [(_line(relation.get("from")), _relation_text(relation)) for relation in relations]
    for name, text in texts:
        if name and text:
            reading.keep("server-memory", text, now, tags.get(name, ()), entity=name)
        else:
            reading.skipped[UNUSABLE] += 1
    return ImportedFile("server-memory", tuple(reading.memories.values()), notes=reading.notes)


def _entity_texts(entity: dict[str, Any], related: set[str]) -> Iterator[str]:
    """Yield the texts about an entity, "" for one that says nothing."""
    name, kind = _line(entity.get("name")), _spaced(_line(entity.get("entityType")))
    observations = list_of(entity.get("observations"))
    for text in map(text_of, observations):
        yield text if not text or _contains_name(text, name) else f"{name}: {text}"
    if not observations and name not in related:
        yield f"{name}: {kind}" if kind else ""


def _relation_text(relation: dict[str, Any]) -> str:
    """Return a relation in words, "" if a part of it is missing."""
    source, kind, destination = (_line(relation.get(part)) for part in ("from", "relationType", "to"))
    return f"{source} {_spaced(kind)} {destination}" if source and kind and destination else ""


def _line(value: Any) -> str:
    return one_line(text_of(value))


def _spaced(words: str) -> str:
    return one_line(words.replace("_", " "))


def _contains_name(text: str, name: str) -> bool:
    """Return whether a text contains a name as a whole word: "Also" does not contain "Al"."""
    forms = "|".join(re.escape(form) for form in (name, _spaced(name)))
    return re.search(rf"(?<!\w)(?:{forms})(?!\w)", one_line(text), re.IGNORECASE) is not None
