"""Leave out what a newer memory contradicts, so that no two that contradict each other are shown side by side."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np
from sqlalchemy import Connection

from palimpsest.core.entities import SELF_NAMES, name_key, relation_key
from palimpsest.core.models import Memory, Scope
from palimpsest.core.protocols import Vector
from palimpsest.learn.facts.conflicts import SINGLE_VALUED
from palimpsest.learn.views.portrait.ranks import is_safety
from palimpsest.learn.views.portrait.signs import PEOPLE
from palimpsest.recall.fitted.weights import THRESHOLD, weights_for
from palimpsest.recall.retrieval.stored_vectors import centred_vectors
from palimpsest.recall.scoring.replacement import replacement_probability
from palimpsest.store.queries import memories as memory_queries
from palimpsest.text.stopwords import is_denial
from palimpsest.text.time_words import change_words
from palimpsest.text.tokenizer import query_tokens, search_tokens

COMPARED = 80
"""How many memories are compared with each other: more than fit. Set by hand: some milliseconds."""

SAME_MATTER = 0.75
"""Which share of their words two texts have in common at least, of which one denies what the other says. Set by hand:
"User drinks coffee" and "User no longer drinks coffee" have all, "not allergic to walnuts" and "to peanuts" half."""

ONE_MATTER = 0.3
"""Which share of its words the shorter text has in common with another one at least, if the two are about one matter.
Set by hand: the probability alone also joins two texts that are only the least unlike of many."""

_OF_USER = frozenset(search_tokens(" ".join(SELF_NAMES)))

_TOO = re.compile(
    r"\b(?:also|too|another|second|additionally|auch|außerdem|aussi|también|anche|também|ook|också|też|także|тоже|также)\b|也|还|もう一",
    re.IGNORECASE,
)
_OF_POLARITY = frozenset(
    search_tokens(
        """no not never none cannot stopped avoid don doesn didn isn aren won always longer anymore now nicht nie
        niemals kein keine keinen immer mehr jetzt pas jamais plus toujours nunca siempre non mai sempre não niet nooit
        geen altijd inte aldrig alltid nie nigdy zawsze не нет никогда всегда больше"""
    )
)


def without_contradicted(
    conn: Connection, embedder: str, scope: Scope, memories: Sequence[Memory], now: datetime
) -> frozenset[str]:
    """Return the ids of those of the memories that a newer one of them contradicts.

    A plan contradicts nothing. What somebody's safety depends on is contradicted only by what denies it: people have
    several allergies. `embedder` is the fingerprint of the embedder.
    """
    held = [memory for memory in memories[:COMPARED] if memory.valid_from is None or memory.valid_from <= now]
    rows = memory_queries.rows_of(conn, [memory.id for memory in held])
    held.sort(key=lambda memory: (memory.stated_at, rows.get(memory.id, 0)))
    if len(held) < 2:  # noqa: PLR2004 - a pair
        return frozenset()
    return _by_relations(held) | _by_texts(held, centred_vectors(conn, embedder, scope, "memory", list(rows)), embedder)


def _by_relations(memories: Sequence[Memory]) -> frozenset[str]:
    """Return those that state another value of a relation with one value than a newer one. The oldest comes first."""
    newest: dict[tuple[str, str], frozenset[str]] = {}
    contradicted: set[str] = set()
    for memory in reversed(memories):
        for place, values in _single_values(memory).items():
            if newest.setdefault(place, values).isdisjoint(values):
                contradicted.add(memory.id)
    return frozenset(contradicted)


def _single_values(memory: Memory) -> Mapping[tuple[str, str], frozenset[str]]:
    # One with several destinations tells of a change.
    stated = _relations(memory).items()
    return {key: names for key, names in stated if key[1] in SINGLE_VALUED and len(names) == 1}


def _relations(memory: Memory) -> Mapping[tuple[str, str], frozenset[str]]:
    """Return the destinations of what a memory states, by source and relation."""
    stated: dict[tuple[str, str], set[str]] = {}
    for relation in memory.relations:
        source = name_key(relation.source)
        key = ("user" if source in SELF_NAMES else source, relation_key(relation.name))
        stated.setdefault(key, set()).add(name_key(relation.destination))
    return {key: frozenset(names) for key, names in stated.items()}


@dataclass(frozen=True, slots=True)
class _Told:
    """What decides whether a memory contradicts another one. `relations` are those that may have several values."""

    id: str
    at: datetime
    plain: frozenset[str]
    subject: str
    words: frozenset[str]
    matter: frozenset[str]
    relations: Mapping[tuple[str, str], frozenset[str]]
    is_denial: bool
    is_safety: bool
    is_addition: bool
    is_change: bool

    @classmethod
    def of(cls, memory: Memory) -> _Told:
        text, words = memory.text, search_tokens(memory.text)
        return cls(
            memory.id,
            memory.stated_at,
            frozenset(text.casefold().split()),
            words[0] if words else "",
            frozenset(words),
            frozenset(query_tokens(text)) - _OF_POLARITY - _OF_USER,
            {key: names for key, names in _relations(memory).items() if key[1] not in SINGLE_VALUED},
            is_denial(text),
            is_safety(memory, ""),
            _TOO.search(text) is not None,
            change_words(text) > 0,
        )

    def denies(self, other: _Told) -> bool:
        """Return whether two say the same of one matter, but one of them with a negation."""
        common = len(self.matter & other.matter)
        return self.is_denial != other.is_denial and common >= max(SAME_MATTER * len(self.matter | other.matter), 1)

    def says_otherwise(self, older: _Told) -> bool:
        """Return whether this one says something else in place of an older one, and not something besides it."""
        if not (self.words - older.words and older.words - self.words) or self.is_addition:
            return False
        if all(word.isdecimal() for word in self.words ^ older.words) and self.at == older.at:
            return False  # a list, not a later version
        common, fewer = self.matter & older.matter, min(self.matter, older.matter, key=len)
        if older.is_safety or len(common) < ONE_MATTER * len(fewer):
            return False
        both = self.relations.keys() & older.relations.keys()
        if any(self.relations[key] != older.relations[key] for key in both):
            return False
        if self.is_change:
            return True
        return self.subject == older.subject and not PEOPLE.count(" ".join(self.plain ^ older.plain))


def _by_texts(memories: Sequence[Memory], vectors: Mapping[str, Vector], embedder: str) -> frozenset[str]:
    """Return those that a newer one probably replaces, judged by their words and vectors. The oldest comes first."""
    texts = [memory.text for memory in memories]
    told = [_Told.of(memory) for memory in memories]
    weights = weights_for(embedder).replacement
    nothing = np.zeros_like(next(iter(vectors.values()), np.zeros(1, np.float32)))
    known = np.stack([vectors.get(memory.id, nothing) for memory in memories])
    is_older = np.tri(len(memories), k=-1, dtype=bool)
    words = [item.words for item in told]
    replaced = replacement_probability(known, words, texts, is_older, weights) >= weights[THRESHOLD]
    contradicted: set[str] = set()
    for newer, item in enumerate(told):
        contradicted.update(
            older.id
            for place, older in enumerate(told[:newer])
            if older.id not in contradicted
            and (item.denies(older) or (replaced[newer, place] and item.says_otherwise(older)))
        )
    return frozenset(contradicted)
