"""Name the entities of facts and memories without a model, in the call or in the background."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection

from palimpsest.core.models import USER_NAME, Decision, Event, Fact, NamedEntity, Scope, name_key
from palimpsest.llm.user_name import is_about_user
from palimpsest.store.graph.entity_edits import known_types, unnamed_memories
from palimpsest.store.ledger import Ledger
from palimpsest.store.memories import memories_telling_name, name_of_user
from palimpsest.text.names.known_names import name_candidates, told_self_name
from palimpsest.text.names.name_finder import find_names

USER = NamedEntity("User", "person")

BATCH = 50
"""How many memories get their names in one transaction. It takes some ten milliseconds."""


def with_names(conn: Connection, scope: Scope, facts: Sequence[Fact]) -> tuple[Fact, ...]:
    """Return facts with what their texts name. A fact that has entities already keeps those.

    One that begins with what the user is called also has that name in its metadata.
    """
    return tuple(
        fact
        if fact.entities or not fact.text
        else replace(fact, entities=names_in(conn, scope, fact.text), metadata=_with_self_name(fact))
        for fact in facts
    )


def name_decision(conn: Connection, scope: Scope, name: str, sources: Sequence[str]) -> Decision | None:
    """Return the decision to store what the user is called, in place of what told another name and nothing else.

    Return None if the name is known, or a longer one that has it.
    """
    if not name or set(name_key(name).split()) <= set(name_key(name_of_user(conn, scope)).split()):
        return None
    fact = Fact(
        f"User's name is {name}.",
        tuple(sources),
        tags=("identity",),
        metadata={USER_NAME: name},
        entities=(USER, NamedEntity(name, "person")),
    )
    telling = memories_telling_name(conn, scope)
    older = [memory.id for memory in telling if told_self_name(memory.text) and memory.scope.project == scope.project]
    return Decision(Event.ADD, fact, replaces=tuple(older))


def with_named_facts(conn: Connection, scope: Scope, decisions: Sequence[Decision]) -> tuple[Decision, ...]:
    """Return decisions whose facts have what their texts name.

    The text of an update is often not the one that was extracted: it joins a fact and a memory. So it has what the fact
    names, and what else is found in it.
    """
    return tuple(
        replace(
            decision,
            fact=_named(conn, scope, decision.fact, joins=decision.event is Event.UPDATE) if decision.fact else None,
            outdated=with_names(conn, scope, decision.outdated),
        )
        for decision in decisions
    )


def names_in(conn: Connection, scope: Scope, text: str) -> tuple[NamedEntity, ...]:
    """Return what a text of a scope names. The user is first, if the text begins with the user."""
    found = find_names(text, known_types(conn, scope, name_candidates(text)))
    return (USER, *found) if is_about_user(text) else tuple(found)


_CLAUSE_END = re.compile(r"[;,.]\s")


def _with_self_name(fact: Fact) -> Mapping[str, Any]:
    name = told_self_name(fact.text) or told_self_name(_CLAUSE_END.split(fact.text, maxsplit=1)[0])
    return {USER_NAME: name, **fact.metadata} if name else fact.metadata


def _named(conn: Connection, scope: Scope, fact: Fact, *, joins: bool) -> Fact:
    if not joins or not fact.entities:
        return with_names(conn, scope, [fact])[0]
    (found,) = with_names(conn, scope, [replace(fact, entities=())])
    named = {name_key(entity.name): entity for entity in (*found.entities, *fact.entities)}
    return replace(fact, entities=tuple(named.values()))


class Naming:
    """One pass over the memories whose names were not looked for. It can be interrupted and continued.

    Memories that were imported since are met in the next call, because they have higher numbers.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._last = 0

    def run(self, stopped: Callable[[], bool]) -> bool:
        """Name memories until none waits or `stopped` says so, and return whether none waits.

        Blocking. Raises LedgerError.
        """
        while not stopped():
            with self._ledger.read() as conn:
                batch = unnamed_memories(conn, self._last, BATCH)
                named = {memory: names_in(conn, memory.scope, memory.text) for memory in batch}
            if not batch:
                return True
            self._ledger.give_names(named)
            self._last = batch[-1].seq
        return False
