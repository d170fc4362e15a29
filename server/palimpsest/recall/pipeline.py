"""Search: from a query to hits.

A search reads, closes its connection, embeds, and reads again. It never embeds while a connection is open, because an
embedder may take seconds and go over the network. What changes between the reads is handled: a hit that is deleted
meanwhile is dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Any

import numpy as np
from sqlalchemy import Connection

from palimpsest.core.errors import EmbedderError
from palimpsest.core.filters import compile_filter
from palimpsest.core.models import Candidate, Hit, Scope
from palimpsest.core.protocols import Embedder, Vector
from palimpsest.recall.candidates import NearestEntries, retrieve
from palimpsest.recall.features import CandidateRequest, Candidates, PoolSize, centred
from palimpsest.recall.folding import fold
from palimpsest.recall.hits import hits_of, irrelevant_note, relevant, strongest, within_budget
from palimpsest.recall.ranking import Ranked, rank, squash
from palimpsest.recall.scoring import SearchScoring
from palimpsest.store.ledger import Ledger
from palimpsest.store.queries import memories as memory_queries
from palimpsest.store.queries import messages as message_queries
from palimpsest.store.queries import vectors as vector_queries
from palimpsest.text.late_interaction import meaning_similarity, spelling_similarity
from palimpsest.text.tokenizer import is_english_query, query_tokens, search_tokens

NAMELESS_SHARE = 0.6
"""Weight of the query without the names of speakers in the query vector. Fitted on conversations."""

POOL = 120
"""How many candidates are requested by meaning and by words each. In conversations the first 100 contain 94 % of the
evidence for a question, so the order of the candidates matters more than their number."""

SPARE = 3
"""How many more hits than the limit are read at once, because some fold into others."""


@dataclass(frozen=True, slots=True)
class SearchQuery:
    """A search request. `now` is the instant recency is measured from; `as_of` asks for what was believed then.

    With `explain` each hit carries the parts of its score. Hits whose relevance is below `min_relevance` are left out.
    """

    scope: Scope
    text: str
    now: datetime
    limit: int = 10
    max_tokens: int = 800
    filters: Mapping[str, Any] = field(default_factory=dict[str, Any])
    as_of: datetime | None = None
    explain: bool = False
    min_relevance: float = 0.0


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The hits, best first; how many more had no room in the budget; and notes on what is degraded.

    `confident` is False if probably nothing that is stored answers the query.
    """

    hits: tuple[Hit, ...]
    omitted: int = 0
    notes: tuple[str, ...] = ()
    confident: bool = True


def search(ledger: Ledger, embedder: Embedder, index: NearestEntries, query: SearchQuery) -> SearchResult:
    """Search the memory. Blocking: call it in a worker thread. Raises InputError and LedgerError."""
    test = compile_filter(query.filters) if query.filters else None
    with ledger.read() as conn:
        parsed = _ParsedQuery.of(conn, query)
        incomplete = vector_queries.has_missing_vectors(conn, embedder.fingerprint)
    notes: list[str] = []
    vector: Vector | None = None
    try:
        vector = parsed.vector(embedder)
    except EmbedderError as error:
        notes.append(f"searched by words only: {error}")
    if vector is not None and incomplete:
        notes.append("some texts have no vector of this embedder yet and are found by words only")
    pool = max(POOL, 4 * query.limit)
    request = CandidateRequest(query.scope, parsed.words, vector, PoolSize(pool, pool), filter=test, as_of=query.as_of)
    candidates = retrieve(ledger, embedder, index, request)
    notes += [_note(error) for error in candidates.errors]
    english = is_english_query(query.text)
    compare_words = _word_comparison(embedder, query.text, candidates.weights, english=english)
    ranked = rank(candidates, SearchScoring(query.as_of or query.now, parsed.speakers, english, compare_words))
    hits = _hits(ledger, candidates, ranked, query)
    return _result(hits, query, notes, confident=True)


def _result(hits: Sequence[Hit], query: SearchQuery, notes: Sequence[str], *, confident: bool) -> SearchResult:
    """Return the hits that a reply shows, best first, and what it leaves out."""
    best = hits[: query.limit]
    shown = relevant(best, query.min_relevance)
    if irrelevant := len(best) - len(shown):
        notes = (*notes, irrelevant_note(irrelevant, query.min_relevance))
    if not confident:
        shown = strongest(shown)
    fitting = within_budget(shown, query.max_tokens)
    return SearchResult(tuple(fitting), len(shown) - len(fitting), tuple(notes), confident=confident)


def _note(error: Exception) -> str:
    by = "words" if isinstance(error, EmbedderError) else "meaning"
    return f"searched by {by} only: {error}"


