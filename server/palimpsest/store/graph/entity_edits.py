"""Merge, split, rename and restore entities."""

from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, and_, exists, select, update

from palimpsest.core import models
from palimpsest.core.errors import InputError, MemoryNotFoundError
from palimpsest.store.entries import Transaction
from palimpsest.store.graph import identity
from palimpsest.store.graph.statements import put_relations
from palimpsest.store.rows import Query, among, sees, to_memory
from palimpsest.store.schema import entities, entity_aliases, entity_history, memories, memory_sources, mentions

# Read and write the state of entities, aliases and mentions that an edit of entities changed.


def present(conn: Connection, places: Iterable[tuple[str, ...]]) -> identity.State:
    """Return the state now of these places. What was erased since is left out."""
    found = {place: conn.execute(_at(place)).first() for place in places}
    return {place: row[0] for place, row in found.items() if row is not None}


def _at(place: tuple[str, ...]) -> Query:
    """Return the query for what is at a place. It has no row if what it belongs to was erased."""
    match place:
        case (part, entity_id, column) if part == identity.ENTITY:
            return select(entities.c[column]).where(entities.c.id == entity_id)
        case (part, entity_id, key) if part == identity.ALIAS:  # NULL if no edit gave the name
            is_it = and_(
                entity_aliases.c.entity_id == entities.c.id, entity_aliases.c.key == key, entity_aliases.c.given
            )
            query = select(entity_aliases.c.name).select_from(entities).outerjoin(entity_aliases, is_it)
            return query.where(entities.c.id == entity_id)
        case (_, kind, owner_id, key):
            is_it = and_(mentions.c.kind == kind, mentions.c.owner_id == owner_id, mentions.c.key == key)
            return select(mentions.c.entity_id, mentions.c.seq, mentions.c.key, mentions.c.name).where(is_it)
        case _:
            raise ValueError(f"no place of the graph: {place}")


def is_present(conn: Connection, past: identity.State) -> bool:
    """Return whether entities and mentions are still as a state says, as far as they exist."""
    now = present(conn, [place for place in past if place[0] != identity.ALIAS])
    return bool(now) and all(past[place] == value for place, value in now.items())


def restore(conn: Connection, target: identity.State) -> None:
    """Bring entities, aliases and mentions into a state."""
    restated: set[str] = set()
    for place, value in sorted(target.items(), key=lambda item: item[0][0] == identity.ALIAS):  # names come last
        match place:
            case (part, entity_id, column) if part == identity.ENTITY:
                conn.execute(update(entities).where(entities.c.id == entity_id).values({column: value}))
            case (_, entity_id, key):
                identity.give(conn, entity_id, key, value)
            case (_, kind, owner_id, _) if value is not None:
                if (mention := conn.execute(_at(place)).first()) is not None:
                    identity.move_mention(conn, mention, value)
                restated |= {owner_id} if kind == "memory" else set()
            case _:
                continue
    # Relations are between the entities that names mean now.
    for row in conn.execute(select(memories).where(among(memories.c.id, sorted(restated)))).all():
        of_memory = conn.execute(select(mentions).where(mentions.c.kind == "memory", mentions.c.owner_id == row.id))
        put_relations(conn, to_memory(row), {mention.key: mention.entity_id for mention in of_memory})


# Take edits of entities back. An undo is an edit itself, and can be taken back like the others.

UNDID = "undid: "
REDID = "redid: "


def is_in_effect(tx: Transaction, number: int) -> bool:
    """Return whether what an edit did to entities is still as it left it, and no later edit has built on it."""
    rows = _rows(tx, entity_history.c.change == number)
    left: identity.State = {}
    for row in reversed(rows):
        left |= identity.to_state(row.after)
    return not rows or (is_present(tx.conn, left) and not any(_has_later_members(tx, row) for row in rows))


def revert(tx: Transaction, condition: ColumnElement[bool]) -> None:
    """Put entities into their state before the rows of history that a condition selects, as far as the scope sees."""
    for row in _rows(tx, condition):
        before = identity.to_state(row.before)
        now = present(tx.conn, before)
        target = {place: before[place] for place in now}
        if now != target:
            restore(tx.conn, target)
            identity.record(tx, row.entity_id, "undo", (now, target), _undone_text(row.text))


