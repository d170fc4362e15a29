"""Corrections that people make of an open memory: of many memories at once, of duplicates, of what contradicts.

Every method that writes makes one edit, which can be undone, or changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, tzinfo
from typing import Any

from sqlalchemy import Connection

from palimpsest.core.clock import Precision, parse_date, parse_instant, parse_until, span_of
from palimpsest.core.errors import InputError
from palimpsest.core.models import (
    EXPIRES_AT,
    ORIGIN,
    PINNED,
    USER_NAME,
    Decision,
    Event,
    Fact,
    Memory,
    Message,
    Provenance,
    Scope,
)
from palimpsest.learn import edit
from palimpsest.learn.apply import AfterWrite, WriteResult, apply_decisions
from palimpsest.learn.engine import Engine
from palimpsest.learn.facts.alike import AlikePage, NearMemory, contradicting, nearest, repeating
from palimpsest.learn.facts.conflicts import Conflict, conflicts
from palimpsest.store.queries import id_lookup
from palimpsest.store.queries import memories as memory_queries
from palimpsest.store.queries import messages as message_queries
from palimpsest.text.counting import counted

OWN_METADATA = frozenset({USER_NAME, EXPIRES_AT})
"""What a merge does not take over: it is true of the one text that says it."""


class Corrections:
    """Corrections of a memory, as `memory.corrections`. Every method raises PalimpsestError."""

    def __init__(self, engine: Engine, after_write: AfterWrite) -> None:
        self._engine = engine
        self._after_write = after_write

    async def duplicates(self, scope: Scope, before: int | None = None) -> AlikePage:
        """Return groups of memories that say nearly the same, from below row `before`, the surest group first."""
        return await self._engine.run(lambda: repeating(self._engine, scope, before))

    async def contradictions(self, scope: Scope, before: int | None = None) -> AlikePage:
        """Return groups of memories of which the newer one probably replaces the others, as `duplicates` does."""
        return await self._engine.run(lambda: contradicting(self._engine, scope, before))

    async def conflicts(self, scope: Scope, memory_id: str = "") -> Sequence[Conflict]:
        """Return relations that can have one value and that living memories give several, the newest first.

        With `memory_id` only those that this memory states.
        """
        return await self._engine.run(lambda: conflicts(self._engine, scope, memory_id))

    async def nearest(self, scope: Scope, memory_id: str) -> tuple[Memory, Sequence[NearMemory]]:
        """Return a living memory and those nearest to it of the same scope, the nearest first."""
        memories, _ = await self._chosen(scope, [memory_id])
        if not memories:
            raise InputError("a message cannot be merged; nothing was changed")
        (memory,) = memories
        return memory, await self._engine.run(lambda: nearest(self._engine, memory))

    async def merge(self, scope: Scope, kept_id: str, other_ids: Sequence[str], *, caller: str = "") -> WriteResult:
        """Close memories in favour of one that says the same, which takes over their messages, tags and metadata."""
        kept, others = await self._kept_and_others(scope, kept_id, other_ids)

        def messages(conn: Connection) -> tuple[str, ...]:
            behind = message_queries.sources_of(conn, [other.id for other in others])
            return tuple(dict.fromkeys(message.id for found in behind.values() for message in found))

        taken = _lacking(kept, others, await self._engine.read(messages))
        decisions = [Decision(Event.UPDATE, taken, kept.id), *_closing(kept, others)]
        return await self._write(scope, decisions, "merge", caller)

    async def settle(
        self, scope: Scope, kept_id: str, other_ids: Sequence[str], *, were_true: bool = True, caller: str = ""
    ) -> WriteResult:
        """Close memories in favour of the one that is true now, or delete them if they never `were_true`."""
        kept, others = await self._kept_and_others(scope, kept_id, other_ids)
        if were_true:
            return await self._write(scope, _closing(kept, others), "settle", caller)
        deletions = [Decision(Event.DELETE, memory_id=other.id) for other in others]
        return await self._write(scope, deletions, "settle", caller)

    async def correct(
        self,
        scope: Scope,
        memory_id: str,
        *,
        text: str,
        tags: Sequence[str],
        pinned: bool,
        caller: str = "",
        revision: int | None = None,
    ) -> WriteResult:
        """Give a memory this text, these tags and no others, and pin it or not. `revision` as in `Memory.update`."""
        metadata = {PINNED: pinned or None}
        updating = edit.update(self._engine, scope, memory_id, text, metadata, caller, tags=tags, revision=revision)
        return await self._after_write(scope, updating)

    async def set_validity(
        self, scope: Scope, memory_id: str, *, since: str, until: str, caller: str = "", revision: int | None = None
    ) -> WriteResult:
        """Say since when a memory holds and with what it ends, as ISO 8601; "" for what is not known.

        `revision` is as in `Memory.update`.
        """
        memories, _ = await self._chosen(scope, [memory_id])
        if not memories:
            raise InputError("a message has no dates to correct; nothing was changed")
        zone = self._engine.clock().tzinfo or UTC
        begins = _beginning(since.strip(), zone)
        end = parse_until(until, EXPIRES_AT, zone) if until.strip() else None
        if begins is not None and end is not None and end <= span_of(*begins, zone).first:
            raise InputError(f"{until} is before {since}; nothing was changed")
        (memory,) = memories
        read = edit.refuse_changed(memory, revision)
        fact = replace(edit.with_labels(memory, Fact(""), memory.tags), valid_from=None, valid_from_precision="")
        fact = replace(fact, metadata={EXPIRES_AT: until.strip() or None})
        if begins is not None:
            fact = replace(fact, valid_from=begins[0], valid_from_precision=begins[1])
        decision = Decision(Event.UPDATE, fact, memory.id, sets_labels=True)
        notes = edit.past_end_notes(self._engine, fact)
        applying = apply_decisions(
            self._engine, scope, [decision], Provenance("update", caller=caller), notes=notes, read=read
        )
        return await self._after_write(scope, applying)

    async def add_tag(self, scope: Scope, owner_ids: Sequence[str], tag: str, *, caller: str = "") -> WriteResult:
        """Give memories one more tag."""
        memories, notes = await self._chosen(scope, owner_ids)
        tags, on_tag = await self._tag(tag)
        full = [memory for memory in memories if len({*memory.tags, *tags}) > edit.MAX_TAGS]
        if full:
            raise InputError(f"[{full[0].id[:8]}] has {edit.MAX_TAGS} tags, which is the most; nothing was changed")
        decisions = [Decision(Event.UPDATE, Fact("", tags=tags), memory.id) for memory in memories]
        return await self._write(scope, decisions, "update", caller, (*notes, *on_tag))

    async def remove_tag(self, scope: Scope, owner_ids: Sequence[str], tag: str, *, caller: str = "") -> WriteResult:
        """Take a tag from the memories that have it."""
        memories, notes = await self._chosen(scope, owner_ids)
        (removed,), _ = await self._tag(tag)
        decisions = [
            Decision(Event.UPDATE, edit.with_labels(memory, Fact(""), left), memory.id, sets_labels=True)
            for memory in memories
            if removed in memory.tags
            for left in [tuple(kept for kept in memory.tags if kept != removed)]
        ]
        return await self._write(scope, decisions, "update", caller, notes)

    async def pin(self, scope: Scope, owner_ids: Sequence[str], *, pinned: bool, caller: str = "") -> WriteResult:
        """Pin memories, or take them from the pinned ones."""
        memories, notes = await self._chosen(scope, owner_ids)
        fact = Fact("", metadata={PINNED: pinned or None})
        decisions = [Decision(Event.UPDATE, fact, memory.id) for memory in memories]
        return await self._write(scope, decisions, "update", caller, notes)

    async def captured(self, scope: Scope, limit: int) -> Sequence[Memory]:
        """Return what was recognized in conversations without a model and nobody has confirmed, the newest first."""
        return await self._engine.read(lambda conn: memory_queries.captured_memories(conn, scope, limit))

    async def confirm(self, scope: Scope, owner_ids: Sequence[str], *, caller: str = "") -> WriteResult:
        """Confirm memories, which then have no origin any more."""
        memories, notes = await self._chosen(scope, owner_ids)
        decisions = [Decision(Event.UPDATE, Fact("", metadata={ORIGIN: None}), memory.id) for memory in memories]
        return await self._write(scope, decisions, "update", caller, notes)

    async def restore(self, scope: Scope, owner_ids: Sequence[str], *, caller: str = "") -> WriteResult:
        """Restore memories and messages, all or none."""
        return await self._after_write(scope, edit.restore(self._engine, scope, owner_ids, caller))

    async def _write(
        self, scope: Scope, decisions: Sequence[Decision], stage: str, caller: str, notes: Sequence[str] = ()
    ) -> WriteResult:
        if not decisions:
            return WriteResult(notes=tuple(notes))
        applying = apply_decisions(self._engine, scope, decisions, Provenance(stage, caller=caller), notes=notes)
        return await self._after_write(scope, applying)

    async def _tag(self, tag: str) -> tuple[tuple[str, ...], Sequence[str]]:
        tags, notes = await edit.clean_tags(self._engine, [tag])
        if not tags:
            raise InputError("name the tag; nothing was changed")
        return tags, notes

    async def _chosen(self, scope: Scope, owner_ids: Sequence[str]) -> tuple[list[Memory], tuple[str, ...]]:
        """Return the memories that ids name, each once, and a note on messages, which have neither tags nor pins.

        Raises MemoryNotFoundError if one of them is not living.
        """

        def read(conn: Connection) -> list[Memory | Message]:
            return [id_lookup.find(conn, scope, owner_id) for owner_id in owner_ids]

        owners = {owner.id: owner for owner in await self._engine.read(read)}.values()
        memories = [owner for owner in owners if isinstance(owner, Memory)]
        for memory in memories:
            if memory.deleted_at is not None:
                raise edit.deleted_error(memory)
        left_out = len(owners) - len(memories)
        return memories, (f"{counted(left_out, 'message')} stayed as they are",) if left_out else ()

    async def _kept_and_others(
        self, scope: Scope, kept_id: str, other_ids: Sequence[str]
    ) -> tuple[Memory, Sequence[Memory]]:
        """Return a memory and those to close in its favour. Raises InputError if they are not of the same scope."""
        memories, _ = await self._chosen(scope, [kept_id, *other_ids])
        kept, *others = memories
        if not others:
            raise InputError("choose at least two memories; nothing was changed")
        if any(other.scope != kept.scope for other in others):
            raise InputError("these memories belong to different projects, agents or runs; nothing was changed")
        return kept, others


def _beginning(since: str, zone: tzinfo) -> tuple[datetime, Precision] | None:
    """Return an ISO 8601 time and how exactly it is given; None for an empty text. Raises InputError."""
    if not since:
        return None
    return parse_date(since) or (parse_instant(since, "valid_from", zone), "")


def _closing(kept: Memory, others: Iterable[Memory]) -> list[Decision]:
    return [Decision(Event.DELETE, memory_id=other.id, successor=kept.id) for other in others]


def _lacking(kept: Memory, others: Sequence[Memory], sources: tuple[str, ...]) -> Fact:
    """Return what others know and a memory does not. What is pinned stays pinned."""
    metadata: dict[str, Any] = {}
    for other in others:
        metadata = {**other.metadata, **metadata}
    metadata = {key: value for key, value in metadata.items() if key not in {*kept.metadata, *OWN_METADATA}}
    fact = Fact(
        "",
        sources,
        keywords=tuple(word for other in others for word in other.keywords),
        tags=tuple(tag for other in others for tag in other.tags),
        metadata=metadata,
    )
    for other in others:
        if kept.happened_at is None and fact.happened_at is None and other.happened_at is not None:
            fact = replace(fact, happened_at=other.happened_at, happened_precision=other.happened_precision)
        if kept.valid_from is None and fact.valid_from is None and other.valid_from is not None:
            fact = replace(fact, valid_from=other.valid_from, valid_from_precision=other.valid_from_precision)
    return fact
