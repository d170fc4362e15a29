"""Carry out edits of entities: merge, split, rename. Each leaves a row of history, from which it can be taken back."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import exists, select

from palimpsest.core.entities import (
    ENTITY_TYPES,
    MAX_NAME_CHARS,
    SELF_NAMES,
    Entity,
    EntityEdit,
    Merge,
    Rename,
    Split,
    name_key,
)
from palimpsest.core.errors import InputError, MemoryNotFoundError
from palimpsest.store.graph.editing.states import present, restore
from palimpsest.store.graph.groups import members_of, roots_of
from palimpsest.store.graph.identity.creation import new_entity
from palimpsest.store.graph.identity.history import ALIAS, ENTITY, MENTION, GraphWrite, State, record
from palimpsest.store.graph.identity.merging import merge, shown
from palimpsest.store.graph.tables import entities, mentions
from palimpsest.store.mapping import chunks, sees
from palimpsest.store.schema import memories, memory_sources


def carry_out(write: GraphWrite, edit: EntityEdit) -> None:
    """Carry out an edit of entities. One that is done already changes nothing.

    Raises InputError if it is not possible, such as for an entity that the scope does not see.
    """
    match edit:
        case Merge():
            _merge(write, edit)
        case Split():
            _split(write, edit)
        case Rename():
            _rename(write, edit)


def _find(write: GraphWrite, entity_id: str) -> Entity:
    """Return the entity that one with this id is the same as. Raises InputError if the scope does not see it."""
    seen = select(entities.c.id).where(entities.c.id == entity_id, sees(entities, write.scope))
    if write.conn.execute(seen).first() is None:
        raise InputError(f"there is no entity {entity_id[:8]} in this scope; nothing was changed")
    return roots_of(write.conn, [entity_id])[entity_id]


def _merge(write: GraphWrite, edit: Merge) -> None:
    merged, into = _find(write, edit.entity_id), _find(write, edit.into_id)
    if edit.entity_id == edit.into_id:
        raise InputError(f"{shown(merged)} cannot be merged into itself; nothing was changed. Name two entities")
    if merged.id == into.id:
        if edit.entity_id == merged.id:
            raise InputError(
                f"what is to take in {shown(merged)} is part of it already, so nothing was changed. To call it by the "
                "other name, rename it"
            )
        return
    if merged.is_user:
        raise InputError(
            f"the user cannot be merged into {into.name}; nothing was changed. Merge {into.name} into the user"
        )
    if merged.user_id != into.user_id:
        raise InputError("two users' entities cannot be merged; nothing was changed")
    if into.project not in {"", merged.project}:
        raise InputError(
            f"{shown(merged)} is known in all projects and {shown(into)} only in {into.project}, so nothing was "
            "changed. Merge them the other way round"
        )
    merge(write, merged, into)


def _split(write: GraphWrite, edit: Split) -> None:
    root, name = _find(write, edit.entity_id), _valid_name(edit.name)
    group, memory_ids = set(members_of(write.conn, [root.id])), list(dict.fromkeys(edit.memory_ids))
    if not memory_ids:
        raise InputError(f"a split of {shown(root)} needs the memories that are about {name}; nothing was changed")
    _refuse_unseen(write, memory_ids)
    moved = _mentions_of(write, "memory", memory_ids)
    unmoved = [memory_id for memory_id in memory_ids if not group & set(moved.get(memory_id, {}).values())]
    if unmoved:
        if _is_split_already(write, {key: moved.get(key, {}) for key in memory_ids}, group, name):
            return
        raise InputError(f"memory {unmoved[0][:8]} does not mention {shown(root)}, so nothing was split")
    new_id = new_entity(write, root.project, name, root.type, merged_into=root.id)
    messages = _mentions_of(write, "message", _messages_only_of(write, memory_ids, group))
    meant = _places("memory", moved, group) | _places("message", messages, group)
    merged, called, alias = (ENTITY, new_id, "merged_into"), (ENTITY, new_id, "name"), (ALIAS, new_id, name_key(name))
    # An undo merges the new entity into the old one, so that what mentions it by then is not lost.
    before: State = {merged: root.id, called: name, alias: None, **meant}
    after: State = {merged: None, called: name, alias: name, **dict.fromkeys(meant, new_id)}
    restore(write.conn, after)
    text = f"split {name} off {shown(root)}, with {len(memory_ids)} {'memory' if len(memory_ids) == 1 else 'memories'}"
    record(write, root.id, "split", (before, after), text)


def _refuse_unseen(write: GraphWrite, memory_ids: Sequence[str]) -> None:
    known: set[str] = set()
    for chunk in chunks(memory_ids):
        seen = select(memories.c.id).where(memories.c.id.in_(chunk), sees(memories, write.scope))
        known.update(write.conn.execute(seen).scalars())
    for memory_id in memory_ids:
        if memory_id not in known:
            raise MemoryNotFoundError(f"there is no memory {memory_id[:8]} in this scope; nothing was changed")


def _mentions_of(write: GraphWrite, kind: str, owner_ids: Sequence[str]) -> dict[str, dict[str, str]]:
    """Return the entity that each key of memories or messages means, by owner."""
    found: dict[str, dict[str, str]] = {}
    for chunk in chunks(owner_ids):
        query = select(mentions).where(mentions.c.kind == kind, mentions.c.owner_id.in_(chunk))
        for row in write.conn.execute(query.order_by(mentions.c.seq)):
            found.setdefault(row.owner_id, {})[row.key] = row.entity_id
    return found


def _places(kind: str, meant: dict[str, dict[str, str]], group: set[str]) -> State:
    """Return those mentions that mean an entity of a group, as a state."""
    return {
        (MENTION, kind, owner, key): entity_id
        for owner, keys in meant.items()
        for key, entity_id in keys.items()
        if entity_id in group
    }


def _is_split_already(write: GraphWrite, meant: dict[str, dict[str, str]], group: set[str], name: str) -> bool:
    """Return whether every memory mentions an entity of that name already, and none the one to be split."""
    roots = roots_of(write.conn, {entity_id for keys in meant.values() for entity_id in keys.values()})
    named = {entity_id for entity_id, root in roots.items() if name_key(root.name) == name_key(name)} - group
    return all(named & set(keys.values()) and not group & set(keys.values()) for keys in meant.values())


def _messages_only_of(write: GraphWrite, memory_ids: Sequence[str], group: set[str]) -> list[str]:
    """Return the messages behind memories that are behind no other memory that mentions the group."""
    cited: set[str] = set()
    for chunk in chunks(memory_ids):
        query = select(memory_sources.c.message_id).where(memory_sources.c.memory_id.in_(chunk))
        cited.update(write.conn.execute(query).scalars())
    of_group = exists().where(
        mentions.c.kind == "memory",
        mentions.c.owner_id == memory_sources.c.memory_id,
        mentions.c.entity_id.in_(sorted(group)),
    )
    for chunk in chunks(sorted(cited)):
        others = select(memory_sources.c.message_id, memory_sources.c.memory_id).where(
            memory_sources.c.message_id.in_(chunk), of_group
        )
        cited -= {row.message_id for row in write.conn.execute(others).all() if row.memory_id not in memory_ids}
    return sorted(cited)


def _rename(write: GraphWrite, edit: Rename) -> None:
    root = _find(write, edit.entity_id)
    if root.is_user:
        raise InputError(
            "the user is called as the newest memory says that tells the name, so nothing was changed. Tell the name "
            "in a memory"
        )
    name = _valid_name(edit.name) if edit.name else root.name
    kind = edit.type or root.type
    if kind not in ENTITY_TYPES:
        raise InputError(f"'{kind}' is no type of an entity; nothing was changed. Types are {', '.join(ENTITY_TYPES)}")
    if (name, kind) == (root.name, root.type):
        return
    after: State = {(ENTITY, root.id, "type"): kind} if kind != root.type else {}
    if name != root.name:
        names = {(ALIAS, root.id, name_key(called)): called for called in (root.name, name)}
        after |= {(ENTITY, root.id, "name"): name, **names}
    before = present(write.conn, after)
    restore(write.conn, after)
    text = f"renamed {root.name} to {name}" if name != root.name else ""
    if kind != root.type:
        text = f"{text}, type {kind}" if text else f"changed the type of {name} from {root.type} to {kind}"
    record(write, root.id, "rename", (before, after), text)


def _valid_name(name: str) -> str:
    """Return a name without white space around it. Raises InputError for one that no entity can have."""
    name = " ".join(name.split())
    key = name_key(name)
    if not key or len(name) > MAX_NAME_CHARS:
        raise InputError(f"the name of an entity has 1 to {MAX_NAME_CHARS} characters; nothing was changed")
    if key in SELF_NAMES:
        raise InputError(f"'{name}' stands for the user, and cannot name another entity; nothing was changed")
    return name