def _rows(tx: Transaction, condition: ColumnElement[bool]) -> list[Row[Any]]:
    """Return the rows of history of entities that the scope sees, newest first."""
    query = select(entity_history).join(entities, entities.c.id == entity_history.c.entity_id)
    seen = query.where(condition, sees(entities, tx.scope))
    return list(tx.conn.execute(seen.order_by(entity_history.c.seq.desc())))


def _has_later_members(tx: Transaction, row: Row[Any]) -> bool:
    """Return whether something was merged later into an entity that the undo of a row would merge itself."""
    before = identity.to_state(row.before)
    was_merged = (identity.ENTITY, "merged_into")
    merged = [place[1] for place, value in before.items() if (place[0], *place[2:]) == was_merged and value]
    of_members = entity_history.c.entity_id.in_(list(identity.members_of(tx.conn, merged)))
    is_later = (entity_history.c.seq > row.seq, entity_history.c.change != row.change)
    later = select(entity_history).where(of_members, entity_history.c.event == "merge", *is_later)
    merges = [identity.to_state(each.after) for each in tx.conn.execute(later).all()]
    return any(not set(merged).isdisjoint(after.values()) and is_present(tx.conn, after) for after in merges)


def _undone_text(text: str) -> str:
    return REDID + text.removeprefix(UNDID) if text.startswith(UNDID) else UNDID + text.removeprefix(REDID)


# Carry out edits of entities: merge, split, rename. Each leaves a row of history, from which it can be taken back.


def carry_out(tx: Transaction, edit: models.EntityEdit) -> None:
    """Carry out an edit of entities. A merge or rename that is done already changes nothing.

    Raises InputError if it is not possible, such as for an entity that the scope does not see.
    """
    match edit:
        case models.Merge():
            _merge(tx, edit)
        case models.Split():
            _split(tx, edit)
        case models.Rename():
            _rename(tx, edit)


def _find(tx: Transaction, entity_id: str) -> models.Entity:
    """Return the entity that one with this id is the same as. Raises InputError if the scope does not see it."""
    seen = select(entities.c.id).where(entities.c.id == entity_id, sees(entities, tx.scope))
    if tx.conn.execute(seen).first() is None:
        raise InputError(f"there is no entity {entity_id[:8]} in this scope; nothing was changed")
    return identity.roots_of(tx.conn, [entity_id])[entity_id]


def _merge(tx: Transaction, edit: models.Merge) -> None:
    merged, into = _find(tx, edit.entity_id), _find(tx, edit.into_id)
    if merged.id == into.id and edit.entity_id != merged.id:
        return
    if merged.id == into.id:
        name = identity.shown(merged)
        raise InputError(f"{name} cannot be merged into itself; nothing was changed. Its name can be changed")
    if merged.is_user or into.project not in {"", merged.project}:
        names = f"{identity.shown(merged)} cannot be merged into {identity.shown(into)}, which fewer know"
        raise InputError(f"{names}; nothing was changed. Merge them the other way round")
    identity.merge(tx, merged, into)


def _split(tx: Transaction, edit: models.Split) -> None:
    root, name = _find(tx, edit.entity_id), _valid_name(edit.name)
    group, memory_ids = set(identity.members_of(tx.conn, [root.id])), list(dict.fromkeys(edit.memory_ids))
    _refuse_unseen(tx, memory_ids)
    moved = _mentions_of(tx, "memory", memory_ids)
    unmoved = [memory_id for memory_id in memory_ids if not group & set(moved.get(memory_id, {}).values())]
    if unmoved:
        raise InputError(f"memory {unmoved[0][:8]} does not mention {identity.shown(root)}, so nothing was split")
    new_id = identity.new_entity(tx, root.project, name, root.type, merged_into=root.id)
    messages = _mentions_of(tx, "message", _messages_only_of(tx, memory_ids, group))
    meant = _places("memory", moved, group) | _places("message", messages, group)
    merged, called = (identity.ENTITY, new_id, "merged_into"), (identity.ENTITY, new_id, "name")
    alias = (identity.ALIAS, new_id, models.name_key(name))
    # An undo merges the new entity into the old one, so that what mentions it by then is not lost.
    before: identity.State = {merged: root.id, called: name, alias: None, **meant}
    after: identity.State = {merged: None, called: name, alias: name, **dict.fromkeys(meant, new_id)}
    restore(tx.conn, after)
    count = f"{len(memory_ids)} {'memory' if len(memory_ids) == 1 else 'memories'}"
    text = f"split {name} off {identity.shown(root)}, with {count}"
    identity.record(tx, root.id, "split", (before, after), text)


