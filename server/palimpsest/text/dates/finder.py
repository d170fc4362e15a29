"""Find dates in questions and texts, in the languages of `vocabulary.txt`.

What is uncertain is left out: 03/05/2025 is no date, because nobody knows whether it is in March or in May; "may",
"march" or "April" alone is none either. Nor is a weekday if nothing says whether it is the last or the coming one.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import date, datetime, time, tzinfo
from functools import cache, cached_property, lru_cache
from itertools import islice, pairwise

from palimpsest.core.models import Memory
from palimpsest.core.search.hits import Hit
from palimpsest.text.dates import spans
from palimpsest.text.dates.direction import Direction, Directions
from palimpsest.text.dates.grammar import (
    DAY_READERS,
    EITHER,
    PATTERN,
    RULES,
    Phrase,
    Reader,
    counted_day,
    counted_weekday,
    numeric,
    offset,
    weekday,
)
from palimpsest.text.dates.spans import DateSpan, Period, Relation
from palimpsest.text.dates.tokens import Token, items_of, tokens_of
from palimpsest.text.dates.vocabulary import UNSPACED, WORD, Item, Language, vocabulary
from palimpsest.text.stopwords import FUNCTION_WORDS

_YEARLY = frozenset("JMmwbqS")
_DIGITS_OF_A_YEAR = frozenset("IYZ")
_DATES, _WEEKDAYS = frozenset("IJMmwb"), frozenset("WKkH")
_RELATIVE = frozenset("LlDRraAFihBWKk")
"""Letters of what comes every year, of a year in digits, and of what counts from the time of the text."""

_WEEKDAY_READERS: tuple[Reader, ...] = (weekday, counted_day, counted_weekday)
"""The readers of days that are told by the direction of the sentence."""

_UNIT_BEFORE = re.compile(r"t?[LlNdn]?[UuW]B[to]?$")
"""What makes "the week before 16 November" another date than "16 November"."""

_CONTEXT_CHARS = 40
"""How far before a year its preposition may begin."""

MAX_KEPT, MAX_KEPT_CHARS = 2_048, 400
"""How many texts are kept with their dates, and how long they are at most: as long as search reads its candidates. A
question with a date reads the dates of all of them. Set by hand: one or two megabytes."""

MAX_CHARS = 20_000
"""In how much of a text dates are looked for. Set by hand: a chapter, which takes a tenth of a second."""

MAX_DATES = 200
"""How many dates of a text are read at most in each language. Set by hand: a page of a calendar."""

UNIT_REACH = 8
"""How many words before a date may say that another date is meant, as "the two weeks before"."""

MAX_ALONE = 12
"""How many words a text has at most that is nothing but a date."""

_CONTEXT_BEFORE = re.compile("[PiABGhg]t?$|t$")
_ARTICLE_OF_HABITS = ("fr", "it")
"""The languages in which a weekday with its article is every one: "le mercredi"."""

_OTHER_WORDS = frozenset("xzcVnky(")
"""Letters of what does not stand in a text that is nothing but a date."""

_DIGIT = re.compile(r"\d")
_KOREAN_DAY = re.compile(r"\d월")
_SHORT_WEEKDAY = re.compile(
    r"\b(?:by|until|till|before) (?:mon|tues?|weds?|thurs?|thu|fri|sat|sun)\b"
    r"|\bon (?-i:Mon|Tues?|Weds?|Thurs?|Thu|Fri|Sat|Sun)\b",
    re.IGNORECASE,
)
"""Weekdays in short are too common as words of other languages to make a date without their preposition."""

_YEAR_OR_DATE = re.compile(r"(?<!\d)(?:19|20)\d\d(?!\d)|\d\.\s?\d|\d/\d|[Qq][1-4]|\d0(?:s|er)|\d ?(?:[ap]m|Uhr|uur)\b")


def dates_in(text: str, now: datetime, *, guesses: bool = False) -> tuple[DateSpan, ...]:
    """Return the dates that a question or a text names, in the order in which it names them.

    `now` is the aware time that "yesterday" counts from. A weekday, or a day without a year, is the last or the coming
    one by the words around it; if they do not tell, it is no date, or with `guesses` the last one. Where the order of
    day and month is uncertain, as in 03/05/2025, there is no date; a full stop means that the day comes first. Days are
    those of the zone of `now`. Behind the first `MAX_CHARS` characters of a text no dates are looked for.
    """
    found = _all_dates_in(text[:MAX_CHARS], now)
    return found if guesses else tuple(span for span in found if not span.is_guess)


def date_and_sense(shown: Memory | Hit, text: str) -> str:
    """Return the date of a memory as its line begins: "on" or "in" when it happened, or when it was "said".

    A text that names no time could only mean when it was said, which takes no word.
    """
    if shown.is_event_date:
        return f"{'in' if shown.at_precision in ('month', 'year') else 'on'} {shown.date}"
    return f"said {shown.date}" if dates_in(text, shown.at, guesses=True) else shown.date


def _all_dates_in(text: str, now: datetime) -> tuple[DateSpan, ...]:
    languages = _languages_of(text)
    if not languages:
        return ()
    today, zone = now.date(), now.tzinfo
    if len(text) <= MAX_KEPT_CHARS:
        return _kept_dates_in(text, today, zone)
    return _dates_in(text, today, zone, languages)


@lru_cache(maxsize=MAX_KEPT)
def _kept_dates_in(text: str, today: date, zone: tzinfo | None) -> tuple[DateSpan, ...]:
    return _dates_in(text, today, zone, _languages_of(text))


def _dates_in(text: str, today: date, zone: tzinfo | None, languages: Sequence[Language]) -> tuple[DateSpan, ...]:
    tokens = tokens_of(text)
    counts = _function_words(text, languages)
    found: list[DateSpan] = []
    # Where languages share a word, the one with most words of the text comes first, and so decides.
    for language in sorted(languages, key=lambda language: -counts.get(language.name, 0)):
        is_likely = counts.get(language.name, 0) == max(counts.values())
        found += [
            span
            for span in _in_language(text, tokens, language, today, zone)
            if is_likely
            or " " in span.phrase
            or (span.start < span.end and span.phrase.casefold() not in language.homographs)
        ]
    return tuple(span for span in _longest(found) if span.start < span.end)


def _languages_of(text: str) -> list[Language]:
    """Return the languages in which the text may name a date, by the words in it."""
    known = vocabulary()
    words = WORD.findall(text.casefold())
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
    if _SHORT_WEEKDAY.search(text):
        languages.append(known.languages[0])
    if _KOREAN_DAY.search(text):
        languages += [language for language in known.languages if language.name == "ko"]
    if not text.isascii() and _han_words().search(text):
        languages += [language for language in known.languages if language.name == UNSPACED]
    return list(dict.fromkeys(languages)) if languages else languages


@lru_cache(maxsize=1)
def _han_words() -> re.Pattern[str]:
    """Return the pattern of the characters that make dates in Chinese and Japanese."""
    known = vocabulary()
    chars = "".join(dict.fromkeys(char for word in known.han_words if word in known.date_words for char in word))
    return re.compile(f"[{re.escape(chars)}年月日号號]")


def _function_words(text: str, languages: Sequence[Language]) -> dict[str, int]:
    """Return how many function words each language has in a text."""
    words = WORD.findall(text.casefold())
    known = {language.name: _own_function_words(language) for language in languages} | FUNCTION_WORDS
    return {name: sum(word in own for word in words) for name, own in known.items()}


@cache
def _own_function_words(language: Language) -> frozenset[str]:
    return frozenset(word for word, cues in language.cues.words.items() if "function" in cues)


def _in_language(
    text: str, tokens: Sequence[Token], language: Language, today: date, zone: tzinfo | None
) -> Iterator[DateSpan]:
    """Yield the dates that the parts of a text name."""
    items = items_of(tokens, language)
    letters = "".join(item.letter for item in items)
    directions = _Directions(text, tokens, language, letters)
    weekdays: list[tuple[DateSpan, Direction]] = []
    for match in islice(PATTERN.finditer(letters), MAX_DATES):
        first, last = match.span()
        reader = RULES[int((match.lastgroup or "r0")[1:])][1]
        phrase = Phrase(items[first:last], today)
        direction = directions.of(phrase, reader, first)
        period = _read(reader, phrase._replace(direction=direction))
        if period is None and reader in _WEEKDAY_READERS:
            # What is no date in the longer phrase of a language is none by its weekday in another one, either.
            span = _span(text, items[first:last], Period(today, today, "day"), "in", zone)
            yield replace(span, end=span.start)
        if period is None:
            continue
        before = _UNIT_BEFORE.search(letters, max(first - UNIT_REACH, 0), first)
        relation: Relation = "in"
        is_moved = bool(directions.words.moved(items[first].start))  # "moved till Sunday" is on Sunday
        earlier = None if before is None or is_moved else _read_before(items[before.start() : first], period)
        if before is not None and earlier is not None:
            period, first = earlier, before.start() + (letters[before.start()] == "t")
        elif not is_moved:
            relation = _relation(letters[max(first - 2, 0) : first])
        span = _span(text, items[first:last], period, relation, zone)
        if reader in DAY_READERS:
            named = phrase.weekday
            is_guess = span.is_year_guessed and direction not in ("past", "coming")
            yield replace(
                span,
                is_guess=is_guess and (named is None or named != period.start.weekday()),
                disagrees=named is not None and period.unit == "day" and named != period.start.weekday(),
            )
        elif reader is numeric:
            yield replace(span, disagrees=phrase.weekday not in (None, period.start.weekday()) and period.unit == "day")
        elif reader is weekday and phrase.number("Ll") is None:
            is_guess = direction not in ("past", "coming") or (period.start == today and not directions.is_alone)
            weekdays.append((replace(span, is_guess=is_guess), direction))
        else:
            yield span
    yield from _without_habits(weekdays, directions)


class _Directions:
    """In which direction the days of a text lie that may lie in either, in one language."""

    def __init__(self, text: str, tokens: Sequence[Token], language: Language, letters: str) -> None:
        self.words = Directions(text, tokens, language)
        self._language = language
        self._letters = letters

    @cached_property
    def is_future(self) -> bool:
        """Return whether the text says that it is about the future."""
        return "f" in self._letters

    @cached_property
    def is_alone(self) -> bool:
        """Return whether a text is nothing but a date. People ask so for what was."""
        return len(self._letters) <= MAX_ALONE and not set(self._letters) & _OTHER_WORDS

    def of(self, phrase: Phrase, reader: Reader, first: int) -> Direction:
        """Return the direction of the phrase that begins at `first`; "habit" for what is no date."""
        is_day = reader in DAY_READERS and phrase.year is None
        is_either = reader is offset and (phrase.number("D") or 0) >= EITHER
        is_weekday = reader in _WEEKDAY_READERS
        if phrase.number("Ll") is not None or not (is_day or is_either or is_weekday):
            return "coming" if self.is_future else "past"
        context = _CONTEXT_BEFORE.search(self._letters, max(first - 2, 0), first)
        is_bare = context is None and self._letters[first] in "Wk"
        if self.is_alone and is_day and phrase.weekday is not None:
            return "coming" if self.is_future else ""
        if self.is_alone:
            return "habit" if is_bare and reader is weekday else "coming" if self.is_future else "past"
        start, end = phrase.items[0].start, phrase.items[-1].end
        if (is_day or reader is weekday) and (moved := self.words.moved(start)):
            return moved
        if (
            reader is weekday
            and context is not None
            and context[0] == "t"
            and self._language.name in _ARTICLE_OF_HABITS
        ):
            return "habit"
        if reader is weekday and is_bare and self.words.has_determiner(start):
            return "habit"
        direction = self.words.of(start, end, is_yearly=is_day)
        if not direction and context is not None and "B" in context[0]:
            return "coming"
        return "habit" if not direction and is_bare and reader is weekday else direction


def _without_habits(weekdays: Sequence[tuple[DateSpan, Direction]], directions: _Directions) -> Iterator[DateSpan]:
    """Yield the weekdays; habits without a duration, as those that stand together and are not in the past."""
    together: set[int] = set()
    for number, ((span, _), (following, _)) in enumerate(pairwise(weekdays)):
        is_joined = directions.words.are_joined(span.position + len(span.phrase), following.position)
        if is_joined and not directions.words.moved(following.position):
            together |= {number, number + 1}
    for number, (span, direction) in enumerate(weekdays):
        is_habit = direction == "habit" or (number in together and direction != "past")
        # What is a habit in the language of a text is no date in another one that has the word, too.
        yield replace(span, end=span.start) if is_habit else span


def _read(reader: Reader, phrase: Phrase) -> Period | None:
    """Return the period that a phrase names, or None if there is none or if it lies beyond the calendar."""
    try:
        return reader(phrase)
    except (ValueError, OverflowError):
        return None


def _read_before(items: Sequence[Item], period: Period) -> Period | None:
    """Return the unit or the weekday before a period, as in "the week before 16 November"."""
    phrase = Phrase(items, period.start)
    if (named := phrase.number("W")) is not None:
        return spans.choose_weekday(named, period.start, "last")
    return _read(lambda phrase: spans.unit_period(phrase.unit, phrase.today, -(phrase.number("Ndn") or 1)), phrase)


def _relation(before: str) -> Relation:
    """Return what the words before a date make of it."""
    preposition = before.rstrip("t")[-1:]
    return "before" if preposition in ("B", "A") else "since" if preposition == "G" else "in"


def _span(text: str, items: Sequence[Item], period: Period, relation: Relation, zone: tzinfo | None) -> DateSpan:
    letters = {item.letter for item in items}
    if letters & _DATES:
        letters -= _WEEKDAYS  # beside a date
    has_year = bool(letters & _DIGITS_OF_A_YEAR)
    is_relative = bool(letters & _RELATIVE) and not has_year
    start, end = items[0].start, items[-1].end
    return DateSpan(
        datetime.combine(period.start, time(), zone),
        datetime.combine(period.end, time(), zone),
        period.unit,
        text[start:end],
        start,
        is_relative=is_relative,
        is_year_guessed=bool(letters & _YEARLY) and not has_year and not is_relative,
        relation=relation,
    )


def _longest(found: Sequence[DateSpan]) -> list[DateSpan]:
    """Return dates that do not overlap in the text. The longest phrase wins, then the language found first."""
    kept: list[DateSpan] = []
    starts: list[int] = []
    for span in sorted(found, key=lambda span: (-len(span.phrase), span.start < span.end)):
        end, place = span.position + len(span.phrase), bisect_left(starts, span.position)
        is_free_before = place == 0 or starts[place - 1] + len(kept[place - 1].phrase) <= span.position
        if is_free_before and (place == len(starts) or end <= starts[place]):
            kept.insert(place, span)
            starts.insert(place, span.position)
    return kept
