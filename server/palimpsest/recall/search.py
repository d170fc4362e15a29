"""Search: from a query to hits.

A search reads, closes its connection, embeds, and reads again. It never embeds while a connection is open, because an
embedder may take seconds and go over the network. What changes between the reads is handled: a hit that is deleted
meanwhile is dropped.
"""

import difflib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from sqlalchemy import Connection

from palimpsest.core.clock import LATEST, TimeSpan
from palimpsest.core.errors import EmbedderError, RerankerError
from palimpsest.core.filters import FADED, MAX_SHOWN_CHARS, Filter
from palimpsest.core.models import Entity, Hit, KnownRelation, Scope, name_key, relation_key
from palimpsest.core.protocols import Reranker
from palimpsest.core.validation import MAX_TOKENS
from palimpsest.recall import features
from palimpsest.recall.features import CandidateRequest, Candidates, PoolSize, Ranked
from palimpsest.recall.forgetting import OFF, RetentionSettings, faded_owners, left_out_note, retention_of
from palimpsest.recall.hits import (
    FoldWords,
    HitFilter,
    fold,
    hit_filter,
    hit_tokens,
    hits_of,
    memories_first,
    with_connections,
    with_passages,
    within_budget,
)
from palimpsest.recall.query import ParsedQuery, TimeQuestion
from palimpsest.recall.retrieve import LivingSearch, Searchable, index_query, retrieve
from palimpsest.recall.score import (
    Matches,
    SearchScoring,
    asks_of_unknown,
    in_order,
    is_outside,
    later_memories,
    matches,
    reasons,
)
from palimpsest.store import entries, messages
from palimpsest.store import memories as memory_queries
from palimpsest.store import projects as project_queries
from palimpsest.store.graph.entities import entities_in_text, entities_named, names_beginning
from palimpsest.store.graph.identity import roots_of
from palimpsest.store.graph.relations import memories_stating, relations_found, relations_of
from palimpsest.store.ledger import Ledger
from palimpsest.store.memories import expired_ids
from palimpsest.text.display import counted, shorten, visible
from palimpsest.text.relation_updates import finest, is_asked_for, words_in, words_that_ask
from palimpsest.text.tokenizer import count_tokens, query_tokens

# The relations that a search shows beside its hits: those of the entities that the question names.
#
# There are two ways to them: from these entities along the relations that hold, and from the question's own ranking,
# as the memory that states a relation is its text. The ranking orders them.

# How many relations a search shows. Mem0 showed as many.
MAX_RELATIONS = 5

# What share of the best hit's score one has at least whose relations of the user are shown.
MATCHING = 0.5

# How many relations are read by the number of hops: for one twice as many as are shown, because several memories may
# state the same; for two those that lead on.
MAX_READ = {1: 2 * MAX_RELATIONS, 2: 100}

# How many relations of an earlier time are read.
MAX_PAST = 1_000

# Relations have the room that the hits leave, and at least one part in so many of it. At the default of 800 tokens five
# of them need about a hundred.
ROOM_SHARE = 8


def relation_tokens(relations: Iterable[KnownRelation]) -> int:
    """Return what relations cost in a reply, in tokens: a line each."""
    return sum(count_tokens(visible(relation.line)) + 1 for relation in relations)


# How many relations a path has at most, from what a question names to its answer: "the mother of Tom's wife lives".
MAX_PATH = 3


def _first(
    hops: Sequence[Sequence[KnownRelation]], memory_ids: Sequence[str], asking: Sequence[str] = ()
) -> tuple[KnownRelation, ...]:
    """Return the first relations of each hop, each once, though several memories may state it.

    Those that the words of the question are `asking` for come first. What one memory ends and another goes on with has
    the end that this says.
    """
    rank = {memory_id: number for number, memory_id in enumerate(memory_ids)}
    numbered = [
        (number, found)
        for number, relations in enumerate(hops)
        for found in relations
        if found.source_id != found.destination_id  # a name of the user is no relation
    ]
    newest = {id(found): place for place, found in enumerate(in_order([found for _, found in numbered])[::-1])}
    numbered.sort(key=lambda item: (rank.get(item[1].memory_id, len(rank)), item[0], newest[id(item[1])]))
    asked = {found.relationship for _, found in numbered if words_that_ask(asking, found.relationship)}
    numbered.sort(key=lambda item: item[1].relationship not in asked)
    distinct: dict[tuple[str, str, str], KnownRelation] = {}
    for _, found in numbered:
        key = (found.source_id, relation_key(found.relationship), found.destination_id)
        known = distinct.setdefault(key, found)
        if known.valid_until and found.valid_from <= known.valid_until:
            until = found.valid_until and max(known.valid_until, found.valid_until)
            distinct[key] = replace(known, valid_until=until)
    return tuple(finest(list(distinct.values())))[:MAX_RELATIONS]


