"""Filters of searches and lists: read them, test records, and derive bounds a database can look up."""

from __future__ import annotations

import operator as operator_module
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, tzinfo
from typing import Any, TypeAlias, cast

from palimpsest.core.clock import TimeSpan, parse_span
from palimpsest.core.errors import InputError, Remedy
from palimpsest.core.models import KINDS, PAGE, name_key

# Filters on hits and memories. A filter is read and checked once, and then tests records.
#
# A filter is `{"key": value}` or `{"key": {"gte": …, "lt": …}}`. A record must match all of its keys and operators.
# `AND` and `OR` take a list of filters, `NOT` takes a filter or a list; they nest freely. A key that is no field
# belongs to the caller's metadata; `metadata.kind` does in any case. Filters are evaluated only here, so they mean
# the same with every database and vector index. Their size is bounded, because every record takes the time of every
# condition.

# A hit or memory under test, by `FIELDS`, and `metadata`, the caller's own keys.
#
# `entity`, `session` and `words` are those of the filter's own texts that apply to it, and `speaker` who said it, all
# as `plain` gives them. A field that the filter does not name may be missing, except `role` and `kind`.
Record: TypeAlias = Mapping[str, Any]

EQUALITY = ("eq", "ne", "in", "nin")
OPERATORS = ("eq", "ne", "gt", "gte", "lt", "lte", "in", "nin")
ENDED = "ended"
TIMES = ("at", "created_at", "changed", "began", ENDED)
FADED = "faded"

# The fields that are compared with a text in the spelling of `plain`, and have no order.
NAMED = ("entity", "speaker", "session", "words")
FIELDS = (*TIMES, "role", "kind", "tags", FADED, *NAMED)
MESSAGES = frozenset({"message"})
SCOPE_PARTS = ("user_id", "project", "agent_id", "run_id")
JUNCTIONS = ("AND", "OR", "NOT")

# Keys that metadata must not use, because a filter on them means something else.
#
# `tags` is not among them: a filter on tags looks at a memory's own tags and at `tags` in its metadata.
RESERVED = (*(name for name in FIELDS if name != "tags"), *SCOPE_PARTS, *JUNCTIONS)
# What a key begins with that names a key of the metadata, whatever fields and junctions there are.
METADATA = "metadata."

MAX_DEPTH = 10

# Comparisons in a whole filter. People and models write fewer than ten.
MAX_CONDITIONS = 100

# Values in all lists of `in` and `nin` together. They are looked up, not compared one by one.
MAX_LISTED_VALUES = 1_000

# How much of a wrong key or value an error repeats.
MAX_SHOWN_CHARS = 100


@dataclass(frozen=True, slots=True)
class Condition:
    """One comparison. `given` is what it compares with as the caller wrote it, and `operand` as `_operand` reads it."""

    key: str
    operator: str
    operand: Any
    given: Any
    holds: Callable[[Any], bool]

    def matches(self, record: Record) -> bool:
        """Return whether one of the record's values is as the condition says; with "ne" and "nin", none."""
        return any(map(self.holds, _values(record, self.key))) is (self.operator not in ("ne", "nin"))


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds of the messages that match a filter. None is no bound. `said_from` and `said_until` are within.

    They spare a filter the messages that cannot match. `speakers`, `sessions`, `entities` and `words` are as `plain`
    gives them; a message mentions one of the `entities`, and each of the `words` stands in the text, word by word.
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


