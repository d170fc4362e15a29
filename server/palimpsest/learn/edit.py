"""Edit memories by hand: update, delete, restore, undo. Each call can safely be repeated."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from palimpsest.core.errors import (
    ChangedMeanwhileError,
    EmbedderError,
    InputError,
    LedgerError,
    MemoryNotFoundError,
    Remedy,
)
from palimpsest.core.models import (
    EXPIRES_AT,
    ORIGIN,
    USER_NAME,
    Decision,
    Event,
    Fact,
    Kind,
    Memory,
    Message,
    Outcome,
    Provenance,
    Scope,
    Undo,
    has_expired,
)
from palimpsest.core.validation import one_line
from palimpsest.index.backfill import Backfill
from palimpsest.learn.apply import CALL_SECONDS, WriteResult, apply_decisions, apply_write, embed_texts, result_of
from palimpsest.learn.engine import Engine
from palimpsest.learn.facts.naming import with_names
from palimpsest.learn.facts.near_duplicates import with_near_duplicates
from palimpsest.learn.sanitize import Cleaner, sanitize_fact
from palimpsest.store.mapping import memory_hash
from palimpsest.store.queries import id_lookup
from palimpsest.store.queries import memories as memory_queries
from palimpsest.store.queries import messages as message_queries
from palimpsest.store.writes.apply import Write
from palimpsest.text.counting import counted
from palimpsest.text.names.self_name import asks_about_name, told_self_name

MAX_TAGS, MAX_TAG_CHARS = 20, 60
"""How many tags a memory may be given by hand, and how long each may be. Set by hand: more than anybody reads."""


@dataclass(frozen=True, slots=True)
class ScopeContents:
    """The living memories and messages of a scope itself, oldest first."""

    memories: tuple[Memory, ...]
    messages: tuple[Message, ...]

    def __str__(self) -> str:
        """Return how many there are, in the words that confirm their deletion."""
        counts = ((len(self.memories), "memory"), (len(self.messages), "message"))
        return " and ".join(counted(count, noun) for count, noun in counts if count) or "nothing"


async def update(
    engine: Engine,
    scope: Scope,
    memory_id: str,
    text: str | None,
    metadata: Mapping[str, Any] | None,
    caller: str,
    tags: Sequence[str] | None = None,
    revision: int | None = None,
) -> WriteResult:
    """Give a memory another text, other metadata, these tags and no others, or all of them.

    `revision` is the one that the caller has read, if a newer one must not be overwritten. Raises InputError, and
    MemoryNotFoundError for a deleted memory.
    """
    given = Fact(text or "", metadata=metadata or {})
    fact, notes = await engine.run(lambda: sanitize_fact(engine, given))

    def read() -> Memory:
        with engine.ledger.read() as conn:
            return id_lookup.find_memory(conn, scope, memory_id)

    memory = await engine.run(read)
    if memory.deleted_at is not None:
        successor = (await _successors(engine, [memory])).get(memory.id)
        if successor is None or not has_text(successor, fact.text):
            raise deleted_error(memory)
        return WriteResult((Outcome(Event.NONE, successor, duplicate_of=successor.id),), notes=tuple(notes))
    read_revision = refuse_changed(memory, revision)
    vectors, embedding_notes = await embed_texts(engine, [fact.text] if fact.text else [])
    (fact,) = await engine.run(lambda: with_names(engine, scope, [fact]))
    if tags is not None:
        kept, tag_notes = await clean_tags(engine, tags)
        fact, notes = with_labels(memory, fact, kept), [*notes, *tag_notes]
    decision = Decision(
        Event.UPDATE, _confirmed(memory, without_untold_name(memory, fact)), memory.id, sets_labels=tags is not None
    )
    provenance = Provenance("update", caller=caller)
    notes = [*notes, *embedding_notes, *past_end_notes(engine, fact)]
    result = await apply_decisions(
        engine, scope, [decision], provenance, vectors=vectors, notes=notes, read=read_revision
    )
    return await with_near_duplicates(engine, scope, result, vectors)


def refuse_changed(memory: Memory, revision: int | None) -> Mapping[str, int]:
    """Return the revision of a memory that a caller has read, by its id; nothing if they do not say which.

    Raises ChangedMeanwhileError if it is not the present one.
    """
    if revision is None:
        return {}
    if revision != memory.revision:
        raise ChangedMeanwhileError(f"memory '{memory.id[:8]}' was changed meanwhile, so nothing was changed now")
    return {memory.id: revision}


async def set_tags(
    engine: Engine, scope: Scope, memory_id: str, tags: Sequence[str], caller: str, revision: int | None = None
) -> WriteResult:
    """Give a memory these tags, and no others. `revision` is as in `update`.

    Raises InputError, and MemoryNotFoundError for a deleted memory.
    """
    kept, notes = await clean_tags(engine, tags)
    memory = await engine.read(lambda conn: id_lookup.find_memory(conn, scope, memory_id))
    if memory.deleted_at is not None:
        raise deleted_error(memory)
    read = refuse_changed(memory, revision)
    decision = Decision(Event.UPDATE, with_labels(memory, Fact(""), kept), memory.id, sets_labels=True)
    return await apply_decisions(engine, scope, [decision], Provenance("update", caller=caller), notes=notes, read=read)


async def clean_tags(engine: Engine, tags: Sequence[str]) -> tuple[tuple[str, ...], list[str]]:
    """Return tags without secrets, each once, and notes on the secrets. Raises InputError for too many or too long."""
    given = tuple(dict.fromkeys(text for tag in tags if (text := one_line(tag))))
    if len(given) > MAX_TAGS or any(len(tag) > MAX_TAG_CHARS for tag in given):
        raise InputError(f"a memory has at most {MAX_TAGS} tags of {MAX_TAG_CHARS} characters; nothing was changed")
    cleaner = Cleaner(engine)
    return await engine.run(lambda: tuple(cleaner.text(tag) for tag in given)), cleaner.notes()


def with_labels(memory: Memory, fact: Fact, tags: Sequence[str]) -> Fact:
    """Return a fact that gives a memory these tags and no others, and leaves since when it holds."""
    dates = {"valid_from": memory.valid_from, "valid_from_precision": memory.valid_from_precision}
    return replace(fact, tags=tuple(tags), **dates)


def without_untold_name(memory: Memory, fact: Fact) -> Fact:
    """Return a fact that takes the user's name from a memory whose old text told it and nothing else.

    The name that something else told stays: where somebody lives may change without it.
    """
    if (
        fact.text
        and told_self_name(memory.text)
        and str(memory.metadata.get(USER_NAME, "")) not in fact.text
        and USER_NAME not in fact.metadata
    ):
        return replace(fact, metadata={**fact.metadata, USER_NAME: None})
    return fact


def _confirmed(memory: Memory, fact: Fact) -> Fact:
    """Return a fact that takes its origin from a memory: whoever edits the text stands by it."""
    if fact.text and ORIGIN in memory.metadata and ORIGIN not in fact.metadata:
        return replace(fact, metadata={**fact.metadata, ORIGIN: None})
    return fact


async def restore(engine: Engine, scope: Scope, owner_ids: Sequence[str], caller: str) -> WriteResult:
    """Restore memories, deleted or superseded, and deleted messages, all or none.

    Notes name memories that had replaced them, and ends that have passed.
    """
    owners = await _owners(engine, scope, owner_ids)
    successors = await _successors(engine, owners)
    restored = {owner.id for owner in owners}
    decisions = [Decision(Event.ADD, memory_id=owner.id, kind=_kind(owner)) for owner in owners]
    result = await apply_decisions(engine, scope, decisions, Provenance("restore", caller=caller))
    notes = list(result.notes)
    for owner in owners:
        if not isinstance(owner, Memory):
            continue
        successor = successors.get(owner.id)
        if successor is not None and (successor.deleted_at is None or successor.id in restored):
            notes.append(f"[{successor.id[:8]}], which had replaced it, is current too; delete one if they disagree")
        if owner.deleted_at is not None and has_expired(owner.metadata, engine.clock()):
            end = owner.metadata[EXPIRES_AT]
            notes.append(
                f"{EXPIRES_AT} was {end}, which has passed; it was removed, so that this holds until you say so"
            )
    return replace(result, notes=(*notes, *await _embed_restored(engine)))


async def delete(engine: Engine, scope: Scope, owner_ids: Sequence[str], caller: str) -> WriteResult:
    """Delete memories and messages, all or none. One that is deleted already stays deleted."""
    decisions = _deletions(await _owners(engine, scope, owner_ids))
    return await apply_decisions(engine, scope, decisions, Provenance("delete", caller=caller))


async def forget(engine: Engine, scope: Scope, owner_ids: Sequence[str], caller: str, what: str) -> WriteResult:
    """Delete memories with those that they replaced, and messages, all or none: a person who asked confirmed it.

    `what` was asked for, in the person's words.
    """
    decisions = [replace(decision, forgets=True) for decision in _deletions(await _owners(engine, scope, owner_ids))]
    name = await engine.read(lambda conn: memory_queries.name_of_user(conn, scope))
    provenance = Provenance("delete", caller=caller)
    write = Write(scope, provenance, decisions=tuple(decisions), forgets_name=asks_about_name(what, name))
    return result_of(await apply_write(engine, write))


async def scope_contents(engine: Engine, scope: Scope) -> ScopeContents:
    """Return what `delete_all` would delete."""

    def read() -> ScopeContents:
        with engine.ledger.read() as conn:
            memories = memory_queries.memories_of(conn, scope)
            messages = message_queries.messages_of(conn, scope)
        return ScopeContents(tuple(memories), tuple(messages))

    return await engine.run(read)


async def delete_all(engine: Engine, scope: Scope, caller: str) -> WriteResult:
    """Delete every memory and message of a scope itself. If the scope is a project, the global ones stay.

    The recall log of the scope is erased, which no undo brings back.
    """
    contents = await scope_contents(engine, scope)
    decisions = _deletions((*contents.memories, *contents.messages))
    provenance = Provenance("delete", caller=caller)
    return result_of(
        await apply_write(engine, Write(scope, provenance, decisions=tuple(decisions), erases_recalls=True))
    )


async def undo(engine: Engine, scope: Scope, request: Undo, caller: str) -> WriteResult:
    """Undo one edit, all edits since an instant, or the newest one still in effect.

    Raises InputError if that is not possible.
    """
    applied = await apply_write(engine, Write(scope, Provenance("undo", caller=caller), undo=request))
    notes = (*applied.notes, *await _embed_restored(engine))
    return WriteResult(applied.outcomes, notes=notes, entity_edits=applied.entity_edits, edit=applied.edit)


def has_text(memory: Memory, text: str) -> bool:
    """Return whether a memory is living and has this text, apart from case and white space."""
    return memory.deleted_at is None and memory_hash(memory.text) == memory_hash(text)


def past_end_notes(engine: Engine, fact: Fact) -> list[str]:
    """Return a note if a fact has expired before it is stored."""
    if not has_expired(fact.metadata, engine.clock()):
        return []
    return [f"{EXPIRES_AT} {fact.metadata[EXPIRES_AT]} has passed, so this is kept as what held until then"]


def deleted_error(memory: Memory) -> MemoryNotFoundError:
    """Return the error that says how a memory was deleted or superseded."""
    fate = f"was superseded by '{memory.superseded_by[:8]}'" if memory.superseded_by else "is deleted already"
    memory_id = memory.id[:8]
    return MemoryNotFoundError(f"memory '{memory_id}' {fate}, so nothing was changed", Remedy.RESTORE, memory_id)


def _deletions(owners: Sequence[Memory | Message]) -> list[Decision]:
    return [Decision(Event.DELETE, memory_id=owner.id, kind=_kind(owner)) for owner in owners]


async def _successors(engine: Engine, owners: Sequence[Memory | Message]) -> dict[str, Memory]:
    """Return the memories that superseded others, living or deleted, by the ids of these."""
    by_owner = {owner.id: owner.superseded_by for owner in owners if isinstance(owner, Memory) and owner.superseded_by}
    if not by_owner:
        return {}
    found = await engine.read(lambda conn: memory_queries.memories_by_id(conn, list(by_owner.values())))
    return {owner_id: found[successor] for owner_id, successor in by_owner.items() if successor in found}


async def _embed_restored(engine: Engine) -> list[str]:
    """Embed restored texts that have no vector, as far as it fits a call. Return a note about those that wait.

    They are restored by then, so a failure is noted.
    """
    backfill = Backfill(engine.ledger, engine.embedder, only_failed=True, in_background=False)
    end = time.monotonic() + CALL_SECONDS
    try:
        await engine.run(lambda: backfill.run(lambda: time.monotonic() > end))
    except EmbedderError as error:
        return [f"found by words only, until it can be embedded: {error}"]
    except LedgerError as error:
        return [f"done, but what has no vector yet is found by words only until the background embeds it: {error}"]
    return (
        [] if backfill.is_finished else ["some texts are found by words only until they are embedded in the background"]
    )


async def _owners(engine: Engine, scope: Scope, owner_ids: Sequence[str]) -> list[Memory | Message]:
    """Return the memories and messages that ids name, each once."""

    def read() -> list[Memory | Message]:
        with engine.ledger.read() as conn:
            owners = [id_lookup.find(conn, scope, owner_id) for owner_id in owner_ids]
        return list({owner.id: owner for owner in owners}.values())

    return await engine.run(read)


def _kind(owner: Memory | Message) -> Kind:
    return "message" if isinstance(owner, Message) else "memory"
