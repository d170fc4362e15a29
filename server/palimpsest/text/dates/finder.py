"""Find dates in questions and texts, in the languages of `vocabulary.txt`.

What is uncertain is left out: 03/05/2025 is no date, because nobody knows whether it is in March or in May; "may",
"march" or "April" alone is none either.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, time
from functools import lru_cache

from palimpsest.text.dates import spans
from palimpsest.text.dates.grammar import PATTERN, RULES, Phrase, Reader
from palimpsest.text.dates.spans import DateSpan, Period, Relation
from palimpsest.text.dates.tokens import items_of, tokens_of
from palimpsest.text.dates.vocabulary import UNSPACED, Item, Language, vocabulary
from palimpsest.text.stopwords import FUNCTION_WORDS

_YEARLY = frozenset("JMmwbqS")
_DIGITS_OF_A_YEAR = frozenset("IYZ")
_RELATIVE = frozenset("LlDRraAFihBWK")
"""Letters of what comes every year, of a year in digits, and of what counts from the time of the text."""

_UNIT_BEFORE = re.compile(r"t?[LlNdn]?[UuW]B[to]?$")
"""What makes "the week before 16 November" another date than "16 November"."""

_WORD = re.compile(r"[^\W\d_]+")
_CONTEXT_CHARS = 40
"""How far before a year its preposition may begin."""

MAX_KEPT, MAX_KEPT_CHARS = 2_048, 400
"""How many texts are kept with their dates, and how long they are at most: as long as search reads its candidates. A
question with a date reads the dates of all of them. Set by hand: one or two megabytes."""

_DIGIT = re.compile(r"\d")
_YEAR_OR_DATE = re.compile(r"(?<!\d)(?:19|20)\d\d(?!\d)|\d\.\s?\d|\d/\d|[Qq][1-4]|\d0(?:s|er)")


def dates_in(text: str, now: datetime) -> tuple[DateSpan, ...]:
    """Return the dates that a question or a text names, in the order in which it names them.

    `now` is the aware time that "yesterday" counts from. A date without a year is the last one, or the coming one if
    the text is about the future. Where the order of day and month is uncertain, as in 03/05/2025, there is no date; a
    full stop means that the day comes first. Days are days in UTC.
    """
    languages = _languages_of(text)
    if not languages:
        return ()
    today = now.astimezone(UTC).date()
    return _kept_dates_in(text, today) if len(text) <= MAX_KEPT_CHARS else _dates_in(text, today, languages)


@lru_cache(maxsize=MAX_KEPT)
def _kept_dates_in(text: str, today: date) -> tuple[DateSpan, ...]:
    return _dates_in(text, today, _languages_of(text))


def _dates_in(text: str, today: date, languages: Sequence[Language]) -> tuple[DateSpan, ...]:
    tokens = tokens_of(text)
    found = [
        span
        for language in languages
        for span in _in_language(text, items_of(tokens, language), today)
        if span.phrase.casefold() not in language.homographs or _may_be_in(language, text)
    ]
    return _longest(found) if len(found) > 1 else tuple(found)


def _languages_of(text: str) -> list[Language]:
    """Return the languages in which the text may name a date, by the words in it."""
    known = vocabulary()
    words = _WORD.findall(text.casefold())
    languages: list[Language] = []
    if not known.triggers.isdisjoint(words):
        languages += [language for word in words for language in known.date_words.get(word, ())]
        # "week" is a word of several languages. In those where nothing in the text says which week, it is no date.
        of_movers = {language for word in words for language in known.movers.get(word, ())}
        languages += [language for word in words for language in known.units.get(word, ()) if language in of_movers]
    if _DIGIT.search(text):
        for number in _YEAR_OR_DATE.finditer(text):
            # A year counts in the languages of the preposition before it. Other dates in digits have no language.
            languages.append(known.languages[0])
            for word in text[max(number.start() - _CONTEXT_CHARS, 0) : number.start()].split()[-2:]:
                languages += known.all_words.get(word.casefold(), ())
    if not text.isascii() and _han_words().search(text):
        languages += [language for language in known.languages if language.name == UNSPACED]
    return list(dict.fromkeys(languages)) if languages else languages


@lru_cache(maxsize=1)
def _han_words() -> re.Pattern[str]:
    """Return the pattern of the characters that make dates in Chinese and Japanese."""
    known = vocabulary()
    chars = "".join(dict.fromkeys(char for word in known.han_words if word in known.date_words for char in word))
    return re.compile(f"[{re.escape(chars)}年月日号號]")


def _may_be_in(language: Language, text: str) -> bool:
    """Return whether no other language has more function words in a text."""
    words = _WORD.findall(text.casefold())
    counts = {name: sum(word in known for word in words) for name, known in FUNCTION_WORDS.items()}
    return counts[language.name] == max(counts.values())


def _in_language(text: str, items: Sequence[Item], today: date) -> Iterator[DateSpan]:
    """Yield the dates that the parts of a text name."""
    letters = "".join(item.letter for item in items)
    is_future = "f" in letters
    for match in PATTERN.finditer(letters):
        first, last = match.span()
        phrase = Phrase(items[first:last], today, is_future)
        period = _read(RULES[int((match.lastgroup or "r0")[1:])][1], phrase)
        if period is None:
            continue
        before = _UNIT_BEFORE.search(letters, 0, first)
        relation: Relation = "in"
        if before is not None and (earlier := _read_before(items[before.start() : first], period)) is not None:
            period, first = earlier, before.start() + (letters[before.start()] == "t")
        else:
            relation = _relation(letters[max(first - 2, 0) : first])
        yield _span(text, items[first:last], period, relation)


def _read(reader: Reader, phrase: Phrase) -> Period | None:
    """Return the period that a phrase names, or None if there is none or if it lies beyond the calendar."""
    try:
        return reader(phrase)
    except (ValueError, OverflowError):
        return None


def _read_before(items: Sequence[Item], period: Period) -> Period | None:
    """Return the unit or the weekday before a period, as in "the week before 16 November"."""
    phrase = Phrase(items, period.start, is_future=False)
    weekday = phrase.number("W")
    if weekday is not None:
        return spans.choose_weekday(weekday, period.start, "last")
    return _read(lambda phrase: spans.unit_period(phrase.unit, phrase.today, -(phrase.number("Ndn") or 1)), phrase)


def _relation(before: str) -> Relation:
    """Return what the words before a date make of it."""
    preposition = before.rstrip("t")[-1:]
    return "before" if preposition in ("B", "A") else "since" if preposition == "G" else "in"


def _span(text: str, items: Sequence[Item], period: Period, relation: Relation) -> DateSpan:
    letters = {item.letter for item in items}
    has_year = bool(letters & _DIGITS_OF_A_YEAR)
    is_relative = bool(letters & _RELATIVE) and not has_year
    start, end = items[0].start, items[-1].end
    return DateSpan(
        datetime.combine(period.start, time(), UTC),
        datetime.combine(period.end, time(), UTC),
        period.unit,
        text[start:end],
        start,
        is_relative=is_relative,
        is_year_guessed=bool(letters & _YEARLY) and not has_year and not is_relative,
        relation=relation,
    )


def _longest(found: Sequence[DateSpan]) -> tuple[DateSpan, ...]:
    """Return dates that do not overlap in the text. The longest phrase wins, then the language found first."""
    kept: list[DateSpan] = []
    for span in sorted(found, key=lambda span: -len(span.phrase)):
        end = span.position + len(span.phrase)
        if all(end <= other.position or other.position + len(other.phrase) <= span.position for other in kept):
            kept.append(span)
    return tuple(sorted(kept, key=lambda span: span.position))