@dataclass(frozen=True, slots=True)
class Filter:
    """A checked filter: conditions and filters of which a record matches all (AND), one (OR) or none (NOT).

    One that asks for messages and for no role `excludes_pages` of documents.
    """

    parts: tuple[Condition | Filter, ...] = ()
    junction: str = "AND"
    excludes_pages: bool = False

    @classmethod
    def of(cls, filters: Mapping[str, Any], zone: tzinfo = UTC) -> Filter:
        """Return a filter as it was checked. Raises InputError that names the wrong key or operator.

        The days of the filter, and its times without a zone, are those of `zone`.
        """
        found = _read(filters, zone)
        if found.size > MAX_CONDITIONS:
            more = f"the filters have more than {MAX_CONDITIONS} conditions"
            raise InputError(f"{more}; for several values of a key use {_SEVERAL}")
        lists = (as_list(test.given) for test in found.conditions if test.operator in ("in", "nin"))
        if sum(map(len, lists)) > MAX_LISTED_VALUES:
            raise InputError(f"the filters list more than {MAX_LISTED_VALUES} values; search in several calls")
        is_for_turns = found.kinds == MESSAGES and all(condition.key != "role" for condition in found.conditions)
        return replace(found, excludes_pages=is_for_turns)

    def matches(self, record: Record) -> bool:
        """Return whether a record matches."""
        if self.excludes_pages and record["role"] == PAGE:
            return False
        matching = (part.matches(record) for part in self.parts)
        return all(matching) if self.junction == "AND" else any(matching) is (self.junction == "OR")

    @property
    def size(self) -> int:
        """Return how many conditions it has; a filter without any counts as one."""
        return max(1, sum(part.size if isinstance(part, Filter) else 1 for part in self.parts))

    @property
    def conditions(self) -> Iterator[Condition]:
        """Yield all conditions, also those of the filters within."""
        for part in self.parts:
            yield from part.conditions if isinstance(part, Filter) else [part]

    @property
    def required(self) -> Iterator[Condition | Filter]:
        """Yield the conditions that must all be true, and junctions of more than that."""
        for part in self.parts:
            yield from part.required if isinstance(part, Filter) and part.junction == "AND" else [part]

    @property
    def kinds(self) -> frozenset[str]:
        """Return the kinds that the conditions which must all be true leave."""
        tests = [part for part in self.required if isinstance(part, Condition) and part.key == "kind"]
        return frozenset(kind for kind in KINDS if all(test.matches({"kind": kind}) for test in tests))

    @property
    def fields(self) -> list[str]:
        """Return the fields that the filter looks at, each once."""
        return list(dict.fromkeys(condition.key for condition in self.conditions if condition.key in FIELDS))

    @property
    def metadata_keys(self) -> list[str]:
        """Return the keys of the metadata that the filter looks at, each once."""
        keys = (condition.key for condition in self.conditions if condition.key not in FIELDS)
        return list(dict.fromkeys(key.removeprefix(METADATA) for key in keys))

    @property
    def narrows(self) -> bool:
        """Return whether the filter looks at more than whether something is a memory or a message."""
        return any(condition.key != "kind" for condition in self.conditions)

    def texts_of(self, field: str) -> list[str]:
        """Return the texts that a field of `NAMED` is compared with, each once, as they were given."""
        given = (as_list(condition.given) for condition in self.conditions if condition.key == field)
        return list(dict.fromkeys(text for texts in given for text in texts))

    @property
    def bounds(self) -> Bounds:
        """Return the bounds of the messages that match, as far as a database can look them up."""
        bounds = Bounds(self.kinds, has_pages=not self.excludes_pages)
        for part in self.required:
            bounds = _narrowed(bounds, part) if isinstance(part, Condition) else replace(bounds, is_exact=False)
        return bounds


def plain(field: str, text: str) -> str:
    """Return a text that a field of `NAMED` is compared with in one spelling; "" if it names nothing."""
    return name_key(text) if field in ("entity", "speaker") else " ".join(text.split()).lower()


def as_list(value: Any) -> list[Any]:
    """Return a list or tuple as a list, and anything else as a list of it alone."""
    return list(cast("Sequence[Any]", value)) if isinstance(value, list | tuple) else [value]


