"""The decide stage: what to do with new facts, given the memories nearest to them.

This is the update phase in section 2.1 of the Mem0 paper. All facts of a call, what people ask to forget, and the
entries nearest to these go into one request. The model sees small integers instead of ids, and a number that was not
shown is an error. The model says which facts are known, which complete a memory, and which contradict one; that is
turned into decisions that the ledger can apply. Of two that contradict each other the later one holds: `later`
decides that. An older fact that arrives late is stored as closed.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any

from pydantic import AliasChoices, BeforeValidator, Field, WithJsonSchema, model_validator
from pydantic.json_schema import SkipJsonSchema

from palimpsest.core import models
from palimpsest.core.clock import EARLIEST, LATEST, Precision, TimeSpan, shown_date, span_of
from palimpsest.core.models import SELF_NAMES, Decision, Event, Fact, ForgetRequest, Kind, name_key, relation_key
from palimpsest.core.protocols import LanguageModel
from palimpsest.core.validation import object_of, one_line
from palimpsest.llm import ask
from palimpsest.llm.prompts import Prompt
from palimpsest.llm.user_name import has_user_as_subject, with_name
from palimpsest.text.dates.date_finder import dates_in
from palimpsest.text.display import shorten_to_tokens
from palimpsest.text.relation_updates import dated
from palimpsest.text.stopwords import without_function_words
from palimpsest.text.tokenizer import search_tokens

# What the decide stage compares, what the model says about it, and what follows: the types, and Mem0's reply form.

# How many memories requests to forget may take in one call. More are only forgotten after a question, because a model
# that was fooled may mean all of them: what people say of one matter is a few facts.
MAX_FORGOTTEN_UNASKED = 5

# How much of a memory the model is shown: a memory is a sentence, and one that is a whole document must not take the
# room of all others.
MAX_ENTRY_TOKENS = 400


@dataclass(frozen=True, slots=True)
class KnownEntry:
    """A stored memory, or a message as a memory, that facts are held against. `said_at` is when it was last said.

    `is_elsewhere` is whether it is stored for all projects, so that what is said in one of them does not change it.
    """

    memory: models.Memory
    said_at: datetime
    kind: Kind = "memory"
    is_elsewhere: bool = False

    @property
    def shown_text(self) -> str:
        """Return what the model sees of the text."""
        return shorten_to_tokens(self.memory.text, MAX_ENTRY_TOKENS)

    @property
    def shown_hints(self) -> str:
        """Return what a model that looks for what to forget sees of the hints: they may name what the text does not."""
        return shorten_to_tokens("; ".join(self.memory.keywords), MAX_ENTRY_TOKENS)

    @property
    def valid_from(self) -> datetime | None:
        """Return since when it holds, if it says so."""
        return self.memory.valid_from

    @property
    def valid_from_precision(self) -> Precision:
        """Return how exactly that is known."""
        return self.memory.valid_from_precision

    @property
    def is_for_facts(self) -> bool:
        """Return whether a fact can change it. All others are shown for requests only, closed memories among them."""
        return self.kind == "memory" and not self.is_elsewhere and self.memory.deleted_at is None


@dataclass(frozen=True, slots=True)
class Comparison:
    """What the stage reads: facts, requests to forget, and what they are held against.

    The items are the facts, and after them the requests. `near` has for each item the likeness of the entries near it
    by their numbers, best first. `listed_facts` are facts that another item of the call may be about. They are
    entries too, with the numbers that follow those of `entries`. `partly_shown` has for each request the kinds of
    entries of which there are more than those shown. `user_name` is "" if it is not known. Requests that take more than
    `may_forget` memories, or nearly all of the `living` ones, are only granted after a question.
    """

    facts: tuple[Fact, ...]
    entries: tuple[KnownEntry, ...]
    requests: tuple[ForgetRequest, ...]
    near: tuple[Mapping[int, float], ...]
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

    def text_of(self, entry: int | None) -> str:
        """Return the text of an entry, stored or not."""
        stored = self.stored(entry)
        return stored.memory.text if stored is not None else self.facts[self.listed_fact(entry) or 0].text


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the model says about one item: an event, and the number of the entry it is about."""

    item: int | None
    event: Event
    entry: int | None = None
    text: str | None = None


@dataclass(frozen=True, slots=True)
class Forgotten:
    """A request to forget, and the entries and facts of the call that it takes, by their numbers.

    With `more_may_fit` the model saw only some of what may be meant.
    """

    request: ForgetRequest
    entries: Mapping[int, KnownEntry]
    facts: Mapping[int, Fact]
    more_may_fit: bool = False

    @property
    def texts(self) -> list[str]:
        """Return the texts that go."""
        return [*(entry.memory.text for entry in self.entries.values()), *(fact.text for fact in self.facts.values())]


