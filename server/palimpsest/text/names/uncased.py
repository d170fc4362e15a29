"""Find names in scripts without capitals: Chinese, Japanese, Korean and Arabic."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

from palimpsest.core.models import EntityType
from palimpsest.text.names.known_names import Span, span_of
from palimpsest.text.names.lexicon import WELL_KNOWN_UNCASED, is_also_word, is_given_name, is_place, is_surname
from palimpsest.text.word_lists import patterns, word_sets

_WORDS = word_sets("palimpsest.text.names", "uncased.txt")
_RE = patterns("palimpsest.text.names", "uncased.txt")
_KATAKANA = _RE["katakana"].pattern

# Find Arabic names: of people after words such as sister, of organizations and places by what they begin with.


MIN_PLACE = 4
"""Shorter places are also words."""


def arabic_spans(text: str) -> Iterator[Span]:
    """Yield the names in Arabic text."""
    words = list(_RE["ar word"].finditer(text))
    plain = [_RE["ar marks"].sub("", match[0]) for match in words]
    taken = -1
    for number, match in enumerate(words):
        if number <= taken:
            continue
        is_beside = number + 1 < len(words) and text[match.end() : words[number + 1].start()] == " "
        following = plain[number + 1] if is_beside else ""
        length, kind = _name(plain[number - 1] if number else "", plain[number], following)
        if length:
            taken = number + length - 1
            yield Span(match.start(), words[taken].end(), text[match.start() : words[taken].end()], kind)


def _name(before: str, word: str, following: str) -> tuple[int, EntityType]:
    """Return how many words a name has that begins with a word, 0 if none does, and its type."""
    if before in _WORDS["ar roles"] and word not in _WORDS["ar stop"] and is_given_name(word):
        return (2 if is_given_name(following) else 1), "person"
    if word in _WORDS["ar orgs"]:
        return (2 if following.startswith("ال") or is_given_name(following) else 0), "organization"
    if word in _WORDS["ar places"]:
        return (2 if following and following not in _WORDS["ar stop"] else 0), "place"
    if following and is_place(f"{word} {following}"):
        return 2, "place"
    is_known = len(word) >= MIN_PLACE and is_place(word) and not is_also_word(word)
    return (1 if is_known and before in _WORDS["ar at"] else 0), "place"


# Find Chinese names: of people by their family names, of places and organizations by what they end with.


MAX_PERSON = 3
"""How many characters the name of a person has at most."""


def chinese_spans(text: str) -> Iterator[Span]:
    """Yield the names in Chinese text, the surest first."""
    for match in _RE["zh introduced"].finditer(text):
        is_person = _RE["surname zh"].match(match[1]) is not None and len(match[1]) <= MAX_PERSON
        yield span_of(match, "person" if is_person else "other")
    for match in _RE["zh event"].finditer(text):
        starts = range(max(0, match.start() - 4), match.start() - 1)
        start = next((start for start in starts if is_place(text[start : match.start()])), None)
        if start is not None:
            yield Span(start, match.end(), text[start : match.end()], "event")
    for match in _RE["zh org"].finditer(text):
        if not _RE["not in org"].search(match[1]) and not _RE["kinds of org zh"].fullmatch(match[0]):
            yield span_of(match, "organization", 0)
    yield from _found("zh place", text, "place", but="not a place zh")
    yield from (span_of(match, "person", 0) for match in _RE["zh title after"].finditer(text))
    for pattern in (_RE["zh role name"], _RE["zh subject"]):
        for match in pattern.finditer(text):
            if match[1][:2] not in _WORDS["no names zh"]:
                yield span_of(match, "person")
    yield from (span_of(match, "person", 0) for match in _RE["zh doubled"].finditer(text))
    yield from _found("zh familiar", text, "person")


def _found(pattern: str, text: str, kind: EntityType, but: str = "") -> Iterator[Span]:
    """Yield the first group of each match of a pattern, but for one in which another pattern is found."""
    for match in _RE[pattern].finditer(text):
        if not but or not _RE[but].search(match[1]):
            yield span_of(match, kind)


# Find Japanese names: of people by what stands beside them, of places and organizations by what they end with.

MAX_GIVEN = 3
"""How many characters a given name has at most."""

_QUOTED_JA: tuple[EntityType, ...] = ("organization", "document", "product", "project", "event")


def japanese_spans(text: str) -> Iterator[Span]:
    """Yield the names in Japanese text, the surest first."""
    for match in _RE["ja is"].finditer(text):
        if any(is_surname(match[1][:length]) for length in (1, 2, 3)) and not _RE["no people ja"].search(match[1]):
            yield span_of(match, "person")
    for match in _RE["ja role name"].finditer(text):
        if _is_role_name(match[2], match[1]):
            yield span_of(match, "other" if match[1] in _WORDS["pets ja"] else "person", 2)
    yield from _found("ja honorific", text, "person", but="no people ja")
    for match in _RE["ja quoted"].finditer(text):
        kinds: list[EntityType] = [kind for kind in _QUOTED_JA if _RE[f"quoted ja {kind}"].search(match[1])]
        if kinds:
            yield span_of(match, kinds[0], 2)
    yield from _found("ja introduced", text, "other", but="no introduced ja")
    for match in _RE["ja suffix"].finditer(text):
        if not _RE["no suffix ja"].search(match[1]):
            is_place_name = match[2] in "駅市区県府町村" or match[2] == "空港"
            yield span_of(match, "place" if is_place_name else "organization", 0)


def _is_role_name(name: str, role: str) -> bool:
    """Return whether what belongs to a relative, a colleague or a pet is a name: "娘の美咲", not "娘の自転車"."""
    if _RE["no role names ja"].search(name) or _RE["roles ja"].search(name):
        return False
    if role in _WORDS["pets ja"] and not _RE["han char"].match(name):
        return not _RE["pet things ja"].search(name)
    is_short = len(name) <= MAX_GIVEN
    if is_short and _RE["ranks ja"].search(role) and _RE["surname ends ja"].search(name):
        return True
    is_listed = is_given_name(name) or any(is_surname(name[:length]) for length in (2, 3))
    return is_listed or (is_short and _RE["name ends ja"].search(name) is not None)


# Find Korean names, without the particles that are written to them.


FULL_NAME = 3
"""How many characters most full names have: a family name of one and a given name of two."""


def korean_spans(text: str) -> Iterator[Span]:
    """Yield the names in Korean text."""
    words = list(_RE["hangul word"].finditer(text))
    for number, match in enumerate(words):
        word = _RE["particles ko"].sub("", match[0])
        before = _RE["particles ko"].sub("", words[number - 1][0]) if number else ""
        end = match.start() + len(word)
        if _is_person(word, before, text[end : end + 5]):
            yield Span(match.start(), end, word, "person")
        elif _RE["org ko"].fullmatch(word):
            yield Span(match.start(), end, word, "organization")
        elif _is_place(word) or (_RE["place ko"].fullmatch(word) and _is_place(word[:-1])):
            yield Span(match.start(), end, word, "place")


def _is_person(word: str, before: str, after: str) -> bool:
    has_surname = FULL_NAME - 1 <= len(word) <= FULL_NAME + 1 and (is_surname(word[:1]) or is_surname(word[:2]))
    if before in _WORDS["roles ko"]:
        return word not in _WORDS["roles ko"] and (is_given_name(word) or has_surname)
    if not has_surname or len(word) != FULL_NAME:
        return False
    return bool(_RE["after name ko"].match(after)) or (is_given_name(word[1:]) and not is_also_word(word[1:]))


def _is_place(word: str) -> bool:
    return len(word) > 1 and is_place(word) and not is_also_word(word)


# Find names in scripts without capitals: Chinese, Japanese, Korean and Arabic, and Latin words inside of them.
#
# A name is found by a list, by its form (a family name, a suffix such as that of a university), and by a word beside
# it that introduces a name.


def uncased_spans(text: str) -> Iterator[Span]:
    """Yield the names of a text in scripts without capitals, the surest first."""
    if not _RE["has uncased"].search(text):
        return
    for match in (*_RE["titles quoted"].finditer(text), *_RE["named quoted"].finditer(text)):
        yield span_of(match, "document" if match[0][0] in "《『" else "other")
    for match in _well_known().finditer(text):
        yield span_of(match, WELL_KNOWN_UNCASED[match[0]], 0)
    if _RE["is japanese"].search(text):
        yield from japanese_spans(text)
    elif _RE["han char"].search(text):
        yield from chinese_spans(text)
    yield from korean_spans(text)
    yield from arabic_spans(text)
    yield from _known_places(text)


@cache
def _well_known() -> re.Pattern[str]:
    """Return the pattern of the well-known names, the longest first, which are no part of a word in Katakana."""
    names = "|".join(sorted(WELL_KNOWN_UNCASED, key=len, reverse=True))
    return re.compile(rf"(?<![{_KATAKANA}])(?:{names})(?![{_KATAKANA}])")


def _known_places(text: str) -> Iterator[Span]:
    """Yield listed places in Chinese and Japanese, and places in Katakana, the longest first."""
    for run in _RE["katakana run"].finditer(text):
        if is_place(run[0]):
            yield span_of(run, "place", 0)
    for run in _RE["han run"].finditer(text):
        start = run.start()
        while start < run.end() - 1:
            for end in range(min(start + 6, run.end()), start + 1, -1):
                if is_place(text[start:end]) and not is_also_word(text[start:end]):
                    yield Span(start, end, text[start:end], "place")
                    start = end - 1
                    break
            start += 1
