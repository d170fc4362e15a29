"""Filters of searches and lists: parse them, test records, and derive bounds a database can look up."""

from __future__ import annotations

import difflib
import operator as operator_module
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any, TypeAlias, cast

from palimpsest.core.clock import TimeSpan, parse_span
from palimpsest.core.errors import InputError, Remedy
from palimpsest.core.models import PAGE, name_key

# Filters on hits and memories. A filter is validated once and compiled to a function that tests records.
#
# A filter is `{"key": value}` or `{"key": {"gte": …, "lt": …}}`. A record must match all of its keys and operators.
# `AND` and `OR` take a list of filters, `NOT` takes a filter or a list; they nest freely. A key that is no field
# belongs to the caller's metadata; `metadata.kind` does in any case. Filters are evaluated only here, so they mean
# the same with every database and vector index. Their size is bounded, because every record takes the time of every
# condition.

Record: TypeAlias = Mapping[str, Any]
"""A hit or memory under test, by `FIELDS`, and `metadata`, the caller's own keys.

`entity`, `session` and `words` are those of the filter's own texts that apply to it, and `speaker` who said it, all as
`plain` gives them. A field that the filter does not name may be missing, except `role` and `kind`.
"""

Test: TypeAlias = Callable[[Record], bool]

EQUALITY = ("eq", "ne", "in", "nin")
OPERATORS = ("eq", "ne", "gt", "gte", "lt", "lte", "in", "nin")
TIMES = ("at", "created_at", "changed")
FADED = "faded"
NAMED = ("entity", "speaker", "session", "words")
"""The fields that are compared with a text in the spelling of `plain`, and have no order."""
FIELDS = (*TIMES, "role", "kind", "tags", FADED, *NAMED)
KINDS = ("memory", "message")
MESSAGES = frozenset({"message"})
SCOPE_PARTS = ("user_id", "project", "agent_id", "run_id")
JUNCTIONS = ("AND", "OR", "NOT")
RESERVED = (*(name for name in FIELDS if name != "tags"), *SCOPE_PARTS, *JUNCTIONS)
"""Keys that metadata must not use, because a filter on them means something else.

`tags` is not among them: a filter on tags looks at a memory's own tags and at `tags` in its metadata.
"""
METADATA = "metadata."
"""What a key begins with that names a key of the metadata, whatever fields and junctions there are."""

OTHER_NAMES = {
    **dict.fromkeys(("=", "==", "is", "equal", "equals"), "eq"),
    **dict.fromkeys(("!=", "<>", "not", "neq", "not_equal", "not_equals"), "ne"),
    **dict.fromkeys((">", "after", "greater_than"), "gt"),
    **dict.fromkeys((">=", "since", "from", "min"), "gte"),
    **dict.fromkeys(("<", "before", "less_than"), "lt"),
    **dict.fromkeys(("<=", "until", "to", "max"), "lte"),
    **dict.fromkeys(("any", "one_of", "any_of"), "in"),
    **dict.fromkeys(("not_in", "notin", "none_of"), "nin"),
}
"""What other query languages, and people, call the operators. An error names ours."""

_ORDERS: Mapping[str, Callable[[Any, Any], bool]] = {
    "gt": operator_module.gt,
    "gte": operator_module.ge,
    "lt": operator_module.lt,
    "lte": operator_module.le,
}

MAX_DEPTH = 10
MAX_CONDITIONS = 100
"""Comparisons in a whole filter. People and models write fewer than ten."""

MAX_LISTED_VALUES = 1_000
"""Values in all lists of `in` and `nin` together. They are looked up, not compared one by one."""

MAX_SHOWN_CHARS = 100
"""How much of a wrong key or value an error repeats."""


def compile_filter(filters: Mapping[str, Any], zone: tzinfo = UTC) -> Test:
    """Return a function that tests whether a record matches. Raises InputError that names the wrong key or operator.

    The days of the filter, and its times without a zone, are those of `zone`.

    A filter that asks for messages and for no role leaves out the pages of documents.
    """
    _refuse_too_large(filters)
    test = _all_of(filters, zone)
    if not asks_for_turns(filters):
        return test
    return lambda record: record["role"] != PAGE and test(record)