@dataclass(frozen=True, slots=True)
class Decisions:
    """The decisions to apply, in order.

    `dropped` are facts that the model considers not worth storing. `undecided` are facts that it left out of both
    replies; they are added. `granted` are the requests to forget that were granted, `unmatched` those that nothing
    stored fits, `unanswered` those that the model left out, and `questioned` those that need a question first.
    `elsewhere` are texts that were meant, but are stored for all projects and stay. `doubts` are notes on decisions
    that are not believed, and `faults` says what was wrong with those that cannot be carried out. `is_cut` is whether
    the model's reply ended too early. `verdicts` are what all this follows from.
    """

    decisions: tuple[Decision, ...]
    dropped: tuple[Fact, ...] = ()
    undecided: tuple[Fact, ...] = ()
    granted: tuple[Forgotten, ...] = ()
    unmatched: tuple[ForgetRequest, ...] = ()
    unanswered: tuple[ForgetRequest, ...] = ()
    elsewhere: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()
    is_cut: bool = False
    questioned: tuple[Forgotten, ...] = ()
    verdicts: tuple[Verdict, ...] = ()

    @property
    def forgotten(self) -> frozenset[int]:
        """Return the numbers of the entries that requests to forget take."""
        return frozenset(number for granted in self.granted for number in granted.entries)


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
    texts = (*(fact.text for fact in comparison.facts), *(request.what for request in comparison.requests))
    words = [set(search_tokens(text)) for text in texts]
    facts, requests = range(len(comparison.facts)), range(len(comparison.facts), len(texts))

    def nearest(verdict: Verdict, items: Iterable[int]) -> tuple[int | None, int]:
        """Return the item that shares most words with a verdict, or with what it deletes, and how many it shares."""
        is_deletion = verdict.event is Event.DELETE
        own = set(search_tokens(comparison.text_of(verdict.entry) if is_deletion else verdict.text or ""))
        best = max(items, key=lambda item: len(own & words[item]), default=None)
        return best, 0 if best is None else len(own & words[best])

    if any(verdict.item is not None for verdict in verdicts):
        return [
            replace(verdict, item=nearest(verdict, requests)[0])
            if verdict.item is None and verdict.event is Event.DELETE and comparison.stored(verdict.entry)
            else verdict
            for verdict in verdicts
        ]
    named: list[Verdict] = []
    open_facts = list(facts)
    for verdict in sorted(verdicts, key=lambda verdict: verdict.event is Event.DELETE):
        if verdict.event is Event.NONE:
            continue
        is_deletion = verdict.event is Event.DELETE
        item, shared = nearest(verdict, [*requests, *open_facts] if is_deletion else facts)
        if not shared and item not in requests:
            item = None if is_deletion else next(iter(open_facts), 0)
        if item in open_facts:
            open_facts.remove(item)
        named.append(replace(verdict, item=item, text=None if is_deletion else verdict.text))
    answered = {verdict.item for verdict in named}
    lists_what_stays = any(verdict.event is Event.NONE for verdict in verdicts)
    stays = [verdict.entry for verdict in verdicts if verdict.event is Event.NONE and verdict.entry is not None]
    for number in open_facts if lists_what_stays else ():
        near = comparison.near[number]  # the entry that resembles a fact most has it
        known_by = max(stays, key=lambda entry: near.get(entry, 0.0), default=None)
        named.append(Verdict(number, Event.NONE, known_by if near else None))
    return named + [Verdict(number, Event.NONE) for number in requests if verdicts and number not in answered]


# What people ask to forget: the entries and the facts of the call that the model says they mean.

# So many memories are not all forgotten without a question if there are no others: somebody who has only told two
# things and asks to forget them need not be asked.
MANY = 3


def forgetting(verdicts: Sequence[Verdict], comparison: Comparison) -> Decisions:
    """Return what the requests to forget mean, as the model sees it: the deletions, and what became of each."""
    wishes: list[Forgotten] = []
    unmatched: list[ForgetRequest] = []
    unanswered: list[ForgetRequest] = []
    elsewhere: list[str] = []
    for place, request in enumerate(comparison.requests):
        own = [verdict for verdict in verdicts if verdict.item == len(comparison.facts) + place]
        meant = [verdict.entry for verdict in own if verdict.event is Event.DELETE and verdict.entry is not None]
        stored = [number for number in dict.fromkeys(meant) if comparison.stored(number) is not None]
        entries = {number: entry for number in stored if not (entry := comparison.entries[number]).is_elsewhere}
        elsewhere += [comparison.text_of(number) for number in stored if number not in entries]
        facts = {number: comparison.facts[number] for number in _facts(meant, entries, verdicts, comparison)}
        if entries or facts:
            wishes.append(Forgotten(request, entries, facts, _more_may_fit(place, entries, comparison)))
        elif not own:
            unanswered.append(request)
        elif not stored:
            unmatched.append(request)
    certain = [wish for wish in wishes if not wish.request.is_doubtful]
    if _are_many(certain, comparison):
        certain = []
    return Decisions(
        tuple(decision for wish in certain for decision in _deletions(wish)),
        granted=tuple(certain),
        unmatched=tuple(unmatched),
        unanswered=tuple(unanswered),
        elsewhere=tuple(elsewhere),
        questioned=tuple(wish for wish in wishes if wish not in certain),
    )


