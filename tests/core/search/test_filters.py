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
    "metadata": {"score": 3, "ratio": 0.5, "done": True, "team": "red", "places": ["Nice", "Lyon"], "none": None},
}


def matches(filters: dict[str, Any]) -> bool:
    """Return whether the record matches a filter."""
    return compile_filter(filters)(RECORD)


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ({"eq": 3}, True),
        ({"eq": 4}, False),
        ({"ne": 4}, True),
        ({"ne": 3}, False),
        ({"gt": 2}, True),
        ({"gt": 3}, False),
        ({"gte": 3}, True),
        ({"gte": 3.5}, False),
        ({"lt": 3.5}, True),
        ({"lt": 3}, False),
        ({"lte": 3}, True),
        ({"lte": 2}, False),
        ({"in": [1, 3]}, True),
        ({"in": [1, 2]}, False),
        ({"in": []}, False),
        ({"nin": [1, 2]}, True),
        ({"nin": [1, 3]}, False),
        ({"nin": []}, True),
    ],
    ids=str,
)
def test_every_operator_compares_a_number(condition: dict[str, Any], *, expected: bool) -> None:
    """Guards the meaning of each operator, just inside and just outside its limit."""
    assert matches({"score": condition}) is expected


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({"team": "red"}, True),
        ({"team": "blue"}, False),
        ({"team": {"gte": "r", "lt": "s"}}, True),
        ({"ratio": {"gt": 0.4}}, True),
        ({"role": "user", "kind": "memory"}, True),
        ({"role": "user", "kind": "message"}, False),
        ({}, True),
    ],
    ids=str,
)
def test_plain_values_mean_equality_and_every_key_must_match(filters: dict[str, Any], *, expected: bool) -> None:
    """Guards the short form, the order of texts, and that a record must match every key."""
    assert matches(filters) is expected


