"""Make the JSON schemas of tools small. Every client puts them into its model's context."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

_DEFINITIONS = "#/$defs/"


def compact_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a JSON schema without titles, without "or null", and without defaults that say nothing.

    Definitions are put where they are used, without their own description: the field has one.
    """
    return _compact(schema, schema.get("$defs", {}))


def _compact(schema: Any, definitions: Mapping[str, Any]) -> Any:
    if isinstance(schema, list):
        return [_compact(item, definitions) for item in cast("list[Any]", schema)]
    if not isinstance(schema, dict):
        return schema
    keywords = cast("dict[str, Any]", schema)
    options: list[Any] = [option for option in keywords.get("anyOf", []) if option != {"type": "null"}]
    if len(options) == 1:
        keywords = {**{key: value for key, value in keywords.items() if key != "anyOf"}, **options[0]}
    if "$ref" in keywords:
        definition = definitions[keywords["$ref"].removeprefix(_DEFINITIONS)]
        keywords = {**{key: value for key, value in definition.items() if key != "description"}, **keywords}
    return {
        key: _compact_value(key, value, definitions) for key, value in keywords.items() if not _is_noise(key, value)
    }


def _compact_value(keyword: str, value: Any, definitions: Mapping[str, Any]) -> Any:
    if keyword == "properties":  # its keys are names, not keywords
        return {name: _compact(schema, definitions) for name, schema in value.items()}
    return _compact(value, definitions)


def _is_noise(keyword: str, value: Any) -> bool:
    return (
        keyword in ("$defs", "$ref")
        or (keyword == "title" and isinstance(value, str))
        or (keyword == "default" and value in (None, ""))
        or (keyword == "additionalProperties" and value is True)
    )