def _deletions(wish: Forgotten) -> list[Decision]:
    """Return the deletions that a request means. The messages behind a fact go with it, as those behind a memory do."""
    owners: dict[str, Kind] = {entry.memory.id: entry.kind for entry in wish.entries.values()}
    owners |= {source: "message" for fact in wish.facts.values() for source in fact.sources}
    return [Decision(Event.DELETE, memory_id=owner_id, kind=kind, forgets=True) for owner_id, kind in owners.items()]


def _are_many(wishes: Sequence[Forgotten], comparison: Comparison) -> bool:
    """Return whether requests take so much together that somebody must be asked first: many memories, or all of them.

    The messages behind a memory do not count beside it.
    """
    entries = {number: entry for wish in wishes for number, entry in wish.entries.items()}
    memories = [entry.memory for entry in entries.values() if entry.kind == "memory"]
    living = sum(memory.deleted_at is None for memory in memories)
    facts = {number for wish in wishes for number in wish.facts}
    count = max(len(memories) + len(facts), len(entries) - len(memories))
    return count > comparison.may_forget or (living >= MANY and living >= comparison.living)


def _facts(
    meant: Sequence[int], entries: Mapping[int, KnownEntry], verdicts: Sequence[Verdict], comparison: Comparison
) -> list[int]:
    """Return the facts of the call that a request means, and those that say the same as a memory that it means.

    If there are none but the request means messages, these are the facts that come from these messages alone.
    """
    forgotten = {number for number, entry in entries.items() if entry.kind == "memory"}
    repeated = {verdict.item for verdict in verdicts if verdict.event is Event.NONE and verdict.entry in forgotten}
    repeated |= {comparison.listed_fact(entry) for entry in meant}
    if named := [number for number in range(len(comparison.facts)) if number in repeated]:
        return named
    messages = {entry.memory.id for entry in entries.values() if entry.kind == "message"}
    facts = enumerate(comparison.facts)
    return [number for number, fact in facts if fact.sources and messages.issuperset(fact.sources)]


def _more_may_fit(place: int, entries: Mapping[int, KnownEntry], comparison: Comparison) -> bool:
    """Return whether a request means most of the entries shown for it, and there are more of the kind."""
    near = comparison.near[len(comparison.facts) + place]
    partly = comparison.partly_shown[place]
    of_kinds = ([number for number in near if comparison.entries[number].kind == kind] for kind in partly)
    return any(2 * len(entries.keys() & of_kind) > len(of_kind) for of_kind in of_kinds)


# Which of a model's decisions are believed: a fact is known by, completes or contradicts only what it resembles.
#
# A wrong NONE loses a fact and a wrong DELETE a memory, while a fact that is added beside what it repeats or
# contradicts loses nothing. So what is doubtful is added, and the caller is told.

# Below the first likeness a fact and a memory are about different things, and from the second on about one. Between
# them they must have words in common, or contradict each other in what they say of the user. Of 45 pairs that
# contradict each other or say the same, 41 are believed with the embedder e5 and 35 with the static one; of 23 about
# different things, 3 and 4.
LEAST_LIKENESS, CERTAIN_LIKENESS = 0.1, 0.2

# The likeness from which a memory may say what a fact says without naming anything that the fact names.
SAME_NAMES_LIKENESS = 0.5


def believed(verdicts: Sequence[Verdict], comparison: Comparison) -> tuple[list[Verdict], tuple[str, ...]]:
    """Return the plausible verdicts, and notes on the others. A fact with a doubtful one only is added.

    A deletion for no fact is believed as one for the fact that it resembles most.
    """
    verdicts = [_with_fact(verdict, comparison) for verdict in verdicts]
    kept = [verdict for verdict in verdicts if _is_plausible(verdict, comparison)]
    doubtful = [verdict for verdict in verdicts if verdict not in kept]
    decided = {None, *(verdict.item for verdict in kept)}
    items = dict.fromkeys(verdict.item for verdict in doubtful)
    notes = dict.fromkeys(_doubt(verdict, comparison) for verdict in doubtful)
    return [*kept, *(Verdict(item, Event.ADD) for item in items if item not in decided)], tuple(notes)


