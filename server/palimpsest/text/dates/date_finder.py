"""Find dates in questions and texts, in the languages of `vocabulary.txt`.

What is uncertain is left out: 03/05/2025 is no date, because nobody knows whether it is in March or in May; "may",
"march" or "April" alone is none either. Nor is a weekday if nothing says whether it is the last or the coming one.
"""

from __future__ import annotations

import calendar
import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import replace
from datetime import MAXYEAR, MINYEAR, UTC, date, datetime, time, timedelta, tzinfo
from functools import cached_property, lru_cache, partial
from itertools import islice, pairwise, takewhile
from typing import Any, Literal, NamedTuple, TypeAlias

from palimpsest.core.clock import in_zone, span_of
from palimpsest.core.models import Hit, Memory
from palimpsest.text.dates import date_spans, vocabulary
from palimpsest.text.dates.date_spans import Choice, Cycle, DateSpan, Period, Relation, Unit
from palimpsest.text.dates.vocabulary import CLOCK, RE, UNSPACED, Cue, Item, Language, Token, phrase_at
from palimpsest.text.stopwords import FUNCTION_WORDS, function_word_counts
from palimpsest.text.word_lists import LazyPattern, filled

# In which direction a day lies that may lie in either; "" if nothing tells.
Direction: TypeAlias = Literal["past", "coming", "habit", "yearly", ""]


class Phrase(NamedTuple):
    """The words that a rule matched, the day they are read on, and in which direction a day lies that may be either."""

    items: Sequence[Item]
    today: date
    direction: Direction = ""

    def value(self, letters: str) -> Any:
        """Return the value of the first part with one of these letters, or None without one."""
        return next(iter(self.values(letters)), None)

    def values(self, letters: str) -> list[Any]:
        """Return the values of all parts with one of these letters."""
        return [item.value for item in self.items if item.letter in letters]

    @property
    def year(self) -> int | None:
        """Return the year that the phrase names, in digits or as in "last year"."""
        if (named := self.value("YZ")) is not None:
            return named
        _, distance = self.value("r") or ("", self.step if self.value("u") is not None else None)
        return None if distance is None else self.today.year + distance

    @property
    def step(self) -> int | None:
        """Return how many units after the present one the phrase means, as in "last year"; None if it does not say."""
        step = self.value("Ll")
        return 1 if step == COMING else step

    @property
    def number_of_units(self) -> int:
        """Return how many units the phrase names, 0 if none; "twenty-one" is two words."""
        return sum(self.values("Ndn"))

    @property
    def sign(self) -> int:
        """Return 1 for a distance into the future, -1 for one into the past."""
        return 1 if self.value("aA") is None else -1

    @property
    def unit(self) -> Unit:
        """Return the unit that the phrase names."""
        return self.value("Uu")

    @property
    def choice(self) -> Choice:
        """Return which of the periods that come again and again the phrase means."""
        step = self.value("Ll")
        if step is None:
            return "coming" if self.direction == "coming" else "past"
        return "this" if step == 0 else "last" if step < 0 else "next"

    @property
    def weekday(self) -> int | None:
        """Return the weekday that the phrase names."""
        return self.value("WKkH")

    def of_year(self, cycle: Cycle) -> Period | None:
        """Return the period in the year that is named, else the one that is meant."""
        if self.year is not None:
            return cycle(self.year)
        if self.weekday is not None and self.value("Ll") is None:
            near = filter(None, map(cycle, range(self.today.year - 1, self.today.year + 2)))
            agreeing = [period for period in near if period.start.weekday() == self.weekday]
            # The direction of the sentence outranks the year in which the weekday fits.
            if self.direction == "coming":
                agreeing = [period for period in agreeing if period.end > self.today]
            if self.direction == "past":
                agreeing = [period for period in agreeing if period.start <= self.today]
            if len(agreeing) == 1:
                return agreeing[0]
        if self.choice == "this":
            return cycle(self.today.year)
        return date_spans.choose(cycle, self.today.year, self.today, self.choice)


# A function from the words that a rule matched to the period that they name, or None if they name none.
Reader = Callable[[Phrase], Period | None]


def numeric(phrase: Phrase) -> Period | None:
    """Read "2026-12-01"."""
    year, month, *day = phrase.value("I")
    return date_spans.day_period(year, month, *day) if day else date_spans.month_period(year, month)


def _day(phrase: Phrase) -> Period | None:
    """Read "3 May", "3-5 May" and "3.5."."""
    month, *days = phrase.value("J") or (phrase.value("Mmwb"), *phrase.values("dO"))
    return phrase.of_year(lambda year: date_spans.day_period(year, month, *days[:2]))


def _month(phrase: Phrase) -> Period | None:
    month = phrase.value("Mmwb") or 0
    period = phrase.of_year(lambda year: date_spans.month_period(year, month))
    return None if period is None else date_spans.part_of(period, phrase.value("Ee"))


def _nth_of_month(phrase: Phrase) -> Period | None:
    """Read "the first week of June", "the last day of May" and "the last Monday in May"."""
    number, weekday, month = phrase.value("OdL") or 0, phrase.value("W"), phrase.value("Mmwb") or 0
    if number == 0 or (weekday is None and phrase.unit not in ("day", "week")):
        return None
    # The direction in "the last week of June" counts weeks, not years.
    rest = phrase._replace(items=[item for item in phrase.items if item.letter not in "OdLW"])

    def nth(year: int) -> Period | None:
        period = date_spans.month_period(year, month)
        if weekday is None and phrase.unit == "week":
            return date_spans.nth_week(period, number)
        return date_spans.nth_day(period, number, weekday)

    return rest.of_year(nth)


def _feast(phrase: Phrase) -> Period | None:
    """Read "at Easter" and "on the first Sunday of Advent"."""
    feast, number = phrase.value("T")
    return phrase.of_year(lambda year: date_spans.feast_period(feast, number, year))


def _day_of_month(phrase: Phrase) -> Period | None:
    """Read "on the 30th": the nearest month that has the day, in the direction of the sentence."""
    return _nth_near(phrase.value("d"), None, phrase.today, phrase.choice)


def _nth_near(number: int, weekday: int | None, today: date, choice: Choice) -> Period | None:
    def nth(distance: int) -> Period | None:
        return date_spans.nth_day(date_spans.unit_period("month", today, distance), number, weekday)

    return date_spans.choose(nth, 0, today, choice)


def _part_of_unit(phrase: Phrase) -> Period | None:
    """Read "at the end of the month" and "early next week"."""
    if phrase.unit not in ("week", "month", "year"):
        return None

    def part_at(distance: int) -> Period:
        return date_spans.part_of(date_spans.unit_period(phrase.unit, phrase.today, distance), phrase.value("E"))

    if phrase.step is None and phrase.direction in ("past", "coming"):
        return date_spans.choose(part_at, 0, phrase.today, phrase.choice)
    return part_at(phrase.step or 0)


