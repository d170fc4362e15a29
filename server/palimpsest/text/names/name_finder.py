"""Find the names in a text, with no model: names that are known already, and those that the text shows to be names."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace

from palimpsest.core.models import MAX_NAME_CHARS, SELF_NAMES, EntityType, NamedEntity, name_key
from palimpsest.text.names.capitals import capital_spans, kind_by_own_words
from palimpsest.text.names.known_names import Span, beginning, known_names, span_of, words_of
from palimpsest.text.names.lexicon import CUES, UNMISTAKABLE, WELL_KNOWN, WORDS, is_english_word, is_given_name
from palimpsest.text.names.uncased import uncased_spans
from palimpsest.text.stopwords import ALL_FUNCTION_WORDS
from palimpsest.text.word_lists import patterns, word_sets

_RE = patterns("palimpsest.text.names", "name_finder.txt")
_WORDS = word_sets("palimpsest.text.names", "name_finder.txt")

# Find what programs know by name: handles, hosts, addresses, file paths, and identifiers of code.


TWO = 2
"""A name with one dot may also be the end of a sentence."""


def code_spans(text: str) -> Iterator[Span]:
    """Yield codes that the words before them show, such as "E-417" in "error E-417", and people's initials: "M.C."."""
    for match in _RE["code"].finditer(text):
        if _RE["code before"].search(text[max(0, match.start() - 40) : match.start()]):
            yield span_of(match, group=0)
    for match in _RE["cyrillic code"].finditer(text):
        yield span_of(match, group=0)
    for match in _RE["initials"].finditer(text):
        if match[0].replace(".", "") not in _WORDS["no initials"]:
            yield span_of(match, "person", 0)


def technical_spans(text: str) -> Iterator[Span]:
    """Yield what programs know by name, and without a name what holds no names: commands, mail addresses, numbers."""
    for match in _RE["ascii"].finditer(text):
        kind = match.lastgroup or ""
        is_whole = kind == "identifier" or match[0].endswith("()")
        name = match[0] if is_whole else match[0].rstrip(".,;:!?)")
        start, end = match.start(), match.start() + len(name)
        if kind == "code":
            inner = match[0].strip("`")
            name = inner if not re.search(r"\s", inner) and re.match(r"[\w./@#~$]*[A-Za-z]", inner) else ""
            yield Span(start, match.end(), name)
        elif kind in ("command", "mail", "plate"):
            yield Span(start, match.end())
        elif kind == "number":
            continue
        elif kind in ("address", "handle", "channel", "qualified"):
            yield Span(start, end, name)
        elif kind == "path":
            yield Span(start, end, name if _is_path(name, text[max(0, start - 24) : start]) else "")
        elif (found := _code_type(name)) and not _RE["number before"].search(text[max(0, start - 40) : start]):
            yield Span(start, end, name, found)
        elif found or kind == "dotted":
            yield Span(start, end)


def _is_path(name: str, before: str) -> bool:
    segments = [segment for segment in re.split(r"[/\\]", name) if segment]
    is_alone = name[0] == "/" and len(segments) == 1
    if is_alone and not _RE["file"].fullmatch(segments[0]):  # "/script" is a command of a client
        return _RE["folder before"].search(before) is not None
    if name[0] in "/~\\" or name[1:2] == ":" or name.startswith("."):
        has_word = any(len(re.sub(r"[^A-Za-z]", "", segment)) > 1 for segment in segments)
        return has_word and not re.fullmatch(r"/v?\d*/?", name)
    if _RE["file"].fullmatch(segments[-1]) or len(segments) > 3:  # noqa: PLR2004 - "a/b/c" may still be alternatives
        return True
    if any(segment.casefold() in ALL_FUNCTION_WORDS or not re.search(r"[a-z]", segment) for segment in segments):
        return False
    if re.search(r"[_.@\d]|\w-\w", name) and name == name.lower():
        return True
    return name == name.lower() and _RE["folder before"].search(before) is not None


