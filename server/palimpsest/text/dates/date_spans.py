"""Stretches of time as people name them, and the calendar arithmetic behind them.

Weeks begin on Monday. Seasons are the meteorological ones of the northern hemisphere; a winter has the year in which
it begins.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Literal, NamedTuple, TypeAlias

Unit: TypeAlias = Literal["day", "weekend", "week", "month", "quarter", "season", "year", "decade"]

# What a preposition makes of a date: "in March", "before March", "since March".
Relation: TypeAlias = Literal["in", "before", "since"]

# The first month of each season.
SEASON_MONTHS = {"spring": 3, "summer": 6, "autumn": 9, "winter": 12}

SATURDAY, SUNDAY = 5, 6
MONTHS_PER_UNIT: dict[Unit, int] = {"month": 1, "quarter": 3, "year": 12, "decade": 120}


@dataclass(frozen=True, slots=True)
class DateSpan:
    """A date in a text: the half-open stretch of time it names, in the zone of the reader, and where the text names it.

    `text[position : position + len(phrase)] == phrase`. `is_relative` is whether the words count from the time of the
    text, as in "yesterday". `is_year_guessed` is whether the text left out the year, as in "on 3 May". A part of a
    month is a "week", a part of a year a "season". `is_guess` is whether nothing says if the day is the last or the
    coming one; then it is the last one. `is_placed` is whether the words around a date without a year say which one is
    meant. `disagrees` is whether a weekday stands beside the date that it is not. `is_yearly` is whether it comes again
    every year, as a birthday does. `is_now` is whether it means the present, as in "what does it cost today".
    `is_weekday` is whether it is a weekday alone, which may be that of every week.
    """

    start: datetime
    end: datetime
    unit: Unit
    phrase: str
    position: int
    is_relative: bool = False
    is_year_guessed: bool = False
    relation: Relation = "in"
    is_guess: bool = False
    is_placed: bool = False
    disagrees: bool = False
    is_yearly: bool = False
    is_now: bool = False
    is_weekday: bool = False


def day_or_days(span: DateSpan) -> str:
    """Return the days of a date as ISO 8601: a day, a month, a year, or the first and the last day."""
    form = {"day": "%Y-%m-%d", "month": "%Y-%m", "year": "%Y"}.get(span.unit)
    return f"{span.start:{form}}" if form else f"{span.start:%Y-%m-%d} to {span.end - timedelta(1):%Y-%m-%d}"


class Period(NamedTuple):
    """A stretch of days, without the day `end`."""

    start: date
    end: date
    unit: Unit


# A function from a number to what comes again and again, as from a year to its 3 May. Some lack it: 29 February.
Cycle: TypeAlias = Callable[[int], Period | None]

# Which of such periods is meant. "past" and "coming" may have begun, "last" is over, "next" is yet to begin.
Choice: TypeAlias = Literal["last", "past", "this", "coming", "next"]


def one_day(day: date) -> Period:
    """Return the period of one day."""
    return Period(day, day + timedelta(1), "day")


def unit_period(unit: Unit, today: date, offset: int) -> Period:
    """Return the calendar unit that lies `offset` units after the current one. Raises ValueError or OverflowError."""
    if unit == "day":
        return one_day(today + timedelta(offset))
    if unit in ("week", "weekend"):
        monday = today + timedelta(7 * offset - today.weekday())
        return Period(monday + timedelta(SATURDAY if unit == "weekend" else 0), monday + timedelta(7), unit)
    months = MONTHS_PER_UNIT[unit]
    first = (today.year * 12 + today.month - 1) // months * months + offset * months
    return Period(_month_start(first), _month_start(first + months), unit)


def shifted(unit: Unit, day: date, number: int) -> Period | None:
    """Return the day that lies so many units after a day. In a month that is too short it is the last one."""
    if unit in ("day", "week"):
        return one_day(day + timedelta(number * (7 if unit == "week" else 1)))
    if unit not in MONTHS_PER_UNIT:
        return None
    first = day.year * 12 + day.month - 1 + number * MONTHS_PER_UNIT[unit]
    last = _month_start(first + 1) - timedelta(1)
    return one_day(last.replace(day=min(day.day, last.day)))


def month_period(year: int, month: int) -> Period:
    """Return a month."""
    return unit_period("month", date(year, month, 1), 0)


def season_period(year: int, season: str) -> Period:
    """Return the season that begins in a year."""
    first = year * 12 + SEASON_MONTHS[season] - 1
    return Period(_month_start(first), _month_start(first + 3), "season")


def day_period(year: int, month: int, day: int, last_day: int | None = None) -> Period | None:
    """Return a day, or the days to `last_day` of the same month. Return None for a day that does not exist."""
    try:
        start, end = date(year, month, day), date(year, month, last_day or day)
    except ValueError:
        return None
    unit: Unit = "day" if start == end else "week"
    return Period(start, end + timedelta(1), unit) if start <= end else None


def part_of(period: Period, part: str) -> Period:
    """Return the early, middle or late third of a week, a month or a year, or all of it if no part is named.

    The late third of a week begins on Friday.
    """
    if not part:
        return period
    if period.unit in ("week", "month"):
        days = (0, 10, 20) if period.unit == "month" else (0, 2, 4)
        bounds = (*(period.start + timedelta(day) for day in days), period.end)
    else:
        first = period.start.year * 12
        bounds = (*(_month_start(first + months) for months in (0, 4, 8)), period.end)
    third = ("early", "mid", "late").index(part)
    return Period(bounds[third], bounds[third + 1], "season" if period.unit == "year" else "week")


def nth_week(month: Period, number: int) -> Period | None:
    """Return seven days of a month: number 1 begins on its first day, number -1 ends on its last."""
    start = month.end - timedelta(7) if number < 0 else month.start + timedelta(7 * (number - 1))
    return Period(start, min(start + timedelta(7), month.end), "week") if start < month.end else None


def nth_day(month: Period, number: int, weekday: int | None = None) -> Period | None:
    """Return a day of a month, or one of those that are a weekday: number 1 is the first, number -1 the last."""
    days = [month.start + timedelta(place) for place in range((month.end - month.start).days)]
    fitting = [day for day in days if weekday in (None, day.weekday())]
    place = number if number < 0 else number - 1
    return one_day(fitting[place]) if -len(fitting) <= place < len(fitting) else None


def feast_period(feast: str, number: int, year: int) -> Period | None:
    """Return a feast in a year: a day counted from Easter Sunday, a Sunday of Advent, or a day of a month."""
    match feast:
        case "easter":
            return one_day(_easter(year) + timedelta(number))
        case "easter-days" | "holy-week" | "whitsun-days":
            first, end = {"easter-days": (-2, 2), "holy-week": (-7, 1), "whitsun-days": (48, 51)}[feast]
            return Period(_easter(year) + timedelta(first), _easter(year) + timedelta(end), "week")
        case "christmas":
            return day_period(year, 12, 24, 26)
        case "advent":
            christmas_eve = date(year, 12, 24)
            return one_day(christmas_eve - timedelta((christmas_eve.weekday() + 1) % 7 + 7 * (4 - number)))
        case "thanksgiving":
            return nth_day(month_period(year, 11), 4, weekday=3)
        case month:
            return day_period(year, int(month), number)


def _easter(year: int) -> date:
    """Return Easter Sunday of the Gregorian calendar (Meeus, Astronomical Algorithms, chapter 8)."""
    century, of_century = divmod(year, 100)
    moon = (19 * (year % 19) + century - century // 4 - (century - (century + 8) // 25 + 1) // 3 + 15) % 30
    to_sunday = (32 + 2 * (century % 4) + 2 * (of_century // 4) - moon - of_century % 4) % 7
    late = (year % 19 + 11 * moon + 22 * to_sunday) // 451
    month, day = divmod(moon + to_sunday - 7 * late + 114, 31)
    return date(year, month, day + 1)


def choose_weekday(weekday: int, today: date, choice: Choice) -> Period:
    """Return the day of that weekday which is meant. "this" lies in the current week."""
    since = (today.weekday() - weekday) % 7
    offset = {
        "past": -since,
        "last": -(since or 7),
        "this": weekday - today.weekday(),
        "coming": -since % 7,
        "next": 7 - since,
    }[choice]
    return one_day(today + timedelta(offset))


def choose(cycle: Cycle, current: int, today: date, choice: Choice) -> Period | None:
    """Return the period that is meant, near the current one: 29 February may be missing for eight years."""
    if choice == "this":
        near = [period for number in range(current - 1, current + 2) if (period := cycle(number))]
        return min(near, key=lambda period: max(period.start - today, today - period.end), default=None)
    is_behind = choice in ("last", "past")
    numbers = range(current, current - 9, -1) if is_behind else range(current - 1, current + 9)
    for period in filter(None, map(cycle, numbers)):
        edge = period.end if choice in ("last", "coming") else period.start
        if (edge <= today) is is_behind:
            return period
    return None


def _month_start(months: int) -> date:
    """Return the first day of a month, given the number of months since January of the year 0."""
    return date(months // 12, months % 12 + 1, 1)
