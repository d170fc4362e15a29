"""Tell what a name is of, by its words and the words before it."""

from __future__ import annotations

from collections.abc import Sequence

from palimpsest.core.entities import EntityType
from palimpsest.text.names.lexicon.cues import (
    CUES,
    CUES_AFTER,
    FIRST_WORDS,
    INTRODUCING,
    LAST_PARTS,
    LAST_WORDS,
    PERSON,
    PLACE_PREPOSITIONS,
)
from palimpsest.text.names.lexicon.lists import is_also_word, is_english_word, is_given_name, is_place
from palimpsest.text.names.lexicon.well_known import WELL_KNOWN

_SKIPPED = frozenset(("is", "ist", "was", "the", "a", "der", "die", "das", "el", "la", "est", "es", "to", "se"))
"""What may stand between a noun and the word that introduces its name: "the novel is called"."""

_LIVING = frozenset(("lives", "lived", "living", "moved", "moving", "born", "flew", "drove", "travelled"))

_EMPLOYED = frozenset(
    ("works", "worked", "working", "employed", "arbeitet", "arbeitete", "trabaja", "travaille", "lavora")
)
_EMPLOYERS_AFTER = frozenset(("at", "for", "by", "bei", "für", "en", "para", "chez", "per", "da"))

_TOWARDS = ("near", "à", "nach", "aus", "под", "desde", "près")
"""Prepositions after which a name that no list has is mostly a place."""
_EMPLOYERS = ("chez", "at")
"""Prepositions after which a name that no list has is mostly an organization."""
_ONE = ("a", "an", "ein", "eine", "einen", "einem", "einer", "un", "une", "una")

INTRODUCED_REACH = 3
"""How many words before "called" may be the noun that says what is called so. Set by hand."""


def kind_of(name: str, before: Sequence[str], after: str = "") -> EntityType:
    """Return the type of a name; "other" if nothing shows it.

    `before` are the words before the name, the nearest last, and `after` is the word after it, all in lower case.
    """
    words = name.replace(".", " ").split()
    if known := kind_by_own_words(words) or WELL_KNOWN.get(name):
        return known
    if words[0] in WELL_KNOWN:
        return "product"
    return _cue(before) or _by_lists(name, words, before, after) or _by_form(name, words, before, after)


def kind_by_own_words(words: Sequence[str]) -> EntityType | None:
    """Return the type that the first or the last word of a name shows, such as "Street"; None if they show none."""
    first, last = words[0].casefold(), words[-1].casefold()
    if len(words) > 1:
        if first in PERSON and first not in FIRST_WORDS and first not in ("st", "saint"):
            return "person"
        if found := LAST_WORDS.get(last) or LAST_WORDS.get(last.removesuffix("s")) or FIRST_WORDS.get(first):
            return found
    if "&" in words:
        return "organization"
    return next((kind for end, kind in LAST_PARTS.items() if last.endswith(end) and last != end), None)


def _cue(before: Sequence[str]) -> EntityType | None:
    """Return what the nearest words before a name say, such as "sister" or "a dog called"."""
    end = len(before)
    while end and (before[end - 1] in INTRODUCING or (end < len(before) and before[end - 1] in _SKIPPED)):
        end -= 1
    reach = 1 if end == len(before) else INTRODUCED_REACH
    for word in reversed(before[max(0, end - reach) : end]):
        if found := CUES.get(word) or CUES.get(word.removesuffix("s")):
            return "other" if found == "pet" else found
    return None


def _by_lists(name: str, words: Sequence[str], before: Sequence[str], after: str) -> EntityType | None:
    near = before[-1] if before else ""
    is_at_place = near in PLACE_PREPOSITIONS
    if CUES_AFTER.get(after) == "person" and not is_at_place and not _is_acronym(name):
        return "person"
    if is_place(name):
        return "place" if is_at_place or not is_given_name(words[0]) else "person"
    if near in _EMPLOYERS_AFTER and not _EMPLOYED.isdisjoint(before[-2:-1]):
        return "organization"
    if is_given_name(words[0]) and not (is_also_word(words[0]) and len(words) == 1 and before):
        return "person"
    lives_there = near in ("in", "to") and not _LIVING.isdisjoint(before[-3:-1])
    if near in _EMPLOYERS:
        return "organization"
    return "place" if near in _TOWARDS or lives_there else None


def _is_acronym(name: str) -> bool:
    """Return whether a name is in capitals. What "lives" in a vault is then nobody."""
    return name.isascii() and name.isupper()


def _by_form(name: str, words: Sequence[str], before: Sequence[str], after: str) -> EntityType:
    if after in CUES_AFTER and not (CUES_AFTER[after] == "person" and _is_acronym(name)):
        return CUES_AFTER[after]
    if len(words) > 2 and words[0] == "The":  # noqa: PLR2004 - a title; "The Hague" is a place
        return "document"
    if before and before[-1] in _ONE:
        return "product"
    is_two = len(words) == 2  # noqa: PLR2004 - a given name and a family name
    is_full_name = is_two and all(word.istitle() and word[1:2] != "-" and not is_english_word(word) for word in words)
    return "person" if is_full_name else "other"
