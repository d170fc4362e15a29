"""Retrieve the candidates of a query from the ledger, now or at a past instant."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt
from sqlalchemy import Connection

from palimpsest.core.errors import EmbedderError, FullTextError
from palimpsest.core.models import KINDS, Candidate, Hit, Scope
from palimpsest.core.protocols import Embedder, Reranker, Vector
from palimpsest.index.sync import IndexHits
from palimpsest.recall import features
from palimpsest.recall.features import CandidateRequest, Candidates, Centre, best_first, centred, stored_centre
from palimpsest.recall.hits import HitFilter, entries_matching, hits_at, hits_of
from palimpsest.store import documents, links, memories
from palimpsest.store import entries as entry_queries
from palimpsest.store import messages as message_queries
from palimpsest.store.database import FoundWords
from palimpsest.store.entries import CandidateRow
from palimpsest.store.graph.relations import relation_keys, states_of
from palimpsest.store.ledger import Ledger
from palimpsest.store.rows import batched, unpacked
from palimpsest.text.tokenizer import search_tokens

# Candidates of the past: everything that was believed at an instant.
#
# They come from the ledger's history. The vector index and the full text only know what is believed now.

# How many old texts one search embeds at most: a second of work. The others are found by their words.
MAX_EMBEDDED = 32


def candidates_at(ledger: Ledger, embedder: Embedder, request: CandidateRequest, instant: datetime) -> Candidates:
    """Return everything that was believed at an instant as candidates; some texts without a vector are embedded now."""
    known: dict[str, Vector] = {}
    with ledger.read() as conn:
        hits = hits_at(conn, request.scope, instant)
        hits = [hit for hit in hits if request.filter is None or request.filter.test(hit)]
        entries = [_candidate_of(hit, seq) for seq, hit in enumerate(hits)]
        if request.vectors is not None:
            current = memories.memories_by_id(conn, [hit.id for hit in hits if hit.kind == "memory"])
            unchanged = [
                entry
                for entry, hit in zip(entries, hits, strict=True)
                if hit.kind == "message" or current[hit.id].text == hit.text
            ]
            for kind in KINDS:
                ids = [entry.owner_id for entry in unchanged if entry.kind == kind]
                known |= entry_queries.own_vectors(conn, embedder.fingerprint, kind, ids)
    vectors = queries = None
    has_vector = np.zeros(len(hits), dtype=np.bool_)
    errors: list[EmbedderError] = []
    if request.vectors is not None:
        missing = [hit for hit in hits if hit.id not in known][-MAX_EMBEDDED:]
        try:
            embedded = embedder.embed_passages([hit.text for hit in missing]) if missing else ()
            known |= zip([hit.id for hit in missing], embedded, strict=True)
        except EmbedderError as error:
            errors.append(error)
        raw, has_vector = features.stacked([known.get(hit.id) for hit in hits])
        if raw is not None:
            centre = Centre.of(embedder.fingerprint, int(has_vector.sum()), raw[has_vector].mean(axis=0))
            vectors, queries = centred(raw, centre.passage), centred(request.vectors, centre.question)
            vectors[~has_vector] = 0.0
    words = [frozenset(search_tokens(hit.text)) for hit in hits]
    frequency = Counter(word for text_words in words for word in text_words)
    return Candidates(
        entries,
        vectors,
        vectors,
        has_vector,
        queries,
        np.zeros(len(hits), dtype=np.float32),
        words,
        words,
        features.rarity(frequency, request.words, len(hits)),
        len(hits),
        source_pairs=features.linked_rows(entries, ((hit.id, message) for hit in hits for message in hit.message_ids)),
        past=dict(enumerate(hits)),
        errors=errors,
    )


def _candidate_of(hit: Hit, seq: int) -> Candidate:
    text, is_page = hit.text[: entry_queries.READ_CHARS], hit.document is not None
    is_question = hit.kind == "message" and hit.text.rstrip()[-1:] in entry_queries.QUESTION_MARKS
    return Candidate(seq, hit.kind, hit.id, hit.at, hit.name, "", is_question, text, is_page)


# Follow the links of memories one hop (A-Mem, section 3.4): what a candidate is linked with is a candidate too.

# How many standard deviations nearer than the mean of all relations one is that counts. Of the relations that agents
# gave for benchmarks/lives_in_time.json one in a hundred is as near to a question about something else, and a fourth of
# those of its answers, with other wordings and without; a bound of the cosine itself would differ between the two. A
# user with ten relations or fewer has none that stands out so.
STANDS_OUT = 3.0

# How many relations, the newest ones, a question is compared with: three milliseconds.
MAX_COMPARED_RELATIONS = 1_000

# How many candidates are added because they are linked with one: half of those that the meaning finds.
MAX_ADDED = 40

# Retrieve the candidates of a query from the ledger.
#
# Search, search at an instant and the comparison of near-duplicates all take their candidates from `retrieve` and
# order them with `features.rank`. The vector index and the full text only propose entries. The ledger decides which
# of them are living and visible to the scope, and supplies everything they are ranked by. An index that lags or errs
# therefore costs a candidate, never a wrong hit.

# If the scope sees a smaller share of the requested candidates, it is scanned: most of what was returned belongs to
# other scopes. A fifth of a search's candidates still fills its reply.
MIN_VISIBLE_SHARE = 0.2

# Up to so many entries that pass a filter are read one by one. More are read with all others of the scope, in order,
# which takes less time for each. Measured with 100,000 entries.
MAX_PICKED = 10_000

# How many times as many candidates are tested as are wanted, if a filter leaves most messages, so that one that leaves
# a fourth of them finds enough. If it does not, all entries that pass are read.
TESTED_POOLS = 4

# As a number of characters: the whole text.
WHOLE_TEXT = 2**31 - 1

# For so many other candidates there is one page of a document. Pages have a pool of their own, because those of a large
# document match many questions by some of their words, and what people said would not become a candidate at all. Chosen
# by trials on conversations with handbooks beside them.
PAGE_SHARE = 2

_T = TypeVar("_T")


class NearestEntries(Protocol):
    """Find the entries nearest to a vector, as far as the vector index can at this moment."""

    def query(self, user_id: str, vector: Vector, limit: int) -> IndexHits | None:
        """Return the `limit` nearest entries that the index has. Return None if there is no usable index.

        The index may be on a server, so no connection to the ledger may be open.
        """
        ...

    def changed_since(self, conn: Connection, user_id: str, log_number: int) -> list[int] | None:
        """Return the user's entries that changed after a row of the index log. Return None if they are too many."""
        ...


