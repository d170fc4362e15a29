"""From a question to hits: candidates by meaning and by words, one order, folded, within a budget.

Candidates come from the vector index and the full text; every one is then held against the ledger, which alone
says what lives, what the scope sees and how near it really is. So an index that lags or errs costs a candidate,
never a wrong answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Protocol, cast

import numpy as np
from sqlalchemy import Connection

from palimpsest import ranking
from palimpsest.errors import EmbedderError
from palimpsest.filters import Test, compile_filter
from palimpsest.ledger import lexical, reading, searching
from palimpsest.ledger.ledger import Ledger
from palimpsest.ledger.searching import Centre
from palimpsest.lexicon import question_tokens, tokens
from palimpsest.ports import Embedder, Vector
from palimpsest.records import Hit, Memory, Message, Scope, Unit

NAMELESS_SHARE = 0.6
"""Weight of the question without the names of speakers in the vector that is searched."""

POOL = 100
"""Candidates taken from each of the two searches."""

WIDE_SHARE = 0.2
"""A scope that sees less than this share of a user's units is scanned exactly: the index would return others'."""


@dataclass(frozen=True, slots=True)
class Question:
    """Hold what is asked. `now` dates the recency; `as_of` asks for what was believed then."""

    scope: Scope
    text: str
    now: datetime
    limit: int = 10
    max_tokens: int = 800
    filters: Mapping[str, Any] = field(default_factory=dict[str, Any])
    as_of: datetime | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """Hold the hits, best first; how many more there were for which no room was left; and what is degraded."""

    hits: tuple[Hit, ...]
    omitted: int = 0
    notes: tuple[str, ...] = ()


class NearestUnits(Protocol):
    """Give the units nearest to a vector, as far as the projection can at this moment."""

    def nearest(self, conn: Connection, user_id: str, vector: Vector, limit: int) -> list[int] | None:
        """Return unit numbers, among them all that changed lately; None when there is no index to ask."""
        ...


def recall(ledger: Ledger, embedder: Embedder, index: NearestUnits, question: Question) -> Answer:
    """Answer a question. Blocking: call it in a worker thread. Raises InputError and LedgerError."""
    test = compile_filter(question.filters) if question.filters else None
    with ledger.read() as conn:
        asked = _Asked.of(question.text, reading.known_names(conn, question.scope))
    notes: list[str] = []
    vector: Vector | None = None
    try:
        vector = asked.vector(embedder)
    except EmbedderError as error:
        notes.append(f"searched by words only: {error}")
    with ledger.read() as conn:
        if vector is not None and searching.any_waiting(conn, embedder.fingerprint):
            notes.append("some texts have no vector of this embedder yet and are found by words only")
        if question.as_of is not None:
            hits, told = _believed(conn, embedder, question, asked, vector, test)
            notes += told
        else:
            hits = _Search(conn, embedder.fingerprint, index, question, asked, test).hits(vector)
    hits = ranking.fold(hits)
    taken = ranking.within_budget(hits, question.limit, question.max_tokens)
    return Answer(tuple(taken), min(len(hits), question.limit) - len(taken), tuple(notes))


@dataclass(frozen=True, slots=True)
class _Asked:
    """Hold what a question asks for: the speaker it names, if it names just one, and the rest.

    A speaker's name stands on every turn of theirs, so it says who and not what: it is searched for only where
    nothing else is asked, and the vector leans to the question without it.
    """

    text: str
    without_names: str
    words: tuple[str, ...]
    speakers: frozenset[str]

    @classmethod
    def of(cls, text: str, names: Sequence[str]) -> _Asked:
        words = question_tokens(text)
        first = {name: tokens(name)[:1] for name in names}
        named = {name for name in names if set(first[name]) & set(words)}
        said = {word for name in named for word in first[name]}
        rest = [part for part in text.split() if not said.intersection(tokens(part))]
        others = [word for word in words if word not in said]
        return cls(text, " ".join(rest), tuple(others or words), frozenset(named if len(named) == 1 else ()))

    def vector(self, embedder: Embedder) -> Vector:
        if not self.without_names or self.without_names == self.text:
            return embedder.embed([self.text])[0]
        whole, rest = embedder.embed([self.text, self.without_names])
        return ranking.centred((1 - NAMELESS_SHARE) * whole + NAMELESS_SHARE * rest, None)


@dataclass(frozen=True, slots=True)
class _Search:
    """Hold one search of what is believed now: the question, and where candidates come from."""

    conn: Connection
    embedder: str
    index: NearestUnits
    question: Question
    asked: _Asked
    test: Test | None

    def hits(self, vector: Vector | None) -> list[Hit]:
        """Return every candidate that lives and that the scope sees, best first."""
        conn, scope, words = self.conn, self.question.scope, self.asked.words
        pool = max(POOL, 4 * self.question.limit)
        allowed = None if self.test is None else _allowed(conn, scope, self.test)
        by_words = lexical.search(conn, scope, words, pool if allowed is None else lexical.ALL)
        candidates = set(by_words)
        by_meaning: dict[int, float] = {}
        trust = 1.0
        if vector is not None:
            centre = searching.centre(conn, scope.user_id, self.embedder)
            asked = ranking.centred(vector, centre.mean)
            candidates.update(self._nearest(asked, centre, pool, allowed))
            trust = ranking.trust_in_words(lexical.frequencies(conn, words), set(words), centre.units)
            by_meaning = self._likeness(sorted(candidates), asked, centre)
        units = searching.units(conn, scope, sorted(candidates if allowed is None else candidates & allowed))
        base = ranking.fuse(by_meaning, by_words, list(units), trust)
        best = sorted(units, key=lambda seq: -base[seq])[:pool]
        return self._ordered({seq: units[seq] for seq in best}, base)

    def _ordered(self, units: Mapping[int, Unit], base: Mapping[int, float]) -> list[Hit]:
        """Return the hits of candidates after all that is known of them besides their likeness."""
        rows = _Rows.of(self.conn, list(units.values()))
        living = {seq: unit for seq, unit in units.items() if not rows.forgotten(unit)}
        boosted = {
            seq: base[seq] + ranking.boost(rows.signals(unit, self.asked.speakers), self.question.now)
            for seq, unit in living.items()
        }
        sessions = {seq: session for seq, unit in living.items() if (session := rows.session(unit))}
        final = ranking.with_session_prior(boosted, sessions)
        return [rows.hit(living[seq], final[seq]) for seq in sorted(living, key=lambda seq: (-final[seq], seq))]

    def _nearest(self, asked: Vector, centre: Centre, pool: int, allowed: set[int] | None) -> list[int]:
        """Return the units nearest to what is asked: from the index, or by an exact scan where that serves better."""
        scope = self.question.scope
        if allowed is None and searching.count_units(self.conn, scope, self.embedder) >= WIDE_SHARE * centre.units:
            found = self.index.nearest(self.conn, scope.user_id, asked, pool)
            if found is not None:
                return found
        seqs, keys = searching.scope_keys(self.conn, scope, self.embedder)
        if allowed is not None:
            chosen = [i for i, seq in enumerate(seqs) if seq in allowed]
            seqs, keys = [seqs[i] for i in chosen], keys[chosen]
        return list(ranking.nearest(seqs, ranking.centred(keys, centre.mean), asked, pool)) if seqs else []

    def _likeness(self, seqs: Sequence[int], asked: Vector, centre: Centre) -> dict[int, float]:
        """Return the centred cosine of each unit that has a key, from the ledger's own keys."""
        found = searching.keys(self.conn, self.embedder, seqs)
        if not found:
            return {}
        matrix = ranking.centred(np.stack(list(found.values())), centre.mean)
        return dict(zip(found, cast("list[float]", (matrix @ asked).tolist()), strict=True))


