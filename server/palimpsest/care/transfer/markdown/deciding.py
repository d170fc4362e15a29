"""Turn a merge into writes of the ledger: one for each scope, because a write adds memories to one scope."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from palimpsest.care.transfer.markdown.items import pinned_value
from palimpsest.care.transfer.markdown.merging import Addition, Change, Merge, Removal
from palimpsest.core.clock import parse_date
from palimpsest.core.models import EXPIRES_AT, PINNED, Decision, Event, Fact, Provenance, Scope
from palimpsest.core.protocols import Vector
from palimpsest.learn.edit import without_untold_name
from palimpsest.learn.engine import Engine
from palimpsest.learn.facts.naming import with_names
from palimpsest.store.writes.apply import Write

STAGE = "import"


@dataclass(frozen=True, slots=True)
class Decided:
    """What is to be written: the writes, and for each of them what its decisions carry out, in the same order."""

    writes: tuple[Write, ...]
    of_writes: tuple[Sequence[Removal | Change | Addition], ...]


def new_texts(merged: Merge) -> list[str]:
    """Return the texts that a merge brings."""
    changed = [change.shown.text for change in merged.changes if "text" in change.parts]
    return [*changed, *(addition.shown.text for addition in merged.additions)]


def decide(
    engine: Engine, scope: Scope, merged: Merge, removals: Sequence[Removal], vectors: Mapping[str, Vector], caller: str
) -> Decided:
    """Return the writes of a merge; `vectors` are those of its texts, each of shape (dims,). Blocking.

    Memories leave first, so that their texts are free for others.
    """
    first: list[Removal | Change | Addition] = [*removals, *merged.changes]
    by_scope: dict[Scope, list[Removal | Change | Addition]] = {scope: first} if first else {}
    for addition in merged.additions:
        by_scope.setdefault(addition.scope, []).append(addition)
    read = {each.memory.id: each.memory.revision for each in (*removals, *merged.changes)}
    provenance = Provenance(STAGE, caller=caller)
    writes: list[Write] = []
    for of_scope, steps in by_scope.items():
        decisions = _decisions(engine, of_scope, steps)
        fingerprint = engine.embedder.fingerprint
        write = Write(
            of_scope,
            provenance,
            decisions=decisions,
            vectors=vectors,
            embedder=fingerprint,
            read={} if writes else read,
        )
        writes.append(write)
    return Decided(tuple(writes), tuple(by_scope.values()))


def _decisions(engine: Engine, scope: Scope, steps: Sequence[Removal | Change | Addition]) -> tuple[Decision, ...]:
    facts = with_names(engine, scope, [_fact(step) for step in steps])
    return tuple(_decision(step, fact) for step, fact in zip(steps, facts, strict=True))


def _decision(step: Removal | Change | Addition, fact: Fact) -> Decision:
    if isinstance(step, Removal):
        return Decision(Event.DELETE, memory_id=step.memory.id)
    if isinstance(step, Addition):
        return Decision(Event.ADD, fact)
    return Decision(Event.UPDATE, without_untold_name(step.memory, fact), step.memory.id, sets_labels=True)


def _fact(step: Removal | Change | Addition) -> Fact:
    """Return what a memory is to say. A change leaves out what the item did not change."""
    if isinstance(step, Removal):
        return Fact("")
    shown = step.shown
    happened, since = parse_date(shown.date), parse_date(shown.since)
    labels = {PINNED: pinned_value(shown.pinned), EXPIRES_AT: shown.until or None}
    fact = Fact(shown.text, tags=shown.tags, metadata=labels)
    if since is not None:
        fact = replace(fact, valid_from=since[0], valid_from_precision=since[1])
    if happened is not None:
        fact = replace(fact, happened_at=happened[0], happened_precision=happened[1])
    return fact if isinstance(step, Addition) else _only_changed(step, fact)


def _only_changed(change: Change, fact: Fact) -> Fact:
    """Return a fact with the memory's own labels where the item did not change them: it shows them less exactly."""
    memory, parts = change.memory, change.parts
    keys = {PINNED: "pinned", EXPIRES_AT: "until"}
    fact = replace(fact, metadata={key: value for key, value in fact.metadata.items() if keys[key] in parts})
    if "text" not in parts:
        fact = replace(fact, text="")
    if "tags" not in parts:
        fact = replace(fact, tags=memory.tags)
    if "date" not in parts:
        fact = replace(fact, happened_at=None, happened_precision="")
    if "since" not in parts:
        fact = replace(fact, valid_from=memory.valid_from, valid_from_precision=memory.valid_from_precision)
    return fact
