"""Turn what the model says about facts and requests to forget into decisions that the ledger can apply.

The model says which facts are known, which complete a memory, and which contradict one. Of two that contradict each
other the later one holds: that is decided in `time_order.py`. An older fact that arrives late is stored as closed.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from palimpsest.core.entities import SELF_NAMES, name_key, plain_name, relation_key
from palimpsest.core.models import Decision, Event, Fact, Memory
from palimpsest.llm.decisions.fact_groups import FactGroup, fact_groups
from palimpsest.llm.decisions.forgetting import Forgetting, forgetting
from palimpsest.llm.decisions.plausibility import believed
from palimpsest.llm.decisions.time_order import Statement, held_until, is_later
from palimpsest.llm.decisions.verdicts import Comparison, Decisions, KnownEntry, Verdict, with_text
from palimpsest.llm.names import with_name
from palimpsest.text.dates.finder import dates_in
from palimpsest.text.relations import dated
from palimpsest.text.tokenizer import search_tokens

_ANY_DAY = datetime(2000, 1, 1, tzinfo=UTC)
"""The day that dates in words count from. Those that do count from a day, as "last year", are not compared."""


@dataclass(frozen=True, slots=True)
class _Taken:
    """The entries that are closed or forgotten, which no UPDATE may change, and those that one has changed already."""

    deleted: AbstractSet[int | None]
    reworded: set[int] = field(default_factory=set[int])


def settle(verdicts: Sequence[Verdict], comparison: Comparison) -> Decisions:
    """Return the decisions that follow from the model's verdicts, as far as these are plausible."""
    verdicts, doubts = believed(verdicts, comparison)
    gone = forgetting(verdicts, comparison)
    groups = [replace(group, verdicts=_allowed(group, comparison)) for group in fact_groups(verdicts, comparison, gone)]
    ended = _ended(verdicts, comparison, gone)
    closed = {verdict.entry for group in groups for verdict in _contradictions(group, comparison, is_newer=True)}
    closed |= ended.keys()
    taken = _Taken(gone.entries | closed)
    decided = {verdict.item for verdict in verdicts}
    decisions: list[Decision] = []
    dropped: list[Fact] = []
    for group in groups:
        made = _about(group, comparison, taken) if group.verdicts else [Decision(Event.ADD, group.fact)]
        if not made:
            dropped += [comparison.facts[number] for number in group.numbers]
        known = [Decision(Event.NONE, fact, comparison.entries[entry].memory.id) for fact, entry in group.known]
        decisions += [*known, *_with_outdated(group, made)]
    decisions += ended.values()
    # A NONE needs its memory to live, and an UPDATE may close a memory whose new text another one has already.
    changed = {comparison.entries[entry].memory.id for entry in (*taken.reworded, *closed) if entry is not None}
    decisions.sort(key=lambda decision: decision.event is not Event.NONE or decision.memory_id not in changed)
    return Decisions(
        tuple(_delete_each_once([*gone.decisions, *decisions])),
        tuple(dropped),
        tuple(group.fact for group in groups if group.numbers[0] not in decided),
        gone.granted,
        gone.unmatched,
        gone.unanswered,
        gone.elsewhere,
        doubts,
        questioned=gone.questioned,
    )


def _allowed(group: FactGroup, comparison: Comparison) -> tuple[Verdict, ...]:
    """Return the verdicts that can be carried out. If none can, the fact is added in its own words.

    A plan contradicts nothing that holds today.
    """
    allowed: list[Verdict] = []
    for verdict in group.verdicts:
        entry = comparison.stored(verdict.entry)
        if entry is None:
            allowed.append(verdict)
        elif verdict.event is Event.UPDATE:
            allowed += _allowed_update(group.fact, verdict, entry, comparison)
        elif verdict.event is not Event.DELETE or not _is_plan_against_today(group.fact, entry, comparison):
            allowed.append(verdict)
    return tuple(allowed) if allowed or not group.verdicts else (Verdict(group.numbers[0], Event.ADD),)


def _allowed_update(fact: Fact, verdict: Verdict, entry: KnownEntry, comparison: Comparison) -> list[Verdict]:
    """Return an UPDATE that loses nothing.

    The model did not see all of a shortened memory. An older fact that takes words of a memory away contradicts it. A
    text that makes a day a month or a year is not taken: the fact is added beside.
    """
    if entry.shown_text != entry.memory.text or _coarsens(entry.memory.text, verdict.text or ""):
        return []
    words = set(search_tokens(with_name(entry.memory.text, comparison.user_name)))
    if is_later(fact, entry, comparison.now) or words <= set(search_tokens(verdict.text or "")):
        return [verdict]
    return [replace(verdict, event=Event.DELETE, text=None)]


def _coarsens(old: str, new: str) -> bool:
    """Return whether a date of an old text is only part of a longer one in the new text."""
    was, now = ([span for span in dates_in(text, _ANY_DAY) if not span.is_relative] for text in (old, new))
    kept = {(span.start, span.end) for span in now}
    return any(
        wide.start <= exact.start and exact.end <= wide.end
        for exact in was
        if (exact.start, exact.end) not in kept
        for wide in now
    )


def _is_plan_against_today(fact: Fact, entry: KnownEntry, comparison: Comparison) -> bool:
    now = comparison.now
    return Statement.of_fact(fact).is_plan(now) and not Statement.of_entry(entry).is_plan(now)


def _contradictions(group: FactGroup, comparison: Comparison, *, is_newer: bool) -> list[Verdict]:
    """Return the verdicts about entries that the fact contradicts and that are older than it, or newer."""
    return [
        verdict
        for verdict in group.verdicts
        if verdict.event is Event.DELETE
        and verdict.entry is not None
        and is_later(group.fact, comparison.entries[verdict.entry], comparison.now) is is_newer
    ]


