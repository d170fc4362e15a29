"""Find the names in a text, with no model: names that are known already, and those that the text shows to be names."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from palimpsest.core.models import MAX_NAME_CHARS, SELF_NAMES, EntityType, NamedEntity, name_key
from palimpsest.text.names.capitals import capital_spans, kind_by_own_words
from palimpsest.text.names.known_names import Span, beginning, known_names, words_of
from palimpsest.text.names.lexicon import CUES
from palimpsest.text.names.technical import code_spans, technical_spans
from palimpsest.text.names.uncased import uncased_spans

_TITLE = re.compile(
    r"[\"\u201c\u201e\u00ab][\s\u00a0]*([A-Z\u00c0-\u00de\u0410-\u042f][\w'\u2019-]*(?:[ ,]+[\w'\u2019-]+){1,8})"
    r"[\s\u00a0]*[\"\u201d\u201c\u00bb]"
)
"""A title in quotation marks: several words, the first with a capital."""

_TITLE_BEFORE = re.compile(
    r"\b(?:titre|titles?|titel|título|titolo|titled|entitled|intitulée?|названи\w+)\b[^.!?]{0,30}$", re.IGNORECASE
)
_QUOTED = re.compile(
    r"(?<![\w-])([^\W\d_][\w-]+)\s?[\"\u201c\u201e\u00ab][\s\u00a0]*([^\W\d_a-z][\w'\u2019&.-]*(?:[\s\u00a0][\w'\u2019&.-]+){0,5})"
    r"[\s\u00a0]*[\"\u201d\u201c\u00bb]"
)
"""A quotation that begins with a capital, and the word before it."""
_RUSSIAN_NOUNS: tuple[tuple[str, EntityType], ...] = (
    (
        "компани фирм завод банк магазин кафе ресторан издательств школ клуб театр клиник больниц отел агентств "
        "хор групп ферм пекарн",  # noqa: RUF001 - Russian
        "organization",
    ),
    ("пансионат санатори станци улиц посёлк деревн сел", "place"),
    ("книг роман фильм песн газет журнал рассказ повест сериал альбом поэм", "document"),
    ("программ приложени сервис систем машин библиотек", "product"),
    ("проект", "project"),
    ("фестивал конференци турнир", "event"),
)
"""How Russian nouns begin that say what the name in quotation marks after them is."""
MAX_ENDING = 3
"""How many letters the ending of a Russian noun has at most."""


def find_names(text: str, known: Mapping[str, EntityType]) -> list[NamedEntity]:
    """Return what a text names, each once and in the order of the text. `known` has the types of names by their keys.

    What may be a name or not is left out: a first word of a sentence, or a German noun, is one only if something else
    shows it. So is what is too long for a name, such as an address with a query.
    """
    text = beginning(text)
    taken: list[Span] = []
    covered = bytearray(len(text))
    for span in _spans(text, known, covered):
        if covered.find(1, span.start, span.end) < 0:
            taken.append(span)
            covered[span.start : span.end] = b"\1" * (span.end - span.start)
    named: dict[str, NamedEntity] = {}
    for span in sorted(taken, key=lambda span: span.start):
        key = name_key(span.name)
        if key and key not in SELF_NAMES and len(span.name) <= MAX_NAME_CHARS:
            named.setdefault(key, NamedEntity(span.name, known.get(key, span.type)))
    return list(named.values())


def _spans(text: str, known: Mapping[str, EntityType], covered: bytearray) -> Iterator[Span]:
    """Yield the parts of a text that name something, the surest first. The caller marks those it takes in `covered`."""
    words, technical = words_of(text), [*code_spans(text), *technical_spans(text)]
    if places := known_names(text, known):
        in_code = bytearray(len(text))
        for span in technical:
            in_code[span.start : span.end] = b"\1" * (span.end - span.start)
        longer = {span.start: span for span in capital_spans(text, words, in_code)}
        for place in places:
            span = Span(place.start, place.end, place.name, known[name_key(place.name)])
            whole = longer.get(span.start)
            yield whole if whole is not None and _is_part(span, whole) else span
    yield from technical
    for match in _TITLE.finditer(text):
        capitals = sum(word[0].isupper() for word in re.findall(r"\w{4,}", match[1]))
        is_title = capitals > 1 or _TITLE_BEFORE.search(text[max(0, match.start() - 60) : match.start()]) is not None
        if is_title and not match[1].endswith((".", "!", "?")):
            yield Span(match.start(1), match.end(1), match[1], "document")
    for match in _QUOTED.finditer(text):
        if kind := _quoted_type(match[1].casefold()):
            yield Span(match.start(2), match.end(2), match[2], kind)
    yield from uncased_spans(text)
    yield from capital_spans(text, words, covered)


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


def _quoted_type(noun: str) -> EntityType | None:
    """Return of what type something in quotation marks is by the noun before it; None if that does not show it."""
    noun = noun.rsplit("-", 1)[-1]
    kind = CUES.get(noun)
    if kind is not None and kind not in ("pet", "person"):
        return kind
    for stems, russian in _RUSSIAN_NOUNS:
        if any(noun.startswith(stem) and len(noun) - len(stem) <= MAX_ENDING for stem in stems.split()):
            return russian
    return None