def asks_for_turns(filters: Mapping[str, Any]) -> bool:
    """Return whether a valid filter asks for messages alone and for no role, so that pages are left out."""
    return kinds_of(filters) == MESSAGES and "role" not in _keys(filters)


def kinds_of(filters: Mapping[str, Any]) -> frozenset[str]:
    """Return the kinds that a valid filter, or the parts of it that must all be true, leaves."""
    kinds = frozenset(KINDS)
    for key, operator, operand in _required(filters):
        if key == "kind":
            test = _condition(key, {operator: operand}, UTC)
            kinds &= {kind for kind in KINDS if test({"kind": kind})}
    return kinds


def plain(field: str, text: str) -> str:
    """Return a text that a field of `NAMED` is compared with in one spelling; "" if it names nothing."""
    if field in ("entity", "speaker"):
        return name_key(text)
    return " ".join(text.split()).lower()


def metadata_keys(filters: Mapping[str, Any]) -> list[str]:
    """Return the keys of the metadata that a valid filter looks at, each once."""
    keys = (key.removeprefix(METADATA) for key in _keys(filters) if key not in FIELDS)
    return list(dict.fromkeys(keys))


def fields_named(filters: Mapping[str, Any]) -> frozenset[str]:
    """Return the fields that a valid filter looks at."""
    return frozenset(key for key in _keys(filters) if key in FIELDS)


def narrows(filters: Mapping[str, Any]) -> bool:
    """Return whether a valid filter looks at more than whether something is a memory or a message."""
    return any(key != "kind" for key in _keys(filters))


def fields_filtered(filters: Mapping[str, Any]) -> list[str]:
    """Return the fields that a valid filter looks at and metadata cannot have under that name, each once."""
    return list(dict.fromkeys(key for key in _keys(filters) if key in FIELDS and key in RESERVED))


def texts_of(filters: Mapping[str, Any], field: str) -> list[str]:
    """Return the texts that a valid filter compares a field of `NAMED` with, each once, as they were given."""
    texts: dict[str, None] = {}
    for key, value in _conditions(filters):
        if key == field:
            operands = cast("Mapping[str, Any]", value).values() if isinstance(value, Mapping) else [value]
            texts |= {text: None for operand in operands for text in as_list(operand)}
    return list(texts)


def _keys(filters: Any) -> Iterator[str]:
    return (key for key, _ in _conditions(filters))


def _conditions(filters: Any) -> Iterator[tuple[str, Any]]:
    for key, value in cast("Mapping[str, Any]", filters).items():
        if is_junction(key, value):
            for part in as_list(value):
                yield from _conditions(part)
        else:
            yield key, value


def _refuse_too_large(filters: Any) -> None:
    """Raise InputError at the first condition, value or level that is one too many."""
    listed_values = 0
    for number, operand in enumerate(_operands(filters, 0), 1):
        listed_values += len(cast("list[Any]", operand)) if isinstance(operand, list) else 0
        if number > MAX_CONDITIONS:
            raise InputError(
                f"the filters have more than {MAX_CONDITIONS} conditions; for several values of a key use "
                '{"in": [...]}'
            )
        if listed_values > MAX_LISTED_VALUES:
            raise InputError(f"the filters list more than {MAX_LISTED_VALUES} values; search in several calls")


def _operands(filters: Any, depth: int) -> Iterator[Any]:
    """Yield what each condition compares with, and once for each filter without one. Raise InputError if too deep."""
    if depth > MAX_DEPTH:
        raise InputError(f"the filters are nested more than {MAX_DEPTH} deep")
    if not isinstance(filters, Mapping) or not filters:
        yield None
        return
    for key, value in cast("Mapping[str, Any]", filters).items():
        if is_junction(key, value):
            for part in as_list(value) or [{}]:
                yield from _operands(part, depth + 1)
        elif isinstance(value, Mapping):
            yield from cast("Mapping[str, Any]", value).values()
        else:
            yield value