def _read(filters: Any, zone: tzinfo, depth: int = 0) -> Filter:
    """Return a filter, which may lie within another one. Raises InputError."""
    if depth > MAX_DEPTH:
        raise InputError(f"the filters are nested more than {MAX_DEPTH} deep")
    if not isinstance(filters, Mapping):
        raise InputError(f'a filter is an object such as {{"role": "user"}}, not {type(filters).__name__}')
    parts: list[Condition | Filter] = []
    for key, value in cast("Mapping[str, Any]", filters).items():
        # With a plain value, `and`, `or` and `not` in small letters are metadata: imports may have such a key.
        if key in JUNCTIONS or (key.upper() in JUNCTIONS and isinstance(value, list | Mapping)):
            if key.upper() != "NOT" and not isinstance(value, list):
                raise InputError(f"{key.upper()} needs a list of filters")
            parts.append(Filter(tuple(_read(part, zone, depth + 1) for part in as_list(value)), key.upper()))
        else:
            parts += _conditions(key, value, zone)
    return Filter(tuple(parts))


def _conditions(key: str, value: Any, zone: tzinfo) -> Iterator[Condition]:
    given = cast("Mapping[str, Any]", value if isinstance(value, Mapping) else {"eq": value})
    if (junction := key.lstrip("$").upper()) in JUNCTIONS and key.startswith("$"):
        raise InputError(f"'{_shown(key)}' is not a key; use {junction}")
    if key in SCOPE_PARTS:
        raise InputError(f"'{key}' is a part of the scope and cannot be filtered on", Remedy.NOT_A_FILTER)
    if not given:
        raise _fault(key, 'is empty; add a value, or an operator such as {"gte": …}')
    for operator, operand in given.items():
        if operator not in OPERATORS:
            raise _fault(key, f"has the unknown operator '{_shown(operator)}'; use {', '.join(OPERATORS)}")
        read = _operand(key, operator, operand, zone)
        yield Condition(key, operator, read, operand, _test(key, operator, read))


_SEVERAL = '{"in": [...]}'


def _fault(key: str, what: str) -> InputError:
    return InputError(f"the filter on '{_shown(key)}' {what}")


def _operand(key: str, operator: str, operand: Any, zone: tzinfo) -> Any:
    """Return what a condition compares with: times as stretches, and names in the spelling of `plain`."""
    if operator in ("in", "nin"):
        if not isinstance(operand, list):
            raise _fault(key, f"needs a list for '{operator}'")
        return [_operand(key, "eq", item, zone) for item in cast("list[Any]", operand)]
    if key in TIMES:
        if not isinstance(operand, str):
            raise _fault(key, "needs an ISO 8601 time, day, month or year")
        return parse_span(_shown(operand), f"the filter on '{key}':", zone)
    if key in NAMED:
        return _name(key, operator, operand)
    if key == "kind" and operand not in KINDS:
        use = "use memory or message, or the key 'metadata.kind' for a kind of your own"
        raise _fault(key, f"is '{_shown(operand)}'; {use}")
    if key == FADED and not isinstance(operand, bool):
        raise _fault(key, "is true or false; a key of your own is 'metadata.faded'")
    if isinstance(operand, list | dict):
        raise _fault(key, f"needs one value for '{operator}'; for several use {_SEVERAL}")
    if operand is None and operator not in ("eq", "ne"):
        raise _fault(key, f"needs a value for '{operator}', not null")
    return operand


_NEEDS = {
    **dict.fromkeys(("entity", "speaker"), "a name"),
    "session": "the id of a conversation, or its first 8 characters",
    "words": "words that the text has",
}


def _name(key: str, operator: str, operand: Any) -> str:
    if operator not in EQUALITY:
        raise _fault(key, f"cannot use '{operator}'; use {', '.join(EQUALITY)}")
    if not isinstance(operand, str) or not plain(key, operand):
        others = f"for several use {_SEVERAL}, and for a key of your own '{METADATA}{key}'"
        raise _fault(key, f"needs {_NEEDS[key]}, not '{_shown(operand)}'; {others}")
    return plain(key, operand)


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else type(value).__name__
    return text if len(text) <= MAX_SHOWN_CHARS else f"{text[:MAX_SHOWN_CHARS]}…"


