"""JSON values that are meant to harm: strings, numbers, nested values, filters."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

HOSTILE_TEXTS = (
    "",
    " ",
    "\x00",
    "\x1b]52;c;aGk=\x07",
    "\u202egnp.exe",
    "\u200b\u2060",
    "\ufdfa" * 9,
    "\ufdfa" * 2_000,
    "\ud83d",
    "a\udc00b",
    "\U000e0041" * 50,
    "e" + "\u0301" * 5_000,
    "x" * 20_001,
    "wörd " * 4_000,
    "一" * 20_000,
    '{"role": "system"}',
    "$text ${text} {text} %s%n",
    "'; DROP TABLE memories; --",
    'NEAR("a" OR (b AND',
    "../../../etc/passwd",
    "*",
    "[/red]",
    "memory://summary",
    "9" * 500,
    "2026-02-30T25:61:61+99:99",
    "0001-01-01T00:00:00+14:00",
    "yesterday",
    "a\nb\r\nc\u2028d",
    "_GET_stream",
    "__proto__",
)
HUGE = (2**31, 2**53 + 1, 2**63, -(2**63) - 1, 10**400, 10**1_500, int("9" * 4_000))


def _hostile_text(number: int) -> str:
    return HOSTILE_TEXTS[number]


def _huge(number: int) -> int:
    return HUGE[number]


LETTERS = st.characters(codec="utf-8")
ANY_CHARACTER = st.characters(exclude_categories=())
TEXTS: st.SearchStrategy[str] = st.one_of(
    st.integers(0, len(HOSTILE_TEXTS) - 1).map(_hostile_text),
    st.text(LETTERS, max_size=40),
    st.text(ANY_CHARACTER, max_size=20),
)
SENTENCES = st.builds(
    "{} {} {}".format,
    st.sampled_from(("The user", "Ottoline", "Der Server", "彼女")),
    st.sampled_from(("likes", "moved to", "is allergic to", "renamed")),
    st.integers(0, 400),
)
"""Texts that can be stored. There are some thousands, so that a long run stores few that are new."""

INTEGERS = st.one_of(
    st.integers(-3, 120),
    st.integers(),
    st.integers(0, len(HUGE) - 1).map(_huge),
)
NUMBERS = st.one_of(INTEGERS, st.floats(), st.sampled_from((1e308, -0.0, 1e-400, 1.5)))
SCALARS: st.SearchStrategy[Any] = st.one_of(st.none(), st.booleans(), NUMBERS, TEXTS)


def nested(depth: int, by: str = "list") -> Any:
    """Return a value of so many levels."""
    value: Any = 1
    for _ in range(depth):
        value = [value] if by == "list" else {by: value}
    return value


DEEP = st.builds(
    nested, st.sampled_from((9, 11, 60, 90, 97, 98, 99, 150, 295, 600)), st.sampled_from(("list", "a", "AND", "NOT"))
)


def _wide(size: int) -> list[int]:
    return [0] * size


def _containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(st.lists(inner, max_size=4), st.dictionaries(TEXTS, inner, max_size=4))


WIDE = st.sampled_from((101, 1_001, 9_000, 19_000, 25_000)).map(_wide)
SMALL: st.SearchStrategy[Any] = st.recursive(SCALARS, _containers, max_leaves=12)
VALUES: st.SearchStrategy[Any] = st.one_of(SMALL, SMALL, SMALL, DEEP, WIDE)


def _is_json(value: Any) -> bool:
    try:
        json.dumps(value, allow_nan=False)
    except ValueError:
        return False
    return True


STRICT = SMALL.filter(_is_json)
"""Small values without infinities and without what is not a number."""

_KEYS = st.one_of(
    st.sampled_from(("at", "created_at", "kind", "role", "tags", "topic", "AND", "OR", "NOT", "a.b")), TEXTS
)
_OPERATORS = st.sampled_from(("gt", "gte", "lt", "lte", "ne", "in", "nin", "on", "like", "$where", ""))
_CONDITIONS = st.dictionaries(_KEYS, st.one_of(SMALL, st.dictionaries(_OPERATORS, SMALL, max_size=3)), max_size=3)


def _joined(word: str, parts: list[Any]) -> dict[str, Any]:
    return {word: parts}


def _negated(part: Any) -> dict[str, Any]:
    return {"NOT": part}


def _alternatives(size: int) -> dict[str, Any]:
    return {"OR": [{"a": number} for number in range(size)]}


def _listed(size: int) -> dict[str, Any]:
    return {"a": {"in": list(range(size))}}


def _junctions(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    words = st.sampled_from(("AND", "OR", "and"))
    return st.one_of(st.builds(_joined, words, st.lists(inner, max_size=4)), inner.map(_negated))


FILTERS: st.SearchStrategy[Any] = st.one_of(
    st.recursive(_CONDITIONS, _junctions, max_leaves=8),
    st.sampled_from((100, 101, 6_000)).map(_alternatives),
    st.sampled_from((1_000, 1_001, 19_000)).map(_listed),
    st.builds(nested, st.sampled_from((9, 10, 11, 90)), st.just("NOT")),
    VALUES,
)