def _all_of(filters: Any, zone: tzinfo) -> Test:
    if not isinstance(filters, Mapping):
        raise InputError(f'a filter is an object such as {{"role": "user"}}, not {type(filters).__name__}')
    tests = [
        _junction(key.upper(), value, zone) if is_junction(key, value) else _condition(key, value, zone)
        for key, value in cast("Mapping[str, Any]", filters).items()
    ]
    return lambda record: all(test(record) for test in tests)


def is_junction(key: str, value: Any) -> bool:
    """Return whether a key joins filters, in any case.

    With a plain value, `and`, `or` and `not` in small letters are metadata, because memories stored by older versions
    and imports may have such a key.
    """
    return key in JUNCTIONS or (key.upper() in JUNCTIONS and isinstance(value, list | Mapping))


def _junction(word: str, value: Any, zone: tzinfo) -> Test:
    parts = cast("list[Any]", value) if isinstance(value, list) else [value]
    if word != "NOT" and not isinstance(value, list):
        raise InputError(f"{word} needs a list of filters")
    tests = [_all_of(part, zone) for part in parts]
    if word == "AND":
        return lambda record: all(test(record) for test in tests)
    return lambda record: any(test(record) for test in tests) is (word == "OR")


def _condition(key: str, value: Any, zone: tzinfo) -> Test:
    if (junction := key.lstrip("$").upper()) in JUNCTIONS and key.startswith("$"):
        raise InputError(f"'{_shown(key)}' is not a key; use {junction}")
    if key in SCOPE_PARTS:
        raise InputError(f"'{key}' is a part of the scope and cannot be filtered on", Remedy.NOT_A_FILTER)
    if not isinstance(value, Mapping):
        value = {"eq": value}
    if not value:
        raise InputError(f"the filter on '{_shown(key)}' is empty; add a value, or an operator such as {{\"gte\": …}}")
    tests: list[Test] = []
    for operator, operand in cast("Mapping[str, Any]", value).items():
        if operator not in OPERATORS:
            raise InputError(
                f"the filter on '{_shown(key)}' has the unknown operator '{_shown(operator)}'; "
                f"use {', '.join(OPERATORS)}{_nearest_operator(operator)}"
            )
        tests.append(_comparison(key, operator, _operand(key, operator, operand, zone)))
    return lambda record: all(test(record) for test in tests)


def _nearest_operator(name: str) -> str:
    """Return a guess at what an unknown operator should have been, or ""."""
    plain = name.lstrip("$").lower().replace(" ", "_")
    near = OTHER_NAMES.get(plain) or next(iter(difflib.get_close_matches(plain, OPERATORS, n=1)), "")
    return f" (did you mean '{near}'?)" if near else ""


def _operand(key: str, operator: str, operand: Any, zone: tzinfo) -> Any:
    if operator in ("in", "nin"):
        if not isinstance(operand, list):
            raise InputError(f"the filter on '{_shown(key)}' needs a list for '{operator}'")
        return [_operand(key, "eq", item, zone) for item in cast("list[Any]", operand)]
    if key in TIMES:
        return _span(key, operand, zone)
    if key in NAMED:
        return _name(key, operator, operand)
    if key == "kind" and operand not in KINDS:
        raise InputError(
            f"the filter on 'kind' is '{_shown(operand)}'; use memory or message, or the key "
            "'metadata.kind' for a kind of your own"
        )
    if key == FADED and not isinstance(operand, bool):
        raise InputError("the filter on 'faded' is true or false; a key of your own is 'metadata.faded'")
    if isinstance(operand, list | dict):
        raise InputError(
            f"the filter on '{_shown(key)}' needs one value for '{operator}'; for several use {{\"in\": [...]}}"
        )
    if operand is None and operator not in ("eq", "ne"):
        raise InputError(f"the filter on '{_shown(key)}' needs a value for '{operator}', not null")
    return operand


