"""Move the entities of a project to another one, where those of one name and a type that fits become one."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Row, select, update

from palimpsest.store.graph.care.namesakes import namesakes
from palimpsest.store.graph.groups import roots_of
from palimpsest.store.graph.identity.history import GraphWrite
from palimpsest.store.graph.identity.merging import merge
from palimpsest.store.graph.tables import entities


def move(write: GraphWrite, old: str) -> None:
    """Give the entities of a project to the project of the write. Those that are the same there become one.

    Global entities, such as the user's own, belong to no project and stay.
    """
    of_project = (entities.c.user_id == write.scope.user_id, entities.c.project == old)
    for row in write.conn.execute(select(entities).where(*of_project).order_by(entities.c.seq)).all():
        if row.merged_into is None:
            _merge_with_namesake(write, row)
    write.conn.execute(update(entities).where(*of_project).values(project=write.scope.project))


def _merge_with_namesake(write: GraphWrite, row: Row[Any]) -> None:
    """Merge an entity into the one of the new project that is the same, unless two of either project may be meant."""
    ours, theirs = (
        namesakes(write.conn, row.user_id, project, row.name, row.type)
        for project in (row.project, write.scope.project)
    )
    if len(theirs) == 1 and all(other.id == row.id for other in ours):
        roots = roots_of(write.conn, [row.id, theirs[0].id])
        merge(write, roots[row.id], roots[theirs[0].id])