def _doubt(verdict: Verdict, comparison: Comparison) -> str:
    """Return the note on a verdict that is not believed."""
    text = comparison.text_of(verdict.entry)
    if verdict.item is None:
        return f"kept, though the model deleted it, because nothing that was said is about it: {text}"
    fact = comparison.facts[verdict.item].text
    if verdict.event is Event.NONE:
        return f'added, though the model found it known by "{text}", which says something else: {fact}'
    verb = "replaced" if verdict.event is Event.DELETE else "reworded"
    return f'kept, though the model {verb} it, because it is about something else than "{fact}": {text}'


def _with_fact(verdict: Verdict, comparison: Comparison) -> Verdict:
    if verdict.item is not None or verdict.event is not Event.DELETE or verdict.entry is None:
        return verdict
    likeness = [near.get(verdict.entry, 0.0) for near in comparison.near[: len(comparison.facts)]]
    best = max(range(len(likeness)), key=likeness.__getitem__, default=None)
    return verdict if best is None or likeness[best] < LEAST_LIKENESS else replace(verdict, item=best, text=None)


def _is_plausible(verdict: Verdict, comparison: Comparison) -> bool:
    if verdict.event is Event.ADD or verdict.entry is None:
        return True
    if verdict.item is None:
        return verdict.event is not Event.DELETE
    if verdict.item >= len(comparison.facts):  # what people ask to forget is another matter
        return True
    fact, text = comparison.facts[verdict.item], comparison.text_of(verdict.entry)
    entry = comparison.stored(verdict.entry)
    relations = entry.memory.relations if entry is not None else ()
    user = comparison.user_name
    stated = [{(_key(item.source, user), relation_key(item.name)) for item in of} for of in (fact.relations, relations)]
    if stated[0] & stated[1]:  # the same relation of the same source, such as where one lives
        return True
    likeness = comparison.near[verdict.item].get(verdict.entry)
    is_known = verdict.event is Event.NONE
    named = {name_key(entity.name) for entity in fact.entities if entity.type != "other"} - SELF_NAMES
    names_none = bool(named) and not any(_is_in(key, text) for key in named)
    if is_known and names_none and (likeness or 0.0) < SAME_NAMES_LIKENESS:
        return False
    if _is_about_others(fact, relations, text, user):
        return False
    if likeness is not None and not LEAST_LIKENESS <= likeness < CERTAIN_LIKENESS:
        return likeness >= CERTAIN_LIKENESS
    is_of_user = has_user_as_subject(fact.text, user) and has_user_as_subject(text, user)
    return _shares_words(fact.text, text, user) or (likeness is not None and is_of_user and not is_known)


def _is_about_others(fact: Fact, relations: Sequence[models.Relation], text: str, user_name: str) -> bool:
    """Return whether a fact and a memory state relations of different people or things, and nothing in common."""
    sources = [{_key(item.source, user_name) for item in items} for items in (fact.relations, relations)]
    if not all(sources) or not sources[0].isdisjoint(sources[1]):
        return False
    ends = {_key(end, user_name) for item in fact.relations for end in (item.source, item.destination)} - {"user"}
    return not any(_is_in(end, text) for end in ends)


def _is_in(key: str, text: str) -> bool:
    """Return whether a text has a name or the beginning of it, by which its bearer may be called."""
    return key.split(" ", 1)[0] in text.casefold()


def _key(name: str, user_name: str) -> str:
    key = name_key(name)
    return "user" if key in SELF_NAMES or (user_name and key == name_key(user_name)) else key


def _shares_words(first: str, second: str, user_name: str) -> bool:
    """Return whether two texts have a word in common that says something, and is not the user's name or its "'s"."""
    own = {*SELF_NAMES, *search_tokens(user_name)}
    words = [set(without_function_words(search_tokens(text))) - own for text in (first, second)]
    return any(len(word) > 1 or not word.isascii() for word in words[0] & words[1])


# Say which of two statements that contradict each other is the later one, and so the one that holds.
#
# The model does not decide this, because it orders dates badly. The times are those of section 2.2 of the Zep paper.


def is_plan(statement: Fact | KnownEntry, now: datetime | None) -> bool:
    """Return whether something begins to hold in the future. What holds today is no contradiction to it."""
    return now is not None and statement.valid_from is not None and statement.valid_from > now


def _span(statement: Fact | KnownEntry, now: datetime | None) -> TimeSpan:
    """Return since when something holds, as exactly as that is known, or else when it was said.

    The latter also counts for a plan. What was said at no known time came last.
    """
    if statement.valid_from is None or is_plan(statement, now):
        said_at = statement.said_at or LATEST
        return TimeSpan(said_at, said_at)
    return span_of(statement.valid_from, statement.valid_from_precision)