@dataclass(frozen=True, slots=True)
class _ParsedQuery:
    """A query taken apart: the speakers it names, and the words to search for.

    A speaker's name is on each of their messages, so it says who and not what. It is only searched for if the query has
    no other words, and the query vector leans towards the query without it.
    """

    text: str
    without_names: str
    words: tuple[str, ...]
    speakers: frozenset[str]

    @classmethod
    def of(cls, conn: Connection, query: SearchQuery) -> _ParsedQuery:
        words = query_tokens(query.text)
        first_names = {name: search_tokens(name)[:1] for name in message_queries.speakers(conn, query.scope.user_id)}
        speakers = {
            name
            for name, first_name in first_names.items()
            if set(first_name) & set(words) and message_queries.has_speaker(conn, query.scope, name)
        }
        names = {word for speaker in speakers for word in first_names[speaker]}
        rest = [part for part in query.text.split() if not names.intersection(search_tokens(part))]
        other_words = [word for word in words if word not in names]
        return cls(query.text, " ".join(rest), tuple(dict.fromkeys(other_words or words)), frozenset(speakers))

    def vector(self, embedder: Embedder) -> Vector:
        """Return the query's vector, of shape (dims,). Raises EmbedderError."""
        if not self.without_names or self.without_names == self.text:
            return embedder.embed_query(self.text)
        whole, rest = embedder.embed_query(self.text), embedder.embed_query(self.without_names)
        mixed = (1 - NAMELESS_SHARE) * whole + NAMELESS_SHARE * rest
        return centred(mixed.astype(np.float32), None)


def _word_comparison(
    embedder: Embedder, query: str, weights: Mapping[str, float], *, english: bool
) -> Callable[[Sequence[str]], Vector | None]:
    """Return the function that compares texts with a query word by word.

    English words are compared by meaning, others by spelling, because the embedder may not know them.
    """
    return partial(meaning_similarity, embedder, query, weights) if english else partial(spelling_similarity, weights)


def _hits(ledger: Ledger, candidates: Candidates, ranked: Sequence[Ranked], query: SearchQuery) -> list[Hit]:
    """Return the best hits, folded, in batches until there are as many as the limit."""
    past = candidates.past
    if past is not None:
        memories = [hit for hit in past.values() if hit.kind == "memory"]
        return _read_in_batches(lambda _: past, lambda ids: _ids_citing(memories, ids), ranked, query)
    with ledger.read() as conn:
        return _read_in_batches(partial(hits_of, conn), partial(_ids_learned_from, conn), ranked, query)


def _ids_citing(memories: Sequence[Hit], message_ids: Sequence[str]) -> set[str]:
    return {memory.id for memory in memories if not set(message_ids).isdisjoint(memory.message_ids)}


def _ids_learned_from(conn: Connection, message_ids: Sequence[str]) -> set[str]:
    by_message = memory_queries.memories_from(conn, message_ids)
    return {memory.id for memories in by_message.values() for memory in memories}


def _read_in_batches(
    read: Callable[[Sequence[Candidate]], Mapping[int, Hit]],
    learned_from: Callable[[Sequence[str]], Set[str]],
    ranked: Sequence[Ranked],
    query: SearchQuery,
) -> list[Hit]:
    """Return the folded hits of the first candidates.

    A message folds into a memory however far below it the memory stands, so these memories are read with each batch.
    """
    hits: list[Hit] = []
    memories_below: list[Hit] = []
    folded: list[Hit] = []
    query_words = frozenset(query_tokens(query.text))
    size = query.limit + SPARE
    for start in range(0, len(ranked), size):
        batch, rest = ranked[start : start + size], ranked[start + size :]
        hits += _read(read, batch, query)
        memory_ids = learned_from([item.candidate.owner_id for item in batch if item.candidate.kind == "message"])
        memories_below += _read(read, [item for item in rest if item.candidate.owner_id in memory_ids], query)
        folded = fold(hits, memories_below, query_words)
        if len(folded) >= query.limit:
            break
    return folded


def _read(
    read: Callable[[Sequence[Candidate]], Mapping[int, Hit]], ranked: Sequence[Ranked], query: SearchQuery
) -> list[Hit]:
    by_seq = read([item.candidate for item in ranked])
    return [_scored(by_seq, item, query) for item in ranked if item.candidate.seq in by_seq]


def _scored(by_seq: Mapping[int, Hit], ranked: Ranked, query: SearchQuery) -> Hit:
    parts = ranked.parts if query.explain else {}
    return replace(by_seq[ranked.candidate.seq], score=squash(ranked.score), score_parts=parts)
