"""What says most of many texts, without a model."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest

from palimpsest.learn.summaries.extractive import Passage, most_telling

NOW = datetime(2026, 11, 20, tzinfo=UTC)
RECENT: dict[str, Any] = {"now": NOW, "half_life": timedelta(days=90)}
DOG = [
    Passage("Mara has a dog named Rex"),
    Passage("Rex the dog of Mara sleeps in the kitchen"),
    Passage("Mara walks the dog Rex at seven"),
    Passage("The train to Ghent was late"),
]


def old_and_new(old: str, old_days: int, new: str, new_days: int) -> list[Passage]:
    return [Passage(text, NOW - timedelta(days=days)) for text, days in ((old, old_days), (new, new_days))]


FERRY = old_and_new("The ferry leaves at nine", 300, "Tomatoes grow in the yard", 1)
REPEATED = [Passage("Mara has a dog named Rex"), Passage("Mara's dog is named Rex"), Passage("Rain is likely")]
NEAR = np.array([[1.0, 0.0], [0.8, 0.6], [0.6, 0.8], [-1.0, 0.0]], dtype=np.float32)
BY_MEANING = [Passage(text, vector=row) for text, row in zip(("eins", "zwei", "drei", "vier"), NEAR, strict=True)]


@pytest.mark.parametrize(
    ("passages", "tokens", "options", "expected"),
    [
        pytest.param(DOG, 10_000, {}, [0, 3], id="the best comes first, then another subject"),
        pytest.param(DOG, 1, {}, [], id="none fits"),
        pytest.param(BY_MEANING, 1, {}, [1], id="central by meaning where there are vectors"),
        pytest.param(REPEATED, 1_000, {}, [0, 2], id="what repeats a chosen text is left out"),
        pytest.param(
            old_and_new("Mara works at Kisling", 400, "Mara works at the Kisling", 2),
            1_000,
            RECENT,
            [1],
            id="of two that say the same the newer one stays",
        ),
        pytest.param(FERRY, 1_000, {}, [0, 1], id="recency does not count by itself"),
        pytest.param(FERRY, 1_000, RECENT, [1, 0], id="recency counts where it is asked for"),
        pytest.param([FERRY[0], Passage("Tomatoes grow", weight=2.0)], 1_000, {}, [1, 0], id="a heavier text"),
        pytest.param([Passage("Tomatoes grow", tokens=50), Passage("The ferry leaves")], 20, {}, [1], id="a dear line"),
        pytest.param([], 100, RECENT, [], id="nothing of nothing"),
    ],
)
def test_the_most_telling_come_first(
    passages: list[Passage], tokens: int, options: dict[str, Any], expected: list[int]
) -> None:
    assert most_telling(passages, tokens, **options)[:2] == expected


def test_the_most_telling_fit_the_token_count_in_the_same_order_every_time() -> None:
    assert sorted(most_telling(DOG, 10_000)) == [0, 1, 2, 3]
    assert len(most_telling(DOG, 15)) < len(DOG)
    passages = [Passage(f"Sentence {number} about Rex", NOW - timedelta(days=number)) for number in range(40)]
    first = most_telling(passages, 200, **RECENT)
    assert all(most_telling(passages, 200, **RECENT) == first for _ in range(3))