@dataclass(frozen=True, slots=True)
class Searchable:
    """What can be searched: a ledger, and the index of the vectors that an embedder makes of its entries."""

    ledger: Ledger
    embedder: Embedder
    index: NearestEntries
    reranker: Reranker | None = field(default=None, kw_only=True)


def retrieve(searchable: Searchable, request: CandidateRequest) -> Candidates:
    """Return the candidates of a request, ordered by number. Blocking. Raises LedgerError.

    No connection is open while a text is embedded or the vector index is queried.
    """
    ledger, embedder = searchable.ledger, searchable.embedder
    if request.as_of is not None:
        return candidates_at(ledger, embedder, request, request.as_of)
    with ledger.read() as conn:
        wanted = index_query(conn, searchable, request)
    index_hits = None if wanted is None else searchable.index.query(*wanted)
    with ledger.read() as conn:
        return LivingSearch(conn, searchable, request, index_hits).candidates()


def index_query(conn: Connection, searchable: Searchable, request: CandidateRequest) -> tuple[str, Vector, int] | None:
    """Return what to ask the index: user, vector, number of entries. Return None if the scope is scanned instead."""
    leaves_few = request.filter is not None and not request.filter.leaves_most_messages
    if request.vectors is None or leaves_few or entry_queries.is_narrow(conn, request.scope):
        return None
    stored, centre = stored_centre(conn, searchable.embedder.fingerprint, request.scope)
    vector = _nearness(_centred_queries(request.vectors, request, centre))
    tested = TESTED_POOLS if stored.has_pages or request.filter is not None else 1
    return request.scope.user_id, vector, request.pool.by_meaning * tested


def _centred_queries(vectors: Vector, request: CandidateRequest, centre: Centre) -> Vector:
    return centred(vectors, centre.passage if request.whole_texts else centre.question)


def _nearness(queries: Vector) -> Vector:
    """Return the vector whose product with a key is the cosine of the question and the mean of those of the others."""
    return queries[0] if len(queries) == 1 else centred(queries[0] + queries[1:].mean(axis=0), None)


