"""Facts of one call that say the same, or of which one was true before the other, become one group."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from palimpsest.core.entities import name_key
from palimpsest.core.models import Event, Fact
from palimpsest.llm.decisions.forgetting import Forgetting
from palimpsest.llm.decisions.time_order import Statement, later
from palimpsest.llm.decisions.verdicts import Comparison, Verdict, with_text


@dataclass(frozen=True, slots=True)
class FactGroup:
    """A fact that is stored, and the other facts of the call that go with it.

    `numbers` are the facts that say the same, the stored one first. `fact` has the sources of all of them. `verdicts`
    are those about stored entries, including those about the facts that were true before: what contradicts these is
    contradicted by the fact too. `outdated` are facts that were true before and are not stored yet, `known` those that
    an entry has already, with its number.
    """

    numbers: tuple[int, ...]
    fact: Fact
    verdicts: tuple[Verdict, ...] = ()
    outdated: tuple[Fact, ...] = ()
    known: tuple[tuple[Fact, int], ...] = ()


def fact_groups(verdicts: Sequence[Verdict], comparison: Comparison, gone: Forgetting) -> list[FactGroup]:
    """Return the groups of the facts of a call, without the facts that somebody asked to forget.

    What the model says about entries that no fact can change is left out: messages, memories of all projects, and those
    that are being forgotten. Their words must not be stored again.
    """
    kept = [number for number in range(len(comparison.facts)) if number not in gone.facts]
    among = [
        (verdict, verdict.item, other)
        for verdict in verdicts
        if (other := comparison.listed_fact(verdict.entry)) in kept and verdict.item in kept and verdict.item != other
    ]
    same, texts = _same(among)
    newer = _newer(among, same, comparison)
    members: dict[int, list[int]] = {}
    for number in kept:
        members.setdefault(_end(same, number), []).append(number)
    stored = [
        verdict
        for verdict in verdicts
        if verdict.entry is None
        or ((entry := comparison.stored(verdict.entry)) and entry.is_for_facts and verdict.entry not in gone.entries)
    ]
    groups = {
        root: _group(sorted(numbers, key=lambda number: number != root), texts.get(root), stored, comparison.facts)
        for root, numbers in members.items()
    }
    older: dict[int, list[FactGroup]] = {}
    for root in newer:
        older.setdefault(_end(newer, root), []).append(groups[root])
    return [_with_older(group, older.get(root, ())) for root, group in groups.items() if root not in newer]


def _same(among: Iterable[tuple[Verdict, int, int]]) -> tuple[dict[int, int], dict[int, str]]:
    """Return which fact each fact is the same as, and the wording that covers a fact and one that completes it.

    A fact is completed once. A second fact that completes it is stored by itself.
    """
    same: dict[int, int] = {}
    texts: dict[int, str] = {}
    for verdict, item, other in among:
        fact, into = _end(same, item), _end(same, other)
        completes = verdict.event is Event.UPDATE and bool(verdict.text)
        if verdict.event not in (Event.NONE, Event.UPDATE) or fact == into or (completes and into in texts):
            continue
        same[fact] = into
        wording = verdict.text if completes else texts.get(fact)
        if wording:
            texts.setdefault(into, wording)
    return same, texts


def _newer(among: Iterable[tuple[Verdict, int, int]], same: dict[int, int], comparison: Comparison) -> dict[int, int]:
    """Return for each fact that was true before another one of the call that other one."""
    newer: dict[int, int] = {}
    for verdict, item, other in among:
        first, second = _end(same, item), _end(same, other)
        if verdict.event is not Event.DELETE or first == second:
            continue
        times = [Statement.of_fact(comparison.facts[number]) for number in (item, other)]
        order = later(times[0], times[1], comparison.now) or item - other
        old, new = (second, first) if order > 0 else (first, second)
        if old not in newer and _end(newer, new) != old:
            newer[old] = new
    return newer


def _end(links: dict[int, int], number: int) -> int:
    while number in links:
        number = links[number]
    return number


def _group(numbers: Sequence[int], text: str | None, stored: Sequence[Verdict], facts: Sequence[Fact]) -> FactGroup:
    root = numbers[0]
    verdicts = [replace(verdict, item=root) for verdict in stored if verdict.item in numbers]
    if len(numbers) > 1 and any(_is_about_entry(verdict) for verdict in verdicts):
        verdicts = [verdict for verdict in verdicts if verdict.entry is not None]  # what an entry has is not new
    same = [facts[number] for number in numbers]
    fact = replace(
        facts[root],
        entities=tuple({name_key(entity.name): entity for fact in reversed(same) for entity in fact.entities}.values()),
        relations=tuple(dict.fromkeys(relation for fact in same for relation in fact.relations)),
        sources=tuple(dict.fromkeys(source for fact in same for source in fact.sources)),
        said_at=max((fact.said_at for fact in same if fact.said_at is not None), default=None),
        metadata={key: value for fact in reversed(same) for key, value in fact.metadata.items()},
    )
    return FactGroup(tuple(numbers), with_text(fact, text), tuple(verdicts))


def _is_about_entry(verdict: Verdict) -> bool:
    return verdict.entry is not None and verdict.event in (Event.NONE, Event.UPDATE)


def _with_older(group: FactGroup, older: Iterable[FactGroup]) -> FactGroup:
    """Return a group with those that were true before it. What these are about, the group contradicts."""
    own = {verdict.entry for verdict in group.verdicts}
    for old in older:
        about = [verdict.entry for verdict in old.verdicts if verdict.entry is not None and verdict.entry not in own]
        saying = [
            verdict.entry for verdict in old.verdicts if verdict.event is Event.NONE and verdict.entry is not None
        ]
        group = replace(
            group,
            verdicts=(*group.verdicts, *(Verdict(group.numbers[0], Event.DELETE, entry) for entry in about)),
            outdated=group.outdated if saying else (*group.outdated, old.fact),
            known=(*group.known, *((old.fact, entry) for entry in saying)),
        )
    return group
