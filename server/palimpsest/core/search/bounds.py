"""What all messages that match a filter have in common, as far as a database can look it up.

The filter itself is evaluated in `filters.py`. Bounds only spare it the messages that cannot match.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any, cast

from palimpsest.core.clock import TimeSpan, parse_span
from palimpsest.core.search.filters import as_list, asks_for_turns, is_junction, kinds_of, plain

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
    first, last = bounds.said_from, bounds.said_until
    if operator in ("eq", "gte"):
        first = span.first if first is None else max(first, span.first)
    if operator in ("eq", "lte"):
        last = span.last if last is None else min(last, span.last)
    if operator == "gt":
        if span.last == datetime.max.replace(tzinfo=UTC):
            return replace(bounds, is_exact=False)
        first = span.last + TICK if first is None else max(first, span.last + TICK)
    if operator == "lt":
        if span.first == datetime.min.replace(tzinfo=UTC):
            return replace(bounds, is_exact=False)
        last = span.first - TICK if last is None else min(last, span.first - TICK)
    return replace(bounds, said_from=first, said_until=last)
