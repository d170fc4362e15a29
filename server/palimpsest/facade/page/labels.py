"""What edits changed of memories beside their texts: tags, metadata and since when they hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection

from palimpsest.core.models import Scope, labels_of
from palimpsest.learn.engine import Engine
from palimpsest.store.queries import edits as queries


@dataclass(frozen=True, slots=True)
class LabelChange:
    """What an edit took from a memory and gave to it, each as a name and a value, such as "tags: testing"."""

    removed: tuple[str, ...]
    added: tuple[str, ...]


async def label_changes(engine: Engine, scope: Scope, numbers: Sequence[int]) -> Mapping[tuple[int, str], LabelChange]:
    """Return what edits changed of memories whose text stayed, by the number of the edit and the id of the memory.

    Raises LedgerError.
    """

    def read(conn: Connection) -> dict[tuple[int, str], LabelChange]:
        changes: dict[tuple[int, str], LabelChange] = {}
        for row in queries.states_around(conn, scope, numbers):
            before, after = labels_of(row.before or {}), labels_of(row.after)
            changes[row.number, row.memory_id] = LabelChange(
                tuple(sorted(before - after)), tuple(sorted(after - before))
            )
        return changes

    return await engine.read(read)