def _nth_of_named_month(phrase: Phrase) -> Period | None:
    """Read "the first Tuesday of next month"; "the first Tuesday of the month" comes every month."""
    number, weekday, unit = phrase.value("OdL"), phrase.value("WK"), phrase.items[-1]
    step = phrase.items[-2] if unit.letter in "Uu" else phrase.items[-1]
    if phrase.unit != "month" or not number or weekday is None:
        return None
    if step.letter not in "Ll":  # "on the third Tuesday of the month": every one, but for what was
        return _nth_near(number, weekday, phrase.today, "past") if phrase.direction == "past" else None
    distance = 1 if step.value == COMING else step.value
    return date_spans.nth_day(date_spans.unit_period("month", phrase.today, distance), number, weekday)


def _year(phrase: Phrase) -> Period | None:
    year = date_spans.unit_period("year", date(phrase.year or 0, 1, 1), 0)
    return date_spans.part_of(year, phrase.value("Ee"))


def _season(phrase: Phrase) -> Period | None:
    cycle = partial(date_spans.season_period, season=phrase.value("S"))
    if phrase.year is None and phrase.choice == "this":
        return date_spans.choose(cycle, phrase.today.year, phrase.today, "this")
    return phrase.of_year(cycle)


def _quarter(phrase: Phrase) -> Period | None:
    number = phrase.value("qOd") or 0
    if phrase.value("q") is None and phrase.unit != "quarter":
        return None
    return phrase.of_year(lambda year: date_spans.unit_period("quarter", date(year, 3 * number - 2, 1), 0))


def _decade(phrase: Phrase) -> Period | None:
    decade = phrase.items[0].value
    return date_spans.unit_period("decade", date(decade if isinstance(decade, int) else decade[1], 1, 1), 0)


def offset(phrase: Phrase) -> Period | None:
    """Read "yesterday"; a word for both yesterday and tomorrow, as in Hindi, is one of them by the tense."""
    distance = phrase.value("D") or 0
    if distance < EITHER:
        return date_spans.unit_period("day", phrase.today, distance)
    sign = {"past": -1, "coming": 1}.get(phrase.direction)
    return None if sign is None else date_spans.unit_period("day", phrase.today, sign * (distance - EITHER))


def _period_and_day(phrase: Phrase) -> Period | None:
    """Read a day of a week or month that is named by its distance, as in "先週の金曜日" and "Montag letzter Woche".

    In Chinese 上周五 is the fifth day of last week, and 上周日 its last.
    """
    unit, distance = phrase.value("R") or (phrase.unit, phrase.step or 0)
    start = date_spans.unit_period(unit, phrase.today, distance).start
    named, day = phrase.weekday, phrase.value("dN")
    if unit == "week" and named is None:
        named = date_spans.SUNDAY if phrase.value("U") == "day" else (day or 0) - 1
    if unit == "week" and named is not None and 0 <= named <= date_spans.SUNDAY:
        return date_spans.unit_period("day", start, named)
    return date_spans.day_period(start.year, start.month, day) if day is not None and unit == "month" else None


def _unit(phrase: Phrase) -> Period | None:
    """Read "last week", and a word for it such as 上周."""
    unit, distance = phrase.value("Rr") or (phrase.unit, phrase.step or 0)
    return date_spans.unit_period(unit, phrase.today, distance)


def _several_units(phrase: Phrase) -> Period | None:
    """Read "the last two weeks"."""
    number, step = phrase.value("Ndn") or 0, phrase.step or 0
    if step < 0:
        first = date_spans.unit_period(phrase.unit, phrase.today, -number).start
        return Period(first, date_spans.one_day(phrase.today).end, phrase.unit)
    last = date_spans.unit_period(phrase.unit, phrase.today, number).end
    return Period(phrase.today, last, phrase.unit) if step > 0 else None


def _distance(phrase: Phrase) -> Period | None:
    """Read "two weeks ago" and "in two weeks": the calendar unit that lies so many units away."""
    return date_spans.unit_period(phrase.unit, phrase.today, phrase.sign * phrase.number_of_units)


def weekday(phrase: Phrase) -> Period | None:
    """Read "on Monday" and "next Monday", which is no date while it may be in this week or in the next."""
    day = phrase.weekday or 0
    step = phrase.value("Ll")
    if step == 1 and day > phrase.today.weekday():
        return None
    if step in (2, -2):
        nearest = date_spans.choose_weekday(day, phrase.today, "next" if step > 0 else "last")
        return date_spans.one_day(nearest.start + timedelta(7 if step > 0 else -7))
    return date_spans.choose_weekday(day, phrase.today, phrase.choice)


def counted_day(phrase: Phrase) -> Period | None:
    """Read "two weeks from tomorrow" and "heute vor einer Woche": so many units after or before a day."""
    distance = phrase.value("D") or 0
    if distance >= EITHER:
        return None
    day = phrase.today + timedelta(distance)
    if (weeks := phrase.value("j")) is not None:
        return date_spans.shifted("week", day, weeks) if phrase.direction != "past" else None
    return date_spans.shifted(phrase.unit, day, phrase.sign * phrase.number_of_units)


def counted_weekday(phrase: Phrase) -> Period | None:
    """Read "a week on Friday" and "Friday week".

    In "on Friday in two weeks" the weeks may be counted from today or from the weekday. Where these differ, it is none.
    """
    named = phrase.weekday or 0
    letters = {item.letter for item in phrase.items}
    count = phrase.value("j") or phrase.number_of_units or 1
    unit: Unit = "week" if "j" in letters else phrase.unit
    is_ahead = phrase.sign > 0
    if (is_ahead and phrase.direction == "past") or (unit != "week" and "g" not in letters):
        return None
    day = date_spans.choose_weekday(named, phrase.today, "coming" if is_ahead else "last").start
    from_weekday = date_spans.shifted(unit, day, phrase.sign * count)
    week = date_spans.unit_period("week", phrase.today, phrase.sign * count).start
    is_certain = not letters.isdisjoint("jg") or from_weekday == date_spans.one_day(week + timedelta(named))
    return from_weekday if is_certain else None


def _unit_before(phrase: Phrase) -> Period | None:
    """Read "the weekend before" at the end of a clause. "The day before" may be before anything."""
    return date_spans.unit_period(phrase.unit, phrase.today, -1) if phrase.unit != "day" else None


# The value of a word for the nearest one to come, as "the coming Friday"; "next Friday" may be the one after that.
COMING = 10

