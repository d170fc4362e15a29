"""What people ask to forget: the entries and the facts of the call that the model says they mean."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from palimpsest.core.models import Decision, Event, ForgetRequest, Kind
from palimpsest.llm.decisions.verdicts import Comparison, Granted, Questioned, Verdict

MANY = 3
"""So many memories are not all forgotten without a question if there are no others. Set by hand: somebody who has only
told two things and asks to forget them need not be asked."""


@dataclass(slots=True)
class Forgetting:
    """The deletions that people asked for, the numbers of the entries and facts that go, and what became of requests.

    The others are as in `Decisions`.
    """

    decisions: list[Decision] = field(default_factory=list[Decision])
    entries: frozenset[int] = frozenset()
    facts: frozenset[int] = frozenset()
    granted: tuple[Granted, ...] = ()
    unmatched: tuple[ForgetRequest, ...] = ()
    unanswered: tuple[ForgetRequest, ...] = ()
    elsewhere: tuple[str, ...] = ()
    questioned: tuple[Questioned, ...] = ()


@dataclass(frozen=True, slots=True)
class _Meant:
    """The number of a request to forget, and the numbers of the entries and of the facts of the call that it means."""

    place: int
    entries: tuple[int, ...]
    facts: tuple[int, ...]


def forgetting(verdicts: Sequence[Verdict], comparison: Comparison) -> Forgetting:
    """Return what the requests to forget mean, as the model sees it."""
    gone = Forgetting()
    wishes: list[_Meant] = []
    for place, request in enumerate(comparison.requests):
        own = [verdict for verdict in verdicts if verdict.item == len(comparison.facts) + place]
        meant = [verdict.entry for verdict in own if verdict.event is Event.DELETE and verdict.entry is not None]
        entries = [number for number in dict.fromkeys(meant) if comparison.stored(number) is not None]
        elsewhere = tuple(
            comparison.entries[number].memory.text for number in entries if comparison.entries[number].is_elsewhere
        )
        gone.elsewhere += elsewhere
        entries = [number for number in entries if not comparison.entries[number].is_elsewhere]
        facts = _facts(meant, entries, verdicts, comparison)
        if entries or facts:
            wishes.append(_Meant(place, tuple(entries), tuple(facts)))
        elif not own:
            gone.unanswered += (request,)
        elif not elsewhere:
            gone.unmatched += (request,)
    doubtful = [wish for wish in wishes if comparison.requests[wish.place].is_doubtful]
    if _are_many([wish for wish in wishes if wish not in doubtful], comparison):
        doubtful = wishes
    for wish in wishes:
        if wish in doubtful:
            gone.questioned += (_questioned(wish, comparison),)
        else:
            _grant(gone, wish.place, wish.entries, wish.facts, comparison)
    return gone


def _questioned(wish: _Meant, comparison: Comparison) -> Questioned:
    return Questioned(
        comparison.requests[wish.place],
        tuple(comparison.entries[number] for number in wish.entries),
        tuple(comparison.facts[number] for number in wish.facts),
        _more_may_fit(wish.place, wish.entries, comparison),
    )


def _are_many(wishes: Sequence[_Meant], comparison: Comparison) -> bool:
    """Return whether requests take so much together that somebody must be asked first: many memories, or all of them.

    The messages behind a memory do not count beside it.
    """
    entries = {number for wish in wishes for number in wish.entries}
    messages = {number for number in entries if comparison.entries[number].kind == "message"}
    living = sum(comparison.entries[number].memory.deleted_at is None for number in entries - messages)
    facts = {number for wish in wishes for number in wish.facts}
    count = max(len(entries - messages) + len(facts), len(messages))
    return count > comparison.may_forget or (living >= MANY and living >= comparison.living)


def _grant(gone: Forgetting, place: int, entries: Sequence[int], facts: Sequence[int], comparison: Comparison) -> None:
    """Add what a request means. The messages behind a fact go with it, as those behind a memory do."""
    meant = [comparison.entries[number] for number in entries]
    sources = dict.fromkeys(source for number in facts for source in comparison.facts[number].sources)
    gone.decisions += [
        *(Decision(Event.DELETE, memory_id=entry.memory.id, kind=entry.kind, forgets=True) for entry in meant),
        *(Decision(Event.DELETE, memory_id=source, kind="message", forgets=True) for source in sources),
    ]
    gone.entries |= set(entries)
    gone.facts |= set(facts)
    texts = [*(entry.memory.text for entry in meant), *(comparison.facts[number].text for number in facts)]
    gone.granted += (Granted(comparison.requests[place], tuple(texts), _more_may_fit(place, entries, comparison)),)


def _facts(
    meant: Sequence[int], entries: Sequence[int], verdicts: Sequence[Verdict], comparison: Comparison
) -> list[int]:
    """Return the facts of the call that a request means, and those that say the same as a memory that it means.

    If there are none but the request means messages, these are the facts that come from these messages alone.
    """
    forgotten = [number for number in entries if comparison.entries[number].kind == "memory"]
    repeated = [verdict.item for verdict in verdicts if verdict.event is Event.NONE and verdict.entry in forgotten]
    named = [
        number
        for number in range(len(comparison.facts))
        if number in repeated or number in [comparison.listed_fact(entry) for entry in meant]
    ]
    messages = {
        comparison.entries[number].memory.id for number in entries if comparison.entries[number].kind == "message"
    }
    if named:
        return named
    return [
        number for number, fact in enumerate(comparison.facts) if fact.sources and messages.issuperset(fact.sources)
    ]


def _more_may_fit(place: int, entries: Sequence[int], comparison: Comparison) -> bool:
    """Return whether a request means most of the entries shown for it, and there are more of the kind."""
    if not comparison.partly_shown:
        return False
    near = [number for number, _ in comparison.near[len(comparison.facts) + place]]

    def is_most_of(kind: Kind) -> bool:
        of_kind = [number for number in near if comparison.entries[number].kind == kind]
        return 2 * len(set(entries).intersection(of_kind)) > len(of_kind)

    return any(is_most_of(kind) for kind in comparison.partly_shown[place])