class LivingSearch:
    """The retrieval of living entries over one connection, so as one state of the ledger has them.

    `queries` and `clause` are the centred vectors of the request, and `mean` is what stored vectors are centred by.
    After a failure of the full text it finds nothing, and `errors` holds the reason.
    """

    def __init__(
        self, conn: Connection, searchable: Searchable, request: CandidateRequest, index_hits: IndexHits | None
    ) -> None:
        self.conn, self.request, self.index_hits, self.index = conn, request, index_hits, searchable.index
        self.full_text, self.fingerprint = searchable.ledger.full_text, searchable.embedder.fingerprint
        self.stored, centre = stored_centre(conn, self.fingerprint, request.scope)
        self.mean = centre.passage
        self.queries, self.clause = (
            None if vectors is None else _centred_queries(vectors, request, centre)
            for vectors in (request.vectors, request.clause)
        )
        self.now = searchable.ledger.now(request.scope.user_id)
        self.errors: list[FullTextError] = []
        self.frequency: Mapping[str, int] = self._from_full_text(
            lambda: self.full_text.document_counts(conn, request.scope.user_id, request.words), {}
        )

    def candidates(self) -> Candidates:
        """Return the candidates with their features."""
        conn, request, stored = self.conn, self.request, self.stored
        rows, bm25 = self._select()
        message_ids = [row.candidate.owner_id for row in rows if row.candidate.kind == "message"]
        outdated, forgotten = message_queries.outdated_or_forgotten(conn, message_ids)
        rows = [row for row in rows if row.candidate.owner_id not in forgotten]
        rows, connected = self._with_linked(rows) if request.follows_links else (rows, [])
        near = self._near_relations()
        if near and request.filter is None:
            missing = sorted(near - {row.candidate.owner_id for row in rows})[:MAX_ADDED]
            rows += self._rows(entry_queries.entries_of(conn, "memory", missing), ()).values()
        # What a plan has replaced holds until the plan begins.
        if request.with_closed or any(row.candidate.begins and row.candidate.begins > self.now for row in rows):
            rows += self._closed_rows()
        vectors, has_vector = _centred_rows([row.vector for row in rows], self.mean)
        contexts = vectors  # as they are, unless a text has a context
        if any(row.key for row in rows):
            contexts, _ = _centred_rows([row.key or row.vector for row in rows], self.mean)
        words = self._words(rows)
        entries = [row.candidate for row in rows]
        memory_ids = [entry.owner_id for entry in entries if entry.kind == "memory"]
        has_both = 0 < len(memory_ids) < len(entries)
        return Candidates(
            entries,
            vectors,
            contexts,
            has_vector,
            self.queries,
            np.array([bm25.get(entry.seq, 0.0) for entry in entries], dtype=np.float32),
            [found.passage if entry.is_page else found.own for entry, found in zip(entries, words, strict=True)],
            [found.anywhere for found in words],
            features.rarity(self.frequency, request.words, stored.entries),
            stored.entries,
            frozenset(outdated),
            features.linked_rows(entries, memories.messages_of(conn, memory_ids)) if has_both else [],
            errors=tuple(self.errors),
            link_pairs=connected,
            states=states_of(conn, memory_ids),
            near=near,
            clause=self.clause,
        )

    def _with_linked(self, rows: Sequence[CandidateRow]) -> tuple[list[CandidateRow], list[tuple[int, int]]]:
        """Return candidates with those that are linked with one, by number, and the pairs of linked rows.

        Nothing is added to what a filter has chosen. A pair is in the list in both directions.
        """
        ids = [row.candidate.owner_id for row in rows if row.candidate.kind == "memory"]
        linked = links.entries_linked_with(self.conn, ids) if ids else []
        known = {row.candidate.seq for row in rows}
        missing = list(dict.fromkeys(seq for _, _, seq in linked if seq not in known))[:MAX_ADDED]
        added = self._rows(missing, ()).values() if missing and self.request.filter is None else ()
        all_rows = sorted((*rows, *added), key=lambda row: row.candidate.seq)
        place = {
            row.candidate.owner_id: number for number, row in enumerate(all_rows) if row.candidate.kind == "memory"
        }
        pairs = [(place[one], place[other]) for one, other, _ in linked if one in place and other in place]
        return all_rows, sorted({pair for one, other in pairs for pair in ((one, other), (other, one))})

    def _near_relations(self) -> AbstractSet[str]:
        """Return the memories that state a relation to which the query is far nearer than to most."""
        if self.queries is None or self.request.whole_texts or self.request.kind == "message":
            return frozenset()
        user_id = self.request.scope.user_id
        memory_ids, keys = relation_keys(self.conn, user_id, self.fingerprint, MAX_COMPARED_RELATIONS)
        if keys is None:
            return frozenset()
        nearness = features.z_scores(centred(keys, self.mean) @ _nearness(self.queries), None, features.MIN_SPREAD)
        return {memory_ids[place] for place in np.flatnonzero(nearness >= STANDS_OUT)}

    def _closed_rows(self) -> list[CandidateRow]:
        """Return the closed memories nearest to the query that pass its filter: all, or those that still hold."""
        if self.queries is None:
            return []
        rows = entry_queries.closed_candidates(
            self.conn, self.request.scope, self.fingerprint, self.now, with_dropped=self.request.with_dropped
        )
        if not self.request.with_closed:
            rows = [row for row in rows if row.candidate.ends is not None and row.candidate.ends > self.now]
        vectors, has_vector = _centred_rows([row.vector for row in rows], self.mean)
        if vectors is None:
            return []
        order = best_first(vectors @ _nearness(self.queries))
        nearest = [rows[number] for number in order if has_vector[number]][:MAX_ADDED]
        if self.request.filter is None:
            return nearest
        hits = hits_of(self.conn, [row.candidate for row in nearest])
        return [
            row for row in nearest if row.candidate.seq in hits and self.request.filter.test(hits[row.candidate.seq])
        ]

    def _select(self) -> tuple[list[CandidateRow], Mapping[int, float]]:
        """Return the candidates by meaning and by words, by number, and their BM25 scores.

        Both searches look beyond the scope first, which is faster. If the scope sees too little of what they return,
        they are repeated within the scope.
        """
        scope, pool = self.request.scope, self.request.pool
        if self.request.filter is not None:
            nearest, bm25 = self._matching(self.request.filter)
            return list(self._rows(nearest, bm25).values()), bm25
        wide_scope = self.full_text.widened(self.conn, scope, self.stored.entries)
        bm25 = self._pool_by_words(wide_scope)
        indexed = self._indexed(pool.by_meaning)
        nearest = self._scanned(pool.by_meaning) if indexed is None else indexed
        rows = self._rows(nearest, bm25)
        visible = {seq for seq, row in rows.items() if self._has_requested_kind(row)}
        scan_again = indexed is not None and not _is_enough(indexed, visible, pool.by_meaning)
        search_again = wide_scope != scope and not _is_enough(bm25, rows.keys(), pool.by_words)
        if scan_again:
            nearest = self._scanned(pool.by_meaning)
        if search_again:
            bm25 = self._pool_by_words(scope)
        if scan_again or search_again:
            rows = self._rows(nearest, bm25)
        kept = [seq for seq in nearest if seq in rows and self._has_requested_kind(rows[seq])][: pool.kept]
        chosen = {*kept, *bm25}
        return [row for seq, row in rows.items() if seq in chosen and self._has_requested_kind(row)], bm25

    def _matching(self, found: HitFilter) -> tuple[list[int], Mapping[int, float]]:
        """Return the nearest entries that match a filter, nearest first, and the BM25 scores of those with words."""
        scope, pool = self.request.scope, self.request.pool
        if found.leaves_most_messages:
            meant, worded = pool.by_meaning * TESTED_POOLS, pool.by_words * TESTED_POOLS
            bm25 = self._by_words(self.full_text.widened(self.conn, scope, self.stored.entries), worded)
            indexed = self._indexed(meant)
            nearest = self._scanned(meant) if indexed is None else indexed
            messages = message_queries.message_entries_among(self.conn, scope, found.messages, {*nearest, *bm25})
            near = self._first([seq for seq in nearest if seq in messages], pool.by_meaning)
            with_words = self._first([seq for seq in _by_score(bm25) if seq in messages], pool.by_words)
            has_near = len(nearest) < meant or len(near) >= pool.by_meaning
            if has_near and (len(bm25) < worded or len(with_words) >= pool.by_words):
                return near, {seq: bm25[seq] for seq in with_words}
        allowed = entries_matching(self.conn, scope, found)
        bm25 = self._by_words(scope, None)
        nearest = self._scanned(pool.by_meaning, allowed)
        return nearest, {seq: score for seq, score in bm25.items() if seq in allowed}

    def _rows(self, nearest: Iterable[int], bm25: Iterable[int]) -> dict[int, CandidateRow]:
        chars = WHOLE_TEXT if self.request.whole_texts else entry_queries.READ_CHARS
        seqs = [*{*nearest, *bm25}]
        rows = entry_queries.candidates(self.conn, self.request.scope, self.fingerprint, seqs, self.now, chars)
        return {row.candidate.seq: row for row in rows}

    def _has_requested_kind(self, row: CandidateRow) -> bool:
        return self.request.kind in (None, row.candidate.kind)

    def _first(self, ordered: Iterable[int], limit: int) -> list[int]:
        """Return the first entries up to a limit, in their order. Pages of documents have a limit of their own."""
        if not self.stored.has_pages:
            return list(islice(ordered, limit))
        room = {False: limit, True: limit // PAGE_SHARE}
        first: list[int] = []
        for batch in batched(ordered):
            pages = documents.page_entries_among(self.conn, batch)
            for seq in batch:
                if room[seq in pages]:
                    room[seq in pages] -= 1
                    first.append(seq)
            if not room[False]:
                break
        return first

    def _indexed(self, limit: int) -> list[int] | None:
        """Return the entries from the index and those it may lack. Return None if the scope is to be scanned."""
        if self.index_hits is None:
            return None
        changed = self.index.changed_since(self.conn, self.request.scope.user_id, self.index_hits.log_number)
        entries = self.index_hits.entries
        first = self._first(entries, limit)
        if changed is None or len(first) < min(limit, len(entries)):
            return None  # so many are pages of documents that what people said is not among them
        return [*first, *changed]

    def _scanned(self, limit: int, allowed: AbstractSet[int] | None = None) -> list[int]:
        """Return the nearest entries that the scope sees, nearest first, by comparing with all of them."""
        if self.queries is None:
            return []
        vector = _nearness(self.queries)
        cosines: list[Vector] = []
        seqs: list[int] = []
        if allowed is not None and len(allowed) <= MAX_PICKED:
            batches = entry_queries.some_keys(self.conn, self.fingerprint, sorted(allowed))
        else:
            batches = entry_queries.scope_keys(self.conn, self.request.scope, self.fingerprint, self.request.kind)
        for batch, keys in batches:
            cosines.append(centred(keys, self.mean) @ vector)
            seqs += batch
        if not seqs:
            return []
        order = best_first(np.concatenate(cosines))
        return self._first((seqs[row] for row in order if allowed is None or seqs[row] in allowed), limit)

    def _pool_by_words(self, scope: Scope | None) -> dict[int, float]:
        """Return the BM25 scores of the best entries by words, as many as the request wants."""
        wanted = self.request.pool.by_words
        if not self.stored.has_pages:
            return self._by_words(scope, wanted)
        for limit in (TESTED_POOLS * wanted, None):
            found = self._by_words(scope, limit)
            first = self._first(_by_score(found), wanted)
            if limit is None or len(found) < limit or len(first) >= wanted:
                break
        return {seq: found[seq] for seq in first}

    def _by_words(self, scope: Scope | None, limit: int | None) -> dict[int, float]:
        """Return BM25 scores by entry."""
        words = self.request.words
        return self._from_full_text(
            lambda: self.full_text.search(self.conn, scope, words, limit, self.frequency), dict[int, float]()
        )

    def _words(self, rows: Sequence[CandidateRow]) -> list[FoundWords]:
        if self.request.whole_texts:
            texts = [frozenset(search_tokens(row.candidate.text)) for row in rows]
            return [FoundWords(words, words) for words in texts]
        sought = frozenset(self.request.words) | self.request.names
        seqs = [row.candidate.seq for row in rows]
        found = self._from_full_text(lambda: self.full_text.words_in(self.conn, seqs, sought), dict[int, FoundWords]())
        for closed in (row.candidate for row in rows if row.candidate.is_closed):  # the full text has only the living
            own = sought.intersection(search_tokens(closed.text))
            found = {**found, closed.seq: FoundWords(own, own)}
        return [found.get(seq, FoundWords()) for seq in seqs]

    def _from_full_text(self, read: Callable[[], _T], nothing: _T) -> _T:
        if not self.errors:
            try:
                return read()
            except FullTextError as error:
                self.errors.append(error)
        return nothing


def _centred_rows(blobs: Sequence[bytes | None], mean: Vector | None) -> tuple[Vector | None, npt.NDArray[np.bool_]]:
    """Return the centred stored vectors as a matrix, with zeros for None, and which rows have one."""
    matrix, has_vector = features.stacked([None if blob is None else unpacked(blob) for blob in blobs])
    if matrix is not None:
        matrix = centred(matrix, mean)
        matrix[~has_vector] = 0.0  # as near to everything as the mean is
    return matrix, has_vector


def _by_score(bm25: Mapping[int, float]) -> list[int]:
    return sorted(bm25, key=lambda seq: (-bm25[seq], seq))


def _is_enough(proposed: Iterable[int], visible: AbstractSet[int], limit: int) -> bool:
    """Return whether a search beyond the scope returned enough entries that are visible to the scope."""
    proposed = list(proposed)
    return len(proposed) < limit or len(visible & set(proposed)) >= MIN_VISIBLE_SHARE * limit