def later(first: Fact, second: Fact | KnownEntry, now: datetime | None) -> int:
    """Return 1 if the first of two statements is the later one, -1 if the second one is, and 0 if neither is.

    If both say since when they hold, these times decide, unless they overlap; else the times at which they were said
    decide: "since 2015" does not make a fact as old as that. Of two that were said at one time ("in Oslo since 2025,
    before that in Rome"), the one that names a beginning is the later one. Where neither is, callers take the fact to
    be later than the memory.
    """
    has_beginnings = first.valid_from is not None, second.valid_from is not None
    if all(has_beginnings):
        first_span, second_span = _span(first, now), _span(second, now)
        if first_span.first > second_span.last:
            return 1
        if second_span.first > first_span.last:
            return -1
    first_said, second_said = first.said_at or LATEST, second.said_at or LATEST
    if first_said == second_said:
        return has_beginnings[0] - has_beginnings[1]
    return 1 if first_said > second_said else -1


def held_until(fact: Fact, successor: KnownEntry, now: datetime | None) -> tuple[datetime, Precision]:
    """Return until when a fact held that the memory `successor` ended: the first known time of that after the fact's.

    A memory may be older than the fact by its first mention, and later by its last one. Also return how exactly the
    time is known.
    """
    began = _span(fact, now).first
    times: tuple[tuple[datetime, Precision], ...] = (
        (successor.memory.valid_from or EARLIEST, successor.memory.valid_from_precision),
        (successor.memory.stated_at, ""),
        (successor.said_at, ""),
    )
    return min((time for time in times if time[0] > began), default=times[-1])


# Facts of one call that say the same, or of which one was true before the other, become one group.


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


def fact_groups(verdicts: Sequence[Verdict], comparison: Comparison, gone: Decisions) -> list[FactGroup]:
    """Return the groups of the facts of a call, without the facts that somebody asked to forget.

    What the model says about entries that no fact can change is left out: messages, memories of all projects, and those
    that are being forgotten. Their words must not be stored again.
    """
    taken = {number for granted in gone.granted for number in granted.facts}
    kept = [number for number in range(len(comparison.facts)) if number not in taken]
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
        or ((entry := comparison.stored(verdict.entry)) and entry.is_for_facts and verdict.entry not in gone.forgotten)
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
        order = later(comparison.facts[item], comparison.facts[other], comparison.now) or item - other
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
    about_entries = [verdict for verdict in verdicts if verdict.entry is not None]
    if len(numbers) > 1 and any(verdict.event in (Event.NONE, Event.UPDATE) for verdict in about_entries):
        verdicts = about_entries  # what an entry has is not new
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


def _with_older(group: FactGroup, older: Iterable[FactGroup]) -> FactGroup:
    """Return a group with those that were true before it. What these are about, the group contradicts."""
    own = {verdict.entry for verdict in group.verdicts}
    for old in older:
        about = [(verdict.event, verdict.entry) for verdict in old.verdicts if verdict.entry is not None]
        saying = [entry for event, entry in about if event is Event.NONE]
        contradicted = [Verdict(group.numbers[0], Event.DELETE, entry) for _, entry in about if entry not in own]
        group = replace(
            group,
            verdicts=(*group.verdicts, *contradicted),
            outdated=group.outdated if saying else (*group.outdated, old.fact),
            known=(*group.known, *((old.fact, entry) for entry in saying)),
        )
    return group


# The day that dates in words count from. Those that do count from a day, as "last year", are not compared.
_ANY_DAY = datetime(2000, 1, 1, tzinfo=UTC)


def settle(verdicts: Sequence[Verdict], comparison: Comparison) -> Decisions:
    """Return the decisions that follow from the model's verdicts, as far as these are plausible."""
    verdicts, doubts = believed(verdicts, comparison)
    gone = forgetting(verdicts, comparison)
    groups = [replace(group, verdicts=_allowed(group, comparison)) for group in fact_groups(verdicts, comparison, gone)]
    ended = _ended(verdicts, comparison, gone)
    closed = {*ended, *(number for group in groups for number in _contradicted(group, comparison)[0])}
    reworded: set[int] = set()
    decided = {verdict.item for verdict in verdicts}
    decisions: list[Decision] = []
    dropped: list[Fact] = []
    for group in groups:
        made = [Decision(Event.ADD, group.fact)]
        if group.verdicts:
            made = _about(group, comparison, gone.forgotten | closed, reworded)
        if not made:
            dropped += [comparison.facts[number] for number in group.numbers]
        decisions += [Decision(Event.NONE, fact, comparison.entries[entry].memory.id) for fact, entry in group.known]
        decisions += _with_outdated(group, made)
    decisions += ended.values()
    # A NONE needs its memory to live, and an UPDATE may close a memory whose new text another one has already.
    changed = {comparison.entries[entry].memory.id for entry in (*reworded, *closed)}
    decisions.sort(key=lambda decision: decision.event is not Event.NONE or decision.memory_id not in changed)
    return replace(
        gone,
        decisions=tuple(_delete_each_once([*gone.decisions, *decisions])),
        dropped=tuple(dropped),
        undecided=tuple(group.fact for group in groups if group.numbers[0] not in decided),
        doubts=doubts,
    )


