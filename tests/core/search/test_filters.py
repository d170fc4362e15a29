"""Filters: every operator and junction, and errors that name what is wrong."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from palimpsest.core.clock import span_of
from palimpsest.core.errors import InputError
from palimpsest.core.filters import MAX_CONDITIONS, MAX_DEPTH, MAX_LISTED_VALUES, OPERATORS, compile_filter

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


def on(key: str, *conditions: Any) -> list[dict[str, Any]]:
    """Return a filter for each condition on a key."""
    return [{key: condition} for condition in conditions]


@pytest.mark.parametrize(
    ("matching", "others"),
    [
        pytest.param(
            on("score", {"eq": 3}, {"ne": 4}, {"gt": 2}, {"gte": 3}, {"lt": 3.5}, {"lte": 3}, {"in": [1, 3]})
            + on("score", {"nin": [1, 2]}, {"nin": []}),
            on("score", {"eq": 4}, {"ne": 3}, {"gt": 3}, {"gte": 3.5}, {"lt": 3}, {"lte": 2}, {"in": [1, 2]})
            + on("score", {"in": []}, {"nin": [1, 3]}),
            id="each operator, just inside and just outside its limit",
        ),
        pytest.param(
            [
                {"team": "red"},
                {"team": {"gte": "r", "lt": "s"}},
                {"ratio": {"gt": 0.4}},
                {},
                {"role": "user", "kind": "memory"},
            ],
            [{"team": "blue"}, {"role": "user", "kind": "message"}],
            id="a plain value means equality, and every key must match",
        ),
        pytest.param(
            on("score", {"gte": 3, "lt": 4}, {"in": [1, 3], "gt": 1}),
            on("score", {"gt": 3, "lt": 4}, {"gte": 1, "lte": 5, "ne": 3}),
            id="several operators on a key must all match",
        ),
        pytest.param(
            [
                {"AND": [{"team": "red"}, {"score": 3}]},
                {"OR": [{"team": "blue"}, {"score": 3}]},
                {"NOT": {"team": "blue"}},
                {"NOT": [{"team": "blue"}, {"score": 4}]},
                {"OR": [{"AND": [{"team": "blue"}]}, {"NOT": {"OR": [{"score": 1}, {"score": 2}]}}]},
                {"role": "user", "OR": [{"score": 1}, {"NOT": {"NOT": {"score": 3}}}]},
                {"NOT": {"score": 3, "team": "blue"}},
            ],
            [
                {"AND": [{"team": "red"}, {"score": 4}]},
                {"OR": [{"team": "blue"}, {"score": 4}]},
                {"NOT": {"team": "red"}},
                {"NOT": [{"team": "blue"}, {"score": 3}]},
                {"role": "assistant", "OR": [{"score": 3}]},
            ],
            id="junctions alone, nested, and next to plain keys",
        ),
        pytest.param(
            [
                *on("tags", "work", {"ne": "health"}, {"in": ["health", "plan"]}, {"nin": ["health"]}),
                {"places": "Lyon"},
            ],
            [*on("tags", "health", {"ne": "work"}, {"nin": ["health", "plan"]}), {"places": {"ne": "Lyon"}}],
            id="one item of a list is enough, and a negation applies to all items",
        ),
        pytest.param(
            on("at", "2026-05-08T12:00:00Z", "2026-05-08T14:00:00+02:00", {"gte": "2026-05-08", "lt": "2026-05-09"})
            + on("at", {"in": ["2026-05-08T12:00:00Z", "2020-01-01"]}, {"nin": ["2020-01-01"]})
            + on("created_at", {"gt": "2026-05-31"}),
            on("at", {"lt": "2026-05-08T12:00:00"}) + on("created_at", {"lte": "2026-05-31"}),
            id="times are instants, and one without a zone is UTC",
        ),
        pytest.param(
            on("at", "2026-05-08", {"gte": "2026-05-08"}, {"gt": "2026-05-07"}, {"lte": "2026-05-08"})
            + on("at", {"in": ["2026-05-01", "2026-05-08"]}, {"gte": "2026-05-08", "lte": "2026-05-08"}),
            on("at", "2026-05-09", {"ne": "2026-05-08"}, {"gt": "2026-05-08"}, {"lt": "2026-05-08"})
            + on("at", {"lte": "2026-05-08T11:59:59"}),
            id="a date means the whole day: noon is within it",
        ),
        pytest.param(
            [{"done": True}, {"score": 3.0}],
            on("done", 1, {"in": [1]}, {"gte": 0}) + on("score", {"gt": False}),
            id="true is not one",
        ),
        pytest.param(
            [*on("absent", {"ne": "x"}, {"nin": ["x"]}), {"none": None}],
            [*on("absent", "x", {"gt": 0}), {"score": {"gt": "2"}}, {"team": {"lt": 9}}],
            id="absent values and values of another type match only negations",
        ),
        pytest.param(
            [
                {"score": {"in": [3.0]}},
                {"done": {"in": [True]}},
                {"none": {"in": [None, 0]}},
                {"places": {"in": ["Lyon"]}},
                {"nested": {"nin": ["x"]}},
            ],
            [{"done": {"in": [1, "yes", None]}}, {"nested": {"in": ["x"]}}],
            id="a list of values compares like its single values, though it is looked up",
        ),
    ],
)
def test_a_filter_matches_what_it_says(matching: list[dict[str, Any]], others: list[dict[str, Any]]) -> None:
    """Guards the meaning of each operator, junction and type of value."""
    assert [filters for filters in matching if not compile_filter(filters)(RECORD)] == []
    assert [filters for filters in others if compile_filter(filters)(RECORD)] == []


def test_metadata_that_is_named_like_a_junction_is_found_by_its_value() -> None:
    """Guards what older versions and imports stored: a junction takes filters, so a plain value means metadata."""
    record = {**RECORD, "metadata": {"not": 1, "or": "red"}}
    assert compile_filter({"not": 1, "or": "red"})(record)
    assert not compile_filter({"not": 2})(record)
    assert not compile_filter({"not": {"or": "red"}})(record)
    with pytest.raises(InputError, match="a filter is an object"):
        compile_filter({"NOT": 1})


def test_tags_come_from_the_model_and_from_the_metadata() -> None:
    """Guards the tags of an agent, which can store them only in the metadata."""
    record = {**RECORD, "metadata": {"tags": ["coding"]}}
    assert [compile_filter({"tags": tag})(record) for tag in ("coding", "work", "music")] == [True, True, False]


@pytest.mark.parametrize(
    ("filters", "expected_words"),
    [
        ({"score": {"contains": 3}}, ["'score'", "'contains'", *OPERATORS]),
        ({"score": {"gte": 1, "GT": 2}}, ["'score'", "'GT'"]),
        ({"score": {"$gt": 2}}, ["'score'", "'$gt'"]),
        ({"AND": [{"OR": [{"team": {"like": "r"}}]}]}, ["'team'", "'like'"]),
        ({"kind": "message", "role": {"is": "user"}}, ["'role'", "'is'"]),
        ({"score": {"in": 3}}, ["'score'", "'in'"]),
        ({"tags": {"nin": "work"}}, ["'tags'", "'nin'"]),
        ({"at": 2026}, ["'at'", "ISO 8601"]),
        ({"at": {"gte": "yesterday"}}, ["'at'", "'yesterday'", "ISO 8601"]),
        ({"created_at": {"in": ["2026-01-01", 5]}}, ["'created_at'", "ISO 8601"]),
        ({"created_at": {"in": "2026-01-01"}}, ["'created_at'", "'in'"]),
        ({"AND": {"score": 3}}, ["AND", "list"]),
        ({"OR": "score"}, ["OR", "list"]),
        ({"AND": ["score"]}, ["object", "str"]),
        ({"NOT": 3}, ["object", "int"]),
    ],
    ids=str,
)
def test_the_error_about_a_wrong_filter_names_the_key(filters: dict[str, Any], expected_words: list[str]) -> None:
    """Guards the error text, which comes before any record is tested: the key, what is wrong, and what is valid."""
    with pytest.raises(InputError) as error:
        compile_filter(filters)
    assert [word for word in expected_words if word not in str(error.value)] == []


def nested(junction: str, depth: int) -> dict[str, Any]:
    """Return a filter of so many levels."""
    filters: dict[str, Any] = {"score": 3}
    for _ in range(depth):
        filters = {junction: [filters]}
    return filters


def conditions(count: int) -> list[dict[str, Any]]:
    """Return filters of one condition each."""
    return [{"score": number} for number in range(count)]


def keys(count: int) -> dict[str, Any]:
    """Return a filter with so many keys."""
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
    compile_filter(largest)
    with pytest.raises(InputError, match=str(limit)):
        compile_filter(too_large)


def test_a_filter_that_is_too_large_is_refused_before_its_parts_are_looked_at() -> None:
    """Guards the server from the work of a filter that is refused anyway."""
    seen: list[str] = []

    class Recorded(dict[str, Any]):
        def items(self) -> Any:
            seen.append("items")
            return super().items()

    with pytest.raises(InputError, match=str(MAX_CONDITIONS)):
        compile_filter({"OR": [Recorded(score=number) for number in range(100_000)]})
    assert len(seen) <= MAX_CONDITIONS + 1
