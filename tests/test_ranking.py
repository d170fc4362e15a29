"""Ranking: fusion, boosts, folding and the budget, as pure functions over numbers and hits."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import numpy as np
import pytest

from palimpsest.ranking import (
    NAME_BOOST,
    OUTDATED_PENALTY,
    RECENCY_BOOST,
    RECENCY_DAYS,
    Signals,
    bm25,
    boost,
    centred,
    fold,
    fuse,
    hit_tokens,
    nearest,
    squash,
    within_budget,
)
from palimpsest.records import Hit
from scripted import NOW


def hit(hit_id: str, text: str = "tea", sources: Sequence[str] = ()) -> Hit:
    """Return a hit with an id, a text and the messages behind it."""
    return Hit(hit_id, "memory", text, 0.5, NOW, NOW, NOW, origins=tuple(sources))


def in_order(scores: dict[int, float]) -> list[int]:
    """Return the candidates, best first."""
    return sorted(scores, key=lambda unit: -scores[unit])


def test_centring_spreads_what_is_crowded() -> None:
    """Guards the common component: taken out, each vector of length 1 again."""
    vectors = np.array([[1, 0.1], [1, -0.1]], dtype=np.float32)

    found = centred(vectors, np.array([1, 0], dtype=np.float32))

    np.testing.assert_allclose(found, [[0, 1], [0, -1]], atol=1e-6)
    assert found.dtype == np.float32
    assert float(found[0] @ found[1]) == pytest.approx(-1)


@pytest.mark.parametrize("mean", [None, np.zeros(2, dtype=np.float32)], ids=["none", "zero"])
def test_without_a_mean_only_the_length_changes(mean: np.ndarray | None) -> None:
    """Guards small collections, which have no mean of their own yet, and a single vector."""
    np.testing.assert_allclose(centred(np.array([3, 4], dtype=np.float32), mean), [0.6, 0.8], atol=1e-6)


def test_a_vector_that_is_the_mean_becomes_none() -> None:
    """Guards against a division by zero: nothing is left of it, and nothing is like it."""
    mean = np.array([0.6, 0.8], dtype=np.float32)

    np.testing.assert_array_equal(centred(mean[np.newaxis], mean), [[0, 0]])


def test_the_nearest_are_found_by_dot_product() -> None:
    """Guards the exact index: best first, bounded, ties in the order given."""
    keys = np.array([[1, 0], [0, 1], [0.6, 0.8], [0, 1]], dtype=np.float32)

    found = nearest([10, 20, 30, 40], keys, np.array([0, 1], dtype=np.float32), 3)

    assert list(found) == [20, 40, 30]
    assert found[30] == pytest.approx(0.8)
    assert nearest([], np.zeros((0, 2), dtype=np.float32), np.array([0, 1], dtype=np.float32), 3) == {}


def test_what_both_searches_find_comes_first() -> None:
    """Guards fusion: the best of both beats the best of one."""
    scores = fuse({1: 0.9, 2: 0.8, 3: 0.1}, {1: 0.5, 2: 7.0, 3: 0.4}, [1, 2, 3])

    assert in_order(scores) == [2, 1, 3]


def test_each_search_counts_by_its_own_spread() -> None:
    """Guards against scores of different size: cosines and BM25 weigh the same after normalizing."""
    small = fuse({1: 0.2, 2: 0.1}, {1: 1.0, 2: 2.0}, [1, 2])
    large = fuse({1: 0.2, 2: 0.1}, {1: 1000.0, 2: 2000.0}, [1, 2])

    assert small == pytest.approx(large, abs=1e-6)
    assert small[1] == pytest.approx(small[2], abs=1e-6)


@pytest.mark.parametrize(
    ("dense", "lexical"),
    [({1: 0.9, 2: 0.5}, {1: 3.0, 2: 1.0}), ({1: 0.9}, {1: 3.0, 2: 1.0}), ({1: 0.9, 2: 0.5}, {1: 3.0}), ({}, {1: 3.0})],
    ids=["both", "no vector", "no word", "words only"],
)
def test_a_candidate_missing_from_a_search_is_lowest_there(dense: dict[int, float], lexical: dict[int, float]) -> None:
    """Guards candidates only one search found: ranked, below what the other search found too."""
    scores = fuse(dense, lexical, [1, 2])

    assert in_order(scores) == [1, 2]


def test_missing_is_not_better_than_a_negative_score() -> None:
    """Guards cosines below zero: a candidate without one must not pass one that has it."""
    scores = fuse({1: 0.5, 2: -0.2}, {}, [1, 2, 3])

    assert scores[2] >= scores[3]


def test_scores_without_a_spread_decide_nothing() -> None:
    """Guards against noise blown up by a division: equal scores leave it to the other search."""
    scores = fuse({1: 0.7, 2: 0.7, 3: 0.7}, {1: 1.0, 2: 3.0, 3: 2.0}, [1, 2, 3])

    assert in_order(scores) == [2, 3, 1]
    assert fuse({1: 0.7, 2: 0.7}, {}, [1, 2]) == {1: 0.0, 2: 0.0}


def test_one_candidate_or_none_is_fused() -> None:
    """Guards the smallest stores: no spread, no warning, no error."""
    assert fuse({1: 0.9}, {1: 5.0}, [1]) == {1: 0.0}
    assert fuse({1: 0.9}, {}, []) == {}


@pytest.mark.parametrize(
    ("signal", "gain"),
    [
        (Signals(), 0.0),
        (Signals(names_speaker=True), NAME_BOOST),
        (Signals(outdated=True), -OUTDATED_PENALTY),
        (Signals(names_speaker=True, outdated=True), NAME_BOOST - OUTDATED_PENALTY),
        (Signals(at=NOW), RECENCY_BOOST),
        (Signals(at=NOW + timedelta(days=30)), RECENCY_BOOST),
        (Signals(at=NOW - timedelta(days=RECENCY_DAYS)), RECENCY_BOOST * 0.367879),
        (Signals(at=NOW - timedelta(days=36_500)), 0.0),
    ],
    ids=["none", "speaker", "outdated", "both", "now", "to come", "a year", "a century"],
)
def test_signals_add_their_gain(signal: Signals, gain: float) -> None:
    """Guards each boost: the speaker's name, what is outdated, and how long ago; what is to come counts as now."""
    assert boost(signal, NOW) == pytest.approx(gain, abs=1e-6)