def _allowed(group: FactGroup, comparison: Comparison) -> tuple[Verdict, ...]:
    """Return the verdicts that can be carried out. If none can, the fact is added in its own words.

    A plan contradicts nothing that holds today.
    """
    allowed: list[Verdict] = []
    begins_later = is_plan(group.fact, comparison.now)
    for verdict in group.verdicts:
        if (entry := comparison.stored(verdict.entry)) is None:
            allowed.append(verdict)
        elif verdict.event is Event.UPDATE:
            allowed += _allowed_update(group.fact, verdict, entry, comparison)
        elif verdict.event is not Event.DELETE or not begins_later or is_plan(entry, comparison.now):
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
    if later(fact, entry, comparison.now) >= 0 or words <= set(search_tokens(verdict.text or "")):
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


def _contradicted(group: FactGroup, comparison: Comparison) -> tuple[list[int], list[int]]:
    """Return the numbers of the entries that a fact contradicts: those that are older than it, and those newer."""
    deleted = [verdict.entry for verdict in group.verdicts if verdict.event is Event.DELETE]
    numbers = [number for number in deleted if number is not None]
    older = [number for number in numbers if later(group.fact, comparison.entries[number], comparison.now) >= 0]
    return older, [number for number in numbers if number not in older]


def _about(group: FactGroup, comparison: Comparison, deleted: AbstractSet[int], reworded: set[int]) -> list[Decision]:
    """Return the decisions about one fact. UPDATE of an entry that is deleted or already updated becomes ADD."""
    fact, text = group.fact, group.fact.text
    decisions: list[Decision] = []
    adds = False
    for verdict in group.verdicts:
        number, event = verdict.entry, verdict.event
        if event is Event.UPDATE and number is not None and number not in deleted | reworded:
            reworded.add(number)
            memory = comparison.entries[number].memory
            decisions.append(Decision(Event.UPDATE, _joined(with_text(fact, verdict.text), memory), memory.id))
        elif event is Event.NONE and number is not None and number not in deleted:
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


def _joined(fact: Fact, memory: models.Memory) -> Fact:
    """Return a fact that completes a memory, with what the memory names and states and the new text still names.

    Of relations with one name from one source, only those of the fact stay: that may be what has changed.
    """
    text = models.plain_name(fact.text)
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
    before, after = _contradicted(group, comparison)
    older = [comparison.entries[number].memory.id for number in before]
    newer = [comparison.entries[number] for number in after]
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
    return [replace(keeping, outdated=group.outdated) if decision is keeping else decision for decision in decisions]


def _ended(verdicts: Sequence[Verdict], comparison: Comparison, gone: Decisions) -> dict[int, Decision]:
    """Return the decisions on entries that the model deletes for the sake of no fact: they held until now."""
    ended_at = max((fact.said_at for fact in comparison.facts if fact.said_at is not None), default=comparison.now)
    return {
        verdict.entry: Decision(Event.DELETE, memory_id=entry.memory.id, ended_at=ended_at)
        for verdict in verdicts
        if verdict.item is None and verdict.event is Event.DELETE
        if verdict.entry is not None and verdict.entry not in gone.forgotten
        if (entry := comparison.stored(verdict.entry)) is not None and entry.is_for_facts
    }


def _delete_each_once(decisions: Sequence[Decision]) -> list[Decision]:
    """Return the decisions, with each memory deleted only by the first decision that deletes it."""
    seen: set[str | None] = set()
    kept: list[Decision] = []
    for decision in decisions:
        deleted = {decision.memory_id} if decision.event is Event.DELETE else set[str | None]()
        if seen.isdisjoint(deleted):
            fresh = tuple(memory_id for memory_id in dict.fromkeys(decision.replaces) if memory_id not in seen)
            seen.update(fresh, deleted)
            kept.append(replace(decision, replaces=fresh))
    return kept


# Ask the model, and read its reply, which may be in Mem0's form.

INPUTS = frozenset({"facts", "memories"})

MAX_TEXT_CHARS = 4_000