@dataclass(frozen=True, slots=True)
class _Rows:
    """Hold the rows behind candidates, as far as signals and hits need them."""

    memories: Mapping[str, Memory]
    messages: Mapping[str, Message]
    sources: Mapping[str, Sequence[Message]]
    citing: Mapping[str, Sequence[Memory]]

    @classmethod
    def of(cls, conn: Connection, units: Sequence[Unit]) -> _Rows:
        memory_ids = [unit.owner_id for unit in units if unit.kind == "memory"]
        message_ids = [unit.owner_id for unit in units if unit.kind == "message"]
        return cls(
            reading.memories_by_id(conn, memory_ids),
            reading.messages_by_id(conn, message_ids),
            reading.sources_of(conn, memory_ids),
            reading.citing(conn, message_ids),
        )

    def signals(self, unit: Unit, speakers: frozenset[str]) -> ranking.Signals:
        if unit.kind == "memory":
            memory = self.memories[unit.owner_id]
            return ranking.Signals(memory.actor_id in speakers, at=memory.at)
        message = self.messages[unit.owner_id]
        facts = self.citing.get(message.id, ())
        gone = bool(facts) and all(fact.deleted_at is not None for fact in facts)
        return ranking.Signals(message.name in speakers, outdated=gone, at=message.said_at)

    def session(self, unit: Unit) -> str:
        """Return the session a unit belongs to: a memory to that of the first message it came from."""
        if unit.kind == "message":
            return self.messages[unit.owner_id].session_id
        sources = self.sources.get(unit.owner_id, ())
        return sources[0].session_id if sources else ""

    def forgotten(self, unit: Unit) -> bool:
        """Say whether every fact learnt from a message was deleted, and none replaced: then it is gone too."""
        facts = self.citing.get(unit.owner_id, ())
        return bool(facts) and all(fact.deleted_at is not None and fact.superseded_by is None for fact in facts)

    def hit(self, unit: Unit, fused: float) -> Hit:
        score = ranking.squash(fused)
        if unit.kind == "message":
            return message_hit(self.messages[unit.owner_id], score)
        memory = self.memories[unit.owner_id]
        return memory_hit(memory, memory.text, self.sources.get(memory.id, ()), score)


