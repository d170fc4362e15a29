"""What the decide stage compares, what the model says about it, and what follows: the types, and Mem0's reply form."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from datetime import datetime

from palimpsest.core.models import Decision, Event, Fact, ForgetRequest, Kind, Memory
from palimpsest.core.validation import one_line
from palimpsest.text.shorten import shorten_to_tokens
from palimpsest.text.tokenizer import search_tokens

MAX_FORGOTTEN_UNASKED = 5
"""How many memories requests to forget may take in one call. More are only forgotten after a question, because a model
that was fooled may mean all of them. Set by hand: what people say of one matter is a few facts."""

MAX_ENTRY_TOKENS = 400
"""How much of a memory the model is shown. Set by hand: a memory is a sentence, and one that is a whole document must
not take the room of all others."""


@dataclass(frozen=True, slots=True)
class KnownEntry:
    """A stored memory, or a message as a memory, that facts are held against. `said_at` is when it was last said.

    `is_elsewhere` is whether it is stored for all projects, so that what is said in one of them does not change it.
    """

    memory: Memory
    said_at: datetime
    kind: Kind = "memory"
    is_elsewhere: bool = False

    @property
    def shown_text(self) -> str:
        """Return what the model sees of the text."""
        return shorten_to_tokens(self.memory.text, MAX_ENTRY_TOKENS)

    @property
    def is_for_facts(self) -> bool:
        """Return whether a fact can change it. All others are shown for requests only, closed memories among them."""
        return self.kind == "memory" and not self.is_elsewhere and self.memory.deleted_at is None


@dataclass(frozen=True, slots=True)
class Comparison:
    """What the stage reads: facts, requests to forget, and what they are held against.

    The items are the facts, and after them the requests. `near` has for each item the numbers of the entries near it
    and their likeness, best first. `listed_facts` are facts that another item of the call may be about. They are
    entries too, with the numbers that follow those of `entries`. `partly_shown` has for each request the kinds of
    entries of which there are more than those shown. `user_name` is "" if it is not known. Requests that take more than
    `may_forget` memories, or nearly all of the `living` ones, are only granted after a question.
    """

    facts: tuple[Fact, ...]
    entries: tuple[KnownEntry, ...] = ()
    requests: tuple[ForgetRequest, ...] = ()
    near: tuple[tuple[tuple[int, float], ...], ...] = ()
    listed_facts: tuple[int, ...] = ()
    partly_shown: tuple[frozenset[Kind], ...] = ()
    user_name: str = ""
    now: datetime | None = None
    may_forget: int = MAX_FORGOTTEN_UNASKED
    living: int = 0

    def listed_fact(self, entry: int | None) -> int | None:
        """Return which fact of the call an entry is, or None if it is a stored one."""
        place = -1 if entry is None else entry - len(self.entries)
        return self.listed_facts[place] if place >= 0 else None

    def stored(self, entry: int | None) -> KnownEntry | None:
        """Return the stored entry with that number, or None if it is a fact of the call."""
        return self.entries[entry] if entry is not None and entry < len(self.entries) else None


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the model says about one item: an event, and the number of the entry it is about."""

    item: int | None
    event: Event
    entry: int | None = None
    text: str | None = None


@dataclass(frozen=True, slots=True)
class Granted:
    """A request to forget and the texts that go. With `more_may_fit` the model saw only some of what may be meant."""

    request: ForgetRequest
    texts: tuple[str, ...]
    more_may_fit: bool = False


@dataclass(frozen=True, slots=True)
class Questioned:
    """A request to forget that is only granted after a question, the entries it would take, and facts of the call.

    `more_may_fit` is as in `Granted`.
    """

    request: ForgetRequest
    entries: tuple[KnownEntry, ...]
    facts: tuple[Fact, ...]
    more_may_fit: bool = False


@dataclass(frozen=True, slots=True)
class Doubt:
    """A decision that is not believed: its event, the text of its fact or "", and the text of what it was about."""

    event: Event
    fact: str
    text: str


@dataclass(frozen=True, slots=True)
class Decisions:
    """The decisions to apply, in order.

    `dropped` are facts that the model considers not worth storing. `undecided` are facts that it left out of both
    replies; they are added. `granted` are the requests to forget that were granted, `unmatched` those that nothing
    stored fits, `unanswered` those that the model left out, and `questioned` those that need a question first.
    `elsewhere` are texts that were meant, but are stored for all projects and stay. `doubts` are decisions that are not
    believed, and `faults` says what was wrong with those that cannot be carried out. `is_cut` is whether the model's
    reply ended too early.
    """

    decisions: tuple[Decision, ...]
    dropped: tuple[Fact, ...] = ()
    undecided: tuple[Fact, ...] = ()
    granted: tuple[Granted, ...] = ()
    unmatched: tuple[ForgetRequest, ...] = ()
    unanswered: tuple[ForgetRequest, ...] = ()
    elsewhere: tuple[str, ...] = ()
    doubts: tuple[Doubt, ...] = ()
    faults: tuple[str, ...] = ()
    is_cut: bool = False
    questioned: tuple[Questioned, ...] = ()


