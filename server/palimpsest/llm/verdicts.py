"""Turn what the model says about facts into decisions that the ledger can apply.

The model says which facts are known, which complete a memory, and which contradict one. Of two that contradict each
other, the later one holds; that is decided here and not by the model, which orders dates badly (the four times of
section 2.2 of the Zep paper: an older fact that arrives late is stored as already closed).
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from datetime import datetime

from palimpsest.core.models import Decision, Event, Fact, ForgetRequest, Kind, Memory
from palimpsest.core.validation import one_line
from palimpsest.text.tokenizer import search_tokens


@dataclass(frozen=True, slots=True)
class KnownEntry:
    """A stored memory, or a message as a memory, that facts are held against. `said_at` is when it was last said."""

    memory: Memory
    said_at: datetime
    kind: Kind = "memory"


@dataclass(frozen=True, slots=True)
class Comparison:
    """What the stage reads: facts, requests to forget, and what they are held against.

    The items are the facts, and after them the requests. `near` has for each item the numbers of the entries near it
    and their likeness, best first. `listed_facts` are facts that resemble another fact of the call. They are entries
    too, with the numbers that follow those of `entries`. `user_name` is "" if it is not known.
    """

    facts: tuple[Fact, ...]
    entries: tuple[KnownEntry, ...] = ()
    requests: tuple[ForgetRequest, ...] = ()
    near: tuple[tuple[tuple[int, float], ...], ...] = ()
    listed_facts: tuple[int, ...] = ()
    user_name: str = ""

    def listed_fact(self, entry: int | None) -> int | None:
        """Return which fact of the call an entry is, or None if it is a stored one."""
        place = -1 if entry is None else entry - len(self.entries)
        return self.listed_facts[place] if place >= 0 else None


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the model says about one item: an event, and the number of the entry it is about."""

    item: int | None
    event: Event
    entry: int | None = None
    text: str | None = None


@dataclass(frozen=True, slots=True)
class Decisions:
    """The decisions to apply, in order.

    `dropped` are facts that the model considers not worth storing. `undecided` are facts that it left out of both
    replies; they are added. `forgotten` are the requests that were granted, each with the texts that go, and
    `unmatched` those that nothing stored fits.
    """

    decisions: tuple[Decision, ...]
    dropped: tuple[Fact, ...] = ()
    undecided: tuple[Fact, ...] = ()
    forgotten: tuple[tuple[ForgetRequest, tuple[str, ...]], ...] = ()
    unmatched: tuple[ForgetRequest, ...] = ()


def is_later(fact: Fact, entry: KnownEntry) -> bool:
    """Return whether a fact is later than what it contradicts, so that it is the fact that holds.

    If both say since when they hold, these times are compared, else the times at which they were said. What was said
    at the same time, or at no known time, counts as later, because it came later.
    """
    fact_from, entry_from = fact.valid_from, entry.memory.valid_from
    if fact_from is not None and entry_from is not None and fact_from != entry_from:
        return fact_from > entry_from
    return fact.said_at is None or fact.said_at >= entry.said_at


def settle(verdicts: Sequence[Verdict], comparison: Comparison) -> Decisions:
    """Return the decisions that follow from the model's verdicts."""
    forgetting, forgotten, unmatched = _forget(verdicts, comparison)
    among = _AmongFacts.of(verdicts, comparison)
    stored = [verdict for verdict in verdicts if comparison.listed_fact(verdict.entry) is None]
    taken = _Taken({verdict.entry for verdict in stored if verdict.event is Event.DELETE})
    decisions: list[Decision] = []
    dropped: list[Fact] = []
    undecided: list[Fact] = []
    for number, fact in enumerate(comparison.facts):
        if number in among.absorbed:
            continue
        about_fact = [verdict for verdict in stored if verdict.item == number]
        whole = among.completed(number, fact)
        if not any(verdict.item == number for verdict in verdicts):
            undecided.append(fact)
        made = _about_fact(whole, about_fact, comparison, taken) if about_fact else [Decision(Event.ADD, whole)]
        if not made:
            dropped.append(fact)
        decisions += among.with_outdated(number, made)
    decisions += [
        Decision(Event.DELETE, memory_id=comparison.entries[verdict.entry].memory.id)
        for verdict in stored
        if verdict.item is None and verdict.event is Event.DELETE and verdict.entry is not None
    ]
    # An updated text may equal another memory's text, and then the updated memory is deleted as a duplicate. NONE
    # decisions that name this memory therefore come first.
    reworded = {comparison.entries[entry].memory.id for entry in taken.reworded}
    decisions.sort(key=lambda decision: decision.event is not Event.NONE or decision.memory_id not in reworded)
    return Decisions(
        tuple(_delete_each_once([*forgetting, *decisions])), tuple(dropped), tuple(undecided), forgotten, unmatched
    )