_NEEDS = {
    "entity": "a name",
    "speaker": "a name",
    "session": "the id of a conversation, or its first 8 characters",
    "words": "words that the text has",
}


def _name(key: str, operator: str, operand: Any) -> str:
    if operator not in EQUALITY:
        raise InputError(f"the filter on '{key}' cannot use '{operator}'; use {', '.join(EQUALITY)}")
    if not isinstance(operand, str) or not plain(key, operand):
        raise InputError(
            f"the filter on '{key}' needs {_NEEDS[key]}, not '{_shown(operand)}'; for several use {{\"in\": [...]}}, "
            f"and for a key of your own '{METADATA}{key}'"
        )
    return plain(key, operand)


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else type(value).__name__
    return text if len(text) <= MAX_SHOWN_CHARS else f"{text[:MAX_SHOWN_CHARS]}…"


def _span(key: str, operand: Any, zone: tzinfo) -> TimeSpan:
    if not isinstance(operand, str):
        raise InputError(f"the filter on '{key}' needs an ISO 8601 time, day, month or year")
    return parse_span(_shown(operand), f"the filter on '{key}':", zone)


def _values(record: Record, key: str) -> list[Any]:
    """Return the values of a record under a key. Tags are those of the memory and those of its metadata."""
    if key in FIELDS and key != "tags":
        return as_list(record[key])
    metadata = cast("Mapping[str, Any]", record["metadata"])
    if key not in FIELDS:
        return as_list(metadata.get(key.removeprefix(METADATA)))
    own = as_list(record[key])
    return own + as_list(metadata[key]) if key in metadata else own


def as_list(value: Any) -> list[Any]:
    """Return a list or tuple as a list, and anything else as a list of it alone."""
    return list(cast("Sequence[Any]", value)) if isinstance(value, list | tuple) else [value]


def _comparison(key: str, operator: str, operand: Any) -> Test:
    is_among = _membership(key, operand) if operator in ("in", "nin") else None

    def test(record: Record) -> bool:
        values = _values(record, key)
        if is_among is not None:
            return any(is_among(value) for value in values) is (operator == "in")
        match operator:
            case "eq":
                return any(_same(value, operand) for value in values)
            case "ne":
                return not any(_same(value, operand) for value in values)
            case _:
                return any(_ordered(value, operator, operand) for value in values)

    return test


def _membership(key: str, listed: Sequence[Any]) -> Callable[[Any], bool]:
    """Return a function that tells whether a value is the same as one of those listed."""
    if key in TIMES:
        return lambda value: any(_same(value, item) for item in listed)
    distinct = frozenset((isinstance(item, bool), item) for item in listed)
    return lambda value: not isinstance(value, list | dict) and (isinstance(value, bool), value) in distinct


def _same(value: Any, operand: Any) -> bool:
    """Return whether two values are equal. True is not 1 here. A stretch of time equals one that contains it."""
    if isinstance(value, TimeSpan):
        return isinstance(operand, TimeSpan) and operand.first <= value.first and value.last <= operand.last
    return isinstance(value, bool) == isinstance(operand, bool) and value == operand


def _ordered(value: Any, operator: str, operand: Any) -> bool:
    """Return whether `operator` holds for two numbers, texts or stretches of time. Other pairs have no order.

    A stretch is less than another if it ends before the other begins, and at most the other if it ends by its end.
    """
    if isinstance(value, TimeSpan) and isinstance(operand, TimeSpan):
        pairs = {"gt": (value.first, operand.last), "lte": (value.last, operand.last)}
        pairs |= {"gte": (value.first, operand.first), "lt": (value.last, operand.first)}
        value, operand = pairs[operator]
    kinds = ((int, float), (datetime,), (str,))
    are_alike = any(isinstance(value, kind) and isinstance(operand, kind) for kind in kinds)
    if isinstance(value, bool) or isinstance(operand, bool) or not are_alike:
        return False
    return _ORDERS[operator](value, operand)


# What all messages that match a filter have in common, as far as a database can look it up.
#
# The filter itself is evaluated in `filters.py`. Bounds only spare it the messages that cannot match.

