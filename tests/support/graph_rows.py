"""Memories that name entities and state relations, and what the graph has of them."""

from __future__ import annotations

from typing import Any

from sqlalchemy import text as sql

from palimpsest.core.models import (
    Decision,
    EntityEdit,
    Event,
    Fact,
    Merge,
    NamedEntity,
    Provenance,
    Relation,
    Rename,
    Scope,
)
from palimpsest.memory import Memory
from palimpsest.store.apply import Write
from tests.support.ledger_access import select_rows, store_memory, write_decisions
from tests.support.memory import ALICE

LIVES = Relation("Ana", "lives in", "Lyon")


def store_stating(
    memory: Memory, text: str, *names: tuple[str, str], relations: tuple[Relation, ...] = (), scope: Scope = ALICE
) -> str:
    """Add a memory that names entities, as pairs of name and type, and states relations. Return its id."""
    entities = tuple(NamedEntity(name, kind) for name, kind in names)  # pyright: ignore[reportArgumentType] - types
    return store_memory(memory, text, scope=scope, entities=entities, relations=relations)


def change_stating(memory: Memory, memory_id: str, text: str, *names: tuple[str, str], scope: Scope = ALICE) -> None:
    """Give a memory another text that names entities."""
    entities = tuple(NamedEntity(name, kind) for name, kind in names)  # pyright: ignore[reportArgumentType] - types
    write_decisions(memory, Decision(Event.UPDATE, Fact(text, entities=entities), memory_id), scope=scope)


def entity_names(memory: Memory, user: str = "alice") -> list[tuple[str, str]]:
    """Return project and name of the entities of a user that were not merged, sorted."""
    query = "SELECT project, name FROM entities WHERE user_id = :user AND merged_into IS NULL ORDER BY 1, 2"
    return [(project, name) for project, name in select_rows(memory, query, user=user)]


def stated_relations(memory: Memory) -> list[tuple[str, str, str]]:
    """Return the relations of living memories by the names of their entities."""
    query = """SELECT source.name, relations.name, destination.name FROM relations
        JOIN memories ON memories.id = memory_id JOIN entities AS source ON source.id = source_id
        JOIN entities AS destination ON destination.id = destination_id
        WHERE deleted_at IS NULL ORDER BY memories.seq, position"""
    return [(source, name, destination) for source, name, destination in select_rows(memory, query)]


def aliases_of(memory: Memory, name: str) -> list[str]:
    """Return the names of the entities with a shown name, sorted."""
    query = """SELECT entity_aliases.name FROM entity_aliases JOIN entities ON entities.id = entity_id
        WHERE entities.name = :name ORDER BY 1"""
    return [alias for (alias,) in select_rows(memory, query, name=name)]


def entity_ids(memory: Memory, name: str) -> list[str]:
    """Return the ids of the entities with a shown name, oldest first."""
    return [row[0] for row in select_rows(memory, "SELECT id FROM entities WHERE name = :name ORDER BY seq", name=name)]


def run_statement(memory: Memory, statement: str, **parameters: Any) -> None:
    """Run an SQL statement on the ledger of a memory, past all checks."""
    with memory.engine.ledger.read() as conn, conn.engine.begin() as own:
        own.execute(sql(statement), parameters)


def edit_entities(memory: Memory, *edits: EntityEdit, scope: Scope = ALICE) -> int:
    """Carry out edits of entities in one write, and return its number."""
    return memory.engine.ledger.apply(Write(scope, Provenance("test"), entity_edits=edits)).edit


def merge_entities(memory: Memory, name: str, into: str, *, scope: Scope = ALICE) -> int:
    """Merge an entity into the oldest of a name, and return the number of the edit."""
    (merged,), (target, *_) = entity_ids(memory, name), entity_ids(memory, into)
    return edit_entities(memory, Merge(merged, target), scope=scope)


def rename_entity(memory: Memory, name: str, to: str, *, scope: Scope = ALICE) -> int:
    """Give an entity another name, and return the number of the edit."""
    (entity_id,) = entity_ids(memory, name)
    return edit_entities(memory, Rename(entity_id, to), scope=scope)
