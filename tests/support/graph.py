"""What the graph of a ledger holds, by names, for tests that change it through `Ledger.apply`."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from sqlalchemy import Row, select

from palimpsest.core.models import (
    AppliedWrite,
    Decision,
    Edit,
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
        (found,) = {row.id for row in self._entities() if row.name == name and row.merged_into is None}
        return str(found)

    def names(self) -> set[str]:
        """Return the names of the entities that present memories mention, each under the one it was merged into."""
        roots = self._roots()
        return {roots[row.entity_id].name for row in self._mentions() if row.current and row.owner_id in self.living()}

    def memories_about(self, name: str) -> set[str]:
        """Return the living memories that mention an entity called so, also as an alias, or what it was merged into."""
        roots, living = self._roots(), self.living()
        with self.ledger.read() as conn:
            named = select(entity_aliases.c.entity_id).where(entity_aliases.c.key == name_key(name))
            by_alias = set(conn.execute(named).scalars())
        called = {row.id for row in self._entities() if row.name == name} or by_alias
        wanted = {roots[entity_id].id for entity_id in called}
        return {
            row.owner_id
            for row in self._mentions()
            if row.current and row.owner_id in living and roots[row.entity_id].id in wanted
        }

    def memories_of(self, entity_id: str) -> set[str]:
        """Return the memories whose present text mentions exactly this entity."""
        return {row.owner_id for row in self._mentions() if row.current and row.entity_id == entity_id}

    def partners(self, memory_id: str) -> set[str]:
        """Return the living memories that mention the first entity that a memory mentions."""
        roots, living = self._roots(), self.living()
        rows = [row for row in self._mentions() if row.current and row.owner_id in living]
        wanted = next(roots[row.entity_id].id for row in rows if row.owner_id == memory_id)
        return {row.owner_id for row in rows if roots[row.entity_id].id == wanted}

    def first_entity(self, memory_id: str) -> set[str]:
        """Return the id of the first entity that a memory mentions, as it was stored."""
        return {next(row.entity_id for row in self._mentions() if row.current and row.owner_id == memory_id)}

    def spoken_ids(self, message_id: str) -> dict[str, str]:
        """Return the ids of the entities that a message mentions, by the key of the name."""
        with self.ledger.read() as conn:
            of_message = (mentions.c.kind == "message", mentions.c.owner_id == message_id)
            return {row.key: row.entity_id for row in conn.execute(select(mentions).where(*of_message))}

    def spoken(self, message_id: str) -> dict[str, str]:
        """Return the names of the entities that a message mentions, by the key of the name."""
        roots = self._roots()
        return {key: roots[entity_id].name for key, entity_id in self.spoken_ids(message_id).items()}

    def oldest(self, name: str) -> str:
        """Return the id of the oldest entity of that name."""
        return str(min((row for row in self._entities() if row.name == name), key=lambda row: row.seq).id)

    def relations(self) -> set[tuple[str, str, str]]:
        """Return the relations of all memories by the names of entities."""
        roots = self._roots()
        with self.ledger.read() as conn:
            rows = conn.execute(select(relations)).all()
        return {(roots[row.source_id].name, row.name, roots[row.destination_id].name) for row in rows}

    def living(self) -> set[str]:
        """Return the ids of the living memories."""
        with self.ledger.read() as conn:
            return set(conn.execute(select(memories.c.id).where(memories.c.deleted_at.is_(None))).scalars())

    def state(self) -> tuple[Any, ...]:
        """Return all that there is to see: entities, what living memories mean by their names, and their relations."""
        roots, living = self._roots(), self.living()
        mentioned = [row for row in self._mentions() if row.current and row.owner_id in living]
        seen = {roots[row.entity_id].id for row in mentioned}
        shown = {root.id: (root.name, root.type) for root in roots.values() if root.id in seen}
        with self.ledger.read() as conn:
            stated = conn.execute(select(relations).order_by(relations.c.memory_id, relations.c.position)).all()
            given = conn.execute(select(entity_aliases).where(entity_aliases.c.given)).all()
        return (
            shown,
            {(row.owner_id, row.key): roots[row.entity_id].id for row in mentioned},
            [
                (row.memory_id, roots[row.source_id].id, row.key, roots[row.destination_id].id)
                for row in stated
                if row.memory_id in living
            ],
            {(row.entity_id, row.key, row.name) for row in given},
        )

    def _entities(self) -> list[Row[Any]]:
        with self.ledger.read() as conn:
            return list(conn.execute(select(entities)).all())

    def _roots(self) -> dict[str, Any]:
        with self.ledger.read() as conn:
            return dict(roots_of(conn, [row.id for row in conn.execute(select(entities))]))

    def _mentions(self) -> list[Row[Any]]:
        with self.ledger.read() as conn:
            return list(
                conn.execute(select(mentions).where(mentions.c.kind == "memory").order_by(mentions.c.seq)).all()
            )