# Events as models name them, also in Chinese.
_EVENTS: Mapping[str, Event] = {
    **{event.value: event for event in Event},
    **dict.fromkeys(("INSERT", "CREATE", "\u6dfb\u52a0", "\u65b0\u589e"), Event.ADD),
    **dict.fromkeys(("MODIFY", "\u66f4\u65b0", "\u4fee\u6539"), Event.UPDATE),
    **dict.fromkeys(("SUPERSEDE", "REMOVE", "FORGET", "\u5220\u9664"), Event.DELETE),
    **dict.fromkeys(("NOOP", "NO OP", "NO CHANGE", "IGNORE", "SKIP", "\u65e0", "\u65e0\u53d8\u5316"), Event.NONE),
}

_MEMORY_KEYS = ("memory", "memory_id", "target_memory_id", "id")
_TEXT_KEYS = ("text", "updated_content", "new_memory", "new_text", "content", "data")
_LIST_KEYS = ("decisions", "memory", "results", "operations")


def _number(value: Any) -> int | None:
    """Return the number in a reply, None if there is none, and -1, which is never valid, for anything else."""
    is_none = value is None or (isinstance(value, str) and value.strip().casefold() in ask.NOTHING)
    return None if is_none else ask.number_in(value)


_MaybeNumber = Annotated[int | None, BeforeValidator(_number)]
_MaybeEvent = Annotated[
    Event | None,
    BeforeValidator(lambda value: _EVENTS.get(re.sub("[_-]", " ", ask.text_in(value)).upper().strip())),
    WithJsonSchema({"enum": [event.value for event in Event], "type": "string"}),
]


class DecisionReply(ask.ReplyItem):
    """One decision of the model's reply, about fact number `fact` and, except for ADD, memory number `memory`.

    What is no event is None. An operation is a decision in another form, of which there is one for each fact. Custom
    update prompts written for Mem0 ask for "id".
    """

    fact: _MaybeNumber
    event: _MaybeEvent = Field(None, validation_alias=AliasChoices("event", "operation"))
    memory: _MaybeNumber = Field(None, validation_alias=AliasChoices(*_MEMORY_KEYS))
    text: str | None
    is_operation: SkipJsonSchema[bool] = False

    @model_validator(mode="before")
    @classmethod
    def _tolerate(cls, value: Any) -> Any:
        item = object_of(value)
        text = next((item[key] for key in _TEXT_KEYS if isinstance(item.get(key), str)), "")
        is_operation = "operation" in item and "fact" not in item
        return cls.filled(item, text=None if ask.says_nothing(text) else text, is_operation=is_operation)


class DecideReply(ask.ReplyModel):
    """The model's reply: `{"decisions": […]}`, a bare list, or Mem0's `{"memory": […]}`, whose items name no fact."""

    LIST_KEY = "decisions"

    decisions: list[DecisionReply]

    @classmethod
    def is_item(cls, value: Mapping[str, Any]) -> bool:
        """Return whether a value is a decision without a list around it."""
        return isinstance(value.get("event", value.get("operation")), str)

    @model_validator(mode="before")
    @classmethod
    def _tolerate(cls, value: Any) -> Any:
        if isinstance(value, list):
            items = ask.list_in(value)
            if not all(isinstance(item, Mapping) for item in items):
                raise ValueError("it is a list of something else than decisions")
            return {"decisions": items}
        listed = next((value[key] for key in _LIST_KEYS if key in object_of(value)), None)
        return {"decisions": list(filter(None, [object_of(listed)])) if isinstance(listed, Mapping) else listed}


async def decide(model: LanguageModel, prompt: Prompt, comparison: Comparison) -> Decisions:
    """Return the decisions about facts and requests to forget. Raises ModelError.

    What cannot be carried out of a reply is asked for once more, and then left out of the others. A fact without a
    decision is added, and a request without one is not granted. A prompt about one fact is asked once for each.
    """
    if not prompt.takes_one_fact:
        return await _decide(model, prompt, comparison)
    parts = [await _decide(model, prompt, part) for part in _parts(comparison)]
    verdicts = [replace(verdict, item=item) for item, part in enumerate(parts) for verdict in part.verdicts]
    faults = dict.fromkeys(fault for part in parts for fault in part.faults)
    is_cut = any(part.is_cut for part in parts)
    return replace(settle(verdicts, comparison), faults=tuple(faults), is_cut=is_cut)


def _parts(comparison: Comparison) -> Iterable[Comparison]:
    """Yield a comparison for each fact, and then for each request, held against what is stored."""
    facts, stored = len(comparison.facts), len(comparison.entries)
    nears = [{entry: likeness for entry, likeness in near.items() if entry < stored} for near in comparison.near]
    for item in range(facts + len(comparison.requests)):
        request = slice(max(item - facts, 0), max(item - facts + 1, 0))
        yield replace(
            comparison,
            facts=comparison.facts[item : item + 1],
            requests=comparison.requests[request],
            near=tuple(nears[item : item + 1]),
            listed_facts=(),
            partly_shown=comparison.partly_shown[request],
        )


