"""Compare what is in a memory at the end of a case with what should be."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cases.data import Expected, Related, has_words
from cases.run import End
from palimpsest.core.models import KnownRelation


def failures(expected: Expected, end: End) -> list[str]:
    """Return a line for each expectation that does not hold, empty if the case passed."""
    judges = (_memories, _entities, _relations, _notes)
    return [line for judge in judges for line in judge(expected, end)]


def _memories(expected: Expected, end: End) -> Iterator[str]:
    texts = [held.memory.text for held in end.living]
    yield from _stored(expected, end)
    for item in expected.closed:
        fitting = [stored for stored in end.closed if item.fits(stored.text)]
        until = [stored.valid_until.isoformat() if stored.valid_until else "an unknown time" for stored in fitting]
        if not fitting:
            yield f"not closed: {item}"
        elif item.until and not any(date.startswith(item.until) for date in until):
            yield f"closed until {', '.join(until)}, not {item.until}: {item}"
    for item in expected.forgotten:
        yield from (f"not forgotten: {text}" for text in texts if item.fits(text))
        yield from (f"shown to '{item.question}': {text}" for text in end.hits[item.question] if item.fits(text))
    everything = [*texts, *(stored.text for stored in (*end.closed, *end.deleted))]
    for item in expected.absent:
        yield from (f"should be in no memory ({item}): {text}" for text in everything if item.fits(text))
    for item in expected.limits:
        count = sum(map(item.fits, texts))
        if count > item.at_most:
            yield f"{count} memories instead of {item.at_most} at most: {item}"


def _stored(expected: Expected, end: End) -> Iterator[str]:
    for item in expected.stored:
        fitting = [held for held in end.living if item.fits(held.memory.text)]
        if not fitting:
            yield f"not stored: {item}"
            continue
        dates = {held.memory.date for held in fitting}
        if item.date and item.date not in dates:
            yield f"dated {', '.join(sorted(dates))}, not {item.date}: {item}"
        tags = {tag for held in fitting for tag in held.memory.tags}
        if item.tag and not tags & set(item.tag.split("|")):
            yield f"tagged {', '.join(sorted(tags)) or 'with nothing'}, not {item.tag}: {item}"
        if item.replaced and not any(has_words(text, item.replaced) for held in fitting for text in held.earlier):
            yield f"its history names nothing with {', '.join(item.replaced)}: {item}"


def _entities(expected: Expected, end: End) -> Iterator[str]:
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


def _relations(expected: Expected, end: End) -> Iterator[str]:
    for item in expected.related:
        if not any(relation.is_current for relation in _fitting(item, end.related)):
            yield f"not related: {item}"
    for item in expected.formerly_related:
        fitting = _fitting(item, end.related)
        until = [relation.valid_until for relation in fitting]
        if any(relation.is_current for relation in fitting):
            yield f"still related: {item}"
        elif not fitting:
            yield f"not known to have been related: {item}"
        elif not any(date.startswith(item.until) for date in until):
            yield f"related until {', '.join(date or 'an unknown time' for date in until)}, not {item.until}: {item}"
    for item in expected.unrelated:
        yield from (f"should not be related: {relation.line}" for relation in _fitting(item, end.related))


def _fitting(item: Related, known: Sequence[KnownRelation]) -> list[KnownRelation]:
    return [
        relation
        for relation in known
        if has_words(relation.source, [item.source])
        and has_words(relation.relationship, [item.name])
        and has_words(relation.destination, [item.destination])
    ]


def _notes(expected: Expected, end: End) -> Iterator[str]:
    for words in expected.notes:
        if not any(has_words(note, [words]) for note in end.notes):
            yield f"no reply says: {words}"
    for words in expected.no_notes:
        yield from (f"a reply says: {note}" for note in end.notes if has_words(note, [words]))