# What is added to how many days a word is away that says yesterday as well as tomorrow.
EITHER = 100

_READERS: dict[str, Reader] = {
    reader.__name__.strip("_"): reader
    for reader in (
        *(numeric, _day, _nth_of_month, _feast, _part_of_unit, _month, _quarter, _season, _year),
        *(_decade, _period_and_day, _nth_of_named_month, _several_units, counted_day, counted_weekday, _distance),
        *(_unit, offset, weekday, _unit_before, _day_of_month),
    )
}
# Patterns over the letters of words, with the functions that read them. At each place the first match counts.
RULES = tuple(
    (pattern, _READERS[name])
    for name, pattern in (
        rule.split(": ", 1) for rule in filled(vocabulary.SECTIONS["rules"], vocabulary.SECTIONS).splitlines()
    )
)

# The readers of days that may lack a year or a month.
DAY_READERS: tuple[Reader, ...] = (_day, _nth_of_month, _nth_of_named_month, _feast, _day_of_month)

# The readers of longer periods that may lack a year. They are past where nothing says that they are to come.
CYCLE_READERS: tuple[Reader, ...] = (_month, _season, _quarter, _part_of_unit)

# All rules as one pattern. The name of the group that matched is "r" and the number of the rule.
_ANY_RULE = LazyPattern(
    "(?=[^xzcPBGotfhgsyjHV(,.!-])(?:"
    + "|".join(f"(?P<r{number}>{pattern})" for number, (pattern, _) in enumerate(RULES))
    + ")"
)


_YEARLY = frozenset("JMmwbqST")
_DIGITS_OF_A_YEAR = frozenset("IYZ")
_DATES, _WEEKDAYS = frozenset("IJMmwbT"), frozenset("WKkH")
# Letters of what comes every year, of a year in digits, and of what counts from the time of the text.
_RELATIVE = frozenset("LlDRraAFihBWKk")

# The readers of days that are told by the direction of the sentence.
_WEEKDAY_READERS: tuple[Reader, ...] = (weekday, counted_day, counted_weekday)


# How far before a year its preposition may begin.
_CONTEXT_CHARS = 40

# How many texts are kept with their dates, and how long they are at most: as long as search reads its candidates. A
# question with a date reads the dates of all of them: one or two megabytes.
MAX_KEPT, MAX_KEPT_CHARS = 2_048, 400

# In how much of a text dates are looked for: a chapter, which takes a tenth of a second.
MAX_CHARS = 20_000

# How far apart two days of one story are at most. Its year is told with the first of them.
SAME_STORY = timedelta(120)

# How far away a day without a year is at most that is taken to be meant where nothing else tells: the other ones are at
# least five times as far.
NEAR = timedelta(60)

# How many dates of a text are read at most in each language: a page of a calendar.
MAX_DATES = 200

# How many words before a date may say that another date is meant, as "the two weeks before".
UNIT_REACH = 8

# How many words a text has at most that is nothing but a date.
MAX_ALONE = 12

# The languages in which a weekday with its article is every one: "le mercredi".
_ARTICLE_OF_HABITS = ("fr", "it")

# The words that make a number a day of the month: "le 30", "el día 8".
_ARTICLE_OF_DAYS = {"fr": ("le", "du"), "es": ("el", "día"), "it": ("il",)}


# Letters of what does not stand in a text that is nothing but a date.
_OTHER_WORDS = frozenset("xzcVnky(")


def dates_in(text: str, now: datetime, *, guesses: bool = False) -> tuple[DateSpan, ...]:
    """Return the dates that a question or a text names, in the order in which it names them.

    `now` is the aware time that "yesterday" counts from. A weekday, or a day without a year, is the last or the coming
    one by the words around it; if they do not tell, it is no date, or with `guesses` the last one. Where the order of
    day and month is uncertain, as in 03/05/2025, there is no date; a full stop means that the day comes first. Days are
    those of the zone of `now`. Behind the first `MAX_CHARS` characters of a text no dates are looked for.
    """
    text = text[:MAX_CHARS]
    if not _languages_of(text):
        return ()
    read = _dates_in if len(text) <= MAX_KEPT_CHARS else _dates_in.__wrapped__
    return tuple(span for span in read(text, now.date(), now.tzinfo) if guesses or not span.is_guess)


def date_and_sense(shown: Memory | Hit, text: str) -> str:
    """Return the date of a memory as its line begins: "on" or "in" when it happened, or when it was "said".

    A text that names no time could only mean when it was said, which takes no word. Between which times it holds
    follows, if that is known.
    """
    held = held_times(shown)
    if shown.is_event_date:
        return f"{'in' if shown.at_precision in ('month', 'year') else 'on'} {shown.date}{held}"
    return f"said {shown.date}{held}" if held or dates_in(text, shown.at, guesses=True) else shown.date


def held_times(shown: Memory | Hit) -> str:
    """Return between which times something holds, as it stands behind a date or a text; "" if that is not known."""
    if shown.was_dropped:
        return f" (was planned for {shown.since})"
    if shown.since and shown.since == shown.until:
        if shown.superseded_by:  # what is true since then was put another way, or the day was moved
            return ""
        return f" ({'on' if len(shown.since) == len('2026-05-08') else 'in'} {shown.since})"
    if shown.since and shown.until:
        return f" ({shown.since} to {shown.until})"
    return f" (since {shown.since})" if shown.since else f" (until {shown.until})" if shown.until else ""


# How many characters stand between a day and its time at most: ", um etwa ".
_BESIDE = 10

# The half of the day, the hour and the minute of a time, and how Chinese and Japanese write one.
_HOUR = re.compile(r"(午後|下午|晚上|夜)?\D*(\d+)(?: ?[:.h時时点點] ?(\d\d?))? ?(p?)", re.IGNORECASE)
_UNSPACED_HOUR = re.compile(r"(?:午[前後]|[上下]午|早上|晚上|夜)?\d{1,2}[点點时時](?!間|间)(?:\d{1,2}分|半)?")


def clocks_in(text: str) -> list[tuple[int, str]]:
    """Return where the times of day in a text stand, and their words."""
    spaced = [(each.start, each.written) for each in vocabulary.times_in(text) if each.letter == CLOCK]
    return sorted((*spaced, *((each.start(), each[0]) for each in _UNSPACED_HOUR.finditer(text))))


def _time_of(written: str) -> timedelta:
    late, hour, minute, is_afternoon = _HOUR.findall(written)[0]
    hours = int(hour) % 12 + 12 if late or is_afternoon else int(hour)
    return timedelta(hours=hours, minutes=int(minute or 0) or 30 * written.endswith("半"))