def with_text(fact: Fact, text: str | None) -> Fact:
    """Return a fact with another text, unless that says nothing."""
    plain = one_line(text or "")
    return replace(fact, text=plain) if any(map(str.isalnum, plain)) else fact


def with_items(verdicts: Sequence[Verdict], comparison: Comparison) -> list[Verdict]:
    """Return the verdicts with their items. Verdicts in Mem0's form name none and get the most likely one.

    In that form a NONE item lists a memory that stays. It decides about the items that no other verdict is about.
    DELETE is assigned to a request to forget, or to a fact that no other verdict is about, whichever shares most words
    with what is deleted.
    """
    if any(verdict.item is not None for verdict in verdicts):
        return [_with_request(verdict, comparison) for verdict in verdicts]
    named: list[Verdict] = []
    open_facts = list(range(len(comparison.facts)))
    words = [set(search_tokens(fact.text)) for fact in comparison.facts]
    for verdict in sorted(verdicts, key=lambda verdict: verdict.event is Event.DELETE):
        if verdict.event is Event.NONE:
            continue
        text, own = verdict.text, _words_of(verdict, comparison)
        number = _nearest_fact(verdict, own, words, open_facts)
        if verdict.event is Event.DELETE:
            shared = 0 if number is None else len(own & words[number])
            request = _nearest_request(own, comparison, shared)
            number, text = (number if request is None else request), None
        if number in open_facts:
            open_facts.remove(number)
        named.append(replace(verdict, item=number, text=text))
    requests = range(len(comparison.facts), len(comparison.facts) + len(comparison.requests))
    answered = {verdict.item for verdict in named}
    stays = [verdict for verdict in verdicts if verdict.event is Event.NONE]
    named.extend(Verdict(number, Event.NONE, _known_by(number, stays, comparison)) for number in open_facts if stays)
    if verdicts:
        named.extend(Verdict(number, Event.NONE) for number in requests if number not in answered)
    return named


def _words_of(verdict: Verdict, comparison: Comparison) -> set[str]:
    """Return the words of a verdict; of a DELETE without a text those of what is deleted."""
    entry = comparison.stored(verdict.entry) if verdict.event is Event.DELETE else None
    return set(search_tokens(verdict.text or (entry.memory.text if entry is not None else "")))


def _known_by(number: int, stays: Sequence[Verdict], comparison: Comparison) -> int | None:
    """Return which of the entries that stay resembles a fact most; None if it is not known what resembles it."""
    near = dict(comparison.near[number]) if comparison.near else {}
    entries = [verdict.entry for verdict in stays if verdict.entry is not None]
    return max(entries, key=lambda entry: near.get(entry, 0.0), default=None) if near else None


def _with_request(verdict: Verdict, comparison: Comparison) -> Verdict:
    """Return a DELETE that names no item as one of the request to forget that it fits best, if there is any."""
    entry = comparison.stored(verdict.entry)
    if verdict.item is not None or verdict.event is not Event.DELETE or entry is None:
        return verdict
    return replace(verdict, item=_nearest_request(set(search_tokens(entry.memory.text)), comparison, 0))


def _nearest_request(own: AbstractSet[str], comparison: Comparison, at_least: int) -> int | None:
    """Return the request that shares most words with what is deleted; None if it shares fewer than `at_least`."""
    shared = [len(own & set(search_tokens(request.what))) for request in comparison.requests]
    best = max(shared, default=-1)
    return len(comparison.facts) + shared.index(best) if best >= at_least else None


def _nearest_fact(
    verdict: Verdict, own: AbstractSet[str], words: Sequence[AbstractSet[str]], open_facts: Sequence[int]
) -> int | None:
    """Return the fact that shares most words with those of a verdict, else the first open one; for DELETE else None."""
    numbers = open_facts if verdict.event is Event.DELETE else range(len(words))
    shared = {number: len(own & words[number]) for number in numbers}
    best = max(shared, key=lambda number: shared[number], default=None)
    if best is not None and shared[best]:
        return best
    if verdict.event is Event.DELETE:
        return None
    return open_facts[0] if open_facts else 0