def memory_hit(memory: Memory, text: str, sources: Sequence[Message], score: float) -> Hit:
    """Return a memory as a hit."""
    return Hit(
        id=memory.id,
        kind="memory",
        text=text,
        score=score,
        at=memory.at,
        created_at=memory.created_at,
        updated_at=memory.updated_at,
        sources=tuple(source.source for source in sources),
        origins=tuple(source.id for source in sources),
        role=memory.role,
        name=memory.actor_id,
        tags=memory.tags,
        metadata=memory.metadata,
    )


def message_hit(message: Message, score: float) -> Hit:
    """Return a message as a hit."""
    return Hit(
        id=message.id,
        kind="message",
        text=message.content,
        score=score,
        at=message.said_at,
        created_at=message.created_at,
        updated_at=message.created_at,
        sources=(message.source,),
        origins=(message.id,),
        role=message.role,
        name=message.name,
    )


def record(hit: Hit) -> dict[str, Any]:
    """Return what a filter sees of a hit."""
    return {
        "at": hit.at,
        "created_at": hit.created_at,
        "role": hit.role,
        "kind": hit.kind,
        "tags": hit.tags,
        "metadata": hit.metadata,
    }


def _allowed(conn: Connection, scope: Scope, test: Test) -> set[int]:
    """Return the units of the scope that pass a filter."""
    return {seq for seq, hit in _everything(conn, scope) if test(record(hit))}


def _everything(conn: Connection, scope: Scope) -> Iterator[tuple[int, Hit]]:
    for seq, memory in searching.living_memories(conn, scope):
        yield seq, memory_hit(memory, memory.text, (), 0.0)
    for seq, message in searching.all_messages(conn, scope):
        yield seq, message_hit(message, 0.0)


def _believed(
    conn: Connection, embedder: Embedder, question: Question, asked: _Asked, vector: Vector | None, test: Test | None
) -> tuple[list[Hit], list[str]]:
    """Answer from what was believed at an instant: every text of then is scored exactly; also say what is degraded."""
    instant = question.as_of or question.now
    hits = [hit for hit in _hits_of(conn, question.scope, instant) if test is None or test(record(hit))]
    notes: list[str] = []
    by_meaning: dict[int, float] = {}
    if vector is not None and hits:
        try:
            vectors = _vectors_of(conn, embedder, hits)
            mean = vectors.mean(axis=0)
            cosines = ranking.centred(vectors, mean) @ ranking.centred(vector, mean)
            by_meaning = dict(enumerate(cast("list[float]", cosines.tolist())))
        except EmbedderError as error:
            notes.append(f"searched by words only: {error}")
    by_words = ranking.bm25([tokens(hit.text) for hit in hits], set(asked.words))
    scores = ranking.fuse(by_meaning, dict(enumerate(by_words)), range(len(hits)))
    order = sorted(scores, key=lambda i: (-scores[i], i))[: max(POOL, 4 * question.limit)]
    return [replace(hits[i], score=ranking.squash(scores[i])) for i in order], notes


def _hits_of(conn: Connection, scope: Scope, instant: datetime) -> list[Hit]:
    """Return everything that was believed at an instant, and the turns stored until then that were not forgotten."""
    believed = {memory.id: memory for memory in reading.believed_at(conn, scope, instant)}
    sources = reading.sources_of(conn, list(believed))
    hits = [memory_hit(memory, memory.text, sources.get(memory.id, ()), 0.0) for memory in believed.values()]
    turns = reading.messages_until(conn, scope, instant)
    citing = reading.citing(conn, [turn.id for turn in turns])
    for turn in turns:
        facts = [fact for fact in citing.get(turn.id, ()) if fact.created_at <= instant]
        if not facts or any(fact.id in believed or fact.superseded_by for fact in facts):
            hits.append(message_hit(turn, 0.0))
    return hits


def _vectors_of(conn: Connection, embedder: Embedder, hits: Sequence[Hit]) -> Vector:
    """Return the hits' own vectors: the ledger's where the text is still the same, else made. Raises EmbedderError."""
    known: dict[str, Vector] = {}
    now = reading.memories_by_id(conn, [hit.id for hit in hits if hit.kind == "memory"])
    same = [hit.id for hit in hits if hit.kind == "memory" and now[hit.id].text == hit.text]
    known.update(searching.own_vectors(conn, embedder.fingerprint, "memory", same))
    turns = [hit.id for hit in hits if hit.kind == "message"]
    known.update(searching.own_vectors(conn, embedder.fingerprint, "message", turns))
    missing = [hit for hit in hits if hit.id not in known]
    known.update(zip([hit.id for hit in missing], embedder.embed([hit.text for hit in missing]), strict=True))
    return np.stack([known[hit.id] for hit in hits])