# Notes on a filter that finds nothing for a reason that its writer cannot see: a key that no memory has.

# How many of the keys that exist are named: what a person reads at a glance.
MAX_KEYS = 8

# How many first characters a name has in common with those it is compared with: few names are misspelt there, and among
# ten thousand about a hundred begin so.
NEAR_BEGINNING = 2

# How many of these a note names.
MAX_NEAR = 3

# How many names an unknown one is compared with: a tenth of a second.
MAX_COMPARED = 500


def filter_notes(
    ledger: Ledger, scope: Scope, filters: Mapping[str, Any] | None, hits: Sequence[Hit], *, deleted: bool | None
) -> tuple[str, ...]:
    """Return the notes on the keys of a valid filter that no memory has, given the hits. Blocking.

    `deleted`: whether deleted memories were looked at instead of living ones; None for both. The ledger is read only
    if the hits leave a doubt.
    """
    if not filters:
        return ()
    asked = Filter.of(filters)
    unknown = _unknown_names(ledger, scope, asked.texts_of("entity"), deleted=deleted, is_found=bool(hits))
    unknown += () if hits else _unknown_speakers(ledger, scope, asked.texts_of("speaker"))
    seen = {key for hit in hits for key in hit.metadata}
    doubtful = [key for key in asked.metadata_keys if key not in seen]
    if not doubtful:
        return unknown
    with ledger.read() as conn:
        known = Counter(memory_queries.metadata_keys(conn, scope, deleted=deleted))
    return (*unknown, *_missing(doubtful, known))


def _unknown_names(
    ledger: Ledger, scope: Scope, names: Sequence[str], *, deleted: bool | None, is_found: bool
) -> tuple[str, ...]:
    """Return the notes on names that nobody and nothing has that memories speak of, though texts may have the words."""
    if not names:
        return ()
    with ledger.read() as conn:
        # What is forgotten is found as well if deleted memories are looked at.
        known = entities_named(conn, scope, names, as_of=None if deleted is False else LATEST)
        unknown = [name for name in names if name_key(name) not in known]
        near = {name: _near_names(conn, scope, name_key(name)) for name in unknown}
    by_words = "nobody and nothing is known as {}, so these were found by its words"
    return tuple(
        (by_words if is_found else "no memory here speaks of {}").format(_quoted([shorten(name, MAX_SHOWN_CHARS)]))
        + (f"; did you mean {_quoted(near[name])}?" if near[name] else "")
        for name in unknown
    )


def _unknown_speakers(ledger: Ledger, scope: Scope, names: Sequence[str]) -> tuple[str, ...]:
    """Return the notes on names under which nobody said anything that the scope sees."""
    if not names:
        return ()
    with ledger.read() as conn:
        every = messages.speakers(conn, scope.user_id)
        known = {name_key(name): name for name in every if messages.has_speaker(conn, scope, name)}
    near = {name: difflib.get_close_matches(name_key(name), known, n=MAX_NEAR) for name in names}
    nothing = "messages here have no names of speakers; filter on role instead"
    return tuple(
        f"nobody here is called '{shorten(name, MAX_SHOWN_CHARS)}'; "
        + _others([known[key] for key in near[name]], list(known.values()), "known are", nothing)
        for name in names
        if name_key(name) not in known
    )


def _near_names(conn: Connection, scope: Scope, key: str) -> list[str]:
    """Return the names that are most like one, or share a word with it, of those that begin like it."""
    names = {name_key(name): name for name in names_beginning(conn, scope, key[:NEAR_BEGINNING], MAX_COMPARED)}
    near = difflib.get_close_matches(key, names, n=MAX_NEAR)
    words = set(key.split())
    sharing = [other for other in names if other not in near and words & set(other.split())]
    return [names[other] for other in (*near, *sharing)][:MAX_NEAR]


