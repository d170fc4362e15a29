"""Ranking, as pure functions over numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from datetime import timedelta
from typing import Any

import numpy as np
import pytest

from palimpsest.core.models import Candidate
from palimpsest.recall.features import Candidates, centred, rarity
from palimpsest.recall.ranking import Ranked, rank, squash
from palimpsest.recall.scoring import OUTDATED, SearchScoring
from tests.support.scripted_model import NOW


def test_centring_spreads_out_crowded_vectors() -> None:
    """Centring removes the common component and leaves each vector with length 1."""
    vectors = np.array([[1, 0.1], [1, -0.1]], dtype=np.float32)

    result = centred(vectors, np.array([1, 0], dtype=np.float32))

    np.testing.assert_allclose(result, [[0, 1], [0, -1]], atol=1e-6)
    assert result.dtype == np.float32
    assert float(result[0] @ result[1]) == pytest.approx(-1)


@pytest.mark.parametrize("mean", [None, np.zeros(2, dtype=np.float32)], ids=["none", "zero"])
def test_without_a_mean_only_the_length_changes(mean: np.ndarray | None) -> None:
    """A small collection has no mean yet; its vectors only get length 1."""
    np.testing.assert_allclose(centred(np.array([3, 4], dtype=np.float32), mean), [0.6, 0.8], atol=1e-6)


def test_a_vector_that_equals_the_mean_becomes_zero() -> None:
    """A vector without a direction is similar to nothing, and does not divide by zero."""
    mean = np.array([0.6, 0.8], dtype=np.float32)

    np.testing.assert_array_equal(centred(mean[np.newaxis], mean), [[0, 0]])


def candidate(seq: int, **known: Any) -> Candidate:
    """Return a message of the usual length from this moment."""
    return Candidate(seq, known.pop("kind", "message"), f"id{seq}", known.pop("at", NOW), chars=150, **known)


def ranked(entries: Sequence[Candidate], *, speakers: Set[str] = frozenset(), **features: Any) -> list[Ranked]:
    """Return the candidates of a search, best first."""
    return rank(candidates(entries, **features), SearchScoring(NOW, speakers))


def order(entries: Sequence[Candidate], **features: Any) -> list[int]:
    """Return the numbers of candidates, best first."""
    return [item.candidate.seq for item in ranked(entries, **features)]


def candidates(
    entries: Sequence[Candidate],
    *,
    meaning: Sequence[float] | None = None,
    bm25: Sequence[float] | None = None,
    words: Sequence[set[str]] | None = None,
    weights: Mapping[str, float] | None = None,
    outdated: Set[str] = frozenset(),
) -> Candidates:
    """Return candidates with their features; `meaning` holds cosines with the query."""
    query_vector = vectors = None
    if meaning is not None:
        query_vector = np.array([1, 0], dtype=np.float32)
        vectors = np.array([[cosine, np.sqrt(1 - cosine**2)] for cosine in meaning], dtype=np.float32)
    return Candidates(
        entries,
        vectors,
        np.full(len(entries), vectors is not None),
        query_vector,
        np.array(bm25 or [0.0] * len(entries), dtype=np.float32),
        words or [set[str]() for _ in entries],
        weights or {},
        outdated,
    )


THREE = [candidate(1), candidate(2), candidate(3)]


def test_a_match_in_meaning_and_in_words_comes_first() -> None:
    """The score is a sum: the best match in both beats the best match in one."""
    words = [{"tea"}, {"tea", "green"}, set[str]()]
    numbers = order(THREE, meaning=[0.9, 0.8, 0.1], bm25=[1.0, 3.0, 0.0], words=words, weights={"tea": 1, "green": 2})
    assert numbers == [2, 1, 3]


def test_a_score_is_the_sum_of_its_parts() -> None:
    """The explanation of a score is what the score was made of."""
    words = [{"tea"}, set[str](), {"green"}]
    features = {"meaning": [0.2, 0.8, 0.1], "bm25": [1.0, 0.0, 2.0], "weights": {"tea": 1, "green": 2}}
    for item in ranked(THREE, words=words, outdated={"id2"}, speakers={"Ana"}, **features):
        assert item.score == pytest.approx(sum(item.parts.values()), abs=1e-5)
        assert item.parts["outdated"] == (-OUTDATED if item.candidate.seq == 2 else 0)


def test_common_words_do_not_count_if_no_candidate_has_many_of_them() -> None:
    """A query in other words is answered by meaning: one word in common with another memory is chance."""
    few = {"meeting": 1.0, "retreat": 4.0}
    assert order(THREE[:2], meaning=[0.9, 0.2], bm25=[0.0, 1.0], words=[set(), {"meeting"}], weights=few) == [1, 2]
    much = {"meeting": 4.0, "retreat": 1.0}
    assert order(THREE[:2], meaning=[0.9, 0.2], bm25=[0.0, 1.0], words=[set(), {"meeting"}], weights=much) == [2, 1]


@pytest.mark.parametrize("meaning", [None, [0.5, 0.5, 0.5]], ids=["no vectors", "all alike"])
def test_equal_candidates_are_ordered_by_number(meaning: list[float] | None) -> None:
    """Equal scores do not divide by zero, and neither does a search while the embedder is down."""
    assert order(THREE, meaning=meaning) == [1, 2, 3]
    assert order([], meaning=[]) == []


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"speaker": "Ana"}, {"speaker": "Ben"}),
        ({"speaker": "Ana", "kind": "memory"}, {"speaker": "Ben", "kind": "memory"}),
        ({}, {"is_question": True}),
        ({"at": NOW - timedelta(days=1)}, {"at": NOW - timedelta(days=400)}),
    ],
    ids=["who is asked about", "whom a memory is about", "an answer before a question", "the newer"],
)
def test_of_two_similar_candidates_one_comes_first(first: dict[str, Any], second: dict[str, Any]) -> None:
    """Each property besides likeness counts by itself."""
    assert order([candidate(1, **second), candidate(2, **first)], speakers={"Ana"}) == [2, 1]


def test_a_sentence_comes_before_a_greeting() -> None:
    """A message that says next to nothing loses score. A memory is short by nature and does not."""
    greeting, sentence = candidate(1)._replace(chars=12), candidate(2)
    assert order([greeting, sentence]) == [2, 1]
    memory = greeting._replace(kind="memory", chars=0)
    assert ranked([memory])[0].parts["length"] == 0


def test_a_candidate_of_a_relevant_session_comes_first() -> None:
    """Of two similar messages, the one whose session is about the subject comes first."""
    messages = [
        candidate(1, session="b"),
        candidate(2, session="a"),
        candidate(3, session="a"),
        candidate(4, session="b"),
    ]
    assert order(messages, meaning=[0.5, 0.5, 0.9, 0.1])[:2] == [3, 2]


def test_rare_words_weigh_more() -> None:
    """The inverse document frequency is highest for a word that occurs nowhere."""
    weights = rarity({"the": 90, "tea": 3}, ["the", "tea", "samovar"], 100)
    assert 0 < weights["the"] < weights["tea"] < weights["samovar"]
    assert rarity({}, ["tea"], 0)["tea"] > 0


def test_squashing_keeps_the_order_between_zero_and_one() -> None:
    """Scores in a reply lie between 0 and 1, in the order of the scores before."""
    scores = [squash(score) for score in (-30.0, -2.0, -0.1, 0.0, 0.1, 2.0, 30.0)]

    assert scores == sorted(scores)
    assert len(set(scores)) == len(scores)
    assert all(0 < score < 1 for score in scores)
    assert squash(0) == 0.5
