"""What a model replies about the names and relations of a fact, and the forms of it that other prompts give.

Nothing here is ever wrong: what cannot be read as an entity or a relation is left out, and the fact stays.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

from pydantic import BaseModel, ConfigDict

from palimpsest.core.entities import ENTITY_TYPES, EntityType
from palimpsest.core.validation import one_line

_NAME_KEYS = ("name", "entity", "text")
_TYPE_KEYS = ("type", "entity_type", "label")
_SOURCE_KEYS = ("source", "source_node", "subject")
_RELATION_KEYS = ("relationship", "relation", "name", "predicate")
_DESTINATION_KEYS = ("destination", "destination_node", "target", "object")

_OTHER_WORDS: Mapping[str, EntityType] = {
    "company": "organization",
    "organisation": "organization",
    "city": "place",
    "country": "place",
    "location": "place",
    "human": "person",
    "org": "organization",
    "people": "person",
    "user": "person",
}
"""Types as other prompts name them. Every other type that is not ours is "other"."""

_ARROW = re.compile(r"\s*(?:-{2,}>?|->|→|\|)\s*")
"""What stands between the parts of a relation that is written as one text."""

_PARTS = 3


class EntityReply(BaseModel):
    """An entity that a fact names."""

    model_config = ConfigDict(extra="ignore")

    name: str
    type: EntityType


def entities_in(value: Any) -> list[dict[str, str]]:
    """Return the entities of a reply as `{"name", "type"}`.

    They may be objects, also with the keys of Mem0's prompts, `[name, type]`, bare names, or one object by name.
    """
    if isinstance(value, Mapping):
        item = cast("Mapping[str, Any]", value)
        value = [item] if _first(item, _NAME_KEYS) else list(item.items())
    entities = [_entity(item) for item in _as_list(value)]
    return [entity for entity in entities if entity["name"]]


def _entity(value: Any) -> dict[str, str]:
    parts: Sequence[Any]
    if isinstance(value, Mapping):
        item = cast("Mapping[str, Any]", value)
        parts = (_first(item, _NAME_KEYS), _first(item, _TYPE_KEYS))
    else:
        parts = (*_as_list(value), "", "")
    word = _text(parts[1]).casefold()
    return {"name": _text(parts[0]), "type": word if word in ENTITY_TYPES else _OTHER_WORDS.get(word, "other")}


def relations_in(value: Any) -> list[list[str]]:
    """Return the relations of a reply as `[source, name, destination]`.

    They may be lists of three, objects with the keys of Mem0's prompts, or texts such as "Ana -- lives in -- Lyon". A
    relation that lacks one of the three is left out.
    """
    is_one = (
        isinstance(value, list) and len(relation := cast("list[Any]", value)) == _PARTS and all(map(_text, relation))
    )
    if is_one and not any(map(_relation, cast("list[Any]", value))):
        value = [value]
    return [relation for item in _as_list(value) if (relation := _relation(item))]


def _relation(value: Any) -> list[str]:
    """Return the three parts of a relation, and none if one is missing."""
    if isinstance(value, Mapping):
        item = cast("Mapping[str, Any]", value)
        parts = [_first(item, keys) for keys in (_SOURCE_KEYS, _RELATION_KEYS, _DESTINATION_KEYS)]
    elif isinstance(value, str):
        parts = [_text(part) for part in _ARROW.split(value)]
    else:
        parts = [_text(part) for part in _as_list(value)]
    return parts if len(parts) == _PARTS and all(parts) else []


def _first(item: Mapping[str, Any], keys: Sequence[str]) -> str:
    """Return the first text under one of the keys, else ""."""
    return next((text for key in keys if (text := _text(item.get(key)))), "")


def _text(value: Any) -> str:
    """Return a text or a whole number as one line, and "" for anything else."""
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return one_line(str(value)) if is_number or isinstance(value, str) else ""


def _as_list(value: Any) -> list[Any]:
    return list(cast("Sequence[Any]", value)) if isinstance(value, list | tuple) else [value]