def _missing(keys: Sequence[str], known: Counter[str]) -> Iterator[str]:
    most = [name for name, _ in known.most_common()]
    for key in (key for key in keys if key not in known):
        matching = difflib.get_close_matches(key.lower(), {name.lower() for name in known}, n=MAX_NEAR)
        near = [name for name in known if name.lower() in matching]
        others = _others(near, most, "keys that are used:", "none has metadata")
        yield f"no memory here has the key '{key}'; {others}"


def _others(near: Sequence[str], known: Sequence[str], introduction: str, nothing: str) -> str:
    """Return what else may be meant: what is near, or the first of what is known."""
    if near:
        return f"did you mean {_quoted(near)}?"
    return f"{introduction} {_quoted(known[:MAX_KEYS])}" if known else nothing


def _quoted(names: Sequence[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)


# Rerank the first candidates by a model that reads each text together with the question.
#
# A reranker knows nothing of time, of who is meant, or of what replaced what. So it does not decide alone: its scores
# are added to our own, with the same spread. Two texts that it hardly tells apart, such as a fact and its update, keep
# our order.

# How many candidates are judged. Of a hit that is not among the first twenty, a reply hardly shows anything.
RERANKED = 20


def reranked(ranked: Sequence[Ranked], scores: Mapping[int, float]) -> Sequence[Ranked]:
    """Return the candidates with those that a reranker judged in their new order, before all others.

    `scores` are the reranker's, by the candidates' numbers.
    """
    judged = [item for item in ranked if item.candidate.seq in scores]
    if not judged:
        return ranked
    own = np.array([item.score for item in judged])
    theirs = np.array([scores[item.candidate.seq] for item in judged])
    gains = own.std() * (theirs - theirs.mean()) / max(float(theirs.std()), features.TINY)
    column = np.zeros(len(next(iter(judged[0].columns.values()))))
    column[[item.row for item in judged]] = gains
    columns = {**judged[0].columns, "reranker": column}
    order = features.best_first(own + gains)
    others = [item for item in ranked if item.candidate.seq not in scores]
    new = [judged[place]._replace(score=float(own[place] + gains[place]), columns=columns) for place in order]
    return [*new, *others]


# Search: from a query to hits.

# How many candidates are requested by meaning and by words each. In conversations 120 find no more of the evidence for
# a question among the first ten hits: the order of the candidates matters more than their number.
POOL = 80

# How many hits are shown at most if probably none answers: enough for an answer in other words, and few enough that an
# agent does not read a page of what it did not ask for.
MAX_WEAK = 5

# If no relation answers, and the best hit has a lower score, it is about something else.
LEAST_SCORE = 0.08

# Hits after the first three are left out if their score is below this share of the best one's. Other wordings set an
# answer further apart, so the share is higher with them. Of 1,678 answers to questions about a person or a work place
# three are lost by it. A fourth of the hits is left out, and with other wordings more than half.
ALWAYS_SHOWN, FAINT, FAINT_WITH_OTHERS = 3, 0.02, 0.06

# How many more hits than the limit are read at once, because some fold into others.
SPARE = 3


@dataclass(frozen=True, slots=True)
class SearchQuery:
    """A search request. `now` is the instant recency is measured from; `as_of` asks for what was believed then.

    With `explain` each hit carries the parts of its score. Hits whose score is below `min_score` are left out.
    `hops` is how far relations may lead from the entities that the text names: 1, 2, or 0 for no relations.
    `forgetting` is how memories fade. With `as_of` that only counts in filters. With `follows_links` what a memory is
    linked with is a candidate too. `also` are other wordings of the text. `held_at` asks for what held in the world in
    a stretch of time, by what is known now or was known at `as_of`.
    """

    scope: Scope
    text: str
    now: datetime
    limit: int = 10
    max_tokens: int = 800
    filters: Mapping[str, Any] = field(default_factory=dict[str, Any])
    as_of: datetime | None = None
    explain: bool = False
    min_score: float = 0.0
    hops: int = 1
    forgetting: RetentionSettings = OFF
    follows_links: bool = False
    also: tuple[str, ...] = ()
    held_at: TimeSpan | None = None


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The hits, best first; how many more had no room in the budget; and notes on what is degraded.

    `relations` are what is known of the entities that the query names, and `path` those of them that lead to what it
    asks for, if it takes more than one. `confident` is False if the query is about something else than all that is
    stored. With `shows_all` a filter was set, and the hits are all that it leaves: whoever chose them wants them,
    whatever the query says. `elsewhere` are the other projects that have what is asked for.
    """

    hits: tuple[Hit, ...]
    omitted: int = 0
    notes: tuple[str, ...] = ()
    confident: bool = True
    relations: tuple[KnownRelation, ...] = ()
    shows_all: bool = False
    path: tuple[KnownRelation, ...] = ()
    elsewhere: tuple[str, ...] = ()

    @property
    def path_line(self) -> str:
        """Return the path as one line, such as "Tom — wife → Ines ← mother of — Rosa"; "" if there is none."""
        if not self.path:
            return ""
        first, second = self.path[:2]
        leads_on = first.destination_id in (second.source_id, second.destination_id)
        at, line = (first.source_id, first.source) if leads_on else (first.destination_id, first.destination)
        for step in self.path:
            name = step.relationship.replace("_", " ")
            line += f" — {name} → {step.destination}" if step.source_id == at else f" ← {name} — {step.source}"
            at = step.destination_id if step.source_id == at else step.source_id
        return " ".join(line.split())

    @property
    def relation_lines(self) -> list[str]:
        """Return the path and the other relations as lines."""
        path = [f"path: {self.path_line}"] if self.path else []
        return [*path, *(relation.line for relation in self.relations if relation not in self.path)]

    @property
    def is_weak(self) -> bool:
        """Return whether a reply says that the query is probably about something else than what is stored."""
        may_answer = not self.hits or self.relations or any(hit.score >= LEAST_SCORE for hit in self.hits)
        return not (self.shows_all or (self.confident and may_answer))


def search(searchable: Searchable, query: SearchQuery) -> SearchResult:
    """Search the memory. Blocking: call it in a worker thread. Raises InputError and LedgerError.

    The ledger is read before the index is asked, and after it once more for all that is shown, in one snapshot. With
    `as_of` there is a read between, before texts of that time are embedded.
    """
    taken_apart = TakenApart(searchable, query)
    with searchable.ledger.read() as conn:
        ranking = taken_apart.rank(conn)
        hits = _hits(conn, ranking, query)
        hits = with_passages(hits, ranking.candidates.weights, query.max_tokens)
        if query.follows_links and query.as_of is None:
            asked = ranking.scoring.query.words
            hits = with_connections(conn, query.scope, hits[: query.limit], frozenset(asked)) + hits[query.limit :]
        relations, path = _relations(conn, ranking, hits, query)
        result = _result(hits, relations, query, ranking)
        return replace(result, path=path if set(path) <= set(result.relations) else ())


def search_all_projects(searchable: Searchable, query: SearchQuery) -> SearchResult:
    """Search every project of the user in turn, and return the best hits of all. Blocking, as `search`.

    None is reranked: a reranker takes seconds for each project.
    """
    searchable = replace(searchable, reranker=None)
    with searchable.ledger.read() as conn:
        projects = {query.scope.project, *project_queries.project_names(conn, query.scope.user_id)}
    results = [
        search(searchable, replace(query, scope=replace(query.scope, project=name), max_tokens=MAX_TOKENS))
        for name in sorted(projects)
    ]
    # What belongs to no project is found in each of them, and counts as in the search that it suits best.
    found = [hit for result in results for hit in result.hits]
    best: dict[str, Hit] = {}
    for hit in sorted(found, key=lambda hit: hit.score, reverse=True):
        best.setdefault(hit.id, hit)
    hits = list(best.values())[: query.limit]
    hits = hits if query.filters else _without_faint(hits, query)
    hits = with_passages(hits, dict.fromkeys(query_tokens(query.text), 1.0), query.max_tokens)
    names = sum(count_tokens(hit.project) for hit in hits if hit.project != query.scope.project)
    relations = _first(([found for result in results for found in result.relations],), [hit.id for hit in hits])
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

    `notes` say what is degraded. `entities` are those that the query names. With `is_whole` a filter was set, and all
    that it leaves is ranked, unless that is more than a pool.
    """

    candidates: Candidates
    scoring: SearchScoring
    ranked: Sequence[Ranked]
    matches: Matches
    notes: tuple[str, ...] = ()
    entities: Sequence[Entity] = ()
    is_whole: bool = False


class TakenApart:
    """A query taken apart, what the index or the past proposes for it, and notes on what is degraded.

    No connection is open while a text is embedded, or the index or a reranker asked. `judged` are the scores of a
    reranker by the candidates' numbers; without one there are none, and if it failed, `not_judged` says why.
    """

    def __init__(self, searchable: Searchable, query: SearchQuery) -> None:
        self._searchable, self._query, self._now = searchable, query, query.as_of or query.now
        self._notes: list[str] = []
        self._judged: dict[int, float] = {}
        self._not_judged: tuple[str, ...] = ()
        embedder = searchable.embedder
        vectors = clause = None
        asked = TimeQuestion.of(query.text)  # its clause is embedded too; whom it is about is known only later
        texts = [query.text, *query.also]
        try:
            vectors = embedder.embed_queries([*texts, *([asked.main, asked.clause] if asked.clause else [])])
            vectors, clause = vectors[: len(texts)], vectors[len(texts) :] if asked.clause else None
        except EmbedderError as error:
            self._notes.append(f"searched by words only: {error}")
        pool = max(POOL, 4 * query.limit)
        with searchable.ledger.read() as conn:
            found = self._filter(conn)
            self._entities = entities_in_text(conn, query.scope, query.text, as_of=query.as_of) if query.hops else ()
            people = [entity.name for entity in self._entities if entity.type == "person" and not entity.is_user]
            self._parsed = ParsedQuery.of(
                conn, query.scope, query.text, self._now, also=query.also, people=people, held_at=query.held_at
            )
            if vectors is not None and entries.has_missing_vectors(conn, embedder.fingerprint):
                self._notes.append("some texts have no vector of this embedder yet and are found by words only")
            self._request = CandidateRequest(
                query.scope,
                self._parsed.all_words,
                vectors,
                PoolSize(pool, pool),
                self._parsed.names,
                filter=found,
                as_of=query.as_of,
                follows_links=query.follows_links,
                clause=clause,
                with_closed=self._parsed.asks_of_the_past or (found is not None and found.with_closed),
                with_dropped=self._parsed.is_about_the_past,
            )
            wanted = None if query.as_of is not None else index_query(conn, searchable, self._request)
        self._past = None if query.as_of is None else retrieve(searchable, self._request)
        self._index_hits = None if wanted is None else searchable.index.query(*wanted)
        if searchable.reranker is not None:
            self._judge(searchable.reranker)

    def _filter(self, conn: Connection) -> HitFilter | None:
        query, full_text = self._query, self._searchable.ledger.full_text
        if not query.filters:
            return None
        faded = partial(faded_owners, conn, query.scope, query.forgetting, self._now)
        zone = query.now.tzinfo or UTC
        return hit_filter(conn, full_text, query.scope, query.filters, zone, as_of=query.as_of, faded=faded)

    def _judge(self, reranker: Reranker) -> None:
        """Ask a reranker about the first candidates. If it fails, a note says so."""
        with self._searchable.ledger.read() as conn:
            ranking = self.rank(conn)
            hits = _read(conn, ranking, ranking.ranked[:RERANKED], self._query)
        if len(hits) < 2:  # noqa: PLR2004 - an order
            return
        passages = with_passages(hits, ranking.candidates.weights, self._query.max_tokens)
        try:
            scores = reranker.scores(self._query.text, [hit.text for hit in passages])
        except RerankerError as error:
            self._not_judged = (f"not reranked: {error}",)
            return
        seqs = {item.candidate.owner_id: item.candidate.seq for item in ranking.ranked[:RERANKED]}
        self._judged = {seqs[hit.id]: score for hit, score in zip(hits, scores, strict=True)}

    def rank(self, conn: Connection) -> Ranking:
        """Return all candidates, best first."""
        query, parsed, embedder = self._query, self._parsed, self._searchable.embedder.fingerprint
        asked = Filter.of(query.filters)
        candidates = self._past or LivingSearch(conn, self._searchable, self._request, self._index_hits).candidates()
        means = [("words" if isinstance(error, EmbedderError) else "meaning", error) for error in candidates.errors]
        notes = [*self._notes, *(f"searched by {by} only: {error}" for by, error in means)]
        retention = None
        if query.as_of is None and query.forgetting.mode != "off":
            retention = retention_of(conn, candidates.entries, query.forgetting, self._now)
        named = frozenset(entity.id for entity in self._entities)
        scoring = SearchScoring(parsed, self._now, features.weights_for(embedder), retention, named)
        ranked = features.rank(candidates, scoring.parts)
        if (held_at := query.held_at) is not None:
            ranked = [item for item in ranked if not is_outside(item.candidate, held_at)]
        if retention is not None and query.forgetting.mode == "archive" and FADED not in asked.fields:
            kept = [item for item in ranked if retention[item.row] >= query.forgetting.bound]
            found = matches(scoring, candidates, ranked)
            notes += left_out_note(ranked, kept, query.limit, found.of_rows >= found.least)
            ranked = kept
        ranked = reranked(ranked, self._judged)
        found = matches(scoring, candidates, ranked)
        if found.confident and not any(entity.type == "person" for entity in self._entities):
            name = memory_queries.name_of_user(conn, query.scope)
            found = replace(found, confident=not asks_of_unknown(parsed, candidates, ranked, name))
        # What has no vector is found by its words alone, and may be missing.
        is_whole = asked.narrows and self._request.vectors is not None and not notes
        notes += self._not_judged
        return Ranking(candidates, scoring, ranked, found, tuple(notes), self._entities, is_whole)


def _relations(
    conn: Connection, ranking: Ranking, hits: Sequence[Hit], query: SearchQuery
) -> tuple[tuple[KnownRelation, ...], tuple[KnownRelation, ...]]:
    """Return what is known of the entities that the query names, first what the first memories state, then the newest.

    The second are those that lead to what it asks for, if it takes several; these come first.

    With `hops=2` the relations of what is related to the entities count too, but not through the user, who is related
    to everything.
    """
    if not ranking.entities:
        return (), ()
    shown = [hit.id for hit in hits[: query.limit] if hit.kind == "memory"]
    matching = [hit.id for hit in hits if hit.id in shown and hit.score >= MATCHING * hits[0].score]
    asking = words_in(" ".join((query.text, *query.also)))
    candidates = (item.candidate for item in ranking.ranked if not item.candidate.is_closed)
    others = (candidate.owner_id for candidate in candidates if candidate.kind == "memory")
    memory_ids, is_filtered = list(dict.fromkeys((*shown, *others))), bool(query.filters)
    of_user = [entity.id for entity in ranking.entities if entity.is_user]
    of_others = [entity.id for entity in ranking.entities if not entity.is_user]
    is_of_all = of_user and not is_filtered and query.as_of is None
    stated = memories_stating(conn, query.scope, of_user, MAX_PAST) if is_of_all else []
    asked = [memory_id for memory_id, name in stated if words_that_ask(asking, name)][:MAX_RELATIONS]
    own = list(dict.fromkeys((*asked, *shown)))
    near = [
        *_relations_of(conn, query, of_others, memory_ids, is_filtered=is_filtered),
        # Nearly everything is about the user, so of the user's own entity only what answers states, or what is asked.
        *(
            relation
            for relation in _relations_of(conn, query, of_user, own, is_filtered=True)
            if relation.memory_id in matching or words_that_ask(asking, relation.relationship)
        ),
    ]
    far: list[KnownRelation] = []
    if query.hops > 1:
        ends = {end for found in near for end in (found.source_id, found.destination_id)}
        ends -= {*of_user, *of_others}
        neighbours = sorted(entity.id for entity in roots_of(conn, ends).values() if not entity.is_user)
        far = _relations_of(conn, query, neighbours, memory_ids, is_filtered=is_filtered)
    relations = _first((near, far, _lasting(conn, query, (*near, *far))), memory_ids, asking)
    expired = expired_ids(conn, query.scope, query.now) if relations and query.as_of is None else frozenset[str]()

    def holds(relation: KnownRelation) -> bool:
        is_then = query.held_at is None or relation.may_hold_in(query.held_at)
        return is_then and relation.memory_id not in expired

    def beside(entity_ids: Iterable[str]) -> list[KnownRelation]:
        """Return what holds now of entities; of the user only what the candidates state."""
        ids, further = sorted(set(entity_ids) - {*of_user}), replace(query, hops=2)
        found = _relations_of(conn, further, ids, memory_ids, is_filtered=is_filtered)
        own = [entity_id for entity_id in of_user if entity_id in entity_ids]
        found += _relations_of(conn, further, own, memory_ids, is_filtered=True)
        is_of_now = query.as_of is None and query.held_at is None
        return [each for each in found if holds(each) and not (is_of_now and each.has_ended(query.now))]

    path = _path(asking, ranking.entities, near, beside)
    others = tuple(relation for relation in relations if holds(relation) and relation not in path)
    return (*path, *others)[: max(MAX_RELATIONS, len(path))], path


def _lasting(conn: Connection, query: SearchQuery, found: Sequence[KnownRelation]) -> list[KnownRelation]:
    """Return the relations of other memories that say of those which end that they go on."""
    ended = {(each.source_id, each.relationship, each.destination_id) for each in found if each.valid_until}
    sources, names = sorted({each[0] for each in ended}), {each[1] for each in ended}
    stated = memories_stating(conn, query.scope, sources, MAX_PAST) if ended else []
    ids = list(dict.fromkeys(memory_id for memory_id, name in stated if name in names))
    every = _relations_of(conn, query, sources, ids, is_filtered=True)
    return [each for each in every if (each.source_id, each.relationship, each.destination_id) in ended]


def _path(
    asking: Sequence[str],
    named: Sequence[Entity],
    near: Sequence[KnownRelation],
    beside: Callable[[Iterable[str]], Sequence[KnownRelation]],
) -> tuple[KnownRelation, ...]:
    """Return two or more relations that lead from an entity of the question to what it asks for, the surest path.

    Each is asked for by a word that no other one answers. `near` are relations of the entities, and `beside` reads all.
    """
    best = _Way()
    ways = {entity.id: best for entity in named if any(words_that_ask(asking, each.relationship) for each in near)}
    reached = set(ways)
    for _ in range(MAX_PATH):
        further: dict[str, _Way] = {}
        for relation in beside(ways) if ways else ():
            ends = relation.source_id, relation.destination_id
            for start, end in (ends, ends[::-1]):
                way = ways.get(start, _Way())
                asked = words_that_ask(asking, relation.relationship) - way.answered
                if start in ways and end not in reached and asked:
                    longer = _Way((*way.path, relation), way.answered | asked)
                    further[end] = max((further.get(end, longer), longer), key=_Way.worth)
        ways = further
        reached |= ways.keys()
        best = max((best, *ways.values()), key=_Way.worth)
    return best.path if len(best.path) > 1 else ()


class _Way(NamedTuple):
    """Relations that lead on from an entity of a question, and the words of the question that they answer."""

    path: tuple[KnownRelation, ...] = ()
    answered: frozenset[str] = frozenset()

    def worth(self) -> int:
        return len(self.answered)


def _relations_of(
    conn: Connection, query: SearchQuery, entity_ids: Sequence[str], memory_ids: Sequence[str], *, is_filtered: bool
) -> list[KnownRelation]:
    """Return relations of entities: those that memories among the candidates state, and then the newest.

    If `is_filtered`, only these memories may state a relation, because the others have not passed the filter.
    """
    if not entity_ids:
        return []
    if query.as_of is not None:
        past = relations_of(conn, query.scope, entity_ids, as_of=query.as_of, limit=MAX_PAST)
        candidates = set(memory_ids)
        return [found for found in past if not is_filtered or found.memory_id in candidates]
    limit = MAX_READ[query.hops]
    return relations_found(conn, query.scope, entity_ids, memory_ids, limit=limit, with_newest=not is_filtered)


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
    fitting: list[KnownRelation] = []
    for relation in relations:
        if relation_tokens([*fitting, relation]) <= room:
            fitting.append(relation)
    return within_budget(hits, max_tokens - relation_tokens(fitting)), tuple(fitting)


def _result(
    hits: Sequence[Hit], relations: tuple[KnownRelation, ...], query: SearchQuery, ranking: Ranking
) -> SearchResult:
    """Return the hits that a reply shows, best first, and what it leaves out."""
    notes = ranking.notes
    best = hits[: query.limit]
    shown = [hit for hit in best if hit.score >= query.min_score]
    if weak := len(best) - len(shown):
        left_out = f"{counted(weak, 'hit')} {'is' if weak == 1 else 'are'} left out because the score is below"
        notes = (*notes, f"{left_out} the setting min_score = {query.min_score:g}")
    if not ranking.is_whole:
        shown = _without_faint(shown, query)
    is_confident = ranking.matches.confident
    if not is_confident:
        relations = _telling(relations, ranking.entities, " ".join((query.text, *query.also)))
    kept, kept_relations = _within_budget(shown, relations, query.max_tokens)
    shows_all = ranking.is_whole and len(ranking.ranked) <= query.limit and len(kept) == len(hits)
    if not is_confident and not shows_all:
        shown = shown[:MAX_WEAK]
        kept, kept_relations = _within_budget(shown, relations, query.max_tokens)
    omitted = len(shown) - len(kept)
    return SearchResult(tuple(kept), omitted, notes, is_confident or bool(kept_relations), kept_relations, shows_all)


def _without_faint(hits: Sequence[Hit], query: SearchQuery) -> list[Hit]:
    """Return hits, best first, without those that match far less than the best one."""
    share = FAINT_WITH_OTHERS if query.also else FAINT
    return [hit for place, hit in enumerate(hits) if place < ALWAYS_SHOWN or hit.score >= share * hits[0].score]


def _telling(
    relations: tuple[KnownRelation, ...], asked_of: Sequence[Entity], question: str
) -> tuple[KnownRelation, ...]:
    """Return the relations that say something of what is asked, though no text answers: nearly all are the user's."""
    others = {entity.id for entity in asked_of if not entity.is_user}
    return tuple(
        relation
        for relation in relations
        if not others.isdisjoint((relation.source_id, relation.destination_id))
        or is_asked_for(question, relation.relationship)
    )


def _hits(conn: Connection, ranking: Ranking, query: SearchQuery) -> list[Hit]:
    """Return the best hits, folded, memories before their messages, in batches until there are as many as the limit.

    The memories of a message are read with it, however far below it they stand.
    """
    ranked, past = ranking.ranked, ranking.candidates.past
    hits: list[Hit] = []
    memories_below: list[Hit] = []
    folded: list[Hit] = []
    size = query.limit + SPARE
    for start in range(0, len(ranked), size):
        batch, rest = ranked[start : start + size], ranked[start + size :]
        hits += _read(conn, ranking, batch, query)
        message_ids = {item.candidate.owner_id for item in batch if item.candidate.kind == "message"}
        if past is None:
            by_message = memory_queries.memories_from(conn, list(message_ids))
            memory_ids = {memory.id for memories in by_message.values() for memory in memories}
        else:
            learned = (hit for hit in past.values() if hit.kind == "memory")
            memory_ids = {hit.id for hit in learned if not message_ids.isdisjoint(hit.message_ids)}
        below = [item for item in rest if item.candidate.owner_id in memory_ids]
        memories_below += _read(conn, ranking, below, query)
        words = FoldWords.of(hits, query.text)
        folded = memories_first(fold(hits, memories_below, words), memories_below, words)
        if len(folded) >= query.limit:
            break
    return folded


# The score of candidates that are not shown.
LOWEST = -1e9


def _read(conn: Connection, ranking: Ranking, ranked: Sequence[Ranked], query: SearchQuery) -> list[Hit]:
    """Return ranked candidates as hits, without those that were deleted meanwhile."""
    candidates, found = ranking.candidates, ranking.matches
    by_seq = hits_of(conn, [item.candidate for item in ranked]) if candidates.past is None else candidates.past
    later: dict[int, str] = {}
    if (vectors := candidates.vectors) is not None and any(item.candidate.kind == "message" for item in ranked):
        scores = np.full(len(candidates.entries), LOWEST)
        scores[[item.row for item in ranked]] = [item.score for item in ranked]
        texts = candidates.entries
        living = [row for row, text in enumerate(texts) if text.kind == "memory" and not text.is_closed]
        for _, message in later_memories(ranking.scoring.query, candidates, scores, ranking.scoring.weights.alike):
            # The memory most like the message tells the same, whatever the query asks for.
            newer = [row for row in living if texts[row].at > texts[message].at]
            later[message] = texts[newer[int(np.argmax(vectors[newer] @ vectors[message]))]].owner_id
    return [
        replace(
            by_seq[item.candidate.seq],
            later=later.get(item.row, ""),
            score=float(found.of_rows[item.row]),
            why=reasons(ranking.scoring.query, candidates, item, ranking.entities, found),
            score_parts=item.parts if query.explain else {},
        )
        for item in ranked
        if item.candidate.seq in by_seq
    ]
