"""Write what a memory states: which entity each of its names means, and its relations between entities."""

import re
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from datetime import timedelta
from itertools import takewhile
from typing import Any

from sqlalchemy import Connection, bindparam, delete, insert, select, update

from palimpsest.core.clock import shown_date
from palimpsest.core.models import Fact, Memory, NamedEntity, Relation, name_key, relation_key, relation_words
from palimpsest.store.entries import Transaction
from palimpsest.store.graph.identity import group_of, mention_row, resolve, tell_name
from palimpsest.store.memories import read_memories
from palimpsest.store.rows import Query, listed, scope_values, to_memory
from palimpsest.store.schema import memories, mentions, relations
from palimpsest.text import relation_updates as updates
from palimpsest.text.dates.date_finder import dates_in
from palimpsest.text.names.known_names import says_another
from palimpsest.text.stopwords import change_words


def handed_on_otherwise(
    conn: Connection, memory: Memory, closed: Sequence[Memory]
) -> tuple[list[Memory], set[tuple[str, str, str]]]:
    """Return the other memories of a memory's project and agent, without relations that it gives another value or ends.

    It ends the relations of the memories that it has `closed`. A relation goes only if the text does not tell it: then
    it was handed on to that memory, and nobody who reads the text would end it. Also return the keys of the relations
    that end here and that another text still tells.
    """
    changed: dict[str, Memory] = {}
    told: set[tuple[str, str, str]] = set()
    words, lasting = updates.words_in(memory.text), {relation.key for relation in memory.relations}
    for owner in (memory, *closed):
        for row in conn.execute(_RELATIONS, {"memory": owner.id}).all():
            stated, is_end = owner.relations[int(row.position)], owner is not memory
            is_value = row.key in updates.SINGLE_VALUED and updates.has_name(words, memory.text, stated.destination)
            if (stated.key in lasting) if is_end else not is_value:
                continue
            members = list(group_of(conn, [row.source_id]))
            values = {"ids": members, "key": row.key, "memory": memory.id, **scope_values(memory.scope)}
            for other in map(to_memory, conn.execute(_SAME_RELATION, values).all()):
                kept = changed.get(other.id, other)
                if other.stated_at <= memory.stated_at:
                    replaced = read_memories(conn, memories.c.superseded_by == other.id)
                    over = {relation.key for old in replaced for relation in old.relations}
                    kept = changed[other.id] = _without_untold(kept, stated, over, is_end=is_end)
                told |= {relation.key for relation in kept.relations if is_end and relation.key == stated.key}
    return list(changed.values()), told


def _without_untold(
    memory: Memory, stated: Relation, over: AbstractSet[tuple[str, str, str]], *, is_end: bool
) -> Memory:
    """Return a memory without the relations that were handed `over` to it and now have another value, or end.

    Relations that its text tells stay.
    """
    words = updates.words_in(memory.text)
    gone = [
        relation
        for relation in memory.relations
        if relation.key[:2] == stated.key[:2] and (relation.key == stated.key) is is_end and relation.key in over
        if not updates.has_name(words, memory.text, relation.destination)
    ]
    relations = tuple(relation for relation in memory.relations if relation not in gone)
    ends = {name_key(end) for relation in relations for end in (relation.source, relation.destination)}
    lost = {name_key(relation.destination) for relation in gone} - ends
    entities = tuple(entity for entity in memory.entities if name_key(entity.name) not in lost)
    return replace(memory, relations=relations, entities=entities)


def handed_on(fact: Fact, replaced: Sequence[Memory], self_keys: AbstractSet[str]) -> Fact:
    """Return a fact that also states the relations that hold on of the memories which it replaces."""
    relations = {relation.key: relation for relation in fact_relations(fact)}
    entities = {name_key(entity.name): entity for entity in fact.entities}
    before: dict[tuple[str, str, str], str] = {}
    for relation in (relation for old in replaced for relation in updates.dated(old)):
        before[relation.key] = min(relation.since or "", before.get(relation.key, relation.since or ""))
    began = shown_date(fact.valid_from, fact.valid_from_precision) if fact.valid_from else ""
    if any(before.get(key, began) == began for key in relations):  # what is said again beside it did not begin then
        relations |= {
            key: replace(relation, since=before[key])
            for key, relation in relations.items()
            if key in before and relation.since is None
        }
    for old in replaced:
        lasting = [
            replace(each, until=_end_of(each, old, fact, began)) for each in updates.outliving(old, fact, self_keys)
        ]
        ends = {name_key(end) for relation in lasting for end in (relation.source, relation.destination)}
        relations = {relation.key: relation for relation in lasting} | relations
        entities |= {
            key: entity for entity in old.entities if (key := name_key(entity.name)) in ends and key not in entities
        }
    stated = tuple(replace(each, since=updates.since_of(each, began)) if began else each for each in relations.values())
    return replace(fact, relations=stated, entities=tuple(entities.values()))