def _refuse_unseen(tx: Transaction, memory_ids: Sequence[str]) -> None:
    seen = select(memories.c.id).where(among(memories.c.id, memory_ids), sees(memories, tx.scope))
    known = set(tx.conn.execute(seen).scalars())
    for memory_id in memory_ids:
        if memory_id not in known:
            raise MemoryNotFoundError(f"there is no memory {memory_id[:8]} in this scope; nothing was changed")


def _mentions_of(tx: Transaction, kind: str, owner_ids: Sequence[str]) -> dict[str, dict[str, str]]:
    """Return the entity that each key of memories or messages means, by owner."""
    query = select(mentions).where(mentions.c.kind == kind, among(mentions.c.owner_id, owner_ids))
    return identity.meanings(tx.conn.execute(query.order_by(mentions.c.seq)))


def _places(kind: str, meant: dict[str, dict[str, str]], group: set[str]) -> identity.State:
    """Return those mentions that mean an entity of a group, as a state."""
    return {
        (identity.MENTION, kind, owner, key): entity_id
        for owner, keys in meant.items()
        for key, entity_id in keys.items()
        if entity_id in group
    }


def _messages_only_of(tx: Transaction, memory_ids: Sequence[str], group: set[str]) -> list[str]:
    """Return the messages behind memories that are behind no other memory that mentions the group."""
    query = select(memory_sources.c.message_id).where(among(memory_sources.c.memory_id, memory_ids))
    cited = set(tx.conn.execute(query).scalars())
    is_of_memory = (mentions.c.kind == "memory", mentions.c.owner_id == memory_sources.c.memory_id)
    of_group = exists().where(*is_of_memory, mentions.c.entity_id.in_(sorted(group)))
    columns = (memory_sources.c.message_id, memory_sources.c.memory_id)
    others = select(*columns).where(among(memory_sources.c.message_id, sorted(cited)), of_group)
    cited -= {row.message_id for row in tx.conn.execute(others).all() if row.memory_id not in memory_ids}
    return sorted(cited)


def _rename(tx: Transaction, edit: models.Rename) -> None:
    root = _find(tx, edit.entity_id)
    if root.is_user:
        raise InputError("the user is called as memories tell, so nothing was changed. Tell the name in a memory")
    name = _valid_name(edit.name) if edit.name else root.name
    kind = edit.type or root.type
    if (name, kind) == (root.name, root.type):
        return
    after: identity.State = {(identity.ENTITY, root.id, "type"): kind} if kind != root.type else {}
    if name != root.name:
        names = {(identity.ALIAS, root.id, models.name_key(called)): called for called in (root.name, name)}
        after |= {(identity.ENTITY, root.id, "name"): name, **names}
    before = present(tx.conn, after)
    restore(tx.conn, after)
    text = f"renamed {root.name} to {name}" if name != root.name else ""
    if kind != root.type:
        text = f"{text}, type {kind}" if text else f"changed the type of {name} from {root.type} to {kind}"
    identity.record(tx, root.id, "rename", (before, after), text)


def _valid_name(name: str) -> str:
    """Return a name without white space around it. Raises InputError for one that no entity can have."""
    name = " ".join(name.split())
    if not (key := models.name_key(name)) or len(name) > models.MAX_NAME_CHARS:
        raise InputError(f"the name of an entity has 1 to {models.MAX_NAME_CHARS} characters; nothing was changed")
    if key in models.SELF_NAMES:
        raise InputError(f"'{name}' stands for the user, and cannot name another entity; nothing was changed")
    return name
