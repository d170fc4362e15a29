"""What the graph knows of the write that it takes part in, and the row that every edit of entities leaves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, TypeAlias

from sqlalchemy import Connection, insert

from palimpsest.core.models import Provenance, Scope
from palimpsest.core.protocols import Vector
from palimpsest.store.graph.tables import entity_history


@dataclass(frozen=True, slots=True)
class GraphWrite:
    """The context of one write. `vectors` maps texts to their vectors of `embedder`.

    `edit` is the number of the edit, `done` collects a line about each edit of entities, and `notes` what else the
    caller must know.
    """

    conn: Connection
    scope: Scope
    provenance: Provenance
    now: datetime
    edit: int
    vectors: Mapping[str, Vector]
    embedder: str
    done: list[str]
    notes: list[str]


ENTITY, ALIAS, MENTION = "entity", "alias", "mention"

State: TypeAlias = dict[tuple[str, ...], str | None]
"""What an edit changed, before or after it, by place.

A place is (ENTITY, id, column), (ALIAS, entity id, key) with the name as an edit gave it, or None if none did, or
(MENTION, kind, id of the memory or message, key) with the id of the entity that the key means.
"""


def to_state(stored: Sequence[Sequence[Any]]) -> State:
    """Return a state as a row of history has it: `[[*place, value], …]`."""
    return {tuple(place): value for *place, value in stored}


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
        "before": [[*place, value] for place, value in change[0].items()],
        "after": [[*place, value] for place, value in change[1].items()],
        "updated_at": write.now,
        "stage": write.provenance.stage,
        "caller": write.provenance.caller,
        "change": write.edit,
        "text": text,
    }
    write.conn.execute(_INSERT, row)
    write.done.append(text)


_INSERT = insert(entity_history)
