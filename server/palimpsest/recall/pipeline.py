"""Search: from a query to hits.

A search reads, closes its connection, embeds, and reads again. It never embeds while a connection is open, because an
embedder may take seconds and go over the network. What changes between the reads is handled: a hit that is deleted
meanwhile is dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from sqlalchemy import Connection

from palimpsest.core.entities import Entity, KnownRelation
from palimpsest.core.errors import EmbedderError
from palimpsest.core.models import Scope
from palimpsest.core.protocols import Embedder, Vector
from palimpsest.core.search.filters import narrows
from palimpsest.core.search.hits import Candidate, Hit
from palimpsest.core.validation import MAX_TOKENS
from palimpsest.recall.fitted.weights import weights_for
from palimpsest.recall.folding import FoldWords, fold
from palimpsest.recall.hits import hit_tokens, hits_of, irrelevant_note, relevant, strongest, within_budget
from palimpsest.recall.memories_first import memories_first
from palimpsest.recall.query import ParsedQuery
from palimpsest.recall.relations import (
    ROOM_SHARE,
    RelationRequest,
    find_relations,
    fitting,
    merged,
    relation_tokens,
)
from palimpsest.recall.retrieval.candidates import NearestEntries, retrieve
from palimpsest.recall.retrieval.features import CandidateRequest, Candidates, PoolSize
from palimpsest.recall.retrieval.filtering import HitFilter, hit_filter
from palimpsest.recall.retrieval.passages import best_passage, with_passages
from palimpsest.recall.scoring.forgetting import (
    OFF,
    Forgetting,
    asks_for_faded,
    faded_owners,
    left_out_note,
    remembered,
    retention_of,
)
from palimpsest.recall.scoring.ranking import Ranked, rank, squash
from palimpsest.recall.scoring.relevance import Relevance, relevance_of
from palimpsest.recall.scoring.scoring import SearchScoring
from palimpsest.store import known_projects as project_queries
from palimpsest.store.graph.names import entities_in_text
from palimpsest.store.ledger import Ledger
from palimpsest.store.queries import memories as memory_queries
from palimpsest.store.queries import messages as message_queries
from palimpsest.store.queries import vectors as vector_queries
from palimpsest.store.views.ending import expired_ids
from palimpsest.text.tokenizer import count_tokens, query_tokens

POOL = 80
"""How many candidates are requested by meaning and by words each. In conversations 120 find no more of the evidence for
a question among the first ten hits: the order of the candidates matters more than their number."""

PASSAGE_TOKENS = 100
"""How much of the best page is judged, if a page is the best. Set by hand: about 400 characters, as much as is
read of other texts."""

SPARE = 3
"""How many more hits than the limit are read at once, because some fold into others."""


@dataclass(frozen=True, slots=True)
class SearchQuery:
    """A search request. `now` is the instant recency is measured from; `as_of` asks for what was believed then.

    With `explain` each hit carries the parts of its score. Hits whose relevance is below `min_relevance` are left out.
    `hops` is how far relations may lead from the entities that the text names: 1, 2, or 0 for no relations.
    `forgetting` is how memories fade. With `as_of` that only counts in filters. With `follows_links` what a memory is
    linked with is a candidate too.
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
    hops: int = 1
    forgetting: Forgetting = OFF
    follows_links: bool = False


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The hits, best first; how many more had no room in the budget; and notes on what is degraded.

    `relations` are what is known of the entities that the query names. `confident` is False if probably nothing that is
    stored answers the query. A hit whose relevance is below `threshold` is a weak match. With `shows_all` a filter was
    set, and the hits are all that it leaves: whoever chose them wants them, whatever the query says.
    """

    hits: tuple[Hit, ...]
    omitted: int = 0
    notes: tuple[str, ...] = ()
    confident: bool = True
    threshold: float = 0.0
    relations: tuple[KnownRelation, ...] = ()
    shows_all: bool = False

    @property
    def is_weak(self) -> bool:
        """Return whether a reply says that nothing which is stored clearly answers."""
        return not (self.confident or self.shows_all)


def search(ledger: Ledger, embedder: Embedder, index: NearestEntries, query: SearchQuery) -> SearchResult:
    """Search the memory. Blocking: call it in a worker thread. Raises InputError and LedgerError."""
    ranking = rank_query(ledger, embedder, index, query)
    hits = _hits(ledger, ranking.candidates, ranking.ranked, query)
    hits = with_passages(hits, ranking.candidates.weights, query.max_tokens)
    return _result(hits, _relations(ledger, ranking, hits, query), query, ranking)


def search_all_projects(ledger: Ledger, embedder: Embedder, index: NearestEntries, query: SearchQuery) -> SearchResult:
    """Search every project of the user in turn, and return the most relevant hits of all. Blocking, as `search`."""
    with ledger.read() as conn:
        projects = {query.scope.project, *project_queries.project_names(conn, query.scope.user_id)}
    results = [
        search(ledger, embedder, index, replace(query, scope=replace(query.scope, project=name), max_tokens=MAX_TOKENS))
        for name in sorted(projects)
    ]
    # Scores of two searches cannot be compared, so the relevance comes first. What belongs to no project is found in
    # each of them, and counts as in the search that it suits best.
    found = [hit for result in results for hit in result.hits]
    best: dict[str, Hit] = {}
    for hit in sorted(found, key=lambda hit: (hit.relevance, hit.score), reverse=True):
        best.setdefault(hit.id, hit)
    hits = list(best.values())[: query.limit]
    hits = with_passages(hits, dict.fromkeys(query_tokens(query.text), 1.0), query.max_tokens)
    names = sum(count_tokens(hit.project) for hit in hits if hit.project != query.scope.project)
    relations = merged((found for result in results for found in result.relations), [hit.id for hit in hits])
    kept, relations = _within_budget(hits, relations, query.max_tokens - names)
    notes = tuple(dict.fromkeys(note for result in results for note in result.notes))
    confident = any(result.confident for result in results)
    shows_all = len(best) == len(kept) and all(result.shows_all or not result.hits for result in results)
    return SearchResult(
        tuple(kept), len(hits) - len(kept), notes, confident, relations=relations, shows_all=bool(kept) and shows_all
    )


@dataclass(frozen=True, slots=True)
class Ranking:
    """The candidates of a query, their order, and how they were scored.

    `confident` is False if probably none of them answers. `notes` say what is degraded. `entities` are those that the
    query names. With `is_whole` a filter was set, and all that it leaves is ranked, unless that is more than a pool.
    """

    candidates: Candidates
    scoring: SearchScoring
    ranked: Sequence[Ranked]
    confident: bool
    notes: tuple[str, ...] = ()
    threshold: float = 0.0
    entities: Sequence[Entity] = ()
    is_whole: bool = False


def rank_query(ledger: Ledger, embedder: Embedder, index: NearestEntries, query: SearchQuery) -> Ranking:
    """Return all candidates of a query, best first. Blocking. Raises InputError and LedgerError."""
    now = query.as_of or query.now
    with ledger.read() as conn:
        found = _filter(conn, ledger, query, now)
        parsed = ParsedQuery.of(conn, query.scope, query.text, now)
        entities = entities_in_text(conn, query.scope, query.text, as_of=query.as_of) if query.hops else ()
        incomplete = vector_queries.has_missing_vectors(conn, embedder.fingerprint)
    notes: list[str] = []
    vector: Vector | None = None
    try:
        vector = embedder.embed_query(query.text)
    except EmbedderError as error:
        notes.append(f"searched by words only: {error}")
    if vector is not None and incomplete:
        notes.append("some texts have no vector of this embedder yet and are found by words only")
    pool = max(POOL, 4 * query.limit)
    request = CandidateRequest(
        query.scope,
        parsed.words,
        vector,
        PoolSize(pool, pool),
        parsed.names,
        filter=found,
        as_of=query.as_of,
        follows_links=query.follows_links,
    )
    candidates = retrieve(ledger, embedder, index, request)
    notes += [_note(error) for error in candidates.errors]
    retention = None
    if query.as_of is None and query.forgetting.mode != "off":
        with ledger.read() as conn:
            retention = retention_of(conn, candidates.entries, query.forgetting, now)
    scoring = SearchScoring(parsed, now, weights_for(embedder.fingerprint), embedder, retention)
    ranked, relevance = _with_relevance(ledger, scoring, candidates, rank(candidates, scoring))
    if retention is not None and query.forgetting.mode == "archive" and not asks_for_faded(query.filters):
        kept = remembered(ranked, retention, query.forgetting.bound)
        notes += left_out_note(ranked, kept, query.limit, relevance.threshold) if relevance.confident else ()
        ranked, relevance = _with_relevance(ledger, scoring, candidates, kept)
    # What has no vector is found by its words alone, and may be missing.
    is_whole = narrows(query.filters) and vector is not None and not notes
    return Ranking(
        candidates, scoring, ranked, relevance.confident, tuple(notes), relevance.threshold, entities, is_whole
    )


def _with_relevance(
    ledger: Ledger, scoring: SearchScoring, candidates: Candidates, ranked: Sequence[Ranked]
) -> tuple[Sequence[Ranked], Relevance]:
    relevance = relevance_of(scoring, candidates, _with_passage(ledger, candidates, ranked))
    pairs = zip(ranked, relevance.of_hits, strict=True)
    return [item._replace(relevance=value) for item, value in pairs], relevance


def _with_passage(ledger: Ledger, candidates: Candidates, ranked: Sequence[Ranked]) -> Sequence[Ranked]:
    """Return the candidates; if the best one is a page, with its passage that answers best, in place of its beginning.

    That takes one more statement.
    """
    if not ranked or not ranked[0].candidate.is_page:
        return ranked
    best = ranked[0].candidate
    if candidates.past is not None:
        text = candidates.past[best.seq].text
    else:
        with ledger.read() as conn:
            pages = message_queries.messages_by_id(conn, [best.owner_id])
        text = pages[best.owner_id].content if pages else best.text
    passage = best_passage(text, candidates.weights, PASSAGE_TOKENS)
    return [ranked[0]._replace(candidate=best._replace(text=passage)), *ranked[1:]]


def _filter(conn: Connection, ledger: Ledger, query: SearchQuery, now: datetime) -> HitFilter | None:
    if not query.filters:
        return None
    faded = partial(faded_owners, conn, query.scope, query.forgetting, now)
    zone = query.now.tzinfo or UTC
    return hit_filter(conn, ledger.full_text, query.scope, query.filters, zone, as_of=query.as_of, faded=faded)


def _relations(ledger: Ledger, ranking: Ranking, hits: Sequence[Hit], query: SearchQuery) -> tuple[KnownRelation, ...]:
    """Return what is known of the entities that the query names."""
    if not ranking.entities:
        return ()
    shown = [hit.id for hit in hits[: query.limit] if hit.kind == "memory"]
    candidates = (item.candidate for item in ranking.ranked)
    others = (candidate.owner_id for candidate in candidates if candidate.kind == "memory")
    request = RelationRequest(
        query.scope,
        ranking.entities,
        list(dict.fromkeys((*shown, *others))),
        shown,
        query.as_of,
        query.hops,
        is_filtered=bool(query.filters),
    )
    with ledger.read() as conn:
        relations = find_relations(conn, request)
        if not relations or query.as_of is not None:
            return relations
        expired = expired_ids(conn, query.scope, query.now)
        return tuple(relation for relation in relations if relation.memory_id not in expired)


def _within_budget(
    hits: Sequence[Hit], relations: tuple[KnownRelation, ...], max_tokens: int
) -> tuple[list[Hit], tuple[KnownRelation, ...]]:
    """Return the hits and the relations that fit together. Relations never take room from the best hit."""
    kept = within_budget(hits, max_tokens)
    room = max_tokens - sum(map(hit_tokens, kept))
    if relation_tokens(relations) <= room:
        return kept, relations
    least = max_tokens // ROOM_SHARE
    if hits and hit_tokens(hits[0]) <= max_tokens - least:
        room = max(room, least)
    relations = fitting(relations, room)
    return within_budget(hits, max_tokens - relation_tokens(relations)), relations


def _result(
    hits: Sequence[Hit], relations: tuple[KnownRelation, ...], query: SearchQuery, ranking: Ranking
) -> SearchResult:
    """Return the hits that a reply shows, best first, and what it leaves out."""
    notes, confident = ranking.notes, ranking.confident
    best = hits[: query.limit]
    shown = relevant(best, query.min_relevance)
    if irrelevant := len(best) - len(shown):
        notes = (*notes, irrelevant_note(irrelevant, query.min_relevance))
    kept, kept_relations = _within_budget(shown, relations, query.max_tokens)
    shows_all = ranking.is_whole and len(ranking.ranked) <= query.limit and len(kept) == len(hits)
    if not confident and not shows_all:
        shown = strongest(shown)
        kept, kept_relations = _within_budget(shown, relations, query.max_tokens)
    omitted = len(shown) - len(kept)
    return SearchResult(tuple(kept), omitted, notes, confident, ranking.threshold, kept_relations, shows_all)


def _note(error: Exception) -> str:
    by = "words" if isinstance(error, EmbedderError) else "meaning"
    return f"searched by {by} only: {error}"


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
    """Return the folded hits of the first candidates, memories before their messages.

    The memories of a message are read with it, however far below it they stand.
    """
    hits: list[Hit] = []
    memories_below: list[Hit] = []
    folded: list[Hit] = []
    size = query.limit + SPARE
    for start in range(0, len(ranked), size):
        batch, rest = ranked[start : start + size], ranked[start + size :]
        hits += _read(read, batch, query)
        memory_ids = learned_from([item.candidate.owner_id for item in batch if item.candidate.kind == "message"])
        memories_below += _read(read, [item for item in rest if item.candidate.owner_id in memory_ids], query)
        words = FoldWords.of(hits, query.text)
        folded = memories_first(fold(hits, memories_below, words), memories_below, words)
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
    score, relevance = squash(ranked.score), ranked.relevance
    return replace(by_seq[ranked.candidate.seq], score=score, relevance=relevance, score_parts=parts)
