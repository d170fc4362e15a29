"""Spans of a time line: a day, a week, a month or a year, with what comes before and after each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Literal, TypeAlias, get_args

PeriodName: TypeAlias = Literal["day", "week", "month", "year"]

PERIOD_NAMES: tuple[PeriodName, ...] = get_args(PeriodName)

DAYS_OF_WEEK = 7

MONTHS_OF_YEAR = 12


@dataclass(frozen=True, slots=True)
class Period:
    """A day, week, month or year: from its first day until before the day `end`. A week begins on Monday (ISO 8601)."""

    name: PeriodName
    first: date
    end: date

    @property
    def last(self) -> date:
        """Return its last day."""
        return self.end - timedelta(days=1)

    @property
    def parts(self) -> Sequence[Period]:
        """Return what it consists of: the months of a year, else its days."""
        if self.name == "year":
            return [period("month", date(self.first.year, month, 1)) for month in range(1, MONTHS_OF_YEAR + 1)]
        days = (self.end - self.first).days
        return [period("day", self.first + timedelta(days=number)) for number in range(days)]

    @property
    def key(self) -> str:
        """Return the name of its time in ISO 8601: "2026-11-21", "2026-W47", "2026-11" or "2026"."""
        if self.name == "week":
            year, week, _ = self.first.isocalendar()
            return f"{year}-W{week:02}"
        return self.first.isoformat()[: {"day": 10, "month": 7, "year": 4}[self.name]]

    @property
    def before(self) -> Period | None:
        """Return the period before it; None before the first year of the calendar."""
        return period(self.name, self.first - timedelta(days=1)) if self.first > date.min else None

    @property
    def after(self) -> Period | None:
        """Return the period after it; None after the last year of the calendar."""
        return period(self.name, self.end) if self.end.year < date.max.year else None


def period(name: PeriodName, day: date) -> Period:
    """Return the day, week, month or year that a day is in."""
    if name == "day":
        return Period(name, day, day + timedelta(days=1))
    if name == "week":
        monday = day - timedelta(days=day.weekday())
        return Period(name, monday, monday + timedelta(days=DAYS_OF_WEEK))
    if name == "month":
        first = day.replace(day=1)
        return Period(name, first, (first + timedelta(days=31)).replace(day=1))
    return Period(name, date(day.year, 1, 1), date(day.year + 1, 1, 1))


def day_from(text: str, default: date) -> date:
    """Return the day that a text names as in ISO 8601, of a month or year its first one; else `default`.

    The first and the last years of the calendar, around which there are no weeks, are not among them.
    """
    padded = f"{text}-01-01" if len(text) == len("2026") else f"{text}-01" if len(text) == len("2026-11") else text
    try:
        day = date.fromisoformat(padded)
    except ValueError:
        return default
    return day if date.min.year < day.year < date.max.year else default