def _end_of(relation: Relation, old: Memory, fact: Fact, began: str) -> str | None:
    """Return the end of a relation that holds on: its own, or that of its memory, which moves if the new one has one.

    An end that has passed when the new one began was none, and what only was to be replaced has none of its own.
    """
    if relation.until is not None or updates.is_timeless(relation):
        return relation.until
    end = "" if old.superseded_by or old.valid_until is None else updates.until_of(relation, old.until)
    if fact.valid_until is not None:
        return shown_date(fact.valid_until, fact.valid_until_precision) if end else ""
    return end if end and end >= began else None


def put(tx: Transaction, memory: Memory, replaced: Sequence[Memory] = ()) -> None:
    """Bring the mentions and relations of a memory into the state of its present version.

    A name keeps the entity that it means in this memory, also in a version that states it again. Else it means what it
    means in the memories of its project that this one replaces, unless its text means another.
    """
    conn, named = tx.conn, stated_names(memory)
    tell_name(tx, memory)
    rows = {row.key: row for row in conn.execute(_OF_MEMORY, {"owner": memory.id})}
    meant = {
        row.key: row.entity_id
        for old in replaced
        if old.scope.project == memory.scope.project
        for row in conn.execute(_OF_MEMORY, {"owner": old.id})
        if row.current and row.key in named and not says_another(memory.text, named[row.key].name)
    }
    meant |= {key: rows[key].entity_id for key in named if key in rows}
    if missing := {key: entity for key, entity in named.items() if key not in meant}:
        meant |= resolve(tx, memory, missing, meant.values())
    new = [key for key in named if key in meant and key not in rows]
    if new:
        mentioned = (mention_row("memory", memory.id, key, named[key].name, meant[key]) for key in new)
        conn.execute(insert(mentions), [*mentioned])
    for key, row in rows.items():
        if row.current is not (key in named):
            conn.execute(update(mentions).where(mentions.c.seq == row.seq).values(current=key in named))
    put_relations(conn, memory, meant)


_OF_MEMORY = select(mentions).where(mentions.c.kind == "memory", mentions.c.owner_id == bindparam("owner"))


def stated_names(memory: Memory) -> dict[str, NamedEntity]:
    """Return what a memory names, by key: its entities, and the ends of its relations that are not among them."""
    ends = (NamedEntity(end) for relation in memory.relations for end in (relation.source, relation.destination))
    named = {name_key(entity.name): entity for entity in (*ends, *memory.entities)}
    named.pop("", None)
    return named


def stated_with(memory: Memory, fact: Fact, *, sets_relations: bool = False) -> dict[str, Any]:
    """Return the `entities` and `relations` of a memory that gets the text of a fact.

    With `sets_relations` the relations are those of the fact and no others.
    A name stays as long as the text has it, and a relation as long as the text has what the one before had of it: both
    names and its words. If the text only says more than before, all of them stay. But what its new words say to have
    changed or deny is stated no more, unless the fact states it. Those that stay hold since they did before.
    """

    def has_still(name: str) -> bool:
        if gone & updates.numbers_in(name):  # "1,450 euros a month" of a text that says 1.380 now
            return False
        return updates.has_name(after, fact.text, name) or not updates.has_name(before, memory.text, name)

    memory = _corrected(memory, fact.text)
    gone = updates.numbers_in(memory.text) - updates.numbers_in(fact.text)
    before, after = updates.words_in(memory.text), updates.words_in(fact.text)
    is_more, added = set(before) <= set(after), set(after) - set(before)
    stays = change_words(fact.text) <= change_words(memory.text) and not added & updates.negations_of(fact.text)
    lasting = memory.relations if stays else updates.outliving(memory, fact, frozenset())
    outlive = {relation.key for relation in lasting}
    kept = [entity for entity in memory.entities if is_more or updates.has_name(after, fact.text, entity.name)]
    named = {name_key(entity.name): entity for entity in (*kept, *fact.entities)}
    stated = [
        relation
        for relation in (updates.dated(memory) if fact.valid_from else memory.relations)
        if relation.key in outlive
        and not sets_relations
        and (all(map(has_still, (relation.source, relation.destination))) or (is_more and not gone))
        and (is_more or set(relation_words(relation.name)) & set(before) <= set(after))
    ]
    relations = {relation.key: relation for relation in (*stated, *fact_relations(fact))}
    return {"entities": tuple(named.values()), "relations": tuple(relations.values())}


# How many words of a text a correction replaces at most: a name, a number with its unit. More is another statement.
MAX_CORRECTED = 4


def _corrected(memory: Memory, text: str) -> Memory:
    """Return a memory whose entities and relations have the few words that a new text puts right."""
    old, new = memory.text.split(), text.split()
    start = _common(old, new)
    end = _common(old[start:][::-1], new[start:][::-1])
    cut, put = (" ".join(words[start : len(words) - end]).strip(".,;:!?") for words in (old, new))
    if not cut or not put or max(len(cut.split()), len(put.split())) > MAX_CORRECTED:
        return memory
    pattern = re.compile(rf"(?<!\w){re.escape(cut)}(?!\w)")
    if pattern.search(put):  # "Lyon, France" for "Lyon" says more of the same
        return memory

    def named(name: str) -> str:
        return pattern.sub(lambda _: put, name)

    entities = tuple(replace(entity, name=named(entity.name)) for entity in memory.entities)
    told = [replace(each, source=named(each.source), destination=named(each.destination)) for each in memory.relations]
    return replace(memory, entities=entities, relations=tuple(told))


