"""Find memories that say nearly the same, or of which a newer one probably replaces an older one.

Each memory is held against those that the index finds nearest to it, as a new one is whose near-duplicates a reply
names. So a page of groups takes the same time among a hundred memories and a hundred thousand.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from palimpsest.core.models import Memory, Scope, has_expired
from palimpsest.core.threads import end_if_cancelled
from palimpsest.learn.engine import Engine
from palimpsest.recall.near_duplicates import AlikeMemory, NewText, alike
from palimpsest.recall.similar import similar_memories
from palimpsest.store.queries import memories as memory_queries
from palimpsest.store.queries import vectors as vector_queries
from palimpsest.text.tokenizer import query_tokens

PAIRS = 20
"""How many pairs a page has at most."""

SECONDS = 1.0
"""How long memories are compared for one page. Set by hand: what somebody waits for."""

PATIENCE = 4
"""How many times as long they are compared if nothing was found. Set by hand: nobody likes to turn empty pages."""

MIN_COMPARED = 10
"""How many memories are compared in any case. The first ones take long after a start, when everything is still cold."""

BATCH = 50
"""How many memories are read at once."""

MAX_ALIKE = 5
"""How many memories are kept for each: the nearest ones, of which there seldom are more."""

NEAREST = 10
"""How many memories somebody chooses from to merge one with. Set by hand."""


@dataclass(frozen=True, slots=True)
class NearMemory:
    """A memory and how much it resembles another one, between 0 and 1."""

    memory: Memory
    likeness: float


@dataclass(frozen=True, slots=True)
class AlikeGroup:
    """Memories of one scope that are alike, the newest first. `likeness` is that of the two that are most alike."""

    memories: tuple[Memory, ...]
    likeness: float


@dataclass(frozen=True, slots=True)
class AlikePage:
    """Groups, the surest first, and how many memories were compared for them.

    `cursor` is the row below which the next page begins, and None on the last one. `left` is how many memories there
    are below it, which were not compared yet.
    """

    groups: tuple[AlikeGroup, ...]
    compared: int
    cursor: int | None
    left: int = 0


@dataclass(frozen=True, slots=True)
class _Pair:
    """Two memories by their rows. The larger row is that of the newer one."""

    newer: tuple[int, Memory]
    older: tuple[int, Memory]
    likeness: float


_Test: TypeAlias = Callable[[Memory, AlikeMemory], bool]


def repeating(engine: Engine, scope: Scope, before: int | None) -> AlikePage:
    """Return groups of memories that say nearly the same, from below a row. Blocking. Raises LedgerError."""
    return _page(engine, scope, before, _repeats)


def contradicting(engine: Engine, scope: Scope, before: int | None) -> AlikePage:
    """Return groups of memories that a newer one probably replaces, from below a row. Blocking. Raises LedgerError."""
    return _page(engine, scope, before, _contradicts)


def nearest(engine: Engine, memory: Memory) -> Sequence[NearMemory]:
    """Return the living memories of its scope that are nearest to one, best first. Blocking. Raises LedgerError."""
    with engine.ledger.read() as conn:
        vectors = vector_queries.own_vectors(conn, engine.embedder.fingerprint, "memory", [memory.id])
    vector = {memory.text: vectors.get(memory.id)}
    found = similar_memories(engine.ledger, engine.embedder, engine.index, memory.scope, vector, NEAREST + 1)
    others = [item for item in found[memory.text] if item.memory.id != memory.id and item.memory.scope == memory.scope]
    return [NearMemory(item.memory, item.likeness) for item in others[:NEAREST]]


def _repeats(newer: Memory, other: AlikeMemory) -> bool:
    """Return whether two memories say nearly the same: neither names a number that the other has not."""
    if _numbers(newer.text) != _numbers(other.memory.text):
        return False
    return other.same >= other.replaced or not _contradicts(newer, other)


def _contradicts(newer: Memory, other: AlikeMemory) -> bool:
    """Return whether a newer memory says something else in place of an older one: each has words of its own."""
    words, older_words = (frozenset(query_tokens(text)) for text in (newer.text, other.memory.text))
    return other.replaced > 0 and bool(words - older_words) and bool(older_words - words)


def _numbers(text: str) -> frozenset[str]:
    return frozenset(token for token in query_tokens(text) if any(character.isdigit() for character in token))


def _page(engine: Engine, scope: Scope, before: int | None, is_wanted: _Test) -> AlikePage:
    """Compare memories with older ones, the newest first, until there are enough pairs or it has taken long enough."""
    began = time.monotonic()
    pairs: list[_Pair] = []
    compared, position = 0, before
    while True:
        with engine.ledger.read() as conn:
            batch = memory_queries.list_memories(conn, scope, BATCH, before=position)
            ids = [memory.id for _, memory in batch]
            vectors = vector_queries.own_vectors(conn, engine.embedder.fingerprint, "memory", ids)
        for row, memory in batch:
            end_if_cancelled()
            text = NewText(memory.id, memory.text, vectors.get(memory.id))
            pairs += _pairs_of(engine, scope, (row, memory), text, is_wanted)
            compared, position = compared + 1, row
            end = began + (SECONDS if pairs else PATIENCE * SECONDS)
            if len(pairs) >= PAIRS or (compared >= MIN_COMPARED and time.monotonic() > end):
                with engine.ledger.read() as conn:
                    left = memory_queries.count_before(conn, scope, position)
                return AlikePage(_groups(pairs), compared, position if left else None, left)
        if len(batch) < BATCH:
            return AlikePage(_groups(pairs), compared, None)


def _pairs_of(
    engine: Engine, scope: Scope, newer: tuple[int, Memory], text: NewText, is_wanted: _Test
) -> Iterable[_Pair]:
    """Return a memory with the older ones of its scope that are alike, in pairs."""
    row, memory = newer
    if has_expired(memory.metadata, engine.clock()):
        return []
    found = alike(engine.ledger, engine.embedder, engine.index, scope, text, MAX_ALIKE)
    if not found:
        return []
    with engine.ledger.read() as conn:
        rows = memory_queries.rows_of(conn, [item.memory.id for item in found])
    return [
        _Pair(newer, (rows[item.memory.id], item.memory), item.likeness)
        for item in found
        if item.memory.scope == memory.scope and rows.get(item.memory.id, row) < row and is_wanted(memory, item)
    ]


def _groups(pairs: Sequence[_Pair]) -> tuple[AlikeGroup, ...]:
    """Return pairs with a memory in common as one group."""
    groups: list[tuple[dict[int, Memory], float]] = []
    for pair in pairs:
        members, likeness = dict((pair.newer, pair.older)), pair.likeness
        touching = [group for group in groups if not group[0].keys().isdisjoint(members)]
        for group in touching:
            groups.remove(group)
            members, likeness = {**members, **group[0]}, max(likeness, group[1])
        groups.append((members, likeness))
    found = [AlikeGroup(tuple(members[row] for row in sorted(members)[::-1]), likeness) for members, likeness in groups]
    return tuple(sorted(found, key=lambda group: -group.likeness))
