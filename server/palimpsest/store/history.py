"""Read the history: versions, edits, and what was stored at an earlier time."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import sqlalchemy as sa

from palimpsest.core import models
from palimpsest.store.memories import read_memories
from palimpsest.store.messages import sources_of
from palimpsest.store.rows import (
    Query,
    among,
    grouped,
    has_row,
    is_living,
    sees,
    to_history,
    to_memory,
    to_message,
    with_state,
)
from palimpsest.store.schema import (
    HISTORIES,
    History,
    entities,
    entity_history,
    history,
    memories,
    memory_sources,
    message_history,
    messages,
    project_aliases,
)

# Read the history: versions of a memory, and what was stored at an earlier time.


def versions_of(conn: sa.Connection, memory_id: str) -> list[models.Version]:
    """Return every version of a memory, oldest first, with the ids by which callers know its source messages."""
    query = sa.select(memory_sources.c.history_id, messages.c.id, messages.c.external_id)
    is_cited = (memory_sources.c.memory_id == memory_id, messages.c.id == memory_sources.c.message_id)
    cited = conn.execute(query.where(*is_cited).order_by(messages.c.seq))
    sources = grouped((row.history_id, row.external_id or row.id) for row in cited)
    rows = conn.execute(sa.select(history).where(history.c.memory_id == memory_id).order_by(history.c.seq))
    return [to_history(row, tuple(sources.get(row.id, ()))) for row in rows]


def predecessors(conn: sa.Connection, memory_id: str) -> list[models.Predecessor]:
    """Return the memories whose place a memory took, oldest first, without those that are forgotten."""
    replaced = read_memories(conn, memories.c.superseded_by == memory_id, memories.c.is_forgotten.is_(False))
    sources = sources_of(conn, [memory.id for memory in replaced])
    return [models.Predecessor(old, tuple(message.source for message in sources.get(old.id, ()))) for old in replaced]


def memories_at(
    conn: sa.Connection, scope: models.Scope, instant: datetime, memory_ids: Sequence[str] | None = None
) -> list[models.Memory]:
    """Return the memories that the scope sees and that were living at an instant, as they were then.

    One that had expired by then was not living, even if it was closed later. One that was deleted since is not shown
    again, unless an undo deleted it. With `memory_ids` only these are read.
    """
    is_read = () if memory_ids is None else (among(history.c.memory_id, memory_ids),)
    newest = _newest_rows(HISTORIES[0], scope, instant, *is_read)
    then = (history.c.new_memory, history.c.state, history.c.updated_at.label("changed_at"))
    query = sa.select(memories, *then).join(history, history.c.memory_id == memories.c.id)
    query = query.join(newest, newest.c.seq == history.c.seq)
    is_kept = sa.or_(memories.c.is_forgotten.is_(False), _last_stage(HISTORIES[0]).startswith(models.UNDO))
    rows = conn.execute(query.where(history.c.is_deleted.is_(False), is_kept))
    states = (with_state(to_memory(row), row.new_memory, row.state, row.changed_at) for row in rows)
    return [memory for memory in states if not models.has_expired(memory.metadata, instant)]


def messages_at(conn: sa.Connection, scope: models.Scope, instant: datetime) -> list[models.Message]:
    """Return the messages that the scope sees and that were stored and not deleted at an instant, oldest first.

    Of those that were deleted since only pages are shown that a newer version of their document left out, and what an
    undo deleted.
    """
    newest = _newest_rows(HISTORIES[1], scope, instant)
    query = sa.select(messages).join(message_history, message_history.c.message_id == messages.c.id)
    query = query.join(newest, newest.c.seq == message_history.c.seq)
    last = _last_stage(HISTORIES[1])
    is_left_out = sa.and_(messages.c.role == models.PAGE, ~last.startswith(models.DELETE))
    is_kept = sa.or_(messages.c.deleted_at.is_(None), is_left_out, last.startswith(models.UNDO))
    stored = query.where(message_history.c.event == models.Event.ADD.value, is_kept)
    return [to_message(row) for row in conn.execute(stored.order_by(messages.c.seq))]


def _last_stage(of: History) -> sa.ScalarSelect[str]:
    """Return what changed a memory or message last."""
    rows = of.rows.alias()
    own = sa.select(rows.c.stage).where(rows.c[of.owner_id.name] == of.owners.c.id)
    return own.order_by(rows.c.seq.desc()).limit(1).scalar_subquery()


def _newest_rows(
    of: History, scope: models.Scope, instant: datetime, *conditions: sa.ColumnElement[bool]
) -> sa.Subquery:
    """Return the newest row of history of each memory or message that the scope sees, as it was at an instant."""
    until_then = of.rows.c.updated_at <= instant
    newest = sa.select(sa.func.max(of.rows.c.seq).label("seq")).join(of.owners, of.owners.c.id == of.owner_id)
    return newest.where(sees(of.owners, scope), until_then, *conditions).group_by(of.owner_id).subquery()


def owners_of_passage(conn: sa.Connection, scope: models.Scope, passage: str) -> tuple[list[str], int]:
    """Return the ids of the scope's memories and messages that have a passage now or in their history.

    Also return how many others have it. Living and deleted ones are searched.
    """
    labels = ("keywords", "tags", "metadata", "entities", "relations", "links")
    of_memories = (memories.c.text, memories.c.context, *(sa.cast(memories.c[name], sa.Text) for name in labels))
    of_history = (history.c.old_memory, history.c.new_memory, sa.cast(history.c.state, sa.Text))
    owners: set[str] = set()
    for owner_id, columns in (
        (memories.c.id, of_memories),
        (history.c.memory_id, of_history),
        (messages.c.id, (messages.c.content, messages.c.name)),
    ):
        # Unlike LIKE, replace compares exactly and has no wildcards. Every database has it.
        contains = sa.or_(*(sa.func.replace(column, passage, "") != column for column in columns))
        owners.update(conn.execute(sa.select(owner_id).where(contains)).scalars())
    seen = (sa.select(of.c.id).where(among(of.c.id, owners), sees(of, scope)) for of in (memories, messages))
    of_scope = set(conn.execute(sa.union(*seen)).scalars())
    return sorted(of_scope), len(owners - of_scope)


def is_in_names(conn: sa.Connection, passage: str) -> bool:
    """Return whether the name of a user, project, agent or run has a passage, or what a project is known by."""
    columns = [table.c[part] for table in (memories, messages) for part in ("user_id", "project", "agent_id", "run_id")]
    columns += [project_aliases.c.alias, project_aliases.c.project]
    queries = (sa.select(column).where(sa.func.replace(column, passage, "") != column) for column in columns)
    return any(has_row(conn, query) for query in queries)


# Read the edits of a scope: what each write changed, newest first.


def recorded(table: sa.Table) -> sa.ColumnElement[datetime]:
    """Return when the edit of a row of a history was made.

    A row that was imported from another tool has the date of its content beside it. Edits of entities are never.
    """
    return sa.func.coalesce(table.c.recorded_at, table.c.updated_at) if "recorded_at" in table.c else table.c.updated_at


def edits(conn: sa.Connection, scope: models.Scope, limit: int, before: int | None = None) -> list[models.Edit]:
    """Return up to `limit` edits that the scope sees, newest first, from below number `before`."""
    numbers = sorted({number for of in HISTORIES for number in _newest(conn, scope, of, limit, before)}, reverse=True)
    found = sa.union_all(*(_steps(of, scope, numbers[:limit]) for of in HISTORIES)).subquery()
    rows = conn.execute(sa.select(found).order_by(found.c.change.desc(), found.c.kind, found.c.seq)).all()
    edits: list[models.Edit] = []
    for number, steps in grouped((row.change, row) for row in rows).items():
        first = steps[0]
        provenance = models.Provenance(first.stage, first.model, first.prompt, first.caller)
        edits.append(models.Edit(number, first.made_at, provenance, tuple(map(_step, steps))))
    return edits


class StatesAround(NamedTuple):
    """What a memory had beside its text before and after an edit; `before` is None if the edit added it."""

    number: int
    memory_id: str
    before: Mapping[str, Any] | None
    after: Mapping[str, Any]


def states_around(conn: sa.Connection, scope: models.Scope, numbers: Sequence[int]) -> list[StatesAround]:
    """Return the states of the memories that edits changed, but for their texts, as far as the scope sees them."""
    earlier = history.alias("earlier")
    is_earlier = (earlier.c.memory_id == history.c.memory_id, earlier.c.seq < history.c.seq)
    newest = sa.select(earlier.c.state).where(*is_earlier).order_by(earlier.c.seq.desc()).limit(1)
    before = newest.scalar_subquery()
    says_the_same = (history.c.event == models.Event.UPDATE.value, history.c.old_memory == history.c.new_memory)
    is_read = (history.c.change.in_(numbers), _is_seen(memories, history.c.memory_id, scope))
    query = sa.select(history.c.change, history.c.memory_id, before, history.c.state).where(*is_read, *says_the_same)
    return [StatesAround(*row) for row in conn.execute(query)]


def _newest(conn: sa.Connection, scope: models.Scope, of: History, limit: int, before: int | None) -> list[int]:
    """Return the numbers of the newest edits that changed something of a kind that the scope sees."""
    changes = of.rows
    query = sa.select(changes.c.change).where(_is_seen(of.owners, of.owner_id, scope))
    if before is not None:
        query = query.where(changes.c.change < before)
    return list(conn.execute(query.distinct().order_by(changes.c.change.desc()).limit(limit)).scalars())


def _is_seen(owners: sa.FromClause, owner_id: sa.ColumnElement[str], scope: models.Scope) -> sa.ColumnElement[bool]:
    """Return the condition for rows of a history whose owner the scope sees.

    It is a subquery, so that the planner goes through the numbers of edits, and not through all rows of the scope.
    """
    return sa.exists().where(owners.c.id == owner_id, sees(owners, scope))


_CONTENT = sa.select(messages.c.content).where(messages.c.id == message_history.c.message_id).scalar_subquery()

# What a step shows of a row of each history: its event, and what it says before and after.
_SHOWN: Mapping[str, tuple[sa.ColumnElement[Any], ...]] = {
    "memory": (history.c.event, history.c.old_memory, history.c.new_memory),
    "message": (message_history.c.event, _CONTENT, _CONTENT),
    "entity": (sa.literal(models.Event.UPDATE.value), sa.null(), entity_history.c.text),
}


def _step(row: sa.Row[Any]) -> models.Step:
    deleted = row.event == models.Event.DELETE.value
    before = None if row.kind == "message" and not deleted else row.old
    return models.Step(row.kind, row.owner_id, models.Event(row.event), before, None if deleted else row.new)


def _steps(of: History, scope: models.Scope, numbers: Sequence[int]) -> Query:
    table = of.rows
    event, old, new = _SHOWN[of.kind]
    return sa.select(
        table.c.change,
        table.c.seq,
        sa.literal(of.kind).label("kind"),
        of.owner_id.label("owner_id"),
        event.label("event"),
        old.label("old"),
        new.label("new"),
        recorded(table).label("made_at"),
        table.c.stage,
        *(table.c[name] if name in table.c else sa.literal("").label(name) for name in ("model", "prompt")),
        table.c.caller,
    ).where(table.c.change.in_(numbers), _is_seen(of.owners, of.owner_id, scope))


def edits_of_entities(conn: sa.Connection, user_id: str) -> Sequence[sa.Row[Any]]:
    """Return the rows of the history of a user's entities, oldest first."""
    of_user = entity_history.c.entity_id.in_(sa.select(entities.c.id).where(entities.c.user_id == user_id))
    return conn.execute(sa.select(entity_history).where(of_user).order_by(entity_history.c.seq)).all()


