"""What a row of the history of entities tells of: entities, memories, messages and names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Row

from palimpsest.store.graph.identity.history import ENTITY, MENTION

StoredState = Sequence[Sequence[Any]]
"""A state as a row of history has it: `[[*place, value], …]`."""


def told(row: Row[Any]) -> set[str]:
    """Return the ids and texts in a row of history."""
    return {row.entity_id, row.text, *texts_in(row.before), *texts_in(row.after)}


def texts_in(state: StoredState) -> set[str]:
    """Return the ids and names in a state, without the words of its format."""
    texts: set[str | None] = set()
    for part, *names, value in state:
        if part == ENTITY:
            texts |= {names[0], None if names[1] == "type" else value}
        else:
            texts |= {*(names[1:] if part == MENTION else names), value}
    return {text for text in texts if text is not None}


def with_ids(state: StoredState, here: Mapping[str, str]) -> list[list[str | None]]:
    """Return a state with the ids that entities have in this ledger."""
    return [[None if part is None else here.get(part, part) for part in place] for place in state]