@dataclass(slots=True)
class _Taken:
    """The entries that are deleted, which no UPDATE may change, and those that an UPDATE has changed already."""

    deleted: AbstractSet[int | None]
    reworded: set[int] = field(default_factory=set[int])


def _forget(
    verdicts: Sequence[Verdict], comparison: Comparison
) -> tuple[list[Decision], tuple[tuple[ForgetRequest, tuple[str, ...]], ...], tuple[ForgetRequest, ...]]:
    """Return the deletions that people asked for, each request with the texts that go, and the requests without any."""
    decisions: list[Decision] = []
    forgotten: list[tuple[ForgetRequest, tuple[str, ...]]] = []
    unmatched: list[ForgetRequest] = []
    for number, request in enumerate(comparison.requests, len(comparison.facts)):
        entries = [
            comparison.entries[verdict.entry]
            for verdict in verdicts
            if verdict.item == number
            and verdict.event is Event.DELETE
            and verdict.entry is not None
            and comparison.listed_fact(verdict.entry) is None
        ]
        decisions += [
            Decision(Event.DELETE, memory_id=entry.memory.id, kind=entry.kind, forgets=True) for entry in entries
        ]
        if entries:
            forgotten.append((request, tuple(entry.memory.text for entry in entries)))
        else:
            unmatched.append(request)
    return decisions, tuple(forgotten), tuple(unmatched)


def _about_fact(fact: Fact, verdicts: Sequence[Verdict], comparison: Comparison, taken: _Taken) -> list[Decision]:
    """Return the decisions about one fact. UPDATE of an entry that is deleted or already updated becomes ADD."""
    decisions: list[Decision] = []
    adds = False
    text = fact.text
    for verdict in verdicts:
        number, event = verdict.entry, verdict.event
        if event is Event.UPDATE and number is not None and number not in taken.deleted | taken.reworded:
            taken.reworded.add(number)
            memory_id = comparison.entries[number].memory.id
            decisions.append(Decision(Event.UPDATE, _with_text(fact, verdict.text), memory_id))
        elif event is Event.NONE and number is not None and number not in taken.deleted:
            known = Decision(Event.NONE, fact, comparison.entries[number].memory.id)
            decisions += [] if known in decisions else [known]
        elif event in (Event.ADD, Event.UPDATE) or (event is Event.NONE and number is not None):
            adds, text = True, verdict.text or text
        elif event is Event.DELETE and verdict.text:
            text = verdict.text
    contradicted = [verdict for verdict in verdicts if verdict.event is Event.DELETE and verdict.entry is not None]
    if not contradicted:
        return [*decisions, Decision(Event.ADD, _with_text(fact, text))] if adds else decisions
    return decisions + _replacement(fact, text, contradicted, comparison, is_known=bool(decisions) and not adds)


def _replacement(
    fact: Fact, text: str, verdicts: Sequence[Verdict], comparison: Comparison, *, is_known: bool
) -> list[Decision]:
    """Return what becomes of a fact and of the memories it contradicts; the later of them holds.

    `is_known` is whether a memory says the same as the fact. If every text of the model is empty, the fact only says
    that something has ended, and is not stored.
    """
    entries = [comparison.entries[verdict.entry] for verdict in verdicts if verdict.entry is not None]
    newer = [entry for entry in entries if not is_later(fact, entry)]
    only_ends = all(verdict.text is not None and not verdict.text.strip() for verdict in verdicts)
    if newer:
        latest = max(newer, key=lambda entry: entry.said_at)
        outdated = () if only_ends or is_known else (fact,)
        return [Decision(Event.NONE, memory_id=latest.memory.id, outdated=outdated)]
    ids = tuple(entry.memory.id for entry in entries)
    if is_known or only_ends:
        ended_at = fact.valid_from or fact.happened_at or fact.said_at
        return [Decision(Event.DELETE, memory_id=memory_id, ended_at=ended_at) for memory_id in ids]
    return [Decision(Event.ADD, _with_text(fact, text), replaces=ids)]