def _code_type(name: str) -> EntityType | None:
    """Return the type of an identifier: "product" for a name as brands write it. None if it is a plain word."""
    if name.isalpha() and (name.islower() or name.istitle()):  # most words
        return "product" if name in UNMISTAKABLE else None
    if name in WELL_KNOWN:
        return None  # its capital shows it, and it may be part of a longer name
    if "." in name.strip("."):
        return _dotted_type(name)
    is_common = name in _WORDS["names of any project"] or name.casefold() in WORDS["never"]
    if is_common or _RE["no code"].fullmatch(name) or _RE["personal"].fullmatch(name):
        return None
    if _RE["snake"].fullmatch(name):
        return "other"
    if _RE["camel"].fullmatch(name) and re.search(r"[a-z]", name):
        return "product" if name[0].isupper() or name[:2] in ("iP", "iO", "eB", "iC", "iM") else "other"
    return "other" if any(form.fullmatch(name) for form in (_RE["ticket"], _RE["machine"], _RE["program"])) else None


def _dotted_type(name: str) -> EntityType | None:
    labels = [label for label in name.removesuffix("()").split(".") if label]
    if _RE["file"].fullmatch(name):
        return "product" if name[0].isupper() and name.endswith((".js", ".io")) else "other"
    is_short = any(all(len(label) == 1 for label in some) for some in (labels[1:], labels[:-1]))
    if is_short or any(not label[0].isalpha() and label[0] != "_" and not label.isdigit() for label in labels):
        return None
    is_host = _RE["host"].fullmatch(name) and labels[-1] not in _WORDS["domains that are words"]
    if is_host or len(labels) > TWO or any(re.search(r"[_\d-]|[a-z][A-Z]", label) for label in labels):
        return "other"
    first, second = labels
    # The space after a full stop may lack.
    is_sentence_end = is_english_word(second) or second.casefold() in ALL_FUNCTION_WORDS
    if first.islower() and second[0].isupper():
        return None if is_sentence_end else "other"
    is_code = first.islower() and second.islower() and not (is_english_word(first) and is_sentence_end)
    return "other" if is_code else None


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
    people = [key for key, entity in named.items() if entity.type == "person"]
    first_names = Counter(key.split()[0] for key in people if " " in key)
    # "Joris wants a viola; he is Joris Claes": one person, by the whole name.
    return [entity for key, entity in named.items() if key not in people or first_names[key] != 1]


def _spans(text: str, known: Mapping[str, EntityType], covered: bytearray) -> Iterator[Span]:
    """Yield the parts of a text that name something, the surest first. The caller marks those it takes in `covered`."""
    words, technical = words_of(text), [*code_spans(text), *technical_spans(text)]
    if places := known_names(text, known):
        in_code = bytearray(len(text))
        for span in technical:
            in_code[span.start : span.end] = b"\1" * (span.end - span.start)
        longer = [*capital_spans(text, words, in_code)]
        by_start, by_end = {span.start: span for span in longer}, {span.end: span for span in longer}
        for place in places:
            span = replace(place, type=known[name_key(place.name)])
            wholes = (by_start.get(span.start), by_end.get(span.end))
            yield next((whole for whole in wholes if whole is not None and _is_part(span, whole)), span)
    yield from technical
    for match in _RE["title"].finditer(text):
        capitals = sum(word[0].isupper() for word in re.findall(r"\w{4,}", match[1]))
        before = text[max(0, match.start() - 60) : match.start()]
        is_title = capitals > 1 or _RE["title before"].search(before) is not None
        if is_title and not match[1].endswith((".", "!", "?")):
            yield span_of(match, "document", 1)
    for match in _RE["quoted"].finditer(text):
        if kind := _quoted_type(match[1].casefold()):
            yield span_of(match, kind, 2)
    yield from uncased_spans(text)
    yield from capital_spans(text, words, covered)


def _is_part(span: Span, whole: Span) -> bool:
    """Return whether a known name is only a part of a longer one, of somebody or something else.

    "Tom" is known, and a text is about Tom Smith; "García", and it is about Sofia García; "Ghent" is known, and a text
    is about the Ghent Amateur Orchestra. A name that goes on without such a sign may be the known one with a word about
    it, such as "Stripe API".
    """
    if span.type == "person" and whole.name.endswith(f" {span.name}"):
        return whole.type == "person" and is_given_name(whole.name.split()[0])
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
    russian: tuple[EntityType, ...] = ("organization", "place", "document", "product", "project", "event")
    return next((kind for kind in russian if _RE[kind].fullmatch(noun)), None)
