"""Filters on hits and memories: checked once, then a plain test over a record.

A filter is `{"key": value}` or `{"key": {"gte": …, "lt": …}}`, several keys and operators meaning all of them,
with `AND`, `OR` (lists of filters) and `NOT` (a filter or a list) nested freely. The same filter means the same
on every store, because it is evaluated here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, TypeAlias, cast

from palimpsest.core.clock import is_day, last_instant, parse_instant
from palimpsest.core.errors import InputError

Record: TypeAlias = Mapping[str, Any]
"""What is tested: `at`, `created_at`, `role`, `kind`, `tags`, and `metadata` with the caller's own keys."""

Test: TypeAlias = Callable[[Record], bool]

OPERATORS = ("eq", "ne", "gt", "gte", "lt", "lte", "in", "nin")
TIMES = ("at", "created_at")
FIELDS = (*TIMES, "role", "kind", "tags")
KINDS = ("memory", "message")
SCOPE_PARTS = ("user_id", "project", "agent_id", "run_id")
JUNCTIONS = ("AND", "OR", "NOT")
RESERVED = (*(name for name in FIELDS if name != "tags"), *SCOPE_PARTS, *JUNCTIONS)
"""What no metadata may be called, for no filter would find it; its tags are looked at with a memory's own."""
MAX_DEPTH = 10


def compile_filter(filters: Mapping[str, Any]) -> Test:
    """Return the test a filter stands for. Raises InputError naming the key or operator that is wrong."""
    return _all_of(filters, 0)


def _all_of(filters: Any, depth: int) -> Test:
    if not isinstance(filters, Mapping):
        raise InputError(f'a filter is an object such as {{"role": "user"}}, not {type(filters).__name__}')
    if depth > MAX_DEPTH:
        raise InputError(f"the filters are nested more than {MAX_DEPTH} deep")
    tests = [
        _junction(key.upper(), value, depth) if key.upper() in JUNCTIONS else _condition(key, value)
        for key, value in cast("Mapping[str, Any]", filters).items()
    ]
    return lambda record: all(test(record) for test in tests)


def _junction(word: str, value: Any, depth: int) -> Test:
    parts = cast("list[Any]", value) if isinstance(value, list) else [value]
    if word != "NOT" and not isinstance(value, list):
        raise InputError(f"{word} wants a list of filters")
    tests = [_all_of(part, depth + 1) for part in parts]
    if word == "AND":
        return lambda record: all(test(record) for test in tests)
    if word == "OR":
        return lambda record: any(test(record) for test in tests)
    return lambda record: not any(test(record) for test in tests)


def _condition(key: str, value: Any) -> Test:
    if key in SCOPE_PARTS:
        raise InputError(f"'{key}' is no filter; give it in scope")
    if not isinstance(value, Mapping):
        value = {"eq": value}
    if not value:
        raise InputError(f"the filter on '{key}' is empty; give it a value, or an operator such as {{\"gte\": …}}")
    tests: list[Test] = []
    for operator, operand in cast("Mapping[str, Any]", value).items():
        if operator not in OPERATORS:
            raise InputError(f"the filter on '{key}' has the operator '{operator}'; there are {', '.join(OPERATORS)}")
        tests.append(_comparison(key, operator, _operand(key, operator, operand)))
    return lambda record: all(test(record) for test in tests)


def _operand(key: str, operator: str, operand: Any) -> Any:
    if operator in ("in", "nin"):
        if not isinstance(operand, list):
            raise InputError(f"the filter on '{key}' wants a list after '{operator}'")
        return [_operand(key, "eq", item) for item in cast("list[Any]", operand)]
    if key in TIMES:
        return _span(key, operand)
    if key == "kind" and operand not in KINDS:
        raise InputError(f"the filter on 'kind' is '{operand}'; there are memory and message (a turn)")
    if isinstance(operand, list | dict):
        raise InputError(f"the filter on '{key}' wants one value after '{operator}'; several go in {{\"in\": [...]}}")
    if operand is None and operator not in ("eq", "ne"):
        raise InputError(f"the filter on '{key}' wants a value after '{operator}', not null")
    return operand


def _span(key: str, operand: Any) -> tuple[datetime, datetime]:
    """Return the first and the last instant that a time means: of a day both ends, else the same."""
    if not isinstance(operand, str):
        raise InputError(f"the filter on '{key}' wants an ISO 8601 time")
    instant = parse_instant(operand, f"the filter on '{key}':")
    return instant, last_instant(instant) if is_day(operand) else instant


def _values(record: Record, key: str) -> list[Any]:
    """Return what a record has under a key; its tags are the model's and those of its metadata."""
    metadata = cast("Mapping[str, Any]", record["metadata"])
    found = [metadata.get(key)] if key not in FIELDS else [record[key]]
    if key == "tags" and key in metadata:
        found.append(metadata[key])
    return [
        value for each in found for value in (cast("list[Any]", each) if isinstance(each, list | tuple) else [each])
    ]


def _comparison(key: str, operator: str, operand: Any) -> Test:
    def test(record: Record) -> bool:
        values = _values(record, key)
        match operator:
            case "eq":
                return any(_same(value, operand) for value in values)
            case "ne":
                return not any(_same(value, operand) for value in values)
            case "in":
                return any(_same(value, item) for value in values for item in operand)
            case "nin":
                return not any(_same(value, item) for value in values for item in operand)
            case _:
                return any(_ordered(value, operator, operand) for value in values)

    return test


def _same(value: Any, operand: Any) -> bool:
    """Compare without Python's 1 == True, and an instant with a span."""
    if isinstance(value, datetime):
        return operand is not None and operand[0] <= value <= operand[1]
    return isinstance(value, bool) == isinstance(operand, bool) and value == operand


def _ordered(value: Any, operator: str, operand: Any) -> bool:
    """Compare numbers with numbers, times with spans, texts with texts; other pairs are in no order."""
    if isinstance(value, datetime):
        operand = operand[1] if operator in ("gt", "lte") else operand[0]
    for kinds in ((int, float), (datetime,), (str,)):
        if all(isinstance(side, kinds) and not isinstance(side, bool) for side in (value, operand)):
            match operator:
                case "gt":
                    return value > operand
                case "gte":
                    return value >= operand
                case "lt":
                    return value < operand
                case _:
                    return value <= operand
    return False
