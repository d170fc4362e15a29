"""Find what new facts, and requests to forget, are held against before the model decides."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from palimpsest.core.models import Fact, ForgetRequest, Kind, Memory, Scope
from palimpsest.core.protocols import Vector
from palimpsest.learn.engine import Engine
from palimpsest.learn.facts.same_relation import Nearness, related_memories
from palimpsest.llm.decide import NEAREST_MEMORIES
from palimpsest.llm.decisions.verdicts import MAX_FORGOTTEN_UNASKED, Comparison, KnownEntry
from palimpsest.recall.similar import likeness_among, similar_memories, similar_messages
from palimpsest.store.queries import history as history_queries
from palimpsest.store.queries import memories as memory_queries
from palimpsest.store.queries import messages as message_queries
from palimpsest.text.tokenizer import count_tokens

MIN_LIKENESS = 0.25
"""The likeness from which two texts may be about one matter. Set by hand, a little below that of two facts on one
subject: to decide on too little costs a wrong memory, to show too much costs tokens."""

ALWAYS_SHOWN = 3
"""How many memories are shown for each fact however little they resemble it. Set by hand: a change told in passing
shares few words with what it changes."""

MAX_SHOWN_TOKENS = 900
"""How many tokens the memories shown take together, beyond the first of each fact. Set by hand, so that a usual turn
and the prompt stay within 2,000 tokens. No memory takes more than `MAX_ENTRY_TOKENS`."""

MAX_RELATED = 5
"""How many memories are shown for each fact because they speak of the same entity, beyond those that resemble it. Set
by hand: of the update pairs that likeness misses, all that the graph knows are among the first four."""

MAX_RELATED_TOKENS = 200
"""How many tokens they take together. Set by hand, as `MAX_SHOWN_TOKENS` is: about fifteen memories."""

MIN_LIKENESS_OF_FACTS = 0.4
"""The likeness from which two facts of one call are held against each other. Set by hand: facts of one conversation
are about one subject, and only those that say nearly the same matter."""

FORGETTABLE_MEMORIES, FORGETTABLE_MESSAGES = 30, 10
"""How many memories and messages are shown for each request to forget, however little they resemble it. Set by hand: a
request names a person or a matter in a few words, and what is not shown is not forgotten."""

MAX_FORGETTABLE_TOKENS = 2_400
"""How many tokens they take together with the memories of the facts. Set by hand: few turns have a request, and thirty
memories have room."""


@dataclass(slots=True)
class _Shown:
    """The entries shown so far, each once, with its number."""

    entries: list[KnownEntry] = field(default_factory=list[KnownEntry])
    numbers: dict[str, int] = field(default_factory=dict[str, int])
    tokens: int = 0

    def number_of(self, entry: KnownEntry, max_tokens: float) -> int | None:
        """Return the number of an entry, which is added if it has none; None if there is no room for it."""
        memory = entry.memory
        if memory.id not in self.numbers:
            cost = count_tokens(entry.shown_text)
            if self.tokens + cost > max_tokens:
                return None
            self.tokens += cost
            self.numbers[memory.id] = len(self.entries)
            self.entries.append(entry)
        return self.numbers[memory.id]


def compared(
    engine: Engine,
    scope: Scope,
    facts: Sequence[Fact],
    requests: Sequence[ForgetRequest],
    vectors: Mapping[str, Vector],
    user_name: str = "",
    may_forget: int = MAX_FORGOTTEN_UNASKED,
) -> tuple[Comparison, frozenset[str]]:
    """Return what facts and requests are held against, and the ids of the memories that a decision depends on.

    These resemble a fact or a request, or state the same relation of the same source. `vectors` maps texts to their
    vectors, of shape (dims,), as far as they could be embedded. `user_name` is "" if it is not known. `may_forget` is
    how many memories the requests may take without a question. Blocking. Raises LedgerError.
    """
    shown = _Shown()
    near = _near_each_fact(engine, scope, facts, vectors, shown)
    same_relation = _related_to_each_fact(engine, scope, facts, user_name, vectors, shown, near)
    near_requests, partly_shown = _near_each_request(engine, scope, requests, vectors, shown)
    near += near_requests
    similar_ids = frozenset(
        shown.entries[number].memory.id
        for entries in near
        for number, likeness in entries.items()
        if likeness >= MIN_LIKENESS and shown.entries[number].kind == "memory"
    )
    similar_ids |= same_relation
    listed = _near_facts(engine, scope, facts, vectors, len(shown.entries), near, all_listed=bool(requests))
    entries = tuple(_last_said(engine, shown.entries))
    now = engine.clock()
    with engine.ledger.read() as conn:
        living = len(memory_queries.memories_of(conn, scope)) if requests else 0
    shown_to_model = Comparison(
        tuple(facts),
        entries,
        tuple(requests),
        _ordered(near),
        listed,
        tuple(partly_shown),
        user_name,
        now=now,
        may_forget=may_forget,
        living=living,
    )
    return shown_to_model, similar_ids


def _near_each_fact(
    engine: Engine, scope: Scope, facts: Sequence[Fact], vectors: Mapping[str, Vector], shown: _Shown
) -> list[dict[int, float]]:
    """Return for each fact the numbers of the memories to show, and their likeness."""
    texts = [fact.text for fact in facts]
    parts = engine.ledger, engine.embedder, engine.index, scope
    memories = similar_memories(*parts, {text: vectors.get(text) for text in texts}, NEAREST_MEMORIES)
    near: list[dict[int, float]] = [{} for _ in texts]
    for place in range(NEAREST_MEMORIES):  # the best of each text first
        for number, text in enumerate(texts):
            # A project's facts do not change the user's global memories, which are visible outside the project too.
            found = [item for item in memories[text] if item.memory.scope.project == scope.project]
            if place >= len(found) or (found[place].likeness < MIN_LIKENESS and place >= ALWAYS_SHOWN):
                continue
            item = found[place]
            entry = KnownEntry(item.memory, item.memory.stated_at)
            shown_as = shown.number_of(entry, MAX_SHOWN_TOKENS if place else math.inf)
            if shown_as is not None:
                near[number][shown_as] = item.likeness
    return near


def _related_to_each_fact(
    engine: Engine,
    scope: Scope,
    facts: Sequence[Fact],
    user_name: str,
    vectors: Mapping[str, Vector],
    shown: _Shown,
    near: Sequence[dict[int, float]],
) -> frozenset[str]:
    """Add to `near` the memories that speak of what a fact speaks of. Return the ids of those with the same relation.

    A project's facts do not change the user's global memories here either.
    """
    max_tokens = shown.tokens + MAX_RELATED_TOKENS
    numbers = shown.numbers
    related = [
        [
            item
            for item in related_memories(engine, scope, fact, user_name, vectors)
            if numbers.get(item.memory.id) not in near[number]
        ][:MAX_RELATED]
        for number, fact in enumerate(facts)
    ]
    same: set[str] = set()
    for place in range(MAX_RELATED):  # the first of each fact first
        for number, found in enumerate(related):
            if place >= len(found):
                continue
            item = found[place]
            shown_as = shown.number_of(KnownEntry(item.memory, item.memory.stated_at), max_tokens)
            if shown_as is not None:
                near[number][shown_as] = max(item.likeness, 0.0)
                same.update([item.memory.id] if item.nearness is Nearness.SAME_RELATION else [])
    return frozenset(same)


def _near_each_request(
    engine: Engine, scope: Scope, requests: Sequence[ForgetRequest], vectors: Mapping[str, Vector], shown: _Shown
) -> tuple[list[dict[int, float]], list[frozenset[Kind]]]:
    """Return for each request the numbers of the entries to show and their likeness, and of which kinds there are more.

    A project's request does not change the user's global memories. They are shown, so that the reply can name them.
    """
    parts = engine.ledger, engine.embedder, engine.index, scope
    asked = {request.what: vectors.get(request.what) for request in requests}
    own = {source for request in requests for source in request.sources}
    memories = similar_memories(*parts, asked, FORGETTABLE_MEMORIES)
    messages = similar_messages(*parts, asked, FORGETTABLE_MESSAGES + len(own))
    near: list[dict[int, float]] = []
    partly_shown: list[frozenset[Kind]] = []
    for request in requests:
        found: list[tuple[Memory, Kind, float]] = [
            *((item.memory, "memory", item.likeness) for item in memories[request.what]),
            *((item.as_memory, "message", likeness) for item, likeness in messages[request.what] if item.id not in own),
        ]
        entries: dict[int, float] = {}
        more: set[Kind] = set()
        if len(memories[request.what]) == FORGETTABLE_MEMORIES:
            more.add("memory")
        if len(messages[request.what]) == FORGETTABLE_MESSAGES + len(own):
            more.add("message")
        for memory, kind, likeness in found:
            shown_as = shown.number_of(_entry(scope, memory, kind), MAX_FORGETTABLE_TOKENS)
            if shown_as is None:
                more.add(kind)
            else:
                entries[shown_as] = likeness
        near.append(entries)
        partly_shown.append(frozenset(more))
    for memory in _closed(engine, scope, shown.entries) if requests else ():
        shown.number_of(_entry(scope, memory, "memory"), MAX_FORGETTABLE_TOKENS)
    return near, partly_shown


def _closed(engine: Engine, scope: Scope, entries: Sequence[KnownEntry]) -> list[Memory]:
    """Return the memories that those shown replaced, or that came from the messages shown, and that hold no more.

    Those of another project, agent or run than the scope's are left out.
    """
    messages = [entry.memory.id for entry in entries if entry.kind == "message"]
    with engine.ledger.read() as conn:
        told = [memory for found in memory_queries.memories_from(conn, messages).values() for memory in found]
        replaced = [
            old.memory
            for entry in entries
            if entry.kind == "memory"
            for old in history_queries.predecessors(conn, entry.memory.id)
        ]
    return [
        memory
        for memory in (*replaced, *told)
        if memory.deleted_at is not None and not memory.is_forgotten
        if memory.scope.project == scope.project
        if scope.agent_id in ("", memory.scope.agent_id) and scope.run_id in ("", memory.scope.run_id)
    ]


def _entry(scope: Scope, memory: Memory, kind: Kind) -> KnownEntry:
    return KnownEntry(memory, memory.stated_at, kind, is_elsewhere=memory.scope.project != scope.project)


def _near_facts(
    engine: Engine,
    scope: Scope,
    facts: Sequence[Fact],
    vectors: Mapping[str, Vector],
    first_number: int,
    near: Sequence[dict[int, float]],
    *,
    all_listed: bool,
) -> tuple[int, ...]:
    """Add to `near` the facts of the call that resemble an earlier one. Return the earlier ones, in order.

    With `all_listed` all facts are returned, because a request to forget may mean each of them.
    """
    likeness = likeness_among(engine.ledger, engine.embedder, scope, [fact.text for fact in facts], vectors)
    pairs = [
        (number, other)
        for number in range(len(facts))
        for other in range(number)
        if likeness[number, other] >= MIN_LIKENESS_OF_FACTS
    ]
    listed = tuple(range(len(facts))) if all_listed else tuple(sorted({other for _, other in pairs}))
    for number, other in pairs:
        near[number][first_number + listed.index(other)] = float(likeness[number, other])
    return listed


def _last_said(engine: Engine, entries: Sequence[KnownEntry]) -> list[KnownEntry]:
    """Return the entries with the time at which each was last said: that of the newest message behind it."""
    with engine.ledger.read() as conn:
        sources = message_queries.sources_of(conn, [entry.memory.id for entry in entries if entry.kind == "memory"])
    zone = engine.clock().tzinfo
    return [
        replace(
            entry,
            memory=entry.memory.in_zone(zone),
            said_at=max([entry.said_at, *(message.said_at for message in sources.get(entry.memory.id, ()))]),
        )
        for entry in entries
    ]


def _ordered(near: Sequence[Mapping[int, float]]) -> tuple[tuple[tuple[int, float], ...], ...]:
    return tuple(tuple(sorted(entries.items(), key=lambda item: -item[1])) for entries in near)
