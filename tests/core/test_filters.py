"""Filters: every operator and junction, and errors that name what is wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
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


OF_SIZE: dict[str, tuple[Callable[[int], dict[str, Any]], int]] = {
    "depth of AND": (lambda size: nested("AND", size), MAX_DEPTH),
    "of NOT": (lambda size: nested("NOT", size), MAX_DEPTH),
    "junction": (lambda size: {"OR": [{"score": number} for number in range(size)]}, MAX_CONDITIONS),
    "keys": (lambda size: {str(number): 1 for number in range(size)}, MAX_CONDITIONS),
    "empty filters": (lambda size: {"AND": [dict[str, Any]()] * size}, MAX_CONDITIONS),
    "listed values": (lambda size: {"score": {"in": list(range(size))}}, MAX_LISTED_VALUES),
}


def test_the_size_of_a_filter_is_bounded() -> None:
    """Guards the stack, and the time that every record under test takes, whatever form a large filter has."""
    for of_size, limit in OF_SIZE.values():
        Filter.of(of_size(limit))
        with pytest.raises(InputError, match=str(limit)):
            Filter.of(of_size(limit + 1))
