"""The kind `profile`: who the user is, their people, their work, what they prefer, and how they want to be helped.

The portrait of MemoryBank, drawn from the memories that are not of a project. Memories that expire are left out: what a
session begins with may be read at any time later.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from functools import partial
from typing import Any

from sqlalchemy import Connection

from palimpsest.core.entities import SELF_NAMES, NamedEntity, name_key
from palimpsest.core.models import USER_NAME, Memory
from palimpsest.learn.views.kinds import (
    MAX_SOURCE_MEMORIES,
    Material,
    PlainText,
    SummaryKind,
    SummaryRequest,
    memory_item,
)
from palimpsest.learn.views.portrait import signs
from palimpsest.learn.views.portrait.sections import ALSO, READ, Place, Section, by_tags_and_signs, lasting, portrait
from palimpsest.learn.views.portrait.written import material
from palimpsest.llm.names import is_about_user
from palimpsest.store.queries import memories as memory_queries
from palimpsest.store.queries import summaries as summary_queries
from palimpsest.text.names.lexicon.lists import is_given_name

HELP, IDENTITY, PEOPLE, WORK, PREFERENCES = "How to help", "Identity", "People", "Work", "Preferences"

SECTIONS = (
    Section(HELP, frozenset({"instruction", "style", "correction"}), signs.HELP),
    Section(PEOPLE, frozenset({"family", "relationship"}), signs.PEOPLE),
    Section(WORK, frozenset({"work", "skill", "project"}), signs.WORK),
    Section(IDENTITY, frozenset({"identity", "health"}), signs.IDENTITY),
    Section(PREFERENCES, frozenset({"preference"}), signs.PREFERENCES),
)
"""The sections, in the order in which a memory that fits several is put into one."""

_IS_CALLED = re.compile(r"(?:The )?User (?:is|ist|est|es|è|é) ", re.IGNORECASE)

MOST = 0.4
"""With which share of the memories a name begins that is taken for the user's. Set by hand: many begin with that of a
relative, a pet or a thing, but none of these with so many."""

SLOWER = 2
"""A profile is written anew after twice as many changes as the summary `overall`: it changes more slowly. Set by
hand."""

HEADINGS = {IDENTITY: 120, PEOPLE: 140, WORK: 120, PREFERENCES: 100, HELP: 120, ALSO: 80}
"""The sections in the order in which they are shown, each with its room in tokens. Set by hand: a page of some 25
facts."""


def _material(conn: Connection, request: SummaryRequest) -> Material:
    memories = lasting(_memories(conn, request, MAX_SOURCE_MEMORIES))
    name, own = _own_names(conn, request, memories)

    def item(memory: Memory) -> Mapping[str, Any]:
        other = _subject(own, memory)
        return {**memory_item(memory), **({"about": other} if other else {})}

    return replace(material(conn, request, PROFILE.name, memories, item), name=name or "User")


def _plain(conn: Connection, request: SummaryRequest) -> PlainText:
    memories = _memories(conn, request, READ)
    return portrait(conn, request, lasting(memories), HEADINGS, place_of_user(conn, request, memories))


def place_of_user(conn: Connection, request: SummaryRequest, memories: Sequence[Memory]) -> Place:
    """Return what sorts memories into the sections of a profile, with `ALSO` for what belongs to none of them."""
    return partial(_place, _own_names(conn, request, memories)[1])


def _own_names(conn: Connection, request: SummaryRequest, memories: Sequence[Memory]) -> tuple[str, Set[str]]:
    """Return what the user is called, "" if that is not known, and the keys of all that mean the user.

    The user is one person. If memories tell several names, it is the one told last as the user's name, else the one
    that most tell, and those that share a word with it.
    """
    told = Counter(_names_told(memories))
    name = memory_queries.name_of_user(conn, request.scope) or next((name for name, _ in told.most_common(1)), "")
    name = name or _name_of_most(memories)
    words = set(name_key(name).split())
    names = [name, *(other for other in told if not words.isdisjoint(name_key(other).split()))] if name else []
    return name, {name_key(part) for each in names for part in (each, each.split(maxsplit=1)[0])} | SELF_NAMES


def _name_of_most(memories: Sequence[Memory]) -> str:
    """Return the name with which most memories begin, if no memory tells the user's and none begins with "User".

    Agents that know the user's name write "Nora lives in Lund" without ever saying that Nora is the user.
    """
    if any(is_about_user(memory.text) for memory in memories):
        return ""
    begin = Counter(
        entity.name
        for memory in memories
        for entity in memory.entities
        if entity.type == "person" and memory.text.startswith(entity.name)
    )
    return next((name for name, count in begin.most_common(1) if count > MOST * len(memories)), "")


def _names_told(memories: Iterable[Memory]) -> Iterator[str]:
    """Yield the names in texts such as "User is Imogen Hartley, a nurse", which also tell what the user is called."""
    for memory in memories:
        subject = _IS_CALLED.match(memory.text)
        rest = memory.text[subject.end() :] if subject is not None else ""
        yield from (
            entity.name for entity in memory.entities if entity.type == "person" and rest.startswith(entity.name)
        )


def _memories(conn: Connection, request: SummaryRequest, limit: int) -> list[Memory]:
    return [memory for _, memory in memory_queries.list_memories(conn, request.scope, limit)]


def _place(own: Set[str], memory: Memory) -> str:
    """Return the heading of a memory. What begins with somebody else's name is about people, whatever it tells of them.

    What begins with the name of a thing is not about who the user is: "Kestrel moved from PostgreSQL 15 to 17".
    """
    if USER_NAME in memory.metadata or signs.NAME.match(memory.text):
        return IDENTITY
    if _subject(own, memory):
        return PEOPLE
    heading = by_tags_and_signs(SECTIONS, memory)
    is_of_thing = any(memory.text.startswith(entity.name) for entity in _others(own, memory))
    if not is_of_thing or any(not section.tags.isdisjoint(memory.all_tags) for section in SECTIONS):
        return heading
    return heading if heading in (HELP, WORK) else ALSO


def _subject(own: Set[str], memory: Memory) -> str:
    """Return the name of the other person that a memory begins with; "" if it is about the user, or about no person."""
    text = memory.text
    people = (entity.name for entity in _others(own, memory) if entity.type == "person")
    return next((name for name in people if text.startswith(name) and _is_persons(name, text)), "")


def _others(own: Set[str], memory: Memory) -> list[NamedEntity]:
    return [entity for entity in memory.entities if name_key(entity.name) not in own]


def _is_persons(name: str, text: str) -> bool:
    """Return whether a name that was taken for a person's surely is one. Projects are called Kestrel and Nightjar."""
    return " " in name or is_given_name(name) or signs.PEOPLE.count(text) > 0


def _due(conn: Connection, request: SummaryRequest, every: int) -> Sequence[str]:
    last = summary_queries.latest_summary(conn, request.scope, PROFILE.name)
    missed = summary_queries.count_changes_since(conn, request.scope, last.seq if last else 0)
    return ("",) if missed >= SLOWER * every else ()


PROFILE = SummaryKind("profile", "profile", _material, _plain, due=_due, is_of_user=True)
