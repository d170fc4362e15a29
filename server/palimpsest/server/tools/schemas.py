"""Make the JSON schemas of tools small. Every client puts them into its model's context."""

from __future__ import annotations

from typing import Any, cast


def compact_schema(schema: Any) -> Any:
    """Return a JSON schema without titles, without "or null", and without defaults that say nothing."""
    if isinstance(schema, list):
        return [compact_schema(item) for item in cast("list[Any]", schema)]
    if not isinstance(schema, dict):
        return schema
    keywords = cast("dict[str, Any]", schema)
    options: list[Any] = [option for option in keywords.get("anyOf", []) if option != {"type": "null"}]
    if len(options) == 1:
        keywords = {**{key: value for key, value in keywords.items() if key != "anyOf"}, **options[0]}
    return {key: _compact_value(key, value) for key, value in keywords.items() if not _is_noise(key, value)}


def _compact_value(keyword: str, value: Any) -> Any:
    if keyword in ("properties", "$defs"):  # their keys are names, not keywords
        return {name: compact_schema(schema) for name, schema in value.items()}
    return compact_schema(value)


def _is_noise(keyword: str, value: Any) -> bool:
    return (
        (keyword == "title" and isinstance(value, str))
        or (keyword == "default" and value in (None, ""))
        or (keyword == "additionalProperties" and value is True)
    )