def _about(group: FactGroup, comparison: Comparison, taken: _Taken) -> list[Decision]:
    """Return the decisions about one fact. UPDATE of an entry that is deleted or already updated becomes ADD."""
    fact, text = group.fact, group.fact.text
    decisions: list[Decision] = []
    adds = False
    for verdict in group.verdicts:
        number, event = verdict.entry, verdict.event
        if event is Event.UPDATE and number is not None and number not in taken.deleted | taken.reworded:
            taken.reworded.add(number)
            memory = comparison.entries[number].memory
            decisions.append(Decision(Event.UPDATE, _joined(with_text(fact, verdict.text), memory), memory.id))
        elif event is Event.NONE and number is not None and number not in taken.deleted:
            known = Decision(Event.NONE, fact, comparison.entries[number].memory.id)
            decisions += [] if known in decisions else [known]
        elif event in (Event.ADD, Event.UPDATE) or (event is Event.NONE and number is not None):
            adds, text = True, verdict.text or text
        elif event is Event.DELETE:
            text = verdict.text or text
    if any(verdict.event is Event.DELETE for verdict in group.verdicts):
        known_by = decisions[0].memory_id if decisions and not adds else None
        return decisions + _replacement(group, text, known_by, comparison)
    return [*decisions, Decision(Event.ADD, with_text(fact, text))] if adds else decisions


def _joined(fact: Fact, memory: Memory) -> Fact:
    """Return a fact that completes a memory, with what the memory names and states and the new text still names.

    Of relations with one name from one source, only those of the fact stay: that may be what has changed.
    """
    text = plain_name(fact.text)
    changed = {(name_key(relation.source), relation_key(relation.name)) for relation in fact.relations}
    relations = [
        relation
        for relation in (dated(memory) if fact.valid_from else memory.relations)
        if _is_named(relation.source, text) and _is_named(relation.destination, text)
        if (name_key(relation.source), relation_key(relation.name)) not in changed
    ]
    entities = [entity for entity in memory.entities if _is_named(entity.name, text)]
    named = {name_key(entity.name): entity for entity in (*entities, *fact.entities)}
    return replace(fact, entities=tuple(named.values()), relations=(*relations, *fact.relations))


def _is_named(name: str, text: str) -> bool:
    """Return whether a text has a name, with or without what tells it apart in brackets. The user is always meant."""
    key = name_key(name)
    return key in SELF_NAMES or key.split(" (", 1)[0] in text


def _replacement(group: FactGroup, text: str, known_by: str | None, comparison: Comparison) -> list[Decision]:
    """Return what becomes of a fact and of the memories it contradicts; the later of them holds.

    `known_by` is the memory that says the same as the fact, if there is one.
    """
    older = [
        comparison.entries[verdict.entry].memory.id
        for verdict in _contradictions(group, comparison, is_newer=True)
        if verdict.entry is not None
    ]
    newer = [
        comparison.entries[verdict.entry]
        for verdict in _contradictions(group, comparison, is_newer=False)
        if verdict.entry is not None
    ]
    if known_by is not None:
        return [Decision(Event.DELETE, memory_id=memory_id, successor=known_by) for memory_id in older]
    if newer:
        now, fact = comparison.now, group.fact
        successor = min(newer, key=lambda entry: held_until(fact, entry, now))
        ended_at, precision = held_until(fact, successor, now)
        closed = Decision(Event.ADD, fact, replaces=tuple(older), successor=successor.memory.id)
        return [replace(closed, ended_at=ended_at, ended_precision=precision)]
    return [Decision(Event.ADD, with_text(group.fact, text), replaces=tuple(older))]


def _with_outdated(group: FactGroup, decisions: Sequence[Decision]) -> list[Decision]:
    """Return the decisions about a fact, with the facts that were true before it."""
    keeping = next((decision for decision in decisions if decision.event is not Event.DELETE), None)
    if keeping is None:
        return [*decisions, *(Decision(Event.ADD, fact) for fact in group.outdated)]
    first = replace(keeping, outdated=group.outdated)
    return [first if decision is keeping else decision for decision in decisions]


def _ended(verdicts: Sequence[Verdict], comparison: Comparison, gone: Forgetting) -> dict[int | None, Decision]:
    """Return the decisions on entries that the model deletes for the sake of no fact: they held until now."""
    said = [fact.said_at for fact in comparison.facts if fact.said_at is not None]
    ended_at = max(said, default=comparison.now)
    return {
        verdict.entry: Decision(Event.DELETE, memory_id=entry.memory.id, ended_at=ended_at)
        for verdict in verdicts
        if verdict.item is None and verdict.event is Event.DELETE and verdict.entry not in gone.entries
        if (entry := comparison.stored(verdict.entry)) is not None and entry.is_for_facts
    }


def _delete_each_once(decisions: Sequence[Decision]) -> list[Decision]:
    """Return the decisions, with each memory deleted only by the first decision that deletes it."""
    seen: set[str] = set()
    kept: list[Decision] = []
    for decision in decisions:
        if decision.event is Event.DELETE and decision.memory_id in seen:
            continue
        fresh = tuple(memory_id for memory_id in dict.fromkeys(decision.replaces) if memory_id not in seen)
        seen.update(fresh)
        if decision.event is Event.DELETE and decision.memory_id is not None:
            seen.add(decision.memory_id)
        kept.append(replace(decision, replaces=fresh))
    return kept