TICK = timedelta(microseconds=1)
"""The smallest step between two times of the ledger."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds of the messages that match a filter. None is no bound. `said_from` and `said_until` are within.

    `speakers`, `sessions`, `entities` and `words` are as `plain` gives them; a message mentions one of the `entities`,
    and each of the `words` stands in the text, word by word.
    `has_pages` is whether pages of documents may match. If `is_exact`, every message within the bounds matches.
    """

    kinds: frozenset[str]
    roles: frozenset[str] | None = None
    speakers: frozenset[str] | None = None
    sessions: frozenset[str] | None = None
    entities: frozenset[str] | None = None
    said_from: datetime | None = None
    said_until: datetime | None = None
    words: tuple[str, ...] = ()
    has_pages: bool = True
    is_exact: bool = True


def bounds_of(filters: Mapping[str, Any], zone: tzinfo = UTC) -> Bounds:
    """Return the bounds of a valid filter, with days as they are in a zone."""
    bounds = Bounds(kinds_of(filters), has_pages=not asks_for_turns(filters))
    for key, operator, operand in _required(filters):
        bounds = _narrowed(bounds, key, operator, operand, zone)
    return bounds


def _required(filters: Mapping[str, Any]) -> Iterator[tuple[str, str, Any]]:
    """Yield the conditions that must all be true; of what is more than that, only that there is something."""
    for key, value in filters.items():
        if not is_junction(key, value):
            comparisons = cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {"eq": value}
            yield from ((key, operator, operand) for operator, operand in comparisons.items())
        elif key.upper() == "AND":
            for part in value:
                yield from _required(part)
        else:
            yield key, "", None


def _narrowed(bounds: Bounds, key: str, operator: str, operand: Any, zone: tzinfo) -> Bounds:
    """Return bounds with one more condition. What cannot be looked up makes them inexact."""
    match key, operator:
        case "kind", _:
            return bounds
        case "role", ("eq" | "in"):
            return replace(bounds, roles=_both(bounds.roles, _texts(operand)))
        case "speaker", ("eq" | "in"):
            return replace(bounds, speakers=_both(bounds.speakers, _plain_texts(key, operand)))
        case "session", ("eq" | "in"):
            return replace(bounds, sessions=_both(bounds.sessions, _plain_texts(key, operand)))
        case "entity", ("eq" | "in") if bounds.entities is None:  # of two conditions each may mean another entity
            return replace(bounds, entities=frozenset(_plain_texts(key, operand)))
        case "at", ("eq" | "gt" | "gte" | "lt" | "lte"):
            return _in_time(bounds, operator, parse_span(operand, key, zone))
        case "words", "eq":
            return replace(bounds, words=(*bounds.words, plain(key, operand)), is_exact=False)
        case _:
            return replace(bounds, is_exact=False)


def _texts(operand: Any) -> list[str]:
    return [value for value in as_list(operand) if isinstance(value, str)]


def _plain_texts(key: str, operand: Any) -> list[str]:
    return [plain(key, value) for value in _texts(operand)]


def _both(known: frozenset[str] | None, values: list[str]) -> frozenset[str]:
    return frozenset(values) if known is None else known & frozenset(values)


def _in_time(bounds: Bounds, operator: str, span: TimeSpan) -> Bounds:
    """Return bounds with a comparison of an exact time, which is what messages have, with a stretch of time."""
    first, last = span.first, span.last
    try:
        first, last = (last + TICK if operator == "gt" else first), (first - TICK if operator == "lt" else last)
    except OverflowError:  # nothing lies beyond the ends of the calendar
        return replace(bounds, is_exact=False)
    if operator in ("eq", "gt", "gte") and (bounds.said_from is None or first > bounds.said_from):
        bounds = replace(bounds, said_from=first)
    if operator in ("eq", "lt", "lte") and (bounds.said_until is None or last < bounds.said_until):
        bounds = replace(bounds, said_until=last)
    return bounds