@dataclass(frozen=True, slots=True)
class _AmongFacts:
    """What the facts of one call are to each other.

    `absorbed` are facts that are not stored by themselves. `same` has the facts that say what a fact says, `outdated`
    those that were true before it, and `texts` the wording that covers a fact and those that say the same.
    """

    comparison: Comparison
    absorbed: set[int] = field(default_factory=set[int])
    same: dict[int, list[Fact]] = field(default_factory=dict[int, list[Fact]])
    outdated: dict[int, list[Fact]] = field(default_factory=dict[int, list[Fact]])
    texts: dict[int, str] = field(default_factory=dict[int, str])

    @classmethod
    def of(cls, verdicts: Sequence[Verdict], comparison: Comparison) -> _AmongFacts:
        """Return the relations that the verdicts name. A fact that took in another one is not taken in itself."""
        among = cls(comparison)
        for verdict in verdicts:
            other, item = comparison.listed_fact(verdict.entry), verdict.item
            if other is None or item is None or item == other or item >= len(comparison.facts):
                continue
            if verdict.event is Event.DELETE:
                older, newer = (other, item) if among._is_later(item, other) else (item, other)
                among._absorb(older, newer, among.outdated)
            elif among._absorb(item, other, among.same) and verdict.event is Event.UPDATE and verdict.text:
                among.texts[other] = verdict.text
        return among

    def _is_later(self, number: int, other: int) -> bool:
        """Return whether a fact is later than another fact of the call, as `is_later` does for a stored one."""
        fact, second = self.comparison.facts[number], self.comparison.facts[other]
        if fact.valid_from is not None and second.valid_from is not None and fact.valid_from != second.valid_from:
            return fact.valid_from > second.valid_from
        if fact.said_at is None or second.said_at is None or fact.said_at == second.said_at:
            return number > other
        return fact.said_at > second.said_at

    def _absorb(self, fact: int, into: int, relation: dict[int, list[Fact]]) -> bool:
        if {fact, into} & self.absorbed or fact in self.same or fact in self.outdated:
            return False
        self.absorbed.add(fact)
        relation.setdefault(into, []).append(self.comparison.facts[fact])
        return True

    def completed(self, number: int, fact: Fact) -> Fact:
        """Return a fact with the sources of those that say the same, and the wording that covers them all."""
        sources = [source for same in (fact, *self.same.get(number, ())) for source in same.sources]
        return _with_text(replace(fact, sources=tuple(dict.fromkeys(sources))), self.texts.get(number))

    def with_outdated(self, number: int, decisions: Sequence[Decision]) -> list[Decision]:
        """Return the decisions about a fact, with the facts that were true before it."""
        older = tuple(self.outdated.get(number, ()))
        keeping = [decision for decision in decisions if decision.event is not Event.DELETE]
        if not older or not keeping:
            return [*decisions, *(Decision(Event.ADD, fact) for fact in older)]
        first = replace(keeping[0], outdated=(*keeping[0].outdated, *older))
        return [first if decision is keeping[0] else decision for decision in decisions]


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


def with_items(verdicts: Sequence[Verdict], comparison: Comparison) -> list[Verdict]:
    """Return the verdicts with their facts. Verdicts in Mem0's form name no fact and get the most likely one.

    In that form a NONE item lists a memory that stays. It decides about the facts that no other item is about. DELETE
    is assigned only to a fact that no other item is about.
    """
    if any(verdict.item is not None for verdict in verdicts):
        return list(verdicts)
    named: list[Verdict] = []
    open_facts = list(range(len(comparison.facts)))
    words = [set(search_tokens(fact.text)) for fact in comparison.facts]
    for verdict in sorted(verdicts, key=lambda verdict: verdict.event is Event.DELETE):
        if verdict.event is Event.NONE:
            continue
        number = _nearest_fact(verdict, words, open_facts)
        if number in open_facts:
            open_facts.remove(number)
        text = None if verdict.event is Event.DELETE else verdict.text
        named.append(replace(verdict, item=number, text=text))
    if any(verdict.event is Event.NONE for verdict in verdicts):
        named.extend(Verdict(number, Event.NONE) for number in open_facts)
    return named


def _nearest_fact(verdict: Verdict, words: Sequence[AbstractSet[str]], open_facts: Sequence[int]) -> int | None:
    """Return the fact that shares most words with a verdict, else the first open one; for DELETE else None."""
    numbers = open_facts if verdict.event is Event.DELETE else range(len(words))
    own = set(search_tokens(verdict.text or ""))
    shared = {number: len(own & words[number]) for number in numbers}
    best = max(shared, key=lambda number: shared[number], default=None)
    if best is not None and shared[best]:
        return best
    if verdict.event is Event.DELETE:
        return None
    return open_facts[0] if open_facts else 0


def _with_text(fact: Fact, text: str | None) -> Fact:
    plain = one_line(text or "")
    return replace(fact, text=plain) if any(map(str.isalnum, plain)) else fact
