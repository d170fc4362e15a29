"""The official MCP memory server's file: a graph of entities and relations without times, one JSON object per line.

In that server, an observation is read beside the name of its entity. Here, every memory has to be understood alone, so
the entity's name is put in front of an observation that does not contain it.
"""

import json
import re
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

from palimpsest.admin.importers import records
from palimpsest.admin.importers.records import ImportedFile, Reading, Skipped, text_of
from palimpsest.core.errors import InputError
from palimpsest.core.validation import list_of, object_of, one_line


def read(source: records.SourceFile, now: datetime) -> ImportedFile | None:
    """Return one memory per observation and per relation, and one per entity that has neither.

    All memories have the time `now`, because the file has no times. Takes JSON lines and the saved JSON reply of the
    server's `read_graph`. Return None if the file has no entity and no relation. Raises InputError that names the
    damaged line.
    """
    fault: InputError | None = None
    if source.json_error:
        values, fault = _line_values(source.name, source.text)
    else:
        graph = object_of(source.value)
        values = [*list_of(graph.get("entities")), *list_of(graph.get("relations"))] or source.items
    if all(_kind(object_of(value)) is None for value in values):
        return None
    if fault is not None:
        raise fault
    reading = Reading(now)
    by_kind: dict[str | None, list[dict[str, Any]]] = {"entity": [], "relation": [], None: []}
    for value in values:
        by_kind[_kind(object_of(value))].append(object_of(value))
    reading.skipped["lines that are neither an entity nor a relation"] += len(by_kind[None])
    _keep_memories(by_kind["entity"], by_kind["relation"], reading)
    return ImportedFile("server-memory", tuple(reading.memories.values()), notes=reading.notes)


def _line_values(name: str, text: str) -> tuple[list[Any], InputError | None]:
    """Return the JSON value of every line, and an error that names the first line that is not JSON."""
    values: list[Any] = []
    fault: InputError | None = None
    # Not splitlines: inside a JSON string, characters such as U+2028 may stand unescaped.
    for number, line in enumerate(text.split("\n"), 1):
        try:
            values += [json.loads(line)] if line.strip() else []
        except (ValueError, RecursionError) as error:
            fault = fault or InputError(
                f"{name}, line {number}: {getattr(error, 'msg', error)}. Nothing was imported. "
                "Correct or delete the line: each line is one entity or relation as JSON"
            )
    return values, fault


def _kind(item: dict[str, Any]) -> str | None:
    """Return "entity", "relation" or None. Some writers leave the type out."""
    if item.get("type") == "entity" or ("type" not in item and "name" in item and "observations" in item):
        return "entity"
    if item.get("type") == "relation" or ("type" not in item and {"from", "to", "relationType"} <= item.keys()):
        return "relation"
    return None


def _keep_memories(entities: list[dict[str, Any]], relations: list[dict[str, Any]], reading: Reading) -> None:
    tags = {_line(entity.get("name")): records.tags_of(entity.get("entityType")) for entity in entities}
    related = {_line(relation.get(end)) for relation in relations for end in ("from", "to")}
    skipped = reading.skipped
    for name, text in (*_entity_texts(entities, related, skipped), *_relation_texts(relations, skipped)):
        if text in reading.memories:
            skipped["duplicates"] += 1
        reading.keep("server-memory", text, reading.now, tags.get(name, ()), entity=name)


def _entity_texts(entities: Iterable[dict[str, Any]], related: set[str], skipped: Skipped) -> Iterator[tuple[str, str]]:
    """Yield the name of an entity with each text about it."""
    for entity in entities:
        name, kind = _line(entity.get("name")), _spaced(_line(entity.get("entityType")))
        observations = list_of(entity.get("observations"))
        texts = [text for observation in observations if (text := text_of(observation))]
        skipped["observations without text"] += len(observations) - len(texts)
        if not name:
            skipped["entities without a name"] += 1
        elif texts:
            yield from ((name, text if _contains_name(text, name) else f"{name}: {text}") for text in texts)
        elif name not in related and kind:
            yield name, f"{name}: {kind}"
        elif name not in related:
            skipped["entities without a type, an observation or a relation"] += 1


def _relation_texts(relations: Iterable[dict[str, Any]], skipped: Skipped) -> Iterator[tuple[str, str]]:
    """Yield the name that each relation begins with, and the relation in words."""
    for relation in relations:
        parts = [_line(relation.get(part)) for part in ("from", "relationType", "to")]
        if all(parts):
            yield parts[0], f"{parts[0]} {_spaced(parts[1])} {parts[2]}"
        else:
            skipped["relations without a type or with a missing end"] += 1


def _line(value: Any) -> str:
    return one_line(text_of(value))


def _spaced(words: str) -> str:
    return one_line(words.replace("_", " "))


def _contains_name(text: str, name: str) -> bool:
    """Return whether a text contains a name as a whole word: "Also" does not contain "Al"."""
    forms = "|".join(re.escape(form) for form in (name, _spaced(name)))
    return re.search(rf"(?<!\w)(?:{forms})(?!\w)", one_line(text), re.IGNORECASE) is not None