def test_metadata_that_is_named_like_a_junction_is_found_by_its_value() -> None:
    """Guards what older versions and imports stored: a junction takes filters, so a plain value means metadata."""
    record = {**RECORD, "metadata": {"not": 1, "or": "red"}}
    assert compile_filter({"not": 1, "or": "red"})(record)
    assert not compile_filter({"not": 2})(record)
    assert not compile_filter({"not": {"or": "red"}})(record)
    with pytest.raises(InputError, match="a filter is an object"):
        compile_filter({"NOT": 1})


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ({"gte": 3, "lt": 4}, True),
        ({"gt": 3, "lt": 4}, False),
        ({"gte": 1, "lte": 5, "ne": 3}, False),
        ({"in": [1, 3], "gt": 1}, True),
    ],
    ids=str,
)
def test_several_operators_on_a_key_must_all_match(condition: dict[str, Any], *, expected: bool) -> None:
    """Guards ranges: no operator overwrites another on the same key."""
    assert matches({"score": condition}) is expected


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({"AND": [{"team": "red"}, {"score": 3}]}, True),
        ({"AND": [{"team": "red"}, {"score": 4}]}, False),
        ({"OR": [{"team": "blue"}, {"score": 3}]}, True),
        ({"OR": [{"team": "blue"}, {"score": 4}]}, False),
        ({"NOT": {"team": "blue"}}, True),
        ({"NOT": {"team": "red"}}, False),
        ({"NOT": [{"team": "blue"}, {"score": 4}]}, True),
        ({"NOT": [{"team": "blue"}, {"score": 3}]}, False),
        ({"OR": [{"AND": [{"team": "blue"}]}, {"NOT": {"OR": [{"score": 1}, {"score": 2}]}}]}, True),
        ({"role": "user", "OR": [{"score": 1}, {"NOT": {"NOT": {"score": 3}}}]}, True),
        ({"role": "assistant", "OR": [{"score": 3}]}, False),
        ({"NOT": {"score": 3, "team": "blue"}}, True),
    ],
    ids=str,
)
def test_junctions_nest_freely(filters: dict[str, Any], *, expected: bool) -> None:
    """Guards AND, OR and NOT: alone, nested, and next to plain keys."""
    assert matches(filters) is expected


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({"tags": "work"}, True),
        ({"tags": "health"}, False),
        ({"tags": {"ne": "work"}}, False),
        ({"tags": {"ne": "health"}}, True),
        ({"tags": {"in": ["health", "plan"]}}, True),
        ({"tags": {"nin": ["health", "plan"]}}, False),
        ({"tags": {"nin": ["health"]}}, True),
        ({"places": "Lyon"}, True),
        ({"places": {"ne": "Lyon"}}, False),
    ],
    ids=str,
)
def test_a_list_is_tested_by_its_items(filters: dict[str, Any], *, expected: bool) -> None:
    """Guards tags and lists in metadata: one matching item is enough, and a negation applies to all items."""
    assert matches(filters) is expected


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({"at": "2026-05-08T12:00:00Z"}, True),
        ({"at": "2026-05-08T14:00:00+02:00"}, True),
        ({"at": {"gte": "2026-05-08", "lt": "2026-05-09"}}, True),
        ({"at": {"lt": "2026-05-08T12:00:00"}}, False),
        ({"at": {"in": ["2026-05-08T12:00:00Z", "2020-01-01"]}}, True),
        ({"at": {"nin": ["2020-01-01"]}}, True),
        ({"created_at": {"gt": "2026-05-31"}}, True),
        ({"created_at": {"lte": "2026-05-31"}}, False),
    ],
    ids=str,
)
def test_times_are_compared_as_instants(filters: dict[str, Any], *, expected: bool) -> None:
    """Guards time zones: a time without a zone is UTC, and the same instant in another zone is equal."""
    assert matches(filters) is expected


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({"done": True}, True),
        ({"done": 1}, False),
        ({"done": {"in": [1]}}, False),
        ({"done": {"gte": 0}}, False),
        ({"score": {"gt": False}}, False),
        ({"score": 3.0}, True),
    ],
    ids=str,
)
def test_true_is_not_one(filters: dict[str, Any], *, expected: bool) -> None:
    """Guards metadata against Python's equality of booleans and numbers."""
    assert matches(filters) is expected


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({"absent": "x"}, False),
        ({"absent": {"ne": "x"}}, True),
        ({"absent": {"nin": ["x"]}}, True),
        ({"absent": {"gt": 0}}, False),
        ({"none": None}, True),
        ({"score": {"gt": "2"}}, False),
        ({"team": {"lt": 9}}, False),
    ],
    ids=str,
)
def test_absent_values_and_values_of_another_type_do_not_match(filters: dict[str, Any], *, expected: bool) -> None:
    """Guards records without the key, and texts compared with numbers: they do not match and raise no error."""
    assert matches(filters) is expected


