"""What the graph of a ledger holds, by names, for tests that change it through `Ledger.apply`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from sqlalchemy import Row, select

from palimpsest.core.models import (
    AppliedWrite,
    Decision,
    Edit,
    Entity,
    EntityEdit,
    EntityType,
    Event,
    Fact,
    Memory,
    NamedEntity,
    Provenance,
    Relation,
    Scope,
    Undo,
    name_key,
)
from palimpsest.core.protocols import Vector
from palimpsest.store import verify
from palimpsest.store.apply import Write
from palimpsest.store.graph.identity import roots_of
from palimpsest.store.history import edits as read_edits
from palimpsest.store.ledger import Ledger
from palimpsest.store.schema import entities, entity_aliases, memories, mentions, relations
from tests.support.memory import ALICE, StoppedClock

ANY_SCOPE = Scope("alice", project="web")


@dataclass(frozen=True)
class Graph:
    """A ledger whose graph is read by names. The clock goes on by a minute with every write."""

    ledger: Ledger
    clock: StoppedClock
    notes: list[str] = field(default_factory=list[str])

    def apply(self, write: Write) -> AppliedWrite:
        """Carry out a write."""
        self.clock.forward(minutes=1)
        applied = self.ledger.apply(write)
        self.notes.extend(applied.notes)
        return applied

    def add(
        self,
        text: str,
        *names: str | tuple[str, EntityType],
        relations: tuple[Relation, ...] = (),
        scope: Scope = ALICE,
        edits: tuple[EntityEdit, ...] = (),
        vector: Vector | None = None,
        replaces: tuple[str, ...] = (),
        **fact: Any,
    ) -> str:
        """Add a memory that names entities, with their types if they have any. Return its id."""
        named = tuple(NamedEntity(name) if isinstance(name, str) else NamedEntity(*name) for name in names)
        decision = Decision(Event.ADD, Fact(text, entities=named, relations=relations, **fact), replaces=replaces)
        vectors = {} if vector is None else {text: vector}
        write = Write(scope, Provenance("test"), decisions=(decision,), entity_edits=edits)
        return self.apply(replace(write, vectors=vectors, embedder="e")).outcomes[0].memory.id

    def change(self, memory_id: str, text: str, *names: str, **fact: Any) -> Memory:
        """Give a memory another text, which names entities."""
        decision = Decision(Event.UPDATE, Fact(text, entities=tuple(map(NamedEntity, names)), **fact), memory_id)
        return self.apply(Write(ANY_SCOPE, Provenance("test"), decisions=(decision,))).outcomes[0].memory

    def edit(self, edit: EntityEdit, *, scope: Scope = ALICE, stage: str = "graph") -> AppliedWrite:
        """Edit an entity."""
        return self.apply(Write(scope, Provenance(stage), entity_edits=(edit,)))

    def undo(self, edit: int | None = None, *, since: datetime | None = None, scope: Scope = ALICE) -> AppliedWrite:
        """Undo one edit, everything since an instant, or the newest edit in effect."""
        return self.apply(Write(scope, Provenance("undo"), undo=Undo(edit, since)))

    def log(self, scope: Scope = ANY_SCOPE) -> list[Edit]:
        """Return the edits that a scope sees, newest first."""
        with self.ledger.read() as conn:
            return read_edits(conn, scope, 1_000)

    def faults(self) -> list[str]:
        """Return what does not agree when every row is compared with the rows it depends on."""
        return self.ledger.read_with(verify.verify, self.ledger.database, lambda _done, _total: None).texts()

    def id(self, name: str) -> str:
        """Return the id of the one entity that is called so and was not merged."""
        (found,) = self._rows(select(entities).where(entities.c.name == name, entities.c.merged_into.is_(None)))
        return str(found.id)

    def oldest(self, name: str) -> str:
        """Return the id of the oldest entity of that name."""
        return str(self._rows(select(entities).where(entities.c.name == name).order_by(entities.c.seq))[0].id)

    def names(self) -> set[str]:
        """Return the names of the entities that present memories mention, each under the one it was merged into."""
        return {root.name for _, _, root in self._mentioned()}

    def memories_about(self, name: str) -> set[str]:
        """Return the living memories that mention an entity called so, also as an alias, or what it was merged into."""
        called = self._rows(select(entities.c.id).where(entities.c.name == name))
        aliases = select(entity_aliases.c.entity_id.label("id")).where(entity_aliases.c.key == name_key(name))
        roots = self._roots()
        wanted = {roots[row.id] for row in called or self._rows(aliases)}
        return {owner for owner, _, root in self._mentioned() if root in wanted}

    def partners(self, memory_id: str) -> set[str]:
        """Return the living memories that mention the first entity that a memory mentions."""
        mentioned = self._mentioned()
        wanted = next(root for owner, _, root in mentioned if owner == memory_id)
        return {owner for owner, _, root in mentioned if root == wanted}

    def first_entity(self, memory_id: str) -> set[str]:
        """Return the id of the first entity that a memory mentions, as it was stored."""
        return {self._rows(select(mentions).where(mentions.c.current, mentions.c.owner_id == memory_id))[0].entity_id}

    def spoken_ids(self, message_id: str) -> dict[str, str]:
        """Return the ids of the entities that a message mentions, by the key of the name."""
        of_message = (mentions.c.kind == "message", mentions.c.owner_id == message_id)
        return {row.key: row.entity_id for row in self._rows(select(mentions).where(*of_message))}

    def spoken(self, message_id: str) -> dict[str, str]:
        """Return the names of the entities that a message mentions, by the key of the name."""
        roots = self._roots()
        return {key: roots[entity_id].name for key, entity_id in self.spoken_ids(message_id).items()}

    def relations(self) -> set[tuple[str, str, str]]:
        """Return the relations of all memories by the names of entities."""
        roots = self._roots()
        stated = self._rows(select(relations))
        return {(roots[row.source_id].name, row.name, roots[row.destination_id].name) for row in stated}

    def state(self) -> tuple[Any, ...]:
        """Return all that there is to see: entities, what living memories mean by their names, and their relations."""
        roots, mentioned = self._roots(), self._mentioned()
        stated = select(relations).join(memories, memories.c.id == relations.c.memory_id)
        living = stated.where(memories.c.deleted_at.is_(None)).order_by(relations.c.memory_id, relations.c.position)
        given = self._rows(select(entity_aliases).where(entity_aliases.c.given))
        return (
            {root.id: (root.name, root.type) for _, _, root in mentioned},
            {(owner, key): root.id for owner, key, root in mentioned},
            [
                (row.memory_id, roots[row.source_id].id, row.key, roots[row.destination_id].id)
                for row in self._rows(living)
            ],
            {(row.entity_id, row.key, row.name) for row in given},
        )

    def _rows(self, query: Any) -> Sequence[Row[Any]]:
        with self.ledger.read() as conn:
            return conn.execute(query).all()

    def _roots(self) -> dict[str, Entity]:
        with self.ledger.read() as conn:
            return roots_of(conn, conn.execute(select(entities.c.id)).scalars().all())

    def _mentioned(self) -> list[tuple[str, str, Entity]]:
        """Return what living memories mention in their present texts: memory, key of the name and entity."""
        roots = self._roots()
        query = select(mentions).join(memories, memories.c.id == mentions.c.owner_id).order_by(mentions.c.seq)
        rows = self._rows(query.where(mentions.c.current, memories.c.deleted_at.is_(None)))
        return [(row.owner_id, row.key, roots[row.entity_id]) for row in rows]
