"""Write what a memory states: which entity each of its names means, and its relations between entities."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, bindparam, delete, insert, select, update

from palimpsest.core.entities import NamedEntity, Relation, name_key, relation_key
from palimpsest.core.models import Fact, Memory
from palimpsest.store.graph.identity.history import GraphWrite
from palimpsest.store.graph.identity.resolution import resolve, tell_name
from palimpsest.store.graph.tables import mentions, relations
from palimpsest.text.names.namesakes import bare_name
from palimpsest.text.time_words import change_words


def put_new(write: GraphWrite, memory: Memory) -> None:
    """Write the mentions and relations of a new memory, which has none yet."""
    named = stated_names(memory)
    tell_name(write, memory)
    if not named:
        return
    meant = resolve(write, memory, named, ())
    write.conn.execute(_INSERT_MENTIONS, [_mention(memory, key, named[key], meant[key]) for key in named])
    if rows := relation_rows(memory, meant):
        write.conn.execute(_INSERT_RELATIONS, rows)


def put(write: GraphWrite, memory: Memory) -> None:
    """Bring the mentions and relations of a memory into the state of its present version.

    A name keeps the entity that it means in this memory, also in a version that states it again.
    """
    conn, named = write.conn, stated_names(memory)
    tell_name(write, memory)
    rows = {row.key: row for row in conn.execute(_OF_MEMORY, {"owner": memory.id})}
    meant = {key: rows[key].entity_id for key in named if key in rows}
    if missing := {key: entity for key, entity in named.items() if key not in rows}:
        meant |= resolve(write, memory, missing, meant.values())
        new = [_mention(memory, key, entity, meant[key]) for key, entity in missing.items()]
        conn.execute(_INSERT_MENTIONS, new)
    for key, row in rows.items():
        if row.current is not (key in named):
            conn.execute(update(mentions).where(mentions.c.seq == row.seq).values(current=key in named))
    put_relations(conn, memory, meant)


_INSERT_MENTIONS = insert(mentions)
_OF_MEMORY = select(mentions).where(mentions.c.kind == "memory", mentions.c.owner_id == bindparam("owner"))


def _mention(memory: Memory, key: str, entity: NamedEntity, entity_id: str) -> dict[str, Any]:
    """Return the row of `mentions` for a name in the present version of a memory."""
    named = {"kind": "memory", "owner_id": memory.id, "key": key, "name": entity.name}
    return {**named, "entity_id": entity_id, "current": True}


def stated_names(memory: Memory) -> dict[str, NamedEntity]:
    """Return what a memory names, by key: its entities, and the ends of its relations that are not among them."""
    ends = (NamedEntity(end) for relation in memory.relations for end in (relation.source, relation.destination))
    named = {name_key(entity.name): entity for entity in (*ends, *memory.entities)}
    named.pop("", None)
    return named


_NEGATIONS = frozenset(
    {
        *("not", "no", "never", "isn't", "doesn't", "don't", "didn't", "wasn't", "nicht", "kein", "keine", "pas"),
        *("jamais", "nunca", "tampoco", "non", "mai", "não", "niet", "geen", "inte", "aldrig", "nie", "не", "никогда"),
    }
)
"""Words that deny what a text says with all its other words. Scripts without spaces are not covered."""


def stated_with(memory: Memory, fact: Fact) -> dict[str, Any]:
    """Return the `entities` and `relations` of a memory that gets the text of a fact.

    A name stays as long as the text has it, and a relation as long as the text has both names and the words of the
    relation. If the text only says more than before, all of them stay. But what it says to have changed or denies is
    stated no more, unless the fact states it.
    """
    before, after = _words(memory.text), _words(fact.text)
    is_more = set(before) <= set(after)
    stays = change_words(fact.text) <= change_words(memory.text) and not (set(after) - set(before)) & _NEGATIONS
    kept = [entity for entity in memory.entities if is_more or _has(after, fact.text, entity.name)]
    named = {name_key(entity.name): entity for entity in (*kept, *fact.entities)}
    stated = [
        relation
        for relation in memory.relations
        if stays
        and (is_more or all(_has(after, fact.text, end) for end in (relation.source, relation.destination)))
        and (is_more or set(relation_key(relation.name).split("_")) <= set(after))
    ]
    return {"entities": tuple(named.values()), "relations": tuple(dict.fromkeys((*stated, *fact.relations)))}


def also_stated(memory: Memory, fact: Fact) -> dict[str, Any]:
    """Return those `relations` of a fact, with the `entities` at their ends, that a memory which says the same lacks.

    The memory's text must have both names, and it must not relate them already: in other words that would be the same
    relation twice. Nothing is returned if there are none.
    """
    words = _words(memory.text)
    known = {frozenset(_ends(relation)) for relation in memory.relations}
    lacking = tuple(
        relation
        for relation in fact.relations
        if frozenset(_ends(relation)) not in known
        and all(_has(words, memory.text, end) for end in (relation.source, relation.destination))
    )
    ends = {key for relation in lacking for key in _ends(relation)}
    named = tuple(entity for entity in fact.entities if name_key(entity.name) in ends)
    return {"entities": named, "relations": lacking} if lacking else {}


def _ends(relation: Relation) -> tuple[str, str]:
    return name_key(relation.source), name_key(relation.destination)


def _has(words: Sequence[str], text: str, name: str) -> bool:
    """Return whether a text has a name: its words side by side, or its characters in a script without spaces.

    What tells two of a name apart, as in "Tom (plumber)", may stand elsewhere in the text.
    """
    name = bare_name(name) or name
    key = name_key(name)
    if not key.isascii() and len(key.split()) == 1 and key in text.casefold():
        return True
    return f" {' '.join(_words(name))} " in f" {' '.join(words)} "


def _words(text: str) -> list[str]:
    return [word for part in text.split() if (word := name_key(part))]


def relation_rows(memory: Memory, meant: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the rows of `relations` that a memory has, given the entity that each of its names means."""
    return [
        {
            "memory_id": memory.id,
            "position": position,
            "source_id": meant[name_key(relation.source)],
            "key": relation_key(relation.name),
            "name": relation.name,
            "destination_id": meant[name_key(relation.destination)],
        }
        for position, relation in enumerate(memory.relations)
    ]


def put_relations(conn: Connection, memory: Memory, meant: Mapping[str, str]) -> None:
    """Write the relations of a memory, given the entity that each of its names means."""
    rows = relation_rows(memory, meant)
    stored = conn.execute(_RELATIONS, {"memory": memory.id}).mappings().all()
    if [dict(row) for row in stored] == rows:
        return
    conn.execute(delete(relations).where(relations.c.memory_id == memory.id))
    if rows:
        conn.execute(_INSERT_RELATIONS, rows)


_INSERT_RELATIONS = insert(relations)
_RELATIONS = (
    select(*(relations.c[name] for name in ("memory_id", "position", "source_id", "key", "name", "destination_id")))
    .where(relations.c.memory_id == bindparam("memory"))
    .order_by(relations.c.position)
)
