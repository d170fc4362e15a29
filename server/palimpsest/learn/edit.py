"""What a caller changes by hand: correct, forget, bring back, take back. Each is safe to be sent again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from palimpsest.core.errors import EmbedderError, MemoryNotFoundError
from palimpsest.core.models import Decision, Event, Fact, Kind, Memory, Message, Outcome, Provenance, Scope, Undo
from palimpsest.index.backfill import embed_missing
from palimpsest.learn.apply import WriteResult, apply_decisions, apply_write
from palimpsest.learn.engine import Engine
from palimpsest.learn.sanitize import screened_fact
from palimpsest.store.mapping import content_hash
from palimpsest.store.queries import id_lookup
from palimpsest.store.queries import memories as memory_queries
from palimpsest.store.queries import messages as message_queries
from palimpsest.store.writes.apply import Write


@dataclass(frozen=True, slots=True)
class Stored:
    """Hold what a deletion of everything would forget: memories and turns of a scope itself, oldest first."""

    memories: tuple[Memory, ...]
    messages: tuple[Message, ...]

    def __str__(self) -> str:
        """Say how many there are, in the words that confirm their deletion."""
        counted = ((self.memories, "memories"), (self.messages, "turns"))
        return " and ".join(f"{len(found)} {what}" for found, what in counted if found) or "nothing"


async def update(
    engine: Engine, scope: Scope, memory_id: str, text: str | None, metadata: Mapping[str, Any] | None, caller: str
) -> WriteResult:
    """Give a memory another text, other metadata, or both. Raises MemoryNotFoundError for a deleted one."""
    fact, notes = await engine.run(lambda: screened_fact(engine, Fact(text or "", metadata=metadata or {})))

    def look() -> Memory:
        with engine.ledger.read() as conn:
            return id_lookup.find_memory(conn, scope, memory_id)

    memory = await engine.run(look)
    if memory.deleted_at is not None:
        successor = await engine.run(lambda: _successor(engine, memory))
        if successor is None or not says(successor, fact.text):
            raise gone(memory)
        return WriteResult((Outcome(Event.NONE, successor, duplicate_of=successor.id),), notes=tuple(notes))
    decision = Decision(Event.UPDATE, fact, memory.id)
    return await apply_decisions(engine, scope, [decision], Provenance("update", caller=caller), notes)


async def restore(engine: Engine, scope: Scope, owner_id: str, caller: str) -> WriteResult:
    """Bring a deleted or superseded memory, or a forgotten turn, back; name what took a memory's place."""
    (owner,) = await _found(engine, scope, [owner_id])
    decision = Decision(Event.ADD, memory_id=owner.id, kind=_kind(owner))
    done = await apply_decisions(engine, scope, [decision], Provenance("restore", caller=caller))
    notes = list(done.notes)
    heir = await engine.run(lambda: _successor(engine, owner)) if isinstance(owner, Memory) else None
    if heir is not None and heir.deleted_at is None:
        notes.append(f"[{heir.id[:8]}], which had replaced it, is current too; delete one if they disagree")
    return WriteResult(done.outcomes, notes=(*notes, *await _reembedded(engine)))


async def delete(engine: Engine, scope: Scope, owner_ids: Sequence[str], caller: str) -> WriteResult:
    """Forget memories and turns, all or none; one that is deleted already stays so."""
    owners = await _found(engine, scope, owner_ids)
    decisions = [Decision(Event.DELETE, memory_id=owner.id, kind=_kind(owner)) for owner in owners]
    return await apply_decisions(engine, scope, decisions, Provenance("delete", caller=caller))


async def stored(engine: Engine, scope: Scope) -> Stored:
    """Return what `delete_all` would forget."""

    def read() -> Stored:
        with engine.ledger.read() as conn:
            memories, messages = memory_queries.memories_of(conn, scope), message_queries.messages_of(conn, scope)
        return Stored(tuple(memories), tuple(messages))

    return await engine.run(read)


async def delete_all(engine: Engine, scope: Scope, caller: str) -> WriteResult:
    """Forget every memory and turn of a scope itself; a project's leave the global ones alone."""
    there = await stored(engine, scope)
    owners = (*there.memories, *there.messages)
    decisions = [Decision(Event.DELETE, memory_id=owner.id, kind=_kind(owner)) for owner in owners]
    return await apply_decisions(engine, scope, decisions, Provenance("delete", caller=caller))


async def take_back(engine: Engine, scope: Scope, undo: Undo, caller: str) -> WriteResult:
    """Undo an edit, all since an instant, or the newest still in effect. Raises InputError where that cannot be."""
    applied = await apply_write(engine, Write(scope, Provenance("undo", caller=caller), undo=undo))
    return WriteResult(applied.outcomes, notes=(*applied.notes, *await _reembedded(engine)))


def says(memory: Memory, text: str) -> bool:
    """Say whether a living memory has this very text, but for case and white space."""
    return memory.deleted_at is None and content_hash(memory.text) == content_hash(text)


def gone(memory: Memory) -> MemoryNotFoundError:
    """Return the error that says what became of a memory that is deleted or superseded."""
    fate = f"was superseded by '{memory.superseded_by[:8]}'" if memory.superseded_by else "is deleted already"
    return MemoryNotFoundError(
        f"memory '{memory.id[:8]}' {fate}, so nothing was done; update_memory(restore=true) brings it back"
    )


def _successor(engine: Engine, memory: Memory) -> Memory | None:
    """Return what took a memory's place, living or deleted. Blocking."""
    with engine.ledger.read() as conn:
        return memory_queries.memories_by_id(conn, [memory.superseded_by or ""]).get(memory.superseded_by or "")


async def _reembedded(engine: Engine) -> list[str]:
    """Give texts that came back the vectors they lost; where the embedder fails, a note."""
    try:
        await engine.run(lambda: embed_missing(engine.ledger, engine.embedder, only_failed=True))
    except EmbedderError as error:
        return [f"found by words only, until it can be embedded: {error}"]
    return []


async def _found(engine: Engine, scope: Scope, owner_ids: Sequence[str]) -> list[Memory | Message]:
    """Return what the ids mean, each once."""

    def read() -> list[Memory | Message]:
        with engine.ledger.read() as conn:
            found = [id_lookup.find(conn, scope, each) for each in owner_ids]
        return list({owner.id: owner for owner in found}.values())

    return await engine.run(read)


def _kind(owner: Memory | Message) -> Kind:
    return "message" if isinstance(owner, Message) else "memory"
