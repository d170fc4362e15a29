"""Move the entities of a project to another one, where those of one name and a type that fits become one."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, Row, insert, or_, select, update

from palimpsest.core.models import Provenance
from palimpsest.store.graph.care.namesakes import namesakes
from palimpsest.store.graph.tables import entities, entity_history, mentions
from palimpsest.store.mapping import chunks
from palimpsest.store.schema import memories, messages


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
    """Give the entities of a project to another one, after its memories and messages were moved.

    Of two that are the same, the moved one is merged into the other one. A global entity that others mention stays
    global, and so does the user's own.
    """
    of_project = (entities.c.user_id == project_move.user_id, entities.c.project == project_move.old)
    rows = conn.execute(select(entities).where(*of_project, entities.c.is_user.is_(False)).order_by(entities.c.seq))
    moved = rows.all()
    if not project_move.old:
        needed = _needed_outside(conn, project_move)
        moved = [row for row in moved if row.id not in needed]
    for row in moved:
        if row.merged_into is None:
            _merge_with_namesake(conn, row, project_move)
    for chunk in chunks([row.id for row in moved]):
        conn.execute(update(entities).where(entities.c.id.in_(chunk)).values(project=project_move.new))


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


def _needed_outside(conn: Connection, project_move: ProjectMove) -> set[str]:
    """Return the global entities that are mentioned outside of the new project, with what they were merged into."""
    needed: set[str] = set()
    for kind, table in (("memory", memories), ("message", messages)):
        elsewhere = or_(table.c.project != project_move.new, table.c.user_id != project_move.user_id)
        mentioned = (
            select(mentions.c.entity_id)
            .join(table, table.c.id == mentions.c.owner_id)
            .where(mentions.c.kind == kind, elsewhere)
        )
        needed.update(conn.execute(mentioned.distinct()).scalars())
    merged = select(entities.c.id, entities.c.merged_into).where(
        entities.c.user_id == project_move.user_id, entities.c.merged_into.is_not(None)
    )
    into = {row.id: row.merged_into for row in conn.execute(merged)}
    targets = needed
    while targets := {into[entity_id] for entity_id in targets if entity_id in into} - needed:
        needed |= targets
    return needed