def appointments_in(text: str, at: datetime, *, timed: bool = True) -> Iterator[tuple[DateSpan, timedelta]]:
    """Yield the days in a text on which something is, each with the last time that the text names.

    If `timed`, only those that have a time of day beside them.
    """
    clocks = clocks_in(text)
    days = dates_in(text, at) if clocks or not timed else ()
    # "Tuesday at 18:30 from 15 December" is no appointment of 15 December.
    ends = {day: day.position + len(day.phrase) for day in days}
    around = {day: f"{text[: day.position]}<{text[ends[day] :]}" for day in days}
    begun = {day.start for day in days if day.relation == "since" or RE["from day"].search(around[day])}
    for day in days:
        begin, end = day.position, ends[day]
        beside = (end <= at <= end + _BESIDE or begin - _BESIDE <= at + len(words) <= begin for at, words in clocks)
        is_timed = any(beside) or not timed
        if is_timed and day.unit == "day" and day.relation == "in" and day.start not in begun:
            yield day, max((_time_of(words) for _, words in clocks), default=timedelta(days=1))


def days_to_come(memory: Memory, zone: tzinfo | None) -> Iterator[tuple[str, date, datetime]]:
    """Yield the days that a memory told of before they came, each with a word for it and when it is over.

    The words are "on" for a day on which something takes place, until the last time of day that the text names beside
    it, "from" for one from which something goes on, and "until".
    """
    told_at, is_event = memory.stated_at.astimezone(zone), memory.since == memory.until or memory.is_event_date
    begins = (memory.happened_at or memory.valid_from, memory.at_precision or memory.valid_from_precision, "from")
    ends = (None if is_event else memory.valid_until, memory.valid_until_precision, "until")
    for given, precision, word in (begins, ends):
        if given is None:
            continue
        span = span_of(given, precision, zone or UTC)
        day = in_zone(span.last if word == "until" else span.first, zone).date()
        on_day = [each.start + last for each, last in appointments_in(memory.text, told_at) if each.start.date() == day]
        over = max(on_day, default=None) if word == "from" else None
        is_on = over is not None or (is_event and precision in ("", "day"))
        if told_at < (over or span.first) or word == "until":
            yield "on" if is_on else word, day, over or span.last


def is_over(memory: Memory, now: datetime) -> bool:
    """Return whether a memory held only until a time that has passed, or told of a day that is over."""
    days = days_to_come(memory, now.tzinfo)
    return memory.has_ended(now) or any(word == "on" and over < now for word, _, over in days)


def resolved_dates(text: str, at: datetime) -> list[DateSpan]:
    """Return the dates in a text that only its own day makes plain: "yesterday", or "on 3 May" without the year."""
    return [
        span
        for span in dates_in(text, at)
        # Who says "November" in December may mean the one just over, which is nearer.
        if span.is_relative
        or (span.is_year_guessed and (span.unit in ("day", "week") or (span.is_placed and span.start - at < 5 * NEAR)))
    ]


@lru_cache(maxsize=MAX_KEPT)
def _dates_in(text: str, today: date, zone: tzinfo | None) -> tuple[DateSpan, ...]:
    languages = _languages_of(text)
    tokens = vocabulary.tokens_of(text)
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
    dated = _in_joined_years([span for span in _longest(found) if span.start < span.end], text)
    words = vocabulary.WORD.findall(text.casefold())
    is_of_life = any("yearly" in language.cues.get(word, ()) for language in languages for word in words)
    return tuple(dated if is_of_life else _in_told_years(dated, today))


def _in_joined_years(spans: Sequence[DateSpan], text: str) -> list[DateSpan]:
    """Return dates. One without a year takes that of the date it is joined to: "from 28 December to 3 January 2027".

    One without a month takes that of the date in its place: "not on the 14th but on 21 December".
    """
    dated = list(spans)
    for place, (first, second) in enumerate(pairwise(spans)):
        is_one_year_named = first.is_year_guessed is not second.is_year_guessed
        are_alike = first.unit == second.unit in ("day", "month") and not (first.is_relative or second.is_relative)
        between = text[first.position + len(first.phrase) : second.position]
        is_of_month = first.is_relative and not second.is_relative and first.phrase[:1].isdigit()
        if is_of_month and second.unit == "day" and RE["but on"].fullmatch(between):
            near = _nth_near(first.start.day, None, second.start.date(), "this")
            start = second.start + (near.start - second.start.date() if near else timedelta())
            dated[place] = replace(first, start=start, end=start + timedelta(1), is_relative=False, is_guess=False)
        elif are_alike and is_one_year_named and RE["joined days"].fullmatch(between):
            is_turn = (first.start.month, first.start.day) > (second.start.month, second.start.day)
            if first.is_year_guessed:
                dated[place] = _in_year(first, second.start.year - is_turn)
            else:
                dated[place + 1] = _in_year(second, first.start.year + is_turn)
    return dated


def _in_told_years(spans: Sequence[DateSpan], today: date) -> Iterator[DateSpan]:
    """Yield dates. A past day without a year takes that of the day named before: "on 3 May 2024 … on 8 March".

    So does one of which nothing tells whether it is past, of the first day with a year. If the two are far apart in
    every year, its year is a guess. Texts of a birth or an anniversary are not read so: they go on with what came many
    years later.
    """
    dated = [span for span in spans if span.unit == "day" and not (span.is_year_guessed or span.is_relative)]
    told: DateSpan | None = None  # the last day with a year
    for span in spans:
        beside = told or next(iter(dated if span.is_guess else ()), None)
        if beside is not None and span.is_year_guessed and span.unit == "day" and span.start.date() <= today:
            begin = beside.start
            near = [_in_year(span, begin.year + distance) for distance in (-1, 0, 1)]
            is_near = [each for each in near if abs(each.start - begin) <= SAME_STORY]
            yield is_near[0] if is_near else replace(span, is_guess=True)
            continue
        told = span if span in dated else told
        yield span


def _in_year(span: DateSpan, year: int) -> DateSpan:
    """Return a day or a month in another year. It stays as it is if that year has no such day."""
    if not MINYEAR < year < MAXYEAR or calendar.monthrange(year, span.start.month)[1] < span.start.day:
        return span
    start = span.start.replace(year=year)
    end = start + timedelta(1 if span.unit == "day" else calendar.monthrange(year, start.month)[1])
    return replace(span, start=start, end=end, is_year_guessed=False, is_guess=False)


