"""From a question to hits: candidates by meaning and by words, one order, folded, within a budget.

Candidates come from the vector index and the full text; every one is then held against the ledger, which alone
says what lives, what the scope sees and how near it really is. So an index that lags or errs costs a candidate,
never a wrong answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Any

import numpy as np
from sqlalchemy import Connection

from palimpsest.core.errors import EmbedderError, FullTextError
from palimpsest.core.filters import Test, compile_filter
from palimpsest.core.models import Candidate, Hit, Scope
from palimpsest.core.protocols import Embedder, Vector
from palimpsest.recall import ranking
from palimpsest.recall.candidates import NearestUnits, Sought, is_wide, nearest_scanned
from palimpsest.recall.hits import memory_hit, message_hit, record
from palimpsest.recall.ranking import Likeness, Ranked
from palimpsest.store.ledger import Ledger
from palimpsest.store.queries import entries as entry_queries
from palimpsest.store.queries import memories as memory_queries
from palimpsest.store.queries.entries import Found
from palimpsest.store.sqlite import full_text
from palimpsest.text.late_interaction import meaning_similarity, spelling_similarity
from palimpsest.text.tokenizer import is_english_query, query_tokens, search_tokens

NAMELESS_SHARE = 0.6
"""Weight of the question without the names of speakers in the vector that is searched."""

POOL = 120
"""Candidates taken from each of the two searches."""

SPARE = 3
"""How many more hits than wanted are read at once: some fold into others."""

MOST_READ = 3
"""How many times as many as wanted are read at most, where many are too long for the room there is."""


@dataclass(frozen=True, slots=True)
class SearchQuery:
    """Hold what is asked. `now` dates the recency; `as_of` asks for what was believed then.

    With `explain` each hit says of what its place in the order was made.
    """

    scope: Scope
    text: str
    now: datetime
    limit: int = 10
    max_tokens: int = 800
    filters: Mapping[str, Any] = field(default_factory=dict[str, Any])
    as_of: datetime | None = None
    explain: bool = False


@dataclass(frozen=True, slots=True)
class SearchResult:
    """Hold the hits, best first; how many more there were for which no room was left; and what is degraded."""

    hits: tuple[Hit, ...]
    omitted: int = 0
    notes: tuple[str, ...] = ()


def recall(ledger: Ledger, embedder: Embedder, index: NearestUnits, question: SearchQuery) -> SearchResult:
    """Answer a question. Blocking: call it in a worker thread. Raises InputError and LedgerError."""
    test = compile_filter(question.filters) if question.filters else None
    with ledger.read() as conn:
        asked = _Asked.of(conn, question)
    notes: list[str] = []
    vector: Vector | None = None
    try:
        vector = asked.vector(embedder)
    except EmbedderError as error:
        notes.append(f"searched by words only: {error}")
    with ledger.read() as conn:
        if vector is not None and entry_queries.any_waiting(conn, embedder.fingerprint):
            notes.append("some texts have no vector of this embedder yet and are found by words only")
        if question.as_of is not None:
            hits = _believed(conn, embedder, question, asked, vector, test, notes)
        else:
            hits = _Search(conn, embedder, index, question, asked, test, notes).hits(vector)
    taken = ranking.within_budget(hits, question.limit, question.max_tokens)
    return SearchResult(tuple(taken), min(len(hits), question.limit) - len(taken), tuple(notes))


@dataclass(frozen=True, slots=True)
class _Asked:
    """Hold what a question asks for: the speakers it names, and the rest.

    A speaker's name stands on every turn of theirs, so it says who and not what: it is searched for only where
    nothing else is asked, and the vector leans to the question without it.
    """

    text: str
    without_names: str
    words: tuple[str, ...]
    named: frozenset[str]

    @classmethod
    def of(cls, conn: Connection, question: SearchQuery) -> _Asked:
        words = query_tokens(question.text)
        first = {name: search_tokens(name)[:1] for name in memory_queries.names(conn, question.scope.user_id)}
        named = {
            name
            for name in first
            if set(first[name]) & set(words) and memory_queries.speaks(conn, question.scope, name)
        }
        said = {word for name in named for word in first[name]}
        rest = [part for part in question.text.split() if not said.intersection(search_tokens(part))]
        others = [word for word in words if word not in said]
        return cls(question.text, " ".join(rest), tuple(dict.fromkeys(others or words)), frozenset(named))

    def vector(self, embedder: Embedder) -> Vector:
        if not self.without_names or self.without_names == self.text:
            return embedder.embed([self.text])[0]
        whole, rest = embedder.embed([self.text, self.without_names])
        return ranking.centred((1 - NAMELESS_SHARE) * whole + NAMELESS_SHARE * rest, None)


@dataclass(frozen=True, slots=True)
class _Search:
    """Hold one search of what is believed now: the question, where candidates come from, what is degraded."""

    conn: Connection
    embedder: Embedder
    index: NearestUnits
    question: SearchQuery
    asked: _Asked
    test: Test | None
    notes: list[str]

    def hits(self, vector: Vector | None) -> list[Hit]:
        """Return the best hits, folded; more than are wanted, for some may not fit."""
        conn, scope = self.conn, self.question.scope
        pool = max(POOL, 4 * self.question.limit)
        allowed = None if self.test is None else _allowed(conn, scope, self.test)
        centre = entry_queries.centre(conn, scope.user_id, self.embedder.fingerprint)
        frequency = self._frequency()
        loosely = scope if allowed is not None else entry_queries.loosened(conn, scope, centre.units)
        bm25 = self._by_words(loosely, pool if allowed is None else full_text.ALL, frequency)
        if allowed is not None:
            bm25 = {seq: score for seq, score in bm25.items() if seq in allowed}
        asked = None if vector is None else ranking.centred(vector, centre.mean)
        sought = None if asked is None else Sought(self.embedder.fingerprint, asked, centre.mean, pool, allowed=allowed)
        candidates = self._found(sought, bm25)
        if loosely != scope and not is_wide(list(bm25), sum(each.candidate.seq in bm25 for each in candidates), pool):
            bm25 = self._by_words(scope, pool, frequency)
            candidates = self._found(sought, bm25)
        found, outdated = _held(conn, candidates)
        words = self._words([each.candidate.seq for each in found])
        weights = ranking.rarity(frequency, self.asked.words, centre.units)
        english = is_english_query(self.question.text)
        likeness = Likeness(
            _keys(found, centre.mean) if asked is not None else None,
            asked,
            [bm25.get(each.candidate.seq, 0.0) for each in found],
            [words.get(each.candidate.seq, frozenset()) for each in found],
            weights,
            english,
            _wording(self.embedder, self.question.text, weights, english=english),
        )
        order = ranking.ranked(
            [each.candidate for each in found], likeness, self.asked.named, outdated, self.question.now
        )
        return _read(conn, order, self.question)

    def _found(self, sought: Sought | None, bm25: Mapping[int, float]) -> list[Found]:
        """Return the candidates by words and by meaning: from the index, or by a scan where that serves better."""
        conn, scope = self.conn, self.question.scope
        if sought is not None and sought.allowed is None and not entry_queries.is_narrow(conn, scope):
            near = self.index.nearest(conn, scope.user_id, sought.vector, sought.limit)
            if near is not None:
                found = entry_queries.candidates(conn, scope, self.embedder.fingerprint, list({*near, *bm25}))
                seen = len({each.candidate.seq for each in found}.intersection(near))
                if is_wide(near, seen, sought.limit):
                    return found
        scanned = [] if sought is None else nearest_scanned(conn, scope, sought)
        return entry_queries.candidates(conn, scope, self.embedder.fingerprint, list({*scanned, *bm25}))

    def _frequency(self) -> Mapping[str, int]:
        """Return in about how many units each word stands."""
        try:
            return full_text.spread(self.conn, self.asked.words)
        except FullTextError as error:
            self.notes.append(f"searched by meaning only: {error}")
            return {}

    def _by_words(self, scope: Scope | None, limit: int, frequency: Mapping[str, int]) -> dict[int, float]:
        """Return BM25 scores by unit."""
        try:
            return full_text.search(self.conn, scope, self.asked.words, limit, frequency)
        except FullTextError as error:
            self.notes.append(f"searched by meaning only: {error}")
            return {}

    def _words(self, seqs: Sequence[int]) -> Mapping[int, AbstractSet[str]]:
        try:
            return full_text.words(self.conn, seqs, frozenset(self.asked.words))
        except FullTextError:
            return {}  # the search itself met it too, and has said so


def _keys(found: Sequence[Found], mean: Vector | None) -> Vector | None:
    """Return the centred keys of candidates, shape (n, dims); one without a key lies at the mean."""
    size = next((len(each.key) for each in found if each.key is not None), None)
    if size is None:
        return None
    blobs = b"".join(bytes(size) if each.key is None else each.key for each in found)
    keys = ranking.centred(np.frombuffer(blobs, dtype=np.float32).reshape(len(found), -1), mean)
    keys[[each.key is None for each in found]] = 0.0
    return keys


def _held(conn: Connection, found: Sequence[Found]) -> tuple[list[Found], frozenset[str]]:
    """Return the candidates without turns all of whose facts were forgotten, and the turns that hold only old ones."""
    turns = [each.candidate.owner_id for each in found if each.candidate.kind == "message"]
    superseded = memory_queries.unheld(conn, turns)
    kept = [each for each in found if superseded.get(each.candidate.owner_id, True)]
    return kept, frozenset(superseded)


def _read(conn: Connection, order: Sequence[Ranked], question: SearchQuery) -> list[Hit]:
    """Return the first of the order as hits, folded, until as many as are wanted fit; never more than needed."""
    hits: list[Hit] = []
    size = question.limit + SPARE
    for start in range(0, len(order), size):
        some = order[start : start + size]
        ids = {kind: [each.candidate.owner_id for each in some if each.candidate.kind == kind] for kind in _KINDS}
        memories, messages = (
            memory_queries.memories_by_id(conn, ids["memory"]),
            memory_queries.messages_by_id(conn, ids["message"]),
        )
        sources = memory_queries.sources_of(conn, ids["memory"])
        for each in some:
            owner, score = each.candidate.owner_id, ranking.squash(each.score)
            if each.candidate.kind == "memory":
                hit = memory_hit(memories[owner], memories[owner].text, sources.get(owner, ()), score)
            else:
                hit = message_hit(messages[owner], score)
            hits.append(replace(hit, score_parts=each.parts) if question.explain else hit)
        hits = ranking.fold(hits)
        if len(ranking.within_budget(hits, question.limit, question.max_tokens)) == question.limit:
            break
        if len(hits) >= MOST_READ * question.limit:
            break
    return hits


_KINDS = ("memory", "message")


def _allowed(conn: Connection, scope: Scope, test: Test) -> set[int]:
    """Return the units of the scope that pass a filter."""
    return {seq for seq, hit in _everything(conn, scope) if test(record(hit))}


def _everything(conn: Connection, scope: Scope) -> Iterator[tuple[int, Hit]]:
    for seq, memory in entry_queries.living_memories(conn, scope):
        yield seq, memory_hit(memory, memory.text, (), 0.0)
    for seq, message in entry_queries.all_messages(conn, scope):
        yield seq, message_hit(message, 0.0)


def _believed(
    conn: Connection,
    embedder: Embedder,
    question: SearchQuery,
    asked: _Asked,
    vector: Vector | None,
    test: Test | None,
    notes: list[str],
) -> list[Hit]:
    """Answer from what was believed at an instant: every text of then is scored exactly, by itself."""
    instant = question.as_of or question.now
    hits = [hit for hit in _hits_of(conn, question.scope, instant) if test is None or test(record(hit))]
    keys = centre = None
    if vector is not None and hits:
        try:
            vectors = _vectors_of(conn, embedder, hits)
            mean = vectors.mean(axis=0)
            keys, centre = ranking.centred(vectors, mean), ranking.centred(vector, mean)
        except EmbedderError as error:
            notes.append(f"searched by words only: {error}")
    words = [frozenset(search_tokens(hit.text)) for hit in hits]
    frequency = Counter(word for each in words for word in each)
    weights = ranking.rarity(frequency, asked.words, len(hits))
    english = is_english_query(question.text)
    read = _wording(embedder, question.text, weights, english=english)
    likeness = Likeness(keys, centre, [0.0] * len(hits), words, weights, english, read)
    order = ranking.ranked([_candidate(*each) for each in enumerate(hits)], likeness, asked.named, frozenset(), instant)
    best = [
        replace(
            hits[each.candidate.seq],
            score=ranking.squash(each.score),
            score_parts=each.parts if question.explain else {},
        )
        for each in order[: max(POOL, MOST_READ * question.limit)]
    ]
    return ranking.fold(best)


def _wording(
    embedder: Embedder, question: str, weights: Mapping[str, float], *, english: bool
) -> Callable[[Sequence[str]], Vector | None]:
    """Return what compares texts with a question word by word: by meaning, or by spelling where that is not known."""
    return (
        partial(meaning_similarity, embedder, question, weights) if english else partial(spelling_similarity, weights)
    )


def _candidate(number: int, hit: Hit) -> Candidate:
    of_turn = hit.kind == "message"
    asks = of_turn and hit.text.rstrip()[-1:] in entry_queries.QUESTION_MARKS
    said = hit.text[: entry_queries.READ_CHARS]
    return Candidate(number, hit.kind, hit.id, hit.at, hit.name, "", len(hit.text) if of_turn else 0, asks, said)


def _hits_of(conn: Connection, scope: Scope, instant: datetime) -> list[Hit]:
    """Return everything that was believed at an instant, and the turns stored until then that were not forgotten."""
    believed = {memory.id: memory for memory in memory_queries.believed_at(conn, scope, instant)}
    sources = memory_queries.sources_of(conn, list(believed))
    hits = [memory_hit(memory, memory.text, sources.get(memory.id, ()), 0.0) for memory in believed.values()]
    turns = memory_queries.messages_until(conn, scope, instant)
    citing = memory_queries.citing(conn, [turn.id for turn in turns])
    for turn in turns:
        facts = [fact for fact in citing.get(turn.id, ()) if fact.created_at <= instant]
        if not facts or any(fact.id in believed or fact.superseded_by for fact in facts):
            hits.append(message_hit(turn, 0.0))
    return hits


def _vectors_of(conn: Connection, embedder: Embedder, hits: Sequence[Hit]) -> Vector:
    """Return the hits' own vectors: the ledger's where the text is still the same, else made. Raises EmbedderError."""
    known: dict[str, Vector] = {}
    now = memory_queries.memories_by_id(conn, [hit.id for hit in hits if hit.kind == "memory"])
    same = [hit.id for hit in hits if hit.kind == "memory" and now[hit.id].text == hit.text]
    known.update(entry_queries.own_vectors(conn, embedder.fingerprint, "memory", same))
    turns = [hit.id for hit in hits if hit.kind == "message"]
    known.update(entry_queries.own_vectors(conn, embedder.fingerprint, "message", turns))
    missing = [hit for hit in hits if hit.id not in known]
    known.update(zip([hit.id for hit in missing], embedder.embed([hit.text for hit in missing]), strict=True))
    return np.stack([known[hit.id] for hit in hits])