async def _decide(model: LanguageModel, prompt: Prompt, comparison: Comparison) -> Decisions:
    """Return the decisions by one question to the model."""
    messages = prompt.render(facts=_shown_items(comparison), memories=_shown_entries(comparison))

    def convert(reply: DecideReply) -> tuple[Decisions, str]:
        verdicts, faults = _verdicts(reply, comparison)
        decided = replace(settle(verdicts, comparison), verdicts=tuple(verdicts), faults=tuple(dict.fromkeys(faults)))
        left_out = (*decided.undecided, *decided.unanswered)
        items = enumerate((*comparison.facts, *comparison.requests))
        numbers = ", ".join(str(number) for number, item in items if item in left_out)
        return decided, next(iter(faults), f"it has no decision about fact {numbers}." if left_out else "")

    return await ask.ask(model, messages, DecideReply, convert, when_cut=partial(replace, is_cut=True))


def _shown_items(comparison: Comparison) -> list[dict[str, Any]]:
    """Return the facts, and after them the requests to forget, with the numbers and likeness of what is near them."""
    items: list[dict[str, Any]] = [
        {
            "text": fact.text,
            "date": shown_date(at, fact.happened_precision) if (at := fact.happened_at or fact.said_at) else "",
            "since": shown_date(fact.valid_from, fact.valid_from_precision) if fact.valid_from else "",
        }
        for fact in comparison.facts
    ]
    items += [{"forget": request.what} for request in comparison.requests]
    for number, item in enumerate(items):
        item["near"] = {str(entry): round(near, 2) for entry, near in comparison.near[number].items()}
    return [{"fact": number, **ask.without_empty(**item)} for number, item in enumerate(items)]


def _shown_entries(comparison: Comparison) -> list[dict[str, Any]]:
    """Return what the facts are held against. The facts of the call that another item may be about come last.

    Memories of the time before the user's name was known are shown with the name, as the facts have it.
    """
    shown: list[dict[str, Any]] = [
        {
            "id": number,
            **ask.without_empty(
                text=with_name(entry.shown_text, comparison.user_name),
                date=entry.memory.date,
                since=entry.memory.since,
                message=entry.kind == "message",
                past=entry.memory.deleted_at is not None,
                hints=entry.shown_hints if comparison.requests else "",
            ),
        }
        for number, entry in enumerate(comparison.entries)
    ]
    new = [{"text": comparison.facts[fact].text, "new": f"fact {fact}"} for fact in comparison.listed_facts]
    return shown + [{"id": number, **item} for number, item in enumerate(new, len(shown))]


def _verdicts(reply: DecideReply, comparison: Comparison) -> tuple[list[Verdict], list[str]]:
    """Return the model's decisions, and what is wrong with those that are left out."""
    items = len(comparison.facts) + len(comparison.requests)
    decisions = reply.decisions
    if len(decisions) == items and all(decision.is_operation for decision in decisions):
        decisions = [decision.model_copy(update={"fact": number}) for number, decision in enumerate(decisions)]
    verdicts: list[Verdict] = []
    faults: list[str] = []
    for item in decisions:
        fault = _fault(item, comparison)
        if item.event is None or fault:
            faults.append(fault)
        else:
            verdicts.append(Verdict(item.fact, item.event, None if item.event is Event.ADD else item.memory, item.text))
    return with_items(verdicts, comparison), faults


def _fault(reply: DecisionReply, comparison: Comparison) -> str:
    """Return what is wrong with a decision: a number that was not shown, or a lacking event, memory or text; or ""."""
    items = len(comparison.facts) + len(comparison.requests)
    entries = len(comparison.entries) + len(comparison.listed_facts)
    if reply.fact is not None and not 0 <= reply.fact < items:
        return f"there is no fact {reply.fact}; the facts are 0 to {items - 1}."
    if reply.event is None:
        about = "" if reply.fact is None else f" about fact {reply.fact}"
        return f"a decision{about} has no event that there is: {', '.join(Event)}."
    if len(reply.text or "") > MAX_TEXT_CHARS:
        return f"the text of a decision is longer than {MAX_TEXT_CHARS} characters."
    if reply.event is Event.ADD or (reply.memory is None and reply.event is Event.NONE):
        return ""
    if reply.memory is None:
        return f"{reply.event} names no memory."
    if not 0 <= reply.memory < entries:
        return ask.unknown_memory(reply.memory, entries)
    if reply.event is Event.UPDATE and not any(map(str.isalnum, reply.text or "")):
        return f"UPDATE of memory {reply.memory} has no text."
    return ""
