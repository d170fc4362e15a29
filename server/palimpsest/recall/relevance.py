"""How probable it is that a hit answers the query.

The score orders the candidates of one search, and says little about another: the best of many unrelated texts has a
high score too. So a logistic regression over a few signs of the best candidate says how probable it is that anything
answers (Platt 1999). The signs are those by which a near miss is recognized: a word, a name or a number of
the query that the text lacks, or a "when" without a date.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from palimpsest.core.models import Candidate
from palimpsest.recall.features import CONSTANT, THRESHOLD, Candidates, Column, Ranked
from palimpsest.recall.query import ParsedQuery
from palimpsest.recall.score import CONNECTED, FURTHER_PAGE, SearchScoring, coverage
from palimpsest.text.stopwords import asked_types, can_hold
from palimpsest.text.tokenizer import search_tokens, subject_tokens

DROP, FALL = "drop", "fall"
"""Keys of the fitted numbers besides the signs: how much lower the logit of any other hit is than that of the best one,
and by how much it falls for each point of score below the best one."""

SMALL = "small"
FEW = 4
"""In a memory of so many entries, the signs that depend on its size weigh half of what they do in an empty one. Of four
texts one is the best by chance, and a word that only one of them has is not rare."""

IN_SMALL_MEMORIES = ("score", "highest meaning", "rarest missing word", "coverage", "lead")
"""The signs that depend on how much is stored. Each has a second weight, which fades as the memory grows."""

SMALL_THRESHOLD = "threshold, small"
"""Key of what is added to the threshold in an empty memory; it fades as the memory grows. The threshold is a logit."""

TOP = 3
"""Among so many of the first candidates one may have all the words of what a question is about: as many as are sure to
be shown."""

_NAME = re.compile(r"(?<=\S\s)[^\W\d_][\w'-]*")
_IDENTIFIER = re.compile(r"[\w./:+-]*\d[\w./:+-]*")


@dataclass(frozen=True, slots=True)
class Relevance:
    """The relevance of each ranked candidate, best first, and whether the reply is confident.

    A candidate whose relevance is below `threshold` is a weak match.
    """

    of_hits: Sequence[float]
    confident: bool
    threshold: float = 0.0


def relevance_of(scoring: SearchScoring, candidates: Candidates, ranked: Sequence[Ranked]) -> Relevance:
    """Return the relevance of each ranked candidate, in their order; it never rises from one to the next."""
    if not ranked:
        return Relevance((), confident=False)
    fitted = scoring.weights.relevance[relevance_model(scoring.query, ranked[0].candidate)]
    signs = relevance_features(scoring.query, candidates, ranked)
    logit = fitted[CONSTANT] + sum(fitted.get(name, 0.0) * sign for name, sign in signs.items())
    # A page matches no worse because another page stands above it.
    scores = _scores_without(ranked, FURTHER_PAGE)
    falls = np.maximum.accumulate(fitted[DROP] + fitted[FALL] * (scores[0] - scores))
    falls[0] = 0.0
    of_hits: list[float] = [_probability(value) for value in logit - falls]
    is_complete = bool(candidates.has_vector.all())  # what has no vector yet may answer, and the signs do not see it
    threshold = _probability(fitted[THRESHOLD] + fitted.get(SMALL_THRESHOLD, 0.0) * signs[SMALL])
    confident = of_hits[0] >= threshold or not is_complete or _has_all_words(scoring.query, candidates, ranked)
    return Relevance(of_hits, confident=confident, threshold=threshold)


def relevance_model(query: ParsedQuery, best: Candidate) -> str:
    """Return which of the fitted sets is for a hit: a memory, a message, or a message where the query names a speaker.

    Of the messages of one speaker, the signs say other things than of all that is stored.
    """
    return "speaker" if best.kind == "message" and query.speakers else best.kind


def relevance_features(query: ParsedQuery, candidates: Candidates, ranked: Sequence[Ranked]) -> dict[str, float]:
    """Return the signs that the best candidate answers, or does not, by name."""
    best = ranked[0]
    text = best.candidate.text
    # What others changed says nothing of how well a candidate matches.
    others = _scores_without(ranked, CONNECTED, FURTHER_PAGE)[1:]
    second = float(others.max()) if len(others) else best.score
    rows = [item.row for item in ranked]
    found = frozenset[str]().union(*(candidates.words_in_context[row] for row in rows))
    unknown = [word for word in query.words if word not in found]
    weights = {word: candidates.weights[word] for word in query.words}
    total = sum(weights.values())
    # How rare the rarest word of the query is that the best candidate lacks, from 0 to 1.
    missing = weights.keys() - candidates.words[best.row]
    rarest_missing, rarest = max((weights[word] for word in missing), default=0.0), math.log1p(candidates.collection)
    names = [search_tokens(name) for name in _NAME.findall(query.text) if name[0].isupper()]
    names = [tokens for tokens in names if tokens]
    known, text_words = found | query.names, frozenset(search_tokens(text))
    highest = 0.0
    if candidates.vectors is not None and candidates.queries is not None:
        highest = float((candidates.vectors[rows] @ candidates.queries.T).mean(axis=1).max())
    signs = {
        "highest meaning": highest,
        # Many questions name nobody, and what faded answers as well as before.
        "score": best.score - best.parts.get("speaker", 0.0) - best.parts.get("faded", 0.0),
        "lead": best.score - second,
        "coverage": float(coverage(candidates, query.words)[best.row]),
        "rarest missing word": rarest_missing / rarest if rarest else 0.0,
        "unknown words": sum(weights.get(word, 0.0) for word in unknown) / total if total else 0.0,
        # A capitalized word, not the first, that no candidate has; one that the text has may be all that matches.
        "unknown name": float(any(known.isdisjoint(name) and weights.keys() & set(name) for name in names)),
        "found name": float(any(not text_words.isdisjoint(name) for name in names)),
        "length": math.log1p(len(query.text)),
        "missed number": float(_misses_number(query.text, text)),
        "missed answer": float(_misses_answer(query.text, text)),
    }
    small = 1 / (1 + candidates.collection / FEW)
    return signs | {SMALL: small} | {f"{SMALL}, {name}": small * signs[name] for name in IN_SMALL_MEMORIES}


def _scores_without(ranked: Sequence[Ranked], *parts: str) -> Column:
    """Return the scores of ranked candidates without some of their parts. Shape (n,), in their order."""
    columns, rows = ranked[0].columns, [item.row for item in ranked]
    scores = np.array([item.score for item in ranked])
    return scores - sum(columns[name][rows] for name in parts if name in columns)


def _has_all_words(query: ParsedQuery, candidates: Candidates, ranked: Sequence[Ranked]) -> bool:
    """Return whether one of the first candidates has all that the question is about, and can hold an answer.

    The fitted signs know questions for one thing: to "What do you know about Lina?" each memory of her is an answer,
    and none has the word "know".
    """
    subject = subject_tokens(query.words)
    return bool(subject) and any(
        subject <= candidates.words[item.row]
        and not _misses_number(query.text, item.candidate.text)
        and not _misses_answer(query.text, item.candidate.text)
        for item in ranked[:TOP]
    )


def _misses_number(question: str, text: str) -> bool:
    """Return whether a version, port, code or year of the question is not in the text as it is written."""
    plain = text.casefold()
    numbers = [number.strip(".:-/") for number in _IDENTIFIER.findall(question.casefold())]
    return any(number not in plain for number in numbers)


def _misses_answer(question: str, text: str) -> bool:
    """Return whether the question asks for a number, a time or a person, and the rest of the text can hold none."""
    asked = set(search_tokens(question))
    rest = " ".join(word for word in text.split() if not asked.issuperset(search_tokens(word)))
    return any(not can_hold(rest, kind) for kind in asked_types(question))


def _probability(logit: float) -> float:
    return 1 / (1 + math.exp(-min(max(logit, -30.0), 30.0)))
