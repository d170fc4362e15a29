"""Newer candidates before the older ones they replace, and the other way round for questions about the past."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import cast

import numpy as np

from palimpsest.core.models import Candidate
from palimpsest.recall.folding import same_words_key
from palimpsest.recall.query import ParsedQuery
from palimpsest.recall.retrieval.features import Candidates
from palimpsest.recall.scoring.ranking import Column
from palimpsest.recall.scoring.replacement import Matrix, replacement_probability
from palimpsest.text.tokenizer import search_tokens

FIRST = 32
"""How many of the first candidates are compared with each other. An update that is worded differently can be far below
what it replaces. Set by hand."""

MIN_EXACT_WORDS = 3
"""A query of at least this many words that stands in an older text word by word asks for that text. Set by hand: fewer
words stand in many texts by chance."""

SAME_WORDS = 0.8
"""The share of the older one's query words, by weight, that a newer one about the same matter has. Set by hand."""

MIN_COVERAGE = 0.3
"""The share of the query's words that the older one must have, or the words in common are chance. Set by hand."""

MAX_LEAD = 6.0
"""By how much the older one may score higher. Set by hand, because an update in other words can be that far below."""

NOT_UNLIKE = 0.1
"""The smallest cosine of two memories about the same matter. Set by hand, above that of most unrelated ones."""

HEAD_START = 0.5
"""How far above the newer one the older one rises if the query asks about the past. Set by hand, and small."""

PROBABLE = 0.9
"""The probability that the newer of two memories about the same matter replaces the older. Set by hand."""


def order_features(
    query: ParsedQuery, candidates: Candidates, scores: Column, replacement: Mapping[str, float]
) -> dict[str, Column]:
    """Return the features of the order, each of shape (n,).

    `replaced` is the probability that a newer candidate replaces this one, `update` by how much the score of what this
    one replaces is higher, weighted by that probability. If the query asks about the past, both are 0, and `former` is
    by how much the score of what replaces this one is higher.
    """
    features = {name: np.zeros(len(candidates.entries)) for name in ("replaced", "update", "former")}
    rows = cast("list[int]", np.argsort(-scores, kind="stable")[:FIRST].tolist())
    if len(rows) < 2 or candidates.vectors is None:  # noqa: PLR2004 - a pair
        return features
    replaces = replacements(query, candidates, rows, scores, replacement)
    lead = scores[rows][np.newaxis, :] - scores[rows][:, np.newaxis]  # by how much the column is above the row
    if query.is_about_the_past:
        features["former"][rows] = (replaces * np.maximum(HEAD_START - lead, 0)).max(axis=0)
    else:
        features["replaced"][rows] = replaces.max(axis=0)
        features["update"][rows] = (replaces * np.maximum(lead, 0)).max(axis=1)
    return features


def replacements(
    query: ParsedQuery,
    candidates: Candidates,
    rows: Sequence[int],
    scores: Column,
    replacement: Mapping[str, float],
) -> Matrix:
    """Return the probability that the newer of two candidates replaces the older: shape (m, m) for m rows.

    It is 0 if the query asks for the older one by a number or by its exact words.
    """
    entries = [candidates.entries[row] for row in rows]
    vectors = cast("np.ndarray", candidates.vectors)[list(rows)]
    words = [frozenset(search_tokens(entry.text)) for entry in entries]
    is_older = _may_be_replaced(entries)
    texts = [entry.text for entry in entries]
    replaces = replacement_probability(vectors, words, texts, is_older, replacement)
    replaces = np.maximum(replaces, PROBABLE * _same_matter(candidates, rows, scores) * is_older)
    for number in query.numbers:
        has_number = np.array([number in text_words for text_words in words])
        replaces[np.outer(~has_number, has_number)] = 0.0
    asked = same_words_key(query.text)
    if len(asked.split()) >= MIN_EXACT_WORDS or not asked.isascii():
        is_exact = np.array([asked in same_words_key(entry.text) for entry in entries])
        replaces[np.outer(~is_exact, is_exact)] = 0.0
    return replaces


def _same_matter(candidates: Candidates, rows: Sequence[int], scores: Column) -> Matrix:
    """Return 1 for each pair that is about the same matter as far as the query goes, else 0.

    The newer one has nearly all of the query's words that the older one has, is not unlike it, and is not far below it.
    """
    weights = candidates.weights
    has_word = np.array([[word in candidates.words[row] for word in weights] for row in rows], dtype=np.float64)
    of_both = (has_word * list(weights.values())) @ has_word.T
    of_older = of_both.diagonal()[np.newaxis, :]
    vectors = cast("np.ndarray", candidates.vectors)[list(rows)]
    is_close = scores[rows][np.newaxis, :] - scores[rows][:, np.newaxis] < MAX_LEAD
    has_words = (of_older > 0) & (of_older >= MIN_COVERAGE * sum(weights.values()))
    is_same = has_words & (of_both >= SAME_WORDS * of_older) & (vectors @ vectors.T >= NOT_UNLIKE)
    return (is_close & is_same).astype(np.float32)


def _may_be_replaced(entries: Sequence[Candidate]) -> Matrix:
    """Return whether the candidate of a column is older than that of a row: shape (m, m).

    Only candidates of the same sort and person are compared, and none of the same session.
    """
    time_of = {at: place for place, at in enumerate(sorted({entry.at for entry in entries}))}
    times = np.array([time_of[entry.at] for entry in entries])
    people = _numbered([(entry.kind, entry.speaker) for entry in entries])
    sessions = _numbered([entry.session or entry.seq for entry in entries])
    is_older = times[:, np.newaxis] > times[np.newaxis, :]
    is_same_person = people[:, np.newaxis] == people[np.newaxis, :]
    return is_older & is_same_person & (sessions[:, np.newaxis] != sessions[np.newaxis, :])


def _numbered(values: Sequence[Hashable]) -> Column:
    """Return a number for each value that is equal for equal values: shape (m,)."""
    number_of = {value: number for number, value in enumerate(dict.fromkeys(values))}
    return np.array([number_of[value] for value in values])