def test_recency_only_breaks_ties() -> None:
    """Guards recall of old facts: age alone never outweighs a name, and never a text that is outdated."""
    new, old = Signals(at=NOW), Signals(at=NOW - timedelta(days=4_000))

    assert boost(new, NOW) > boost(old, NOW)
    assert boost(new, NOW) < boost(Signals(names_speaker=True, at=old.at), NOW)
    assert boost(Signals(outdated=True, at=new.at), NOW) < boost(old, NOW)


def test_squashing_keeps_the_order_between_zero_and_one() -> None:
    """Guards the score in the reply."""
    scores = [squash(score) for score in (-30.0, -2.0, -0.1, 0.0, 0.1, 2.0, 30.0)]

    assert scores == sorted(scores)
    assert len(set(scores)) == len(scores)
    assert all(0 < score < 1 for score in scores)
    assert squash(0) == 0.5


def test_rare_words_count_more_and_long_texts_less() -> None:
    """Guards BM25: rarity, saturation and length."""
    documents = [["tea"], ["tea", "cat"], ["tea", "tea", "tea"], ["tea", *["filler"] * 30], ["dog"]]

    tea = bm25(documents, {"tea"})

    assert tea[4] == 0
    assert tea[0] > tea[3] > 0
    assert tea[2] < 3 * tea[0]
    assert bm25(documents, {"cat"})[1] > tea[1]
    assert bm25(documents, {"tea", "cat"})[1] == pytest.approx(tea[1] + bm25(documents, {"cat"})[1])


@pytest.mark.parametrize(
    ("documents", "query", "expected"),
    [
        (list[list[str]](), {"tea"}, list[float]()),
        ([["tea"]], set[str](), [0.0]),
        ([list[str](), list[str]()], {"tea"}, [0.0, 0.0]),
        ([["tea"]], {"cat"}, [0.0]),
    ],
    ids=["no documents", "no query", "empty documents", "no match"],
)
def test_bm25_of_nothing_is_nothing(documents: list[list[str]], query: set[str], expected: list[float]) -> None:
    """Guards the empty cases against a division by zero."""
    assert bm25(documents, query) == expected


def test_hits_that_only_repeat_are_folded() -> None:
    """Guards the budget: a hit goes when every message behind it is behind hits above it, and only then."""
    hits = [
        hit("a", sources=["1", "2"]),
        hit("b", sources=["2"]),
        hit("c", sources=["2", "3"]),
        hit("d", sources=["3"]),
    ]

    assert [each.id for each in fold(hits)] == ["a", "c"]


def test_hits_without_sources_are_never_folded() -> None:
    """Guards memories in the caller's own words, which no message is behind."""
    assert [each.id for each in fold([hit("a"), hit("b"), hit("c", sources=["1"]), hit("d")])] == ["a", "b", "c", "d"]
    assert fold([]) == []


def test_a_hit_too_long_is_passed_over() -> None:
    """Guards the budget: the next shorter hit still gets in, and the sum stays within."""
    hits = [hit("a", "x" * 40), hit("b", "x" * 4_000), hit("c", "x" * 40)]
    budget = hit_tokens(hits[0]) + hit_tokens(hits[2])

    assert [each.id for each in within_budget(hits, 10, budget)] == ["a", "c"]
    assert [each.id for each in within_budget(hits, 10, budget - 1)] == ["a"]


@pytest.mark.parametrize(
    ("limit", "max_tokens", "expected"), [(2, 10_000, 2), (0, 10_000, 0), (10, 0, 0), (10, 10_000, 3)]
)
def test_limit_and_budget_both_bound(limit: int, max_tokens: int, expected: int) -> None:
    """Guards both bounds of a reply at their ends."""
    assert len(within_budget([hit("a"), hit("b"), hit("c")], limit, max_tokens)) == expected


def test_a_hit_costs_its_text_and_its_line() -> None:
    """Guards the estimate: even an empty text costs the id and the date beside it."""
    assert 0 < hit_tokens(hit("a", "")) < hit_tokens(hit("a", "x" * 40)) == hit_tokens(hit("b", "x" * 40))