def _languages_of(text: str) -> list[Language]:
    """Return the languages in which the text may name a date, by the words in it."""
    known = vocabulary.vocabulary()
    found = [named for word in vocabulary.WORD.findall(text.casefold()) for named in known.words.get(word, ())]
    languages = [language for language, letters in found if letters & vocabulary.DATE_LETTERS]
    # "week" is a word of several languages. In those where nothing in the text says which week, it is no date.
    of_movers = {language for language, letters in found if letters & vocabulary.MOVER_LETTERS}
    languages += [
        language for language, letters in found if letters & vocabulary.UNIT_LETTERS and language in of_movers
    ]
    if RE["digit"].search(text):
        for number in RE["year or date"].finditer(text):
            # A year counts in the languages of the preposition before it. Other dates in digits have no language.
            languages.append(known.languages["en"])
            for word in text[max(number.start() - _CONTEXT_CHARS, 0) : number.start()].split()[-2:]:
                languages += (language for language, _ in known.words.get(word.casefold(), ()))
    if RE["short weekday"].search(text):
        languages.append(known.languages["en"])
    if RE["korean day"].search(text):
        languages.append(known.languages["ko"])
    if not text.isascii() and _han_words().search(text):
        languages.append(known.languages[UNSPACED])
    return list(dict.fromkeys(languages))


@lru_cache(maxsize=1)
def _han_words() -> re.Pattern[str]:
    """Return the pattern of the characters that make dates in Chinese and Japanese."""
    known = vocabulary.vocabulary().languages[UNSPACED].words.items()
    words = (word for word, entry in known if vocabulary.DATE_LETTERS & {part[0] for part in entry})
    return re.compile(f"[{re.escape(''.join(dict.fromkeys(''.join(words))))}年月日号號]")


def _function_words(text: str, languages: Sequence[Language]) -> dict[str, int]:
    """Return how many function words each language has in a text."""
    words = vocabulary.WORD.findall(text.casefold())
    own = {each.name: sum("function" in each.cues.get(word, ()) for word in words) for each in languages}
    return own | function_word_counts(words)


def _in_language(
    text: str, tokens: Sequence[Token], language: Language, today: date, zone: tzinfo | None
) -> Iterator[DateSpan]:
    """Yield the dates that the parts of a text name."""
    items = vocabulary.items_of(tokens, language)
    letters = "".join(item.letter for item in items)
    directions = _Directions(text, tokens, language, letters)
    weekdays: list[tuple[DateSpan, Direction]] = []
    named_day: date | None = None  # the last day with a month
    for match in islice(_ANY_RULE.finditer(letters), MAX_DATES):
        first, last = match.span()
        reader = RULES[int((match.lastgroup or "r0")[1:])][1]
        phrase = Phrase(items[first:last], today)
        direction = directions.of(phrase, reader, first)
        if reader is _day_of_month and named_day is not None:  # "24 to 26 December, back on the 30th"
            phrase, direction = phrase._replace(today=named_day), "coming"
        period = _read(reader, phrase._replace(direction=direction))
        if period is None and reader in _WEEKDAY_READERS:
            # What is no date in the longer phrase of a language is none by its weekday in another one, either.
            span = _span(text, items[first:last], Period(today, today, "day"), "in", zone)
            yield replace(span, end=span.start)
        if period is None or directions.is_no_date(phrase, reader, first, period):
            continue
        before = RE["unit before"].search(letters, max(first - UNIT_REACH, 0), first)
        relation: Relation = "in"
        is_moved = bool(directions.moved(items[first].start))  # "moved till Sunday" is on Sunday
        earlier = None if before is None or is_moved else _read_before(items[before.start() : first], period)
        if before is not None and earlier is not None:
            period, first = earlier, before.start() + (letters[before.start()] == "t")
        elif not is_moved:
            relation = _relation(letters[max(first - 2, 0) : first])
        named = None if reader in (_nth_of_month, _nth_of_named_month) else phrase.weekday
        disagrees = named not in (None, period.start.weekday()) and period.unit == "day"
        span = replace(_span(text, items[first:last], period, relation, zone), disagrees=disagrees)
        if reader in DAY_READERS:
            named_day = period.start
            is_guess = phrase.year is None and direction not in ("past", "coming") and named != period.start.weekday()
            is_relative = span.is_relative or reader is _day_of_month
            span = replace(span, is_relative=is_relative, is_guess=is_guess, is_yearly=direction == "yearly")
        elif reader in CYCLE_READERS:
            is_placed = directions.is_cycle(phrase) and direction in ("past", "coming")
            is_now = reader is _part_of_unit
            is_habit, is_relative = direction == "habit", span.is_relative or is_now
            is_guess = is_habit or (is_now and phrase.step is None and not is_placed)
            span = replace(span, is_placed=is_placed, is_relative=is_relative, is_guess=is_guess, is_yearly=is_habit)
        elif reader is weekday and phrase.value("Ll") is None:
            is_guess = direction not in ("past", "coming") or (period.start == today and not directions.is_alone)
            weekdays.append((replace(span, is_guess=is_guess, is_weekday=True), direction))
            continue
        elif span.is_relative and period.start <= today < period.end:
            end = items[last - 1].end
            span = replace(span, is_now=directions.by_words(span.position, end, is_yearly=False) != "past")
        yield span
    yield from _without_habits(weekdays, directions)


def _nearer(phrase: Phrase) -> Direction:
    """Return in which direction a day without a year is near; "" if it is in none. Chinese verbs have no tense."""
    for direction in ("coming", "past"):
        period = _read(_day, phrase._replace(direction=direction))
        if period is not None and abs(period.start - phrase.today) <= NEAR:
            return direction
    return ""


def _is_day_of_month(text: str, start: int, end: int, language: Language) -> bool:
    """Return whether a number alone is a day of the month, as in "on the 30th"; "on the 30th floor" is none.

    What follows is a function word, a mark or nothing; in German, where nouns are capitalized, a word in lower case.
    """
    before, behind = text[max(start - _CONTEXT_CHARS, 0) : start].casefold().split(), text[end : end + _CONTEXT_CHARS]
    if language.name == "de":
        return behind.startswith(".") and not behind[1:].lstrip()[:1].isupper()
    if language.name in _ARTICLE_OF_DAYS:
        is_named = bool(before) and before[-1] in _ARTICLE_OF_DAYS[language.name]
    else:
        is_named = RE["ordinal end"].search(text[start:end]) is not None
    word = vocabulary.WORD.match(behind.lstrip().casefold())
    return is_named and (word is None or word[0] in FUNCTION_WORDS[language.name])


