"""The rules by which words make a date, in all languages.

A text is a string of one letter a word, and the rules are patterns over these letters. So a rule such as "a number, a
unit, then a word for ago" is written once. `vocabulary.LETTERS` and `tokens.py` have the letters of words and numbers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import date, timedelta
from functools import partial
from typing import NamedTuple, cast

from palimpsest.text.dates import spans
from palimpsest.text.dates.direction import Direction
from palimpsest.text.dates.spans import Choice, Cycle, Period, Unit
from palimpsest.text.dates.vocabulary import Item


class Phrase(NamedTuple):
    """The words that a rule matched, the day they are read on, and in which direction a day lies that may be either."""

    items: Sequence[Item]
    today: date
    direction: Direction = ""

    def number(self, letters: str) -> int | None:
        """Return the value of the first part with one of these letters, or None without one."""
        return next((cast("int", item.value) for item in self.items if item.letter in letters), None)

    def word(self, letters: str) -> str:
        """Return the value of the first part with one of these letters, or "" without one."""
        return next((cast("str", item.value) for item in self.items if item.letter in letters), "")

    def numbers(self, letters: str) -> list[int]:
        """Return the values of all parts with one of these letters."""
        return [cast("int", item.value) for item in self.items if item.letter in letters]

    @property
    def year(self) -> int | None:
        """Return the year that the phrase names, in digits or as in "last year"."""
        named = self.number("YZ")
        if named is not None:
            return named
        for item in self.items:
            if item.letter == "r":
                return self.today.year + cast("tuple[str, int]", item.value)[1]
        step = self.step
        names_year = any(item.letter == "u" for item in self.items)
        return self.today.year + step if names_year and step is not None else None

    @property
    def step(self) -> int | None:
        """Return how many units after the present one the phrase means, as in "last year"; None if it does not say."""
        step = self.number("Ll")
        return 1 if step == COMING else step

    @property
    def number_of_units(self) -> int:
        """Return how many units the phrase names, 0 if none; "twenty-one" is two words. ValueError for two numbers."""
        match self.numbers("Ndn"):
            case [tens, ones] if tens in range(20, 100, 10) and ones in range(1, 10):
                return tens + ones
            case [number]:
                return number
            case []:
                return 0
            case _:
                raise ValueError("these are several numbers")

    @property
    def sign(self) -> int:
        """Return 1 for a distance into the future, -1 for one into the past."""
        return -1 if any(item.letter in "aA" for item in self.items) else 1

    @property
    def unit(self) -> Unit:
        """Return the unit that the phrase names."""
        return cast("Unit", self.word("Uu"))

    @property
    def choice(self) -> Choice:
        """Return which of the periods that come again and again the phrase means."""
        step = self.number("Ll")
        if step is None:
            return "coming" if self.direction == "coming" else "past"
        return "this" if step == 0 else "last" if step < 0 else "next"

    @property
    def weekday(self) -> int | None:
        """Return the weekday that the phrase names."""
        return self.number("WKkH")

    def of_year(self, cycle: Cycle) -> Period | None:
        """Return the period in the year that is named, else the one that is meant."""
        if self.year is not None:
            return cycle(self.year)
        if self.weekday is not None and self.number("Ll") is None:
            agreeing = [
                period
                for year in range(self.today.year - 1, self.today.year + 2)
                if (period := cycle(year)) is not None and period.start.weekday() == self.weekday
            ]
            # The direction of the sentence outranks the year in which the weekday fits.
            meant = [
                period
                for period in agreeing
                if (self.direction != "coming" or period.end > self.today)
                and (self.direction != "past" or period.start <= self.today)
            ]
            if len(meant) == 1:
                return meant[0]
        return cycle(self.today.year) if self.choice == "this" else spans.choose_year(cycle, self.today, self.choice)


Reader = Callable[[Phrase], Period | None]
"""A function from the words that a rule matched to the period that they name, or None if they name none."""


def numeric(phrase: Phrase) -> Period | None:
    """Read "2026-12-01"."""
    year, month, *day = next(cast("tuple[int, ...]", item.value) for item in phrase.items if item.letter == "I")
    return spans.day_period(year, month, *day) if day else spans.month_period(year, month)


def _day_and_month(phrase: Phrase) -> Period | None:
    month, day = next(cast("tuple[int, int]", item.value) for item in phrase.items if item.letter == "J")
    return phrase.of_year(lambda year: spans.day_period(year, month, day))


def _day(phrase: Phrase) -> Period | None:
    month = phrase.number("Mmwb") or 0
    day, last_day = [*phrase.numbers("dO"), None][:2]
    return phrase.of_year(lambda year: spans.day_period(year, month, day or 0, last_day))


def _month(phrase: Phrase) -> Period | None:
    month = phrase.number("Mmwb") or 0
    period = phrase.of_year(lambda year: spans.month_period(year, month))
    part = phrase.word("Ee")
    return spans.part_of(period, part) if part and period is not None else period


def _nth_of_month(phrase: Phrase) -> Period | None:
    """Read "the first week of June" and "the last Monday in May"."""
    number = phrase.number("OdL") or 0
    weekday = phrase.number("W")
    if weekday is None and phrase.unit != "week":
        return None
    # The direction in "the last week of June" counts weeks, not years.
    rest = phrase._replace(items=[item for item in phrase.items if item.letter not in "OdL"])
    month = _month(rest)
    if month is None or number == 0:
        return None
    return spans.nth_week(month, number) if weekday is None else spans.nth_weekday(month, weekday, number)


def _nth_of_named_month(phrase: Phrase) -> Period | None:
    """Read "the first Tuesday of next month"; "the first Tuesday of the month" comes every month."""
    number, weekday, unit = phrase.number("OdL"), phrase.number("WK"), phrase.items[-1]
    step = phrase.items[-2] if unit.letter in "Uu" else phrase.items[-1]
    if step.letter not in "Ll" or phrase.unit != "month" or not number or weekday is None:
        return None
    distance = 1 if step.value == COMING else cast("int", step.value)
    return spans.nth_weekday(spans.unit_period("month", phrase.today, distance), weekday, number)


def _year(phrase: Phrase) -> Period | None:
    period = spans.year_period(phrase.year or 0)
    part = phrase.word("Ee")
    return spans.part_of(period, part) if part else period


def _season(phrase: Phrase) -> Period | None:
    season = phrase.word("S")
    if phrase.year is None and phrase.choice == "this":
        return spans.choose_year(lambda year: spans.season_period(year, season), phrase.today, "this")
    return phrase.of_year(lambda year: spans.season_period(year, season))


def _quarter(phrase: Phrase) -> Period | None:
    number = phrase.number("qOd") or 0
    if phrase.number("q") is None and phrase.unit != "quarter":
        return None
    return phrase.of_year(lambda year: spans.unit_period("quarter", date(year, 3 * number - 2, 1), 0))


def _decade(phrase: Phrase) -> Period | None:
    decade = phrase.items[0].value
    first = decade if isinstance(decade, int) else cast("tuple[str, int]", decade)[1]
    return Period(date(first, 1, 1), date(first + 10, 1, 1), "decade")


def offset(phrase: Phrase) -> Period | None:
    """Read "yesterday"; a word for both yesterday and tomorrow, as in Hindi, is one of them by the tense."""
    distance = phrase.number("D") or 0
    if distance < EITHER:
        return spans.unit_period("day", phrase.today, distance)
    sign = {"past": -1, "coming": 1}.get(phrase.direction)
    return None if sign is None else spans.unit_period("day", phrase.today, sign * (distance - EITHER))


def _period(phrase: Phrase) -> Period | None:
    """Read a word such as 上周 or "fjol"."""
    unit, distance = cast("tuple[Unit, int]", phrase.items[0].value)
    return spans.unit_period(unit, phrase.today, distance)


def _period_and_day(phrase: Phrase) -> Period | None:
    """Read a day of a week or month that is named by its distance, as in "先週の金曜日" and "Montag letzter Woche".

    In Chinese 上周五 is the fifth day of last week, and 上周日 its last.
    """
    by_word = next((cast("tuple[Unit, int]", item.value) for item in phrase.items if item.letter == "R"), None)
    unit, distance = by_word or (phrase.unit, phrase.step or 0)
    start = spans.unit_period(unit, phrase.today, distance).start
    named, day = phrase.weekday, phrase.number("dN")
    if unit == "week" and named is None:
        named = spans.SUNDAY if phrase.word("U") == "day" else (day or 0) - 1
    if unit == "week" and named is not None and 0 <= named <= spans.SUNDAY:
        return spans.unit_period("day", start, named)
    return spans.day_period(start.year, start.month, day) if day is not None and unit == "month" else None


def _unit(phrase: Phrase) -> Period | None:
    """Read "last week"."""
    return spans.unit_period(phrase.unit, phrase.today, phrase.step or 0)


def _several_units(phrase: Phrase) -> Period | None:
    """Read "the last two weeks"."""
    number, step = phrase.number("Ndn") or 0, phrase.step or 0
    if step < 0:
        first = spans.unit_period(phrase.unit, phrase.today, -number).start
        return Period(first, spans.one_day(phrase.today).end, phrase.unit)
    last = spans.unit_period(phrase.unit, phrase.today, number).end
    return Period(phrase.today, last, phrase.unit) if step > 0 else None


def _distance(sign: int, phrase: Phrase) -> Period | None:
    """Read "two weeks ago" and "in two weeks": the calendar unit that lies so many units away."""
    return spans.unit_period(phrase.unit, phrase.today, sign * phrase.number_of_units)


def weekday(phrase: Phrase) -> Period | None:
    """Read "on Monday" and "next Monday", which is no date while it may be in this week or in the next."""
    day = phrase.weekday or 0
    if phrase.number("Ll") == 1 and day > phrase.today.weekday():
        return None
    return spans.choose_weekday(day, phrase.today, phrase.choice)


def counted_day(phrase: Phrase) -> Period | None:
    """Read "two weeks from tomorrow" and "heute vor einer Woche": so many units after or before a day."""
    distance = phrase.number("D") or 0
    if distance >= EITHER:
        return None
    day = phrase.today + timedelta(distance)
    if (weeks := phrase.number("j")) is not None:
        return spans.shifted("week", day, weeks) if phrase.direction != "past" else None
    return spans.shifted(phrase.unit, day, phrase.sign * phrase.number_of_units)


def counted_weekday(phrase: Phrase) -> Period | None:
    """Read "a week on Friday" and "Friday week".

    In "on Friday in two weeks" the weeks may be counted from today or from the weekday. Where these differ, it is none.
    """
    named = phrase.weekday or 0
    letters = {item.letter for item in phrase.items}
    count = phrase.number("j") or phrase.number_of_units or 1
    unit: Unit = "week" if "j" in letters else phrase.unit
    is_ahead = phrase.sign > 0
    if (is_ahead and phrase.direction != "coming") or (unit != "week" and "g" not in letters):
        return None
    day = spans.choose_weekday(named, phrase.today, "coming" if is_ahead else "last").start
    from_weekday = spans.shifted(unit, day, phrase.sign * count)
    week = spans.unit_period("week", phrase.today, phrase.sign * count).start
    is_certain = not letters.isdisjoint("jg") or from_weekday == spans.one_day(week + timedelta(named))
    return from_weekday if is_certain else None


def _unit_before(phrase: Phrase) -> Period | None:
    """Read "the weekend before" at the end of a clause. "The day before" may be before anything."""
    return spans.unit_period(phrase.unit, phrase.today, -1) if phrase.unit != "day" else None


COMING = 10
"""The value of a word for the nearest one to come, as "the coming Friday"; "next Friday" may be the one after that."""

EITHER = 100
"""What is added to how many days a word is away that says yesterday as well as tomorrow."""

_CONTEXT = "PiABGhg"
_AT = rf"(?:(?<=[{_CONTEXT}])|(?<=[{_CONTEXT}]t))"
"""Behind a preposition, with or without an article."""

_WEEKDAY_BEFORE, _WEEKDAY_BEHIND = (
    r"(?:[WKk](?:[,.]?[otP]{0,2}|\(t?))?",
    r"(?:[,.(]?[WK](?![,.]?[ot]{0,2}[dOIJMmb])|\(k|H)?",
)
"""A weekday beside a date: "Friday, 4 December", "Friday (4 December)", "2025年7月16日星期五"."""

_COUNT = "(?<![-N])(?:N-?)?[Ndn]"
"""How many units: "3", "three", "twenty-three". A part of a number is none."""

_OF = "[ot]{0,3}"
_YEAR = rf"(?:[,.o]?[YZ]|{_OF}(?:[Ll]u|u[Ll]|r|uo?[YZ]))"
"""A year behind the month: "2024", "de 2024", "of last year", "del año pasado"."""

RULES: tuple[tuple[str, Reader], ...] = (
    (rf"{_WEEKDAY_BEFORE}I{_WEEKDAY_BEHIND}", numeric),
    (rf"(?:{_AT}|[WKk](?:,?t?|\())J{_WEEKDAY_BEHIND}", _day_and_month),
    (
        rf"{_WEEKDAY_BEFORE}(?:(?:[Zr]o?)[M]d|[dO]\.?(?:[B-]d\.?)?o?[Mmwb]\.?{_YEAR}|[Mmwb]\.?d(?:-d)?{_YEAR})"
        rf"{_WEEKDAY_BEHIND}",
        _day,
    ),
    (rf"{_WEEKDAY_BEFORE}(?:[dO]\.?(?:[B-]d\.?)?o?[Mmb]|[Mmb]\.?d(?:-d)?){_WEEKDAY_BEHIND}", _day),
    (rf"{_AT}(?:d\.?o?w|wd)|[WKk][,.]?t?(?:d\.?o?w|wd)", _day),
    (rf"[OdL]\.?[UW][otiP]{{0,2}}[Mmwb]{_YEAR}?", _nth_of_month),
    (rf"(?:[Zr]o?)Me?|E[ot-]{{0,3}}[Mmwb](?:\.?{_YEAR})?|[Mmwb]\.?{_YEAR}|M{_YEAR}?e", _month),
    (rf"[Ll]o?[Mm]|Lw|[Mm]t?[Ll]|M|(?<=[iBGE])w|{_AT}m", _month),
    (rf"q{_YEAR}?|[Od]\.?U{_YEAR}|[Zr]o?q", _quarter),
    (rf"(?:[Zr]o?)S|[Ll]o?S|S{_YEAR}|S[ot]?[Ll]|{_AT}S", _season),
    (r"Ee?[ot-]{0,3}Y|Ze?|re|uY|(?<=[PiABGhg])Y|(?<=[PiABGhg][ut])Y|(?<=[PiABGhg]tu)Y", _year),
    (r"C", _decade),
    (r"[WK][ot]{0,2}[Ll]U|[Ll]U[WK]|Ro?[WKdN]|RU", _period_and_day),
    (r"[OdL]\.?[WK](?:[otiP]{0,2}(?:[Ll][Uu]|UL)|(?:ot?x?|it?|Pt?)[Uu]|(?<=[Od][WK])U)", _nth_of_named_month),
    (r"[Ll][Ndn][Uu]|[Ndn][Ll][Uu]", _several_units),
    (
        rf"[iF]?(?<!y){_COUNT}[Uu]gD|[iF]{_COUNT}[Uu][GoP]?D|{_COUNT}[Uu]aD|A{_COUNT}[Uu]D|D[iF]{_COUNT}[Uu]"
        rf"|DA{_COUNT}[Uu]|Dx?{_COUNT}[Uu]a|Ds{_COUNT}[Uu]h|Dj(?!G)",
        counted_day,
    ),
    (
        rf"(?<!y){_COUNT}[Uu]g[WK]|{_COUNT}[Uu]aP?[WK]|A{_COUNT}[Uu]P?[WK]|[WK](?:[iF]{_COUNT}|F)[Uu]|[WK]A{_COUNT}[Uu]"
        "|[WK]j",
        counted_weekday,
    ),
    (rf"{_COUNT}[Uu]a|A{_COUNT}[Uu]", partial(_distance, -1)),
    (rf"[iF]{_COUNT}[Uu](?!a)|{_COUNT}[Uu]h", partial(_distance, 1)),  # "moved in two weeks ago"
    (r"[Ll][Uu]|[Uu]t?[Ll]", _unit),
    (r"R|r", _period),
    (r"D", offset),
    (r"(?:[Ll]o?[WK]|[WK][Ll])(?!ot?[Uu])|(?<!V)[WK](?!V)|(?<=[PBg])k|k(?=[,.]?c)", weekday),
    (r"(?<=t)[Uu]B(?=[.,!]|$)", _unit_before),
)
"""Patterns over the letters of words, with the functions that read them. At each place the first match counts."""

DAY_READERS: tuple[Reader, ...] = (_day, _day_and_month)
"""The readers of days that may lack a year."""

PATTERN = re.compile(
    "(?=[^xzcPBGotfhgsyjHV(,.!-])(?:"
    + "|".join(f"(?P<r{number}>{pattern})" for number, (pattern, _) in enumerate(RULES))
    + ")"
)
"""All rules as one pattern. The name of the group that matched is "r" and the number of the rule."""
