"""How well a candidate matches what is asked, from 0 to 1, comparable between searches; and why.

The score orders the candidates of one search and says little about another: the best of many unrelated texts has a high
score, too. So a logistic regression over four signs says how probable it is that a text is about what is asked at all.
That tells questions about something else entirely. Whether a text about the same thing holds the answer cannot be told
from vectors: to "What is Femke's last name?" a text about Femke is as near with the name as without.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from palimpsest.core.models import Entity
from palimpsest.recall.features import CONSTANT, THRESHOLD, Candidates, Column, Ranked, is_fitted, weights_for
from palimpsest.recall.query import ParsedQuery
from palimpsest.recall.score import CONNECTED, EXACT, exact_match
from palimpsest.text.tokenizer import search_tokens, subject_tokens

THRESHOLD_OF_OTHERS = "threshold, with other wordings"
"""The key of the log-odds below which a question with other wordings is about something else. One without has another:
with help the best match is surer."""

SIGNS = ("meaning", "words", "unknown words", "size")

NEAR = 0.4
"""The cosine that a text without a vector is taken to have if it has all words of the question: about that of an
answer."""

MANY = 0.5
"""The share of the words of the question from which on a hit says that it has the same words."""

SUREST = 5.0
"""The highest log-odds of a match, 0.993. It leaves what comes below the best one room to be told from it."""


@dataclass(frozen=True, slots=True)
class Matches:
    """How well the candidates match, by row: 0 for what is not ranked. `has_words`: which have the question's words.

    What matches less than `least` is about something else. `confident` is False if all that is ranked is.
    """

    of_rows: Column
    has_words: Column
    least: float
    confident: bool


def matches(query: ParsedQuery, candidates: Candidates, ranked: Sequence[Ranked], embedder: str) -> Matches:
    """Return how well the ranked candidates match; it never rises from one to the next.

    A candidate that stands above a better match counts as that, for the order knows more than these signs; but below
    the best one by as much as its score is, whose differences are log-odds. If the embedder, given by its fingerprint,
    failed, or is one that the weights were not fitted with, only the words count.
    """
    weights = weights_for(embedder).match
    if candidates.queries is None or not is_fitted(embedder):
        candidates = replace(candidates, vectors=None, has_vector=np.zeros_like(candidates.has_vector))
    columns, rows = signs(query, candidates), [item.row for item in ranked]
    logits = weights[CONSTANT] + sum(weights[name] * columns[name] for name in SIGNS)
    logits = (logits + EXACT * exact_match(query, candidates))[rows]
    logits = np.maximum.accumulate(np.minimum(logits, SUREST)[::-1])[::-1]
    scores = np.array([item.score for item in ranked])
    logits = np.minimum(logits, np.minimum.accumulate(logits[:1].sum() + scores - scores[:1].sum()))
    of_rows = np.zeros(len(candidates.entries))
    of_rows[rows] = 1 / (1 + np.exp(-logits))
    least = 1 / (1 + math.exp(-weights[THRESHOLD_OF_OTHERS if query.also else THRESHOLD]))
    # What has no vector that tells may be about it.
    confident = bool(rows) and bool(of_rows[rows[0]] >= least or not candidates.has_vector.all())
    return Matches(of_rows, columns["words"] >= MANY, least, confident)


def signs(query: ParsedQuery, candidates: Candidates) -> dict[str, Column]:
    """Return what the match is computed from, by name, each of shape (n,).

    `meaning` is the mean of the cosines with the question and with its other wordings, `words` the share of the words
    of the wording that suits a text best, `unknown words` the share of all words that no candidate has, and `size` the
    logarithm of the number of entries.
    """
    weights, own = candidates.weights, set(candidates.words)
    wordings = [subject_tokens(words) or frozenset(words) for words in (query.words, *query.also)]
    shares = {words: max(_share(weights, wording, words) for wording in wordings) for words in own}
    in_words = np.array([shares[words] for words in candidates.words])
    cosines = NEAR * in_words
    if candidates.vectors is not None and candidates.queries is not None:
        question, *others = candidates.queries @ candidates.vectors.T
        meaning = (question + np.mean(others, axis=0)) / 2 if others else question
        cosines = np.where(candidates.has_vector, meaning, cosines)
    known = frozenset[str]().union(*own) | query.names
    unknown = 1 - _share(weights, frozenset(query.all_words), known)
    size = float(np.log(max(candidates.collection, 1)))
    everywhere = np.ones(len(cosines))
    return {"meaning": cosines, "words": in_words, "unknown words": unknown * everywhere, "size": size * everywhere}


def _share(weights: Mapping[str, float], words: frozenset[str], of_text: frozenset[str]) -> float:
    """Return the share of some words of the query that a text has, by weight; from 0 to 1."""
    total = sum(weights[word] for word in words)
    return sum(weights[word] for word in words & of_text) / total if total else 0.0


MAX_REASONS = 2
"""How many reasons a hit has: enough to see how it was found."""


def reasons(
    query: ParsedQuery, candidates: Candidates, item: Ranked, entities: Sequence[Entity], found: Matches
) -> tuple[str, ...]:
    """Return why a candidate was found: what it has in common with the query, the most telling first.

    `entities` are those that the query names.
    """
    parts, words = item.parts, candidates.words[item.row]
    has_number = any(char.isdigit() for part in query.exact_parts for char in part)
    names = {entity.name: frozenset(search_tokens(entity.name)) for entity in entities if not entity.is_user}
    shared = [
        *(["same number" if has_number else "same words"] if parts["exact"] else []),
        *(f"about {name}" for name, tokens in names.items() if tokens and tokens <= words),
        *(["dated"] if parts.get("told") or parts.get("said") else []),
        *(["same words"] if found.has_words[item.row] else []),
        *(["linked"] if parts.get(CONNECTED) else []),
        "same meaning",
    ]
    return tuple(dict.fromkeys(shared))[:MAX_REASONS]
