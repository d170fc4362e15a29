"""Candidates of the past: everything that was believed at an instant.

They come from the ledger's history. The vector index and the full text only know what is believed now.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime

import numpy as np
from sqlalchemy import Connection

from palimpsest.core.errors import EmbedderError
from palimpsest.core.protocols import Embedder, Vector
from palimpsest.core.search.hits import Candidate, Hit
from palimpsest.recall.hits import hits_at
from palimpsest.recall.retrieval.features import (
    CandidateRequest,
    Candidates,
    Centre,
    centred,
    linked_rows,
    own_vectors,
    rarity,
    stacked,
)
from palimpsest.store.ledger import Ledger
from palimpsest.store.queries import entries as entry_queries
from palimpsest.store.queries import memories as memory_queries
from palimpsest.text.tokenizer import search_tokens

MAX_EMBEDDED = 32
"""How many old texts one search embeds at most: a second of work. The others are found by their words. Set by hand."""


def candidates_at(ledger: Ledger, embedder: Embedder, request: CandidateRequest, instant: datetime) -> Candidates:
    """Return everything that was believed at an instant as candidates; some texts without a vector are embedded now."""
    with ledger.read() as conn:
        hits = hits_at(conn, request.scope, instant)
        hits = [hit for hit in hits if request.filter is None or request.filter.test(hit)]
        entries = [_past_candidate(seq, hit) for seq, hit in enumerate(hits)]
        known = _vectors_still_valid(conn, embedder.fingerprint, hits, entries) if request.vector is not None else {}
    vectors = query_vector = None
    has_vector = np.zeros(len(hits), dtype=np.bool_)
    errors: list[EmbedderError] = []
    if request.vector is not None:
        try:
            known = _completed(embedder, hits, known)
        except EmbedderError as error:
            errors.append(error)
        raw, has_vector = stacked([known.get(hit.id) for hit in hits])
        if raw is not None:
            centre = Centre.of(embedder.fingerprint, int(has_vector.sum()), raw[has_vector].mean(axis=0))
            vectors, query_vector = centred(raw, centre.passage), centred(request.vector, centre.question)
            vectors[~has_vector] = 0.0
    words = [frozenset(search_tokens(hit.text)) for hit in hits]
    frequency = Counter(word for text_words in words for word in text_words)
    return Candidates(
        entries,
        vectors,
        vectors,
        has_vector,
        query_vector,
        np.zeros(len(hits), dtype=np.float32),
        words,
        words,
        rarity(frequency, request.words, len(hits)),
        len(hits),
        linked=linked_rows(entries, ((hit.id, message) for hit in hits for message in hit.message_ids)),
        past=dict(enumerate(hits)),
        errors=errors,
    )


def _past_candidate(seq: int, hit: Hit) -> Candidate:
    is_message = hit.kind == "message"
    is_question = is_message and hit.text.rstrip()[-1:] in entry_queries.QUESTION_MARKS
    chars = len(hit.text) if is_message else 0
    text = hit.text[: entry_queries.READ_CHARS]
    is_page = hit.document is not None
    return Candidate(seq, hit.kind, hit.id, hit.at, hit.name, "", chars, is_question, text, is_page)


def _vectors_still_valid(
    conn: Connection, embedder: str, hits: Sequence[Hit], entries: Sequence[Candidate]
) -> dict[str, Vector]:
    """Return the stored vectors of hits whose text has not changed since."""
    current = memory_queries.memories_by_id(conn, [hit.id for hit in hits if hit.kind == "memory"])
    unchanged = [
        candidate
        for candidate, hit in zip(entries, hits, strict=True)
        if hit.kind == "message" or current[hit.id].text == hit.text
    ]
    return own_vectors(conn, embedder, unchanged)


def _completed(embedder: Embedder, hits: Sequence[Hit], known: Mapping[str, Vector]) -> dict[str, Vector]:
    """Return the known vectors and those of the last texts that have none, by id. Raises EmbedderError."""
    missing = [hit for hit in hits if hit.id not in known][-MAX_EMBEDDED:]
    embedded = embedder.embed_passages([hit.text for hit in missing]) if missing else ()
    return {**known, **dict(zip([hit.id for hit in missing], embedded, strict=True))}
