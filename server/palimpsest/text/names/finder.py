"""Find the names in a text, with no model: names that are known already, and those that the text shows to be names."""

from __future__ import annotations

import re
from collections.abc import Mapping

from palimpsest.core.entities import EntityType, NamedEntity, name_key
from palimpsest.text.names.known import known_names
from palimpsest.text.names.words import beginning, is_adjacent, words_of

_CODE = re.compile(r"`([^`\n]{2,64})`|(?<!\w)(@\w[\w.-]+)")


def find_names(text: str, known: Mapping[str, EntityType]) -> list[NamedEntity]:
    """Return what a text names, each once and in the order of the text. `known` has the types of names by their keys.

    What may be a name or not is left out: a first word of a sentence, or a German noun, is one only if something else
    shows it.
    """
    text = beginning(text)
    taken: list[tuple[int, int, NamedEntity]] = []

    def take(start: int, end: int, entity: NamedEntity) -> None:
        if name_key(entity.name) and all(end <= first or last <= start for first, last, _ in taken):
            taken.append((start, end, entity))

    for place in known_names(text, known):
        take(place.start, place.end, NamedEntity(place.name, known[name_key(place.name)]))
    for match in _CODE.finditer(text):
        take(match.start(), match.end(), NamedEntity(match[1] or match[2]))
    words = words_of(text)
    number = 0
    while number < len(words):
        end = number
        while (
            end < len(words)
            and words[end].has_capital
            and (end == number or is_adjacent(text, words[end - 1], words[end]))
        ):
            end += 1
        if end > number and not words[number].is_first:
            start, stop = words[number].start, words[end - 1].end
            take(start, stop, NamedEntity(text[start:stop]))
        number = max(end, number + 1)
    named = {name_key(entity.name): entity for _, _, entity in sorted(taken, key=lambda item: item[:2])}
    return list(named.values())