def _without_habits(weekdays: Sequence[tuple[DateSpan, Direction]], directions: _Directions) -> Iterator[DateSpan]:
    """Yield the weekdays; habits without a duration, as those that stand together and are not in the past."""
    together: set[int] = set()
    for number, ((span, _), (following, _)) in enumerate(pairwise(weekdays)):
        is_joined = directions.are_joined(span.position + len(span.phrase), following.position)
        if is_joined and not directions.moved(following.position):
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
    if (named := phrase.value("W")) is not None:
        return date_spans.choose_weekday(named, period.start, "last")
    return _read(lambda phrase: date_spans.unit_period(phrase.unit, phrase.today, -(phrase.value("Ndn") or 1)), phrase)


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


# Tell whether a weekday or a day without a year lies ahead or behind, by the words around it.
#
# "The vet comes on Friday" is ahead, "I went on Friday" behind, "Bins go out on Tuesday" a habit, which has no date. In
# English the nearest verb decides. In other languages the present tense also tells of the future, so a day is behind if
# there is a past tense, and else ahead, if there is a whole sentence. What cannot be told is "".
#
# Only the words of the sentence count, and of a long one only the nearest, so the time grows with the length of a text.

# How many words before and after a day are looked at: a long sentence.
REACH = 30

# How many other words make a sentence in the present tense, and in languages without articles and prepositions:
#
# a heading is none.
LEAST_WORDS, FEWEST_WORDS = 3, 2

# How many words stand at most between two weekdays that belong together.
MOST_BETWEEN = 2

# How far before a participle its "be" stands at most: "has to be filed".
PASSIVE_REACH = 2

# How far before "scheduled" its "is" stands at most.
PLANNED_REACH = 4

# The letters of words before a day, and of weekdays.
PREPOSITIONS, WEEKDAYS = frozenset("PiBGghy"), frozenset("WKk")

_ENDS = frozenset(".!?;。！？；")
_FEW_WORDS = ("fi", "tr", "ko")
_BREAKS = frozenset(",:，：、")
_COLONS = frozenset(":：")
_BE = frozenset(("is", "are", "am", "m", "re", "s", "be", "being", "get", "gets", "getting"))
_HAVE = frozenset(("have", "has", "ve"))
_DID = frozenset(("did", "didn"))
_JOINING = frozenset(("&", "+", "/", ",", "-", "to", "bis", "和", "と", "や"))
_TOWARDS = frozenset(("for", "to"))

# How far around a day in Chinese or Japanese is looked at. As `REACH`.
REACH_CHARS = 80

# How many words a phrase of the vocabulary has at most.
LONGEST_PHRASE = 3

_NOT_PAST: frozenset[Cue] = frozenset(("not past", "past", "participle"))

# Which final consonant the past tense of Korean has, and the syllables that have it in the present and the future.
_PAST_HANGUL, _PRESENT_HANGUL = 20, "있겠"


