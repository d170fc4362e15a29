"""The official MCP memory server's file: a graph of entities and relations, one JSON object a line, without times.

An observation there is read beside its entity's name. Here it has to be understood alone, so the name goes before it
where it does not have it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

from palimpsest.care.importers.records import (
    TOO_LONG,
    Foreign,
    ForeignMemory,
    ForeignVersion,
    Left,
    fields,
    items,
    notes_of,
    plain,
    tag_from,
)
from palimpsest.core.errors import InputError
from palimpsest.core.models import Event
from palimpsest.core.validation import MAX_TEXT_CHARS, one_line

_VOWELS_IN_WRITING_ONLY = ("uni", "use", "usu", "uti", "ubi", "eu", "one ", "one-", "once")
_SILENT_H = ("hour", "honest", "honor", "honour", "heir")
_LETTERS_WITH_A_VOWEL_FIRST = "AEFHILMNORSX"


def is_item(value: Any) -> bool:
    """Say whether a JSON value is an entity or a relation; whether it says so itself depends on who wrote it."""
    return _kind(fields(value)) is not None


def is_graph(text: str) -> bool:
    """Say whether any line of a text is an entity or a relation."""
    return any(is_item(_value_of(line)) for line in text.split("\n") if line.lstrip().startswith("{"))


def lines_of(name: str, text: str) -> list[Any]:
    """Return the JSON values of the lines of a text. Raises InputError naming the line that is none."""
    values: list[Any] = []
    # not splitlines: JSON leaves U+2028 and its like as they are, inside a text
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            values.append(json.loads(line))
        except json.JSONDecodeError as error:
            raise InputError(
                f"{name}, line {number}: {error.msg} at column {error.colno}; nothing was read. "
                "Mend or take out the line: each holds one entity or relation as JSON"
            ) from error
        except (ValueError, RecursionError) as error:
            raise InputError(f"{name}, line {number}: {error}; nothing was read") from error
    return values


def read_graph(values: Iterable[Any], now: datetime) -> Foreign:
    """Return a memory for each observation and relation, and for each entity of which nothing else is said.

    All are of now: the file has no times.
    """
    left = Left()
    by_kind: dict[str | None, list[dict[str, Any]]] = {"entity": [], "relation": [], None: []}
    for value in values:
        by_kind[_kind(fields(value))].append(fields(value))
    entities, relations = by_kind["entity"], by_kind["relation"]
    left["lines that are no entity and no relation"] += len(by_kind[None])
    return Foreign("server-memory", _memories(entities, relations, now, left), notes=notes_of(left))


def _value_of(line: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _kind(item: dict[str, Any]) -> str | None:
    if item.get("type") == "entity" or ("type" not in item and "name" in item and "observations" in item):
        return "entity"
    if item.get("type") == "relation" or ("type" not in item and {"from", "to", "relationType"} <= item.keys()):
        return "relation"
    return None


def _memories(
    entities: list[dict[str, Any]], relations: list[dict[str, Any]], now: datetime, left: Left
) -> tuple[ForeignMemory, ...]:
    tags = {_line(entity.get("name")): tag_from(entity.get("entityType")) for entity in entities}
    related = {_line(relation.get(end)) for relation in relations for end in ("from", "to")}
    found: dict[str, ForeignMemory] = {}
    for name, text in (*_said(entities, related, left), *_related(relations, left)):
        if len(text) > MAX_TEXT_CHARS:
            left[TOO_LONG] += 1
        elif text in found:
            left["repetitions"] += 1
        else:
            metadata = {"imported_from": "server-memory", "entity": name}
            found[text] = ForeignMemory((ForeignVersion(Event.ADD, text, now),), metadata, tags.get(name, ()))
    return tuple(found.values())


def _said(entities: Iterable[dict[str, Any]], related: set[str], left: Left) -> Iterator[tuple[str, str]]:
    """Yield the name of each entity with what is said of it."""
    for entity in entities:
        name, kind = _line(entity.get("name")), _spaced(_line(entity.get("entityType")))
        observations = items(entity.get("observations"))
        texts = [text for each in observations if (text := plain(each))]
        left["observations without a text"] += len(observations) - len(texts)
        if not name:
            left["entities without a name"] += 1
        elif texts:
            yield from ((name, text if _names(text, name) else f"{name}: {text}") for text in texts)
        elif name not in related and kind:
            yield name, f"{name} is {_article(kind)} {kind}"
        elif name not in related:
            left["entities of which nothing is said"] += 1


def _related(relations: Iterable[dict[str, Any]], left: Left) -> Iterator[tuple[str, str]]:
    """Yield the name that each relation begins with, and the relation in words."""
    for relation in relations:
        parts = [_line(relation.get(part)) for part in ("from", "relationType", "to")]
        if all(parts):
            yield parts[0], f"{parts[0]} {_spaced(parts[1])} {parts[2]}"
        else:
            left["relations with an end missing"] += 1


def _line(value: Any) -> str:
    return one_line(plain(value))


def _spaced(words: str) -> str:
    return one_line(words.replace("_", " "))


def _names(text: str, name: str) -> bool:
    """Say whether a text has a name in it, as a word of its own: Al is not named by 'also'."""
    forms = "|".join(re.escape(form.casefold()) for form in (name, _spaced(name)) if form)
    return re.search(rf"(?<!\w)(?:{forms})(?!\w)", one_line(text).casefold()) is not None


def _article(noun: str) -> str:
    """Return "a" or "an", by the sound that a noun begins with as far as its letters tell."""
    first, small = noun.split(maxsplit=1)[0], noun.lower()
    if first.isupper() and 1 < len(first) <= len("HTML"):
        spoken = first[0] in _LETTERS_WITH_A_VOWEL_FIRST
    else:
        spoken = small.startswith(_SILENT_H) or (small[0] in "aeiou" and not small.startswith(_VOWELS_IN_WRITING_ONLY))
    return "an" if spoken else "a"
