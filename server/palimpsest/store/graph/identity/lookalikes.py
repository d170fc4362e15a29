"""Find entities whose names look like another's: García and Garcia, Acme Corp and Acme Corporation.

They are proposed, and never merged: that is for whoever knows.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import cache

from sqlalchemy import JSON, Connection, String, bindparam, cast, exists, or_, select

from palimpsest.core.entities import Entity, name_key
from palimpsest.core.models import Scope
from palimpsest.store.graph.groups import members_of, to_entity
from palimpsest.store.graph.identity.candidates import may_be
from palimpsest.store.graph.tables import entities, entity_aliases, entity_history, mentions
from palimpsest.store.mapping import Query, json_elements, listed, scope_parts, scope_values, sees_named
from palimpsest.store.schema import memories
from palimpsest.text.names.lookalikes import BEGINNINGS, first_letters, spellings

MOST = 3
"""How many are proposed for one entity. With more of them, none is likely."""

LAST_CHARACTER = "\U0010ffff"


def lookalikes(conn: Connection, scope: Scope, entity: Entity, names: Iterable[str]) -> list[Entity]:
    """Return the entities of living memories of a scope that one with these names may be, the oldest first.

    Those that a memory names beside it, or that an edit has parted from it, are others.
    """
    if entity.is_user:
        return []
    called = {name_key(name) for name in names}
    wanted = {spelling for name in called for spelling in spellings(name)}
    beginnings = [*BEGINNINGS, *sorted({letter for name in called for letter in first_letters(name)})]
    known = conn.execute(_NAMES, {"user_id": scope.user_id, "beginnings": beginnings})
    alike = {
        row.entity_id for row in known if row.key not in {None, *called} and not wanted.isdisjoint(spellings(row.key))
    }
    if not alike - {entity.id}:
        return []
    rows = conn.execute(_mentioned(scope_parts(scope)), {"ids": sorted(alike - {entity.id}), **scope_values(scope)})
    # A name from what is general is not told to who does not see that.
    seen = (row for row in rows if scope.with_general or row.project)
    others = (to_entity(row) for row in seen if may_be(row.type, entity.type))
    return [other for other in others if not _are_told_apart(conn, entity.id, other.id)][:MOST]


def _are_told_apart(conn: Connection, first_id: str, second_id: str) -> bool:
    """Return whether one memory names both entities, or an edit has parted them: a split, or a merge taken back.

    A message does not count: it has the names of every memory that was learned from it.
    """
    first, second = (list(members_of(conn, [entity_id])) for entity_id in (first_id, second_id))
    if "memory" in conn.execute(_TOGETHER, {"first": first, "second": second}).scalars():
        return True
    edits = conn.execute(_EDITS, {"ids": [*first, *second]}).all()
    changed = [json.dumps([row.entity_id, row.before, row.after]) for row in edits]
    return any(any(one in ids for one in first) and any(one in ids for one in second) for ids in changed)


_beginnings = json_elements(bindparam("beginnings", type_=JSON)).table_valued("value")
_begins = cast(_beginnings.c.value, String)
_NAMES = (
    select(entity_aliases.c.entity_id, entity_aliases.c.key)
    .select_from(_beginnings)
    .join(
        entity_aliases,
        (entity_aliases.c.user_id == bindparam("user_id"))
        & (entity_aliases.c.key >= _begins)
        & (entity_aliases.c.key < _begins + LAST_CHARACTER),
        isouter=True,  # so that SQLite begins with the beginnings, and looks each of them up
    )
)


@cache
def _mentioned(scope: tuple[bool, bool, bool]) -> Query:
    is_mentioned = exists().where(
        mentions.c.entity_id == entities.c.id,
        mentions.c.kind == "memory",
        mentions.c.current,
        memories.c.id == mentions.c.owner_id,
        memories.c.deleted_at.is_(None),
        sees_named(memories, scope),
    )
    is_seen = or_(entities.c.project == "", entities.c.project == bindparam("project"))
    is_other = (entities.c.id.in_(listed("ids")), entities.c.merged_into.is_(None), entities.c.is_user.is_(False))
    return select(entities).where(*is_other, is_seen, is_mentioned).order_by(entities.c.seq)


_EDITS = select(entity_history.c.entity_id, entity_history.c.before, entity_history.c.after).where(
    entity_history.c.entity_id.in_(listed("ids")), entity_history.c.event.in_(("merge", "split", "undo"))
)

_other = mentions.alias("other")
_TOGETHER = (
    select(mentions.c.kind)  # with a condition on the kind, SQLite would go through all mentions of that kind
    .join(_other, (_other.c.kind == mentions.c.kind) & (_other.c.owner_id == mentions.c.owner_id))
    .where(mentions.c.entity_id.in_(listed("first")), _other.c.entity_id.in_(listed("second")))
    .distinct()
)
