"""Find the names in a text, with no model: names that are known already, and those that the text shows to be names."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from palimpsest.core.entities import MAX_NAME_CHARS, SELF_NAMES, EntityType, NamedEntity, name_key
from palimpsest.text.names.kinds import kind_by_own_words
from palimpsest.text.names.known import known_names
from palimpsest.text.names.scripts.capitals import capital_spans
from palimpsest.text.names.scripts.uncased import uncased_spans
from palimpsest.text.names.span import Span
from palimpsest.text.names.technical import technical_spans
from palimpsest.text.names.words import beginning, words_of

_TITLE = re.compile(
    r"[\"\u201c\u201e\u00ab]([A-Z\u00c0-\u00de\u0410-\u042f][\w'\u2019-]*(?:[ ,]+[\w'\u2019-]+){1,8})"
    r"[\"\u201d\u201c\u00bb]"
)
"""A title in quotation marks: several words, the first with a capital."""


def find_names(text: str, known: Mapping[str, EntityType]) -> list[NamedEntity]:
    """Return what a text names, each once and in the order of the text. `known` has the types of names by their keys.

    What may be a name or not is left out: a first word of a sentence, or a German noun, is one only if something else
    shows it. So is what is too long for a name, such as an address with a query.
    """
    text = beginning(text)
    taken: list[Span] = []
    for span in _spans(text, known, taken):
        if all(span.end <= other.start or other.end <= span.start for other in taken):
            taken.append(span)
    named: dict[str, NamedEntity] = {}
    for span in sorted(taken, key=lambda span: span.start):
        key = name_key(span.name)
        if key and key not in SELF_NAMES and len(span.name) <= MAX_NAME_CHARS:
            named.setdefault(key, NamedEntity(span.name, known.get(key, span.type)))
    return list(named.values())


def _spans(text: str, known: Mapping[str, EntityType], taken: list[Span]) -> Iterator[Span]:
    """Yield the parts of a text that name something, the surest first. The caller adds those it takes to `taken`."""
    words, technical = words_of(text), list(technical_spans(text))
    if places := known_names(text, known):
        longer = list(capital_spans(text, words, [(span.start, span.end) for span in technical]))
        for place in places:
            span = Span(place.start, place.end, place.name, known[name_key(place.name)])
            yield next((whole for whole in longer if _is_part(span, whole)), span)
    yield from technical
    for match in _TITLE.finditer(text):
        capitals = sum(word[0].isupper() for word in re.findall(r"\w{4,}", match[1]))
        if capitals > 1 and not match[1].endswith((".", "!", "?")):
            yield Span(match.start(1), match.end(1), match[1], "document")
    yield from uncased_spans(text)
    yield from capital_spans(text, words, [(span.start, span.end) for span in taken])


def _is_part(span: Span, whole: Span) -> bool:
    """Return whether a known name is only the beginning of a longer one, of somebody or something else.

    "Tom" is known, and a text is about Tom Smith; "Ghent" is known, and a text is about the Ghent Amateur Orchestra. A
    name that goes on without such a sign may be the known one with a word about it, such as "Stripe API".
    """
    if whole.start != span.start or not whole.name.startswith(f"{span.name} "):
        return False
    if span.type == "person":
        return True
    kind = kind_by_own_words(whole.name.split())
    return kind is not None and kind != span.type
