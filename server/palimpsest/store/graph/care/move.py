"""Move the entities of a project to another one, where those of one name and a type that fits become one."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, Row, insert, select, update

from palimpsest.core.models import Provenance
from palimpsest.store.graph.care.namesakes import namesakes
from palimpsest.store.graph.tables import entities, entity_history


@dataclass(frozen=True, slots=True)
class ProjectMove:
    """Whose project moves where, and the edit that it is."""

    user_id: str
    old: str
    new: str
    edit: int
    provenance: Provenance
    now: datetime


def move(conn: Connection, project_move: ProjectMove) -> None:
    """Give the entities of a project to another one. Of two that are the same, one is merged into the other.

    Global entities, such as the user's own, belong to no project and stay.
    """
    of_project = (entities.c.user_id == project_move.user_id, entities.c.project == project_move.old)
    for row in conn.execute(select(entities).where(*of_project).order_by(entities.c.seq)).all():
        if row.merged_into is None:
            _merge_with_namesake(conn, row, project_move)
    conn.execute(update(entities).where(*of_project).values(project=project_move.new))


def _merge_with_namesake(conn: Connection, row: Row[tuple[str, str, str]], project_move: ProjectMove) -> None:
    """Merge an entity into the one of the new project that is the same, unless two of either project may be meant."""
    user_id, old, new = project_move.user_id, project_move.old, project_move.new
    ours = namesakes(conn, user_id, old, row.name, row.type)
    theirs = namesakes(conn, user_id, new, row.name, row.type)
    if len(theirs) != 1 or any(other.id != row.id for other in ours):
        return
    [target] = theirs
    conn.execute(update(entities).where(entities.c.id == row.id).values(merged_into=target.id))
    version = {
        "entity_id": target.id,
        "event": "merge",
        "before": {"entities": {row.id: {"merged_into": None}}},
        "after": {"entities": {row.id: {"merged_into": target.id}}},
        "updated_at": project_move.now,
        "stage": project_move.provenance.stage,
        "caller": project_move.provenance.caller,
        "change": project_move.edit,
        "text": f"merged {row.name} of project {old} into {row.name} of project {new}",
    }
    conn.execute(insert(entity_history), version)