def _values(record: Record, key: str) -> list[Any]:
    """Return the values of a record under a key. Tags are those of the memory and those of its metadata."""
    if key in FIELDS and key != "tags":
        return as_list(record[key])
    metadata = cast("Mapping[str, Any]", record["metadata"])
    if key not in FIELDS:
        return as_list(metadata.get(key.removeprefix(METADATA)))
    return [*as_list(record[key]), *as_list(metadata.get(key, []))]


def _test(key: str, operator: str, operand: Any) -> Callable[[Any], bool]:
    """Return the test of one value: whether it is the operand or among those listed, or stands in order with it."""
    if operator not in EQUALITY:
        return lambda value: _is_ordered(value, operator, operand)
    if operator in ("eq", "ne"):
        return lambda value: _same(value, operand)
    if key in TIMES:
        return lambda value: any(_same(value, item) for item in operand)
    distinct = frozenset((isinstance(item, bool), item) for item in operand)
    return lambda value: not isinstance(value, list | dict) and (isinstance(value, bool), value) in distinct


def _same(value: Any, operand: Any) -> bool:
    """Return whether two values are equal. True is not 1 here. A stretch of time equals one that contains it."""
    if isinstance(value, TimeSpan):
        return isinstance(operand, TimeSpan) and operand.first <= value.first and value.last <= operand.last
    return isinstance(value, bool) == isinstance(operand, bool) and value == operand


def _is_ordered(value: Any, operator: str, operand: Any) -> bool:
    """Return whether `operator` holds for two numbers, texts or stretches of time. Other pairs have no order.

    A stretch is less than another if it ends before the other begins, and at most the other if it ends by its end.
    """
    if isinstance(value, TimeSpan) and isinstance(operand, TimeSpan):
        value = value.first if operator in ("gt", "gte") else value.last
        operand = operand.last if operator in ("gt", "lte") else operand.first
    kinds = ((int, float), (datetime,), (str,))
    are_alike = any(isinstance(value, kind) and isinstance(operand, kind) for kind in kinds)
    if isinstance(value, bool) or isinstance(operand, bool) or not are_alike:
        return False
    return bool(getattr(operator_module, {"gte": "ge", "lte": "le"}.get(operator, operator))(value, operand))


def _narrowed(bounds: Bounds, condition: Condition) -> Bounds:
    """Return bounds with one more condition. What cannot be looked up makes them inexact."""
    operand = condition.operand
    match condition.key, condition.operator:
        case "kind", _:
            return bounds
        case ("role" | "speaker" | "session") as key, ("eq" | "in"):
            known = getattr(bounds, f"{key}s")
            texts = frozenset(text for text in as_list(operand) if isinstance(text, str))
            return replace(bounds, **{f"{key}s": texts if known is None else known & texts})
        case "entity", ("eq" | "in") if bounds.entities is None:  # of two conditions each may mean another entity
            return replace(bounds, entities=frozenset(as_list(operand)))
        case "at", ("eq" | "gt" | "gte" | "lt" | "lte"):
            return _in_time(bounds, condition.operator, operand)
        case "words", "eq":
            return replace(bounds, words=(*bounds.words, operand), is_exact=False)
        case _:
            return replace(bounds, is_exact=False)


def _in_time(bounds: Bounds, operator: str, span: TimeSpan) -> Bounds:
    """Return bounds with a comparison of an exact time, which is what messages have, with a stretch of time."""
    first, last = span.last if operator == "gt" else span.first, span.first if operator == "lt" else span.last
    if operator in ("eq", "gt", "gte") and (bounds.said_from is None or first > bounds.said_from):
        bounds = replace(bounds, said_from=first)
    if operator in ("eq", "lt", "lte") and (bounds.said_until is None or last < bounds.said_until):
        bounds = replace(bounds, said_until=last)
    return replace(bounds, is_exact=bounds.is_exact and operator not in ("gt", "lt"))