# Hints: which memories have none, which a run is still to give some, and all that memories ever had.


def without_hints(conn: sa.Connection, scope: models.Scope) -> list[str]:
    """Return the ids of the living memories that a scope sees and that have no hints, the newest first."""
    living = sa.select(memories.c.id, memories.c.keywords).where(is_living(memories, scope))
    return [row.id for row in conn.execute(living.order_by(memories.c.seq.desc())) if not row.keywords]


def left_to_enrich(conn: sa.Connection, ids: Sequence[str], edit: int) -> list[models.Memory]:
    """Return the living memories without hints that come after the last one that an edit gave hints, in order.

    If somebody undid the edit, these are none.
    """
    of_edit = sa.and_(history.c.change == edit, history.c.stage == models.ENRICH)
    enriched = set(conn.execute(sa.select(history.c.memory_id).where(of_edit)).scalars())
    by_undo = sa.or_(history.c.stage == f"{models.UNDO} {edit}", history.c.stage.like(f"{models.UNDO} since %"))
    undone = sa.select(history.c.seq).where(among(history.c.memory_id, enriched), history.c.change > edit, by_undo)
    if has_row(conn, undone):
        return []
    left = ids[max((place for place, memory_id in enumerate(ids, 1) if memory_id in enriched), default=0) :]
    living = read_memories(conn, among(memories.c.id, left), memories.c.deleted_at.is_(None))
    found = {memory.id: memory for memory in living if not memory.keywords}
    return [found[memory_id] for memory_id in left if memory_id in found]


def hints_of(conn: sa.Connection, memory_ids: Sequence[str]) -> list[str]:
    """Return the hints that memories have or had, each once."""
    states = conn.execute(sa.select(history.c.state).where(among(history.c.memory_id, memory_ids))).scalars()
    return list(dict.fromkeys(hint for state in states for hint in state.get("keywords", ())))
