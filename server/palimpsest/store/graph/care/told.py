"""What a row of the history of entities tells of: entities, memories and names."""

from __future__ import annotations

from typing import Any, cast

from sqlalchemy import Row

PARTS = frozenset({"entities", "aliases", "mentions", "memory", "message", "merged_into", "name", "type"})
"""The keys of a stored state that are words of its format."""


def told(row: Row[Any]) -> set[str]:
    """Return the ids and texts in a row of history."""
    return {row.entity_id, row.text, *texts_in([row.before, row.after])}


def texts_in(value: Any) -> set[str]:
    """Return every text in a JSON value, also the keys of its objects."""
    if isinstance(value, str):
        return {value}
    parts: list[Any] = cast("list[Any]", value) if isinstance(value, list) else []
    if isinstance(value, dict):
        state = cast("dict[str, Any]", value)
        parts = [*(state.keys() - PARTS), *state.values()]
    return {text for part in parts for text in texts_in(part)}


def with_ids(value: Any, ids: dict[str, str]) -> Any:
    """Return a JSON value with other ids in place of some."""
    if isinstance(value, str):
        return ids.get(value, value)
    if isinstance(value, dict):
        state = cast("dict[str, Any]", value)
        return {ids.get(key, key): with_ids(part, ids) for key, part in state.items()}
    return [with_ids(part, ids) for part in cast("list[Any]", value)] if isinstance(value, list) else value
