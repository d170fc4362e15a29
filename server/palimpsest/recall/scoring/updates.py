"""Newer candidates before the older ones they replace, and the other way round for questions about the past."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import cast

import numpy as np

from palimpsest.core.search.hits import Candidate
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

SAME_WORDS = 0.65
"""The share of the older one's query words, by weight, that the newer of the two best has at least. Set by hand: with
less in common, the older one often is the only answer."""

CLEAR = 0.5
"""By how much both of the two best score higher than all others, if they stand out. Set by hand."""

IDENTIFYING = 0.55
"""How rare the rarest common word is at least, as a share of the rarity of a word that no text has. Set by hand: a name
that stands in two texts of three, or in every other one, does not say that two texts are about one matter."""

MAX_LEAD = 4.0
"""By how much the older of the two may score higher. Set by hand: what is told in passing is that far below. What is
further below is about something else."""

TINY = 1e-6
"""What is enough to come first."""

HEAD_START = 0.5
"""How far above the newer one the older one rises if the query asks about the past. Set by hand, and small."""

KEPT_TEXTS = 2_048
"""How many texts of candidates, of at most 400 characters each, are kept with their words. The same come up again and
again. Set by hand: two to five megabytes."""


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
    replaces = replacements(query, candidates, rows, replacement)
    lead = scores[rows][np.newaxis, :] - scores[rows][:, np.newaxis]  # by how much the column is above the row
    if query.is_about_the_past:
        features["former"][rows] = (replaces * np.maximum(HEAD_START - lead, 0)).max(axis=0)
    else:
        features["replaced"][rows] = replaces.max(axis=0)
        features["update"][rows] = (replaces * np.maximum(lead, 0)).max(axis=1)
    return features


def newer_of_two(query: ParsedQuery, candidates: Candidates, scores: Column) -> Column:
    """Return what the newer of the two best candidates gains to come first, as a column of shape (n,).

    It gains that only if the two stand out from all others and share words of the query: then they are about one
    matter, however differently they are worded. A fact told in passing is recognized by nothing else.
    """
    gains = np.zeros(len(candidates.entries))
    if query.is_about_the_past or len(scores) < 2:  # noqa: PLR2004 - a pair
        return gains
    older, newer, *others = cast("list[int]", np.argsort(-scores, kind="stable")[:3].tolist())
    lead = scores[older] - scores[newer]
    stands_out = not others or scores[newer] - scores[others[0]] >= CLEAR
    if lead > MAX_LEAD or not stands_out or not _have_common_words(candidates, newer, older):
        return gains
    pair = [newer, older]
    entries = [candidates.entries[row] for row in pair]
    if _may_be_replaced(entries)[0, 1] and not _is_asked_for(query, entries)[0, 1]:
        gains[newer] = lead + TINY
    return gains


def _have_common_words(candidates: Candidates, newer: int, older: int) -> bool:
    weights = candidates.weights
    of_older = weights.keys() & candidates.words[older]
    of_both = of_older & candidates.words[newer]
    rarest = max((weights[word] for word in of_both), default=0.0)
    is_identifying = rarest >= IDENTIFYING * math.log(1 + max(candidates.collection, 1))  # as in `rarity`
    return is_identifying and _weight(weights, of_both) >= SAME_WORDS * _weight(weights, of_older)


def _weight(weights: Mapping[str, float], words: Iterable[str]) -> float:
    return sum(weights[word] for word in words)


def replacements(
    query: ParsedQuery, candidates: Candidates, rows: Sequence[int], replacement: Mapping[str, float]
) -> Matrix:
    """Return the probability that the newer of two candidates replaces the older: shape (m, m) for m rows.

    It is 0 if the query asks for the older one by a number or by its exact words.
    """
    entries = [candidates.entries[row] for row in rows]
    vectors = cast("np.ndarray", candidates.vectors)[list(rows)]
    words = [_words_of(entry.text) for entry in entries]
    is_older = _may_be_replaced(entries)
    texts = [entry.text for entry in entries]
    replaces = replacement_probability(vectors, words, texts, is_older, replacement)
    return np.where(_is_asked_for(query, entries), 0.0, replaces)


def _is_asked_for(query: ParsedQuery, entries: Sequence[Candidate]) -> Matrix:
    """Return for each pair whether the query has a number or exact words of the older one that the newer one lacks."""
    texts = [entry.text for entry in entries]
    is_asked_for = np.zeros((len(entries), len(entries)), dtype=bool)
    for number in query.numbers:
        has_number = np.array([number in _words_of(text) for text in texts])
        is_asked_for |= np.outer(~has_number, has_number)
    asked = same_words_key(query.text)
    if len(asked.split()) >= MIN_EXACT_WORDS or not asked.isascii():
        is_exact = np.array([_has_words(_key_of(text), asked) for text in texts])
        is_asked_for |= np.outer(~is_exact, is_exact)
    return is_asked_for


@lru_cache(maxsize=KEPT_TEXTS)
def _words_of(text: str) -> frozenset[str]:
    return frozenset(search_tokens(text))


@lru_cache(maxsize=KEPT_TEXTS)
def _key_of(text: str) -> str:
    return same_words_key(text)


def _has_words(text: str, asked: str) -> bool:
    """Return whether a text holds words one after the other; whole words, if the script divides them by spaces."""
    return f" {asked} " in f" {text} " if " " in asked else asked in text


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