def _common(words: Sequence[str], others: Sequence[str]) -> int:
    """Return how many words two texts have in common at their beginning."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(words, others, strict=False)))


# How long guests stay and trips last at most. Nobody has an illness or a diet for so short a time.
MAX_STAY = timedelta(days=22)


def fact_relations(fact: Fact) -> tuple[Relation, ...]:
    """Return the relations of a fact. One without a date of its own has that of the fact.

    It has none if another relation was given that date or names it. One that was given another date, or "none", does
    not end with the fact. What somebody is or has does not hold for one day, nor does it end with a deadline beside
    which it is told. An illness, a diet, a language or a marriage has nothing to do with a stay of some days.
    """
    at = fact.valid_from or fact.valid_until
    if at is None:
        return fact.relations
    began = shown_date(fact.valid_from, fact.valid_from_precision) if fact.valid_from else ""

    def is_with_it(since: str | None) -> bool:
        return bool(since and began) and (began.startswith(since or "") or str(since).startswith(began))

    days = {each: [f"{span.start:%Y-%m-%d}" for span in dates_in(each.destination, at)] for each in fact.relations}
    dating = {each for each in fact.relations if began and (began in each.destination or began in days[each])}
    is_told = bool(dating) or any(is_with_it(each.since) for each in fact.relations)
    # Nobody works for somebody on one day: that is when there was a visit.
    is_day = fact.valid_until is not None and began == shown_date(fact.valid_until, "day")
    is_stay = fact.valid_from and fact.valid_until and fact.valid_until - fact.valid_from < MAX_STAY
    places = [span.position for span in dates_in(fact.text, at)]

    def own(each: Relation) -> Relation:
        is_beside = updates.is_standing(each) and (
            is_day or (fact.valid_until and updates.is_beside_deadline(each, fact.text, places))
        )
        outlasts = is_stay and (updates.is_trait(each) or updates.is_tie(each))
        is_beside = is_beside or outlasts or (is_told and each not in dating)
        if each.since is None and each.until is None and is_beside:
            return replace(each, since="", until="")
        has_another = began and each.since is not None and not is_with_it(each.since)
        return replace(each, until="") if fact.valid_until and each.until is None and has_another else each

    return tuple(map(own, fact.relations))


def also_stated(memory: Memory, fact: Fact) -> dict[str, Any]:
    """Return those `relations` of a fact, with the `entities` at their ends, that a memory which says the same lacks.

    The memory's text must have both names, and it must not relate them already: in other words that would be the same
    relation twice. Nothing is returned if there are none.
    """
    words = updates.words_in(memory.text)
    known = {frozenset(_ends(relation)) for relation in memory.relations}
    lacking = tuple(
        relation
        for relation in updates.dated(fact)
        if frozenset(_ends(relation)) not in known
        and all(updates.has_name(words, memory.text, end) for end in (relation.source, relation.destination))
    )
    ends = {key for relation in lacking for key in _ends(relation)}
    named = tuple(entity for entity in fact.entities if name_key(entity.name) in ends)
    return {"entities": named, "relations": lacking} if lacking else {}


def _ends(relation: Relation) -> tuple[str, str]:
    return name_key(relation.source), name_key(relation.destination)


def relation_rows(memory: Memory, meant: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the rows of `relations` that a memory has, given the entity that each of its names means.

    A relation of somebody who may be one of several has none.
    """
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
        if name_key(relation.source) in meant and name_key(relation.destination) in meant
    ]


def put_relations(conn: Connection, memory: Memory, meant: Mapping[str, str]) -> None:
    """Write the relations of a memory, given the entity that each of its names means."""
    rows = relation_rows(memory, meant)
    stored = conn.execute(_RELATIONS, {"memory": memory.id}).mappings().all()
    if [dict(row) for row in stored] == rows:
        return
    conn.execute(delete(relations).where(relations.c.memory_id == memory.id))
    if rows:
        conn.execute(insert(relations), rows)


_RELATIONS = (
    select(*(relations.c[name] for name in ("memory_id", "position", "source_id", "key", "name", "destination_id")))
    .where(relations.c.memory_id == bindparam("memory"))
    .order_by(relations.c.position)
)
_SAME_RELATION: Query = (
    select(memories)
    .join(relations, relations.c.memory_id == memories.c.id)
    .where(
        relations.c.source_id.in_(listed("ids")),
        relations.c.key == bindparam("key"),
        relations.c.memory_id != bindparam("memory"),
        memories.c.project == bindparam("project"),
        memories.c.agent_id == bindparam("agent_id"),
        memories.c.deleted_at.is_(None),
    )
)