class _Directions:
    """The words of a text that say in which direction its days lie that may lie in either, as words of one language.

    `letters` are those of the words, in which the rules of dates are written.
    """

    def __init__(self, text: str, tokens: Sequence[Token], language: Language, letters: str) -> None:
        self._text = text
        self._tokens = tokens
        self._language = language
        self._letters = letters
        self._known: dict[int, Set[Cue]] = {}

    @cached_property
    def _starts(self) -> list[int]:
        return [token.start for token in self._tokens]

    def has_determiner(self, start: int) -> bool:
        """Return whether a word before a day says which of several things is meant, as in "my Tuesday shift"."""
        place = bisect_left(self._starts, start)
        return place > 0 and "determiner" in self._cues(place - 1)

    def are_joined(self, end: int, start: int) -> bool:
        """Return whether a day that ends and one that begins there stand together, as in "Tuesday and Thursday"."""
        places = range(bisect_left(self._starts, end), bisect_left(self._starts, start))
        words = [self._tokens[place].word for place in places[: MOST_BETWEEN + 1]]
        is_joined = any(
            word in _JOINING or "conjunction" in self._cues(place) for word, place in zip(words, places, strict=False)
        )
        return len(words) <= MOST_BETWEEN and is_joined

    def moved(self, start: int) -> Direction:
        """Return "coming" for a day that something is moved to, and "habit" for one that it was moved from.

        That day has no date any more.
        """
        place = bisect_left(self._starts, start)
        cues = self._cues(place - 1) if place else frozenset[Cue]()
        if "replaced" in cues:  # "on Friday instead of Thursday"
            return "habit"
        if cues.isdisjoint(("moved from", "moved to")):
            return ""
        is_pair = "moved to" in cues and place > 1 and self._letter(place - 2) in WEEKDAYS
        if is_pair and "moved from" not in self._cues(max(place - 3, 0)):
            return ""  # "the shifts changed, Monday to Thursday"
        before, after = self._around(place, place)
        if not any("moved" in self._cues(at) for at in (*before, *after)):
            return ""
        # "In December the rehearsal is moved from Tuesday to Wednesday": each Wednesday.
        is_rule = is_pair and RE["in a month"].search(self._letters) is not None
        return "coming" if "moved to" in cues and not is_rule else "habit"

    def _letter(self, place: int) -> str:
        """Return the letter of a word as a part of a date; "" for another word."""
        entry = self._language.words.get(self._tokens[place].word)
        return "" if entry is None else entry[0][0]

    def by_words(self, start: int, end: int, *, is_yearly: bool) -> Direction:
        """Return in which direction the day that stands from `start` to `end` lies.

        With `is_yearly` it may be one that comes every year, such as a birthday.
        """
        if self._language.name == UNSPACED:
            return self._unspaced(start, end, is_yearly=is_yearly)
        first, last = bisect_left(self._starts, start), bisect_left(self._starts, end)
        before, after = self._around(first, last)
        sentence = (*before, *after)
        own = [*self._clause(before), *self._clause(after)]
        if is_yearly and any("yearly" in self._cues(place) for place in sentence):
            return "yearly"
        if any("habit" in self._cues(place) for place in own):
            return "habit"
        if before and "ever since" in self._cues(before[0]):
            return "past"
        if self._language.name == "en":
            return self._in_english(first, last, own) or self._in_english(first, last, sentence)
        return self._in_clause(own) or self._in_sentence(own, sorted(set(sentence) - set(own)))

    def says_habit(self, start: int, end: int) -> bool:
        """Return whether a word such as "every" or "usually" stands in the sentence of a day."""
        first, last = bisect_left(self._starts, start), bisect_left(self._starts, end)
        return any("habit" in self._cues(place) for places in self._around(first, last) for place in places)

    def _around(self, first: int, last: int) -> tuple[list[int], list[int]]:
        """Return the places of the words of the sentence before and after a day, the nearest first."""
        after: list[int] = []
        for place in range(last, min(last + REACH, len(self._tokens))):
            if self._ends_at(place) or (place > last and self._is_on_next_line(place)):
                break
            after.append(place)
        before: list[int] = []
        for place in range(first - 1, max(first - REACH, 0) - 1, -1):
            is_colon = self._tokens[place].word in _COLONS
            if self._ends_at(place) or (is_colon and len(before) + len(after) >= LEAST_WORDS):
                break  # what stands behind a colon is a sentence of its own
            before.append(place)
        return before, after

    def _ends_at(self, place: int) -> bool:
        """Return whether a sentence ends at a token: a full stop behind a number ends none."""
        token = self._tokens[place]
        if token.word in _ENDS and not (token.word == "." and place and self._tokens[place - 1].letter):
            return True
        return place + 1 < len(self._tokens) and self._is_on_next_line(place + 1) and not token.letter

    def _is_on_next_line(self, place: int) -> bool:
        return "\n" in self._text[self._tokens[place - 1].end : self._tokens[place].start]

    def _clause(self, places: Sequence[int]) -> Iterator[int]:
        """Return the nearest words until a comma or a conjunction."""
        return takewhile(
            lambda place: self._tokens[place].word not in _BREAKS and "conjunction" not in self._cues(place), places
        )

    def _cues(self, place: int) -> Set[Cue]:
        """Return what a word says, with what a phrase says that begins there."""
        if place not in self._known:
            self._known[place] = self._read(place)
        return self._known[place]

    def _read(self, place: int) -> Set[Cue]:
        token, language = self._tokens[place], self._language
        if not token.word:
            return frozenset()
        if language.name == "ko":
            return language.cues.get(token.word) or ({"past"} if _is_past_in_korean(token.word) else frozenset())
        for back in range(min(LONGEST_PHRASE, place + 1)):
            phrases = language.cue_phrases.get(self._tokens[place - back].word, ())
            if found := phrase_at(self._tokens, place - back, phrases, back):
                return frozenset() if found[0] == "not past" else {found[0]}
        if language.name == "de" and token.word not in language.cues and not token.written[0].islower():
            return frozenset()  # a noun
        said = language.cues_of(token.word)
        return said - _NOT_PAST if "not past" in said else said

    def _in_clause(self, places: Sequence[int]) -> Direction:
        """Return what the verbs of a clause say, in languages whose present tense tells of the future, too."""
        cues = {cue for place in places for cue in self._cues(place)}
        if "past" in cues:
            return "past" if "due" not in cues or "auxiliary" in cues else "coming"
        if "due" in cues:
            return "coming"
        if {"auxiliary", "participle"} <= cues:
            return "past"
        return "coming" if "ready" in cues else ""

    def _in_sentence(self, own: Sequence[int], rest: Sequence[int]) -> Direction:
        """Return what the other clauses of a sentence say; if nothing, that a sentence is in the present."""
        if direction := self._in_clause(rest):
            return direction
        if any("habit" in self._cues(place) for place in rest):
            return "habit"
        cues = {cue for place in own for cue in self._cues(place)}
        if "either" in cues:  # a form of the present and of the past
            return ""
        if "appointment" in cues or any(self._tokens[place].letter == CLOCK for place in own):
            return "coming"
        words = sum(self._tokens[place].word.isalpha() for place in (*own, *rest))
        least = FEWEST_WORDS if self._language.name in _FEW_WORDS else LEAST_WORDS
        return "coming" if words >= least else ""

    def _in_english(self, first: int, last: int, places: Sequence[int]) -> Direction:
        """Return what the nearest verb says; without one, what an appointment does."""
        nearest: tuple[int, Direction] | None = None
        toward = first > 0 and self._tokens[first - 1].word in _TOWARDS
        has_preposition = first > 0 and self._letter(first - 1) in PREPOSITIONS
        is_appointment = False
        for place in places:
            cues = self._cues(place)
            is_appointment |= "appointment" in cues
            direction = self._english_cue(place, cues, toward=toward)
            earlier = range(max(place - PLANNED_REACH, 0), place)
            if direction == "coming" and any(self._tokens[at].word in _DID for at in earlier):
                direction = "past"  # "what did we do in March"
            if place < first:
                distance = first - place
            elif place == last and direction == "coming" and not has_preposition:
                distance = 0  # the day is its subject: "they said Friday is fine"
            else:  # a verb behind belongs to the day less than one before: "the lesson I missed on Monday is …"
                distance = place - last + 2
            if self._tokens[place].word == "s":  # it may be a genitive
                distance += REACH
            if direction and (nearest is None or distance < nearest[0]):
                nearest = distance, direction
        if nearest is not None:
            return nearest[1]
        begin = min(places, default=first)
        is_plan = begin < first and (begin == 0 or self._ends_at(begin - 1)) and self._is_task(begin)
        has_time = any(self._tokens[place].letter == CLOCK for place in places)
        return "coming" if is_appointment or is_plan or has_time else ""

    def _is_task(self, place: int) -> bool:
        """Return whether a sentence begins as people note what is to be done: "Picking up the keys", "Pay the rent"."""
        word, cues = self._tokens[place].word, self._cues(place)
        return "task" in cues or (word.endswith("ing") and "not past" not in self._language.cues_of(word))

    def _english_cue(self, place: int, cues: Set[Cue], *, toward: bool) -> Direction:
        if "planned" in cues:
            words = {self._tokens[at].word for at in range(max(place - PLANNED_REACH, 0), place)}
            if toward or words & _BE:
                return "coming"
            return "past" if self._tokens[place].word.endswith("ed") else ""
        before = {self._tokens[at].word for at in range(max(place - PASSIVE_REACH, 0), place)}
        if self._tokens[place].word == "got" and before & _HAVE:  # "what have I got on the 10th"
            return "coming"
        if "past" in cues:
            is_participle = self._tokens[place].word.endswith(("ed", "en", "n", "ne", "lt", "ld", "nt", "id"))
            is_passive = "being" in before or (is_participle and before & _BE)
            return "" if toward or is_passive else "past"
        return "habit" if "habitual" in cues else "coming" if cues & {"coming", "due"} else ""

    def _unspaced(self, start: int, end: int, *, is_yearly: bool) -> Direction:
        """Return in which direction a day lies in Chinese or Japanese."""
        head = self._text[max(start - REACH_CHARS, 0) : start]
        tail = self._text[end : end + REACH_CHARS]
        if RE["moved kana"].match(tail) or RE["moved han"].search(head[-3:]):
            return "coming"
        if RE["from kana"].match(tail) or RE["moved han"].match(tail):
            return "habit"  # what is moved from a day has no date there any more
        begin = max((match.end() for match in RE["sentence end"].finditer(head)), default=0)
        stop = RE["sentence end"].search(tail)
        head, tail = head[begin:], tail if stop is None else tail[: stop.end()]
        sentence = head + tail
        if is_yearly and RE["yearly han"].search(sentence):
            return "yearly"
        is_japanese = RE["kana"].search(sentence) is not None
        if RE["habit han"].search(sentence) or (not is_yearly and RE["weekly han"].search(f"{head}<{tail}")):
            return "habit"
        if is_japanese:
            if RE["asked kana"].search(tail):
                return "coming" if "予定" in tail else ""
            return "past" if RE["past kana"].search(tail) else "coming" if RE["ahead kana"].search(tail) else ""
        if RE["due han"].search(sentence):
            return "coming"
        return "past" if RE["past han"].search(tail) else "coming" if RE["ahead han"].search(sentence) else ""

    @cached_property
    def is_future(self) -> bool:
        """Return whether the text says that it is about the future."""
        return "f" in self._letters

    @cached_property
    def is_alone(self) -> bool:
        """Return whether a text is nothing but a date. People ask so for what was."""
        return len(self._letters) <= MAX_ALONE and not set(self._letters) & _OTHER_WORDS

    def is_no_date(self, phrase: Phrase, reader: Reader, first: int, period: Period) -> bool:
        """Return whether what may be a day of the month, a feast, "tomorrow" or "last week" is something else here."""
        start, end = phrase.items[0].start, phrase.items[-1].end
        if reader is _distance:
            is_of_event = self._language.name == UNSPACED and self._letters[:first].endswith("o")
            is_term = RE["payable"].search(self._text[max(start - _CONTEXT_CHARS, 0) : start]) is not None
            return is_of_event or is_term or RE["counted on"].match(self._text, end) is not None
        if reader in (weekday, _nth_of_named_month) and phrase.value("OdLl") and self._recurs(start, end):
            return True
        if phrase.value("Ll") is not None and phrase.value("YZ") is None and reader is not _nth_of_month:
            behind = f"{self._text[start:end]}>{self._text[end : end + _CONTEXT_CHARS]}"
            context = f"{self._text[max(start - _CONTEXT_CHARS, 0) : start]}<{behind}".casefold()
            # "His last day" and "the next day" do not count from today.
            return (reader is _unit and phrase.unit == "day") or RE["of something"].search(context) is not None
        if reader is _day_of_month:
            near = self._text[max(start - REACH_CHARS, 0) : end + REACH_CHARS]
            is_monthly = self.says_habit(start, end) or RE["monthly"].search(near) is not None
            return is_monthly or not _is_day_of_month(self._text, start, end, self._language)
        if reader is _feast:  # "at Easter" and "Boxing Day was quiet" are dates, "Christmas cookies" is none
            context = RE["context before"].search(self._letters, max(first - 2, 0), first)
            is_bare = len(phrase.items) == 1 and (context is None or context[0] == "t")
            return is_bare and period.unit != "day"
        is_spanish = reader is offset and self._language.name == "es"  # "turno de mañana" is a shift in the morning
        return is_spanish and RE["morning"].search(self._text[:start].casefold()) is not None

    def _recurs(self, start: int, end: int) -> bool:
        """Return whether a phrase comes again and again: "the first Tuesday of each month"."""
        first, last = bisect_left(self._starts, start), bisect_left(self._starts, end)
        is_of_unit = last + 1 < len(self._tokens) and self._letter(last + 1) == "U"  # "letzten Freitag jedes Monats"
        return any("habit" in self._cues(place) for place in range(first, last + is_of_unit))

    def _is_name_or_span(self, start: int, end: int) -> bool:
        """Return whether a weekday is a part of a name or of opening hours: "Monday group", "Monday to Friday"."""
        before, behind = self._text[max(start - _CONTEXT_CHARS, 0) : start], self._text[end : end + _CONTEXT_CHARS]
        to, of = RE["to weekday"].match(behind.casefold()), RE["from weekday"].search(before.casefold())
        words = self._language.words
        if any(found is not None and words.get(found[1], (("", ""),))[0][0] == "W" for found in (to, of)):
            return True
        return self._language.name == "en" and (
            RE["weekday of a name"].match(behind) is not None
            or (before.endswith(("the ", "The ")) and RE["weekday of a thing"].match(behind) is not None)
        )

    @staticmethod
    def is_cycle(phrase: Phrase) -> bool:
        """Return whether a longer period comes again and again: the phrase has neither a year nor "next"."""
        return phrase.year is None and phrase.value("Ll") is None

    def of(self, phrase: Phrase, reader: Reader, first: int) -> Direction:
        """Return the direction of the phrase that begins at `first`; "habit" for what is no date."""
        is_day = reader in DAY_READERS and phrase.year is None
        is_cycle = reader in CYCLE_READERS and self.is_cycle(phrase)
        is_either = reader is offset and (phrase.value("D") or 0) >= EITHER
        is_weekday = reader in _WEEKDAY_READERS
        # "last" in "the last Friday of May" counts the Fridays.
        is_counted = reader is _nth_of_month or (reader is _nth_of_named_month and phrase.items[-2].letter not in "Ll")
        chooses = not is_counted and phrase.value("Ll") is not None
        if chooses or not (is_day or is_cycle or is_either or is_weekday):
            return "coming" if self.is_future else "past"
        context = RE["context before"].search(self._letters, max(first - 2, 0), first)
        is_bare = context is None and self._letters[first] in "Wk"
        if self.is_alone and is_day and phrase.weekday is not None:
            return "coming" if self.is_future else ""
        if self.is_alone:
            return "habit" if is_bare and reader is weekday else "coming" if self.is_future else "past"
        start, end = phrase.items[0].start, phrase.items[-1].end
        if (is_day or is_cycle or reader is weekday) and (moved := self.moved(start)):
            return moved
        is_every = context is not None and context[0] == "t" and self._language.name in _ARTICLE_OF_HABITS
        is_every = is_every or (is_bare and self.has_determiner(start))
        if reader is weekday and (is_every or self._is_name_or_span(start, end)):
            return "habit"
        direction = self.by_words(start, end, is_yearly=is_day or is_cycle)
        if is_cycle and direction == "habit" and not self.says_habit(start, end):
            direction = "coming"  # "the exhibition opens in October"
        if reader is _day and self._language.name == UNSPACED:
            direction = direction or _nearer(phrase)
        if not direction and context is not None and "B" in context[0]:
            return "coming"
        return "habit" if not direction and is_bare and reader is weekday else direction


def _is_past_in_korean(word: str) -> bool:
    return any(
        "가" <= char <= "힣" and (ord(char) - ord("가")) % 28 == _PAST_HANGUL and char not in _PRESENT_HANGUL
        for char in word
    )
