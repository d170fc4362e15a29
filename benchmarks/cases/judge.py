"""Compare what is in a memory at the end of a case with what should be."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cases.data import Closed, Expected, Pattern, Related, Stored
from cases.run import End, Held
from cases.words import has_any_word, has_words
from palimpsest.core.models import KnownRelation
from palimpsest.core.models import Memory as StoredMemory


def failures(expected: Expected, end: End) -> list[str]:
    """Return a line for each expectation that does not hold, empty if the case passed."""
    return [
        *_not_stored(expected.stored, end.living),
        *_not_closed(expected.closed, end.closed),
        *_not_forgotten(expected, end),
        *_not_absent(expected, end),
        *_too_many(expected, end),
        *_wrong_entities(expected, end),
        *_wrong_relations(expected, end.related),
        *_wrong_notes(expected, end.notes),
    ]


def described(pattern: Pattern) -> str:
    """Return what a pattern asks for, as a reader of the table sees it."""
    without = f", not {', '.join(pattern.without)}" if pattern.without else ""
    return f"{', '.join(pattern.words) or 'anything'}{without}"


def fits(pattern: Pattern, text: str) -> bool:
    """Return whether a text has all words of a pattern and none of those that it excludes."""
    return has_words(text, pattern.words) and not has_any_word(text, pattern.without)


def _not_stored(expected: Sequence[Stored], living: Sequence[Held]) -> Iterator[str]:
    for item in expected:
        fitting = [held for held in living if fits(item, held.memory.text)]
        if not fitting:
            yield f"not stored: {described(item)}"
            continue
        dates = {held.memory.date for held in fitting}
        if item.date and item.date not in dates:
            yield f"dated {', '.join(sorted(dates))}, not {item.date}: {described(item)}"
        tags = {tag for held in fitting for tag in held.memory.tags}
        if item.tag and not tags & set(item.tag.split("|")):
            yield f"tagged {', '.join(sorted(tags)) or 'with nothing'}, not {item.tag}: {described(item)}"
        if item.replaced and not any(has_words(text, item.replaced) for held in fitting for text in held.earlier):
            yield f"its history names nothing with {', '.join(item.replaced)}: {described(item)}"


def _not_closed(expected: Sequence[Closed], closed: Sequence[StoredMemory]) -> Iterator[str]:
    for item in expected:
        fitting = [stored for stored in closed if fits(item, stored.text)]
        until = [stored.valid_until.isoformat() if stored.valid_until else "an unknown time" for stored in fitting]
        if not fitting:
            yield f"not closed: {described(item)}"
        elif item.until and not any(date.startswith(item.until) for date in until):
            yield f"closed until {', '.join(until)}, not {item.until}: {described(item)}"


def _not_forgotten(expected: Expected, end: End) -> Iterator[str]:
    for item in expected.forgotten:
        for held in end.living:
            if fits(item, held.memory.text):
                yield f"not forgotten: {held.memory.text}"
        for text in end.hits[item.question]:
            if fits(item, text):
                yield f"shown to '{item.question}': {text}"


def _not_absent(expected: Expected, end: End) -> Iterator[str]:
    memories = [*(held.memory for held in end.living), *end.closed, *end.deleted]
    for item in expected.absent:
        for stored in memories:
            if fits(item, stored.text):
                yield f"should be in no memory ({described(item)}): {stored.text}"


def _too_many(expected: Expected, end: End) -> Iterator[str]:
    for item in expected.limits:
        count = sum(fits(item, held.memory.text) for held in end.living)
        if count > item.at_most:
            yield f"{count} memories instead of {item.at_most} at most: {described(item)}"


def _wrong_entities(expected: Expected, end: End) -> Iterator[str]:
    for item in expected.entities:
        entities = end.entities[item.name]
        if len(entities) != item.count:
            names = ", ".join(entity.name for entity in entities) or "nobody and nothing"
            yield f"'{item.name}' means {names} instead of {item.count}"
            continue
        for entity in entities:
            if item.shown and not has_words(entity.name, [item.shown]):
                yield f"'{item.name}' is shown as {entity.name}, not {item.shown}"
            if item.type and entity.type != item.type:
                yield f"'{item.name}' is of type {entity.type}, not {item.type}"


def _wrong_relations(expected: Expected, known: Sequence[KnownRelation]) -> Iterator[str]:
    for item in expected.related:
        if not any(relation.is_current for relation in _fitting(item, known)):
            yield f"not related: {related(item)}"
    for item in expected.formerly_related:
        fitting = _fitting(item, known)
        former = [relation for relation in fitting if not relation.is_current]
        if len(former) < len(fitting):
            yield f"still related: {related(item)}"
        elif not former:
            yield f"not known to have been related: {related(item)}"
        elif not any(relation.valid_until.startswith(item.until) for relation in former):
            until = ", ".join(relation.valid_until or "an unknown time" for relation in former)
            yield f"related until {until}, not {item.until}: {related(item)}"
    for item in expected.unrelated:
        for relation in _fitting(item, known):
            yield f"should not be related: {relation.line}"


def related(item: Related) -> str:
    """Return what a pattern of a relation asks for, as a reader of the table sees it."""
    return f"{item.source} — {item.name} → {item.destination}"


def _fitting(item: Related, known: Sequence[KnownRelation]) -> list[KnownRelation]:
    return [
        relation
        for relation in known
        if has_words(relation.source, [item.source])
        and has_words(relation.relationship, [item.name])
        and has_words(relation.destination, [item.destination])
    ]


def _wrong_notes(expected: Expected, notes: Sequence[str]) -> Iterator[str]:
    for words in expected.notes:
        if not any(has_words(note, [words]) for note in notes):
            yield f"no reply says: {words}"
    for words in expected.no_notes:
        for note in notes:
            if has_words(note, [words]):
                yield f"a reply says: {note}"
