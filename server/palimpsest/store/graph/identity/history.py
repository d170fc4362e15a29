"""What the graph knows of the write that it takes part in, and the row that every edit of entities leaves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypedDict

from sqlalchemy import Connection, insert

from palimpsest.core.models import Provenance, Scope
from palimpsest.core.protocols import Vector
from palimpsest.store.graph.tables import entity_history


@dataclass(frozen=True, slots=True)
class GraphWrite:
    """The context of one write. `vectors` maps texts to their vectors of `embedder`.

    `edit` is the number of the edit, and `done` collects a line about each edit of entities.
    """

    conn: Connection
    scope: Scope
    provenance: Provenance
    now: datetime
    edit: int
    vectors: Mapping[str, Vector]
    embedder: str
    done: list[str]


class State(TypedDict):
    """What an edit changed, as JSON values, before or after it.

    `entities` has columns by entity. `aliases` has, by entity and key, the name as an edit gave it, or None if none
    did. `mentions` has the entity that each key of a memory or message means, by kind and owner.
    """

    entities: dict[str, dict[str, str | None]]
    aliases: dict[str, dict[str, str | None]]
    mentions: dict[str, dict[str, dict[str, str]]]


def state(
    entities: dict[str, dict[str, str | None]] | None = None,
    aliases: dict[str, dict[str, str | None]] | None = None,
    mentions: dict[str, dict[str, dict[str, str]]] | None = None,
) -> State:
    """Return a state with the given parts."""
    return State(entities=entities or {}, aliases=aliases or {}, mentions=mentions or {})


def record(
    write: GraphWrite,
    entity_id: str,
    event: Literal["merge", "split", "rename", "undo"],
    change: tuple[State, State],
    text: str,
) -> None:
    """Insert the row of history of an edit of entities; `change` is the state before and after it."""
    row = {
        "entity_id": entity_id,
        "event": event,
        "before": change[0],
        "after": change[1],
        "updated_at": write.now,
        "stage": write.provenance.stage,
        "caller": write.provenance.caller,
        "change": write.edit,
        "text": text,
    }
    write.conn.execute(_INSERT, row)
    write.done.append(text)


_INSERT = insert(entity_history)
