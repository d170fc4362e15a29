"""Filters: every operator and junction, and errors that name what is wrong."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from palimpsest.core.clock import span_of
from palimpsest.core.errors import InputError
from palimpsest.core.filters import MAX_CONDITIONS, MAX_DEPTH, MAX_LISTED_VALUES, Filter

RECORD: dict[str, Any] = {
    "at": span_of(datetime(2026, 5, 8, 12, tzinfo=UTC), ""),
    "created_at": span_of(datetime(2026, 6, 1, tzinfo=UTC), ""),
    "role": "user",
    "kind": "memory",
    "tags": ("work", "plan"),
    "metadata": {
        "score": 3,
        "ratio": 0.5,
        "done": True,
        "team": "red",
        "places": ["Nice", "Lyon"],
        "none": None,
        "nested": {"a": 1},
    },
}


CASES = json.loads((Path(__file__).parent / "filters.json").read_text("utf-8"))


@pytest.mark.parametrize("case", CASES["cases"], ids=lambda case: case["case"])
def test_a_filter_matches_what_it_says(case: dict[str, Any]) -> None:
    assert [filters for filters in case["matching"] if not Filter.of(filters).matches(RECORD)] == []
    assert [filters for filters in case["others"] if Filter.of(filters).matches(RECORD)] == []


def test_tags_come_from_the_model_and_from_the_metadata() -> None:
    """Guards the tags of an agent, which can store them only in the metadata."""
    record = {**RECORD, "metadata": {"tags": ["coding"]}}
    assert [Filter.of({"tags": tag}).matches(record) for tag in ("coding", "work", "music")] == [True, True, False]


@pytest.mark.parametrize(("filters", "expected_words"), CASES["errors"], ids=str)
def test_the_error_about_a_wrong_filter_names_the_key(filters: dict[str, Any], expected_words: list[str]) -> None:
    with pytest.raises(InputError) as error:
        Filter.of(filters)
    assert [word for word in expected_words if word not in str(error.value)] == []


def nested(junction: str, depth: int) -> dict[str, Any]:
    filters: dict[str, Any] = {"score": 3}
    for _ in range(depth):
        filters = {junction: [filters]}
    return filters


def conditions(count: int) -> list[dict[str, Any]]:
    return [{"score": number} for number in range(count)]


def keys(count: int) -> dict[str, Any]:
    return {str(number): 1 for number in range(count)}


NO_FILTER: dict[str, Any] = {}
LISTED = {"score": {"in": list(range(MAX_LISTED_VALUES))}}


@pytest.mark.parametrize(
    ("largest", "too_large", "limit"),
    [
        *((nested(name, MAX_DEPTH), nested(name, MAX_DEPTH + 1), MAX_DEPTH) for name in ("AND", "OR", "NOT")),
        ({"OR": conditions(MAX_CONDITIONS)}, {"OR": conditions(MAX_CONDITIONS + 1)}, MAX_CONDITIONS),
        (keys(MAX_CONDITIONS), keys(MAX_CONDITIONS + 1), MAX_CONDITIONS),
        (LISTED, {"AND": [LISTED, {"score": {"nin": [1]}}]}, MAX_LISTED_VALUES),
        ({"AND": [NO_FILTER] * MAX_CONDITIONS}, {"AND": [NO_FILTER] * (MAX_CONDITIONS + 1)}, MAX_CONDITIONS),
        ({"NOT": conditions(MAX_CONDITIONS)}, {"NOT": conditions(MAX_CONDITIONS), "team": "red"}, MAX_CONDITIONS),
    ],
    ids=["depth of AND", "of OR", "of NOT", "junction", "keys", "listed values", "empty filters", "junction and key"],
)
def test_the_size_of_a_filter_is_bounded(largest: dict[str, Any], too_large: dict[str, Any], limit: int) -> None:
    """Guards the stack, and the time that every record under test takes, whatever form a large filter has."""
    Filter.of(largest)
    with pytest.raises(InputError, match=str(limit)):
        Filter.of(too_large)