@pytest.mark.parametrize(
    ("filters", "expected_words"),
    [
        ({"score": {"contains": 3}}, ["'score'", "'contains'", *OPERATORS]),
        ({"score": {"gte": 1, "GT": 2}}, ["'score'", "'GT'"]),
        ({"score": {"$gt": 2}}, ["'score'", "'$gt'"]),
        ({"AND": [{"OR": [{"team": {"like": "r"}}]}]}, ["'team'", "'like'"]),
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
    """Guards the error text: it names the key, what is wrong with it, and what is valid."""
    with pytest.raises(InputError) as error:
        compile_filter(filters)

    assert [word for word in expected_words if word not in str(error.value)] == []


@pytest.mark.parametrize("junction", ["AND", "OR", "NOT"])
def test_nesting_has_a_limit(junction: str) -> None:
    """Guards the stack: the deepest allowed filter is accepted, and one level more is refused."""
    filters: dict[str, Any] = {"score": 3}
    for _ in range(MAX_DEPTH):
        filters = {junction: [filters]}

    compile_filter(filters)
    with pytest.raises(InputError, match=str(MAX_DEPTH)):
        compile_filter({junction: [filters]})


def test_a_filter_is_checked_before_any_record_is_seen() -> None:
    """Guards empty stores: a wrong filter is an error even if there is no record to test."""
    with pytest.raises(InputError, match="'role'"):
        compile_filter({"kind": "message", "role": {"is": "user"}})


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("2026-05-08", True),
        ("2026-05-09", False),
        ({"ne": "2026-05-08"}, False),
        ({"gte": "2026-05-08"}, True),
        ({"gt": "2026-05-08"}, False),
        ({"gt": "2026-05-07"}, True),
        ({"lte": "2026-05-08"}, True),
        ({"lt": "2026-05-08"}, False),
        ({"in": ["2026-05-01", "2026-05-08"]}, True),
        ({"gte": "2026-05-08", "lte": "2026-05-08"}, True),
        ({"lte": "2026-05-08T11:59:59"}, False),
        ("2026-05-08T12:00:00Z", True),
    ],
    ids=str,
)
def test_a_date_means_the_whole_day(condition: Any, *, expected: bool) -> None:
    """Guards agents, which see dates and send dates back: noon is within its day."""
    assert matches({"at": condition}) is expected


def test_tags_come_from_the_model_and_from_the_metadata() -> None:
    """Guards the tags of an agent, which can store them only in the metadata."""
    record = {**RECORD, "metadata": {"tags": ["coding"]}}
    for tag in ("coding", "work"):
        assert compile_filter({"tags": tag})(record)
    assert not compile_filter({"tags": "music"})(record)


NO_FILTER: dict[str, Any] = {}


def conditions(count: int) -> list[dict[str, Any]]:
    """Return filters of one condition each."""
    return [{"score": number} for number in range(count)]


@pytest.mark.parametrize(
    ("largest", "too_large", "limit"),
    [
        ({"OR": conditions(MAX_CONDITIONS)}, {"OR": conditions(MAX_CONDITIONS + 1)}, MAX_CONDITIONS),
        (
            {str(number): 1 for number in range(MAX_CONDITIONS)},
            {str(number): 1 for number in range(MAX_CONDITIONS + 1)},
            MAX_CONDITIONS,
        ),
        (
            {"score": {"in": list(range(MAX_LISTED_VALUES))}},
            {"AND": [{"score": {"in": list(range(MAX_LISTED_VALUES))}}, {"score": {"nin": [1]}}]},
            MAX_LISTED_VALUES,
        ),
        ({"AND": [NO_FILTER] * MAX_CONDITIONS}, {"AND": [NO_FILTER] * (MAX_CONDITIONS + 1)}, MAX_CONDITIONS),
        ({"NOT": conditions(MAX_CONDITIONS)}, {"NOT": conditions(MAX_CONDITIONS), "team": "red"}, MAX_CONDITIONS),
    ],
    ids=["junction", "keys", "listed values", "empty filters", "junction and key"],
)
def test_the_size_of_a_filter_is_bounded(largest: dict[str, Any], too_large: dict[str, Any], limit: int) -> None:
    """Guards the time that every record under test takes, whatever form a large filter has."""
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


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({"score": {"in": [3.0]}}, True),
        ({"done": {"in": [True]}}, True),
        ({"done": {"in": [1, "yes", None]}}, False),
        ({"none": {"in": [None, 0]}}, True),
        ({"places": {"in": ["Lyon"]}}, True),
        ({"nested": {"in": ["x"]}}, False),
        ({"nested": {"nin": ["x"]}}, True),
    ],
    ids=str,
)
def test_a_list_of_values_compares_like_its_single_values(filters: dict[str, Any], *, expected: bool) -> None:
    """Guards `in` and `nin`, which look values up instead of comparing one by one."""
    record = {**RECORD, "metadata": {**RECORD["metadata"], "nested": {"a": 1}}}
    assert compile_filter(filters)(record) is expected
