"""The current time, and ISO 8601 texts. Whatever needs the time receives a `Clock`, so tests can set it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import MAXYEAR, UTC, date, datetime, timedelta
from typing import Literal, TypeAlias

from palimpsest.core.errors import InputError

_HAS_TIME = re.compile(r"\d[T_ ]\d\d", re.IGNORECASE)
_MONTH_OR_YEAR = re.compile(r"(\d{4})(?:-(\d\d))?")

Clock: TypeAlias = Callable[[], datetime]
"""A function that returns the current time as an aware datetime in UTC."""

Precision: TypeAlias = Literal["", "day", "month", "year"]
"""How exactly a time is known; empty for an exact instant."""

_DATE_CHARS: dict[Precision, int] = {"": 10, "day": 10, "month": 7, "year": 4}


@dataclass(frozen=True, slots=True)
class TimeSpan:
    """The first and the last instant of a stretch of time, both in UTC. Of an instant they are the same."""

    first: datetime
    last: datetime


def now() -> datetime:
    """Return the current time in UTC."""
    return datetime.now(UTC)


def parse_instant(value: str, what: str) -> datetime:
    """Return an ISO 8601 date or time in UTC. A time without a zone is UTC; a date is its first instant.

    `what` names the value in the error. Raises InputError.
    """
    # datetime.fromisoformat reads a date with a zone, such as 2026-05-08+02:00, as a time of that day.
    is_supported = is_day(value) or _HAS_TIME.search(value) is not None
    try:
        instant = datetime.fromisoformat(value.strip() if is_supported else "")
        return instant.replace(tzinfo=UTC) if instant.tzinfo is None else instant.astimezone(UTC)
    except (ValueError, OverflowError):
        raise InputError(
            f"{what} '{value[:40]}' is not an ISO 8601 date or time, such as 2026-05-08T13:56:00Z"
        ) from None


def parse_until(value: str, what: str) -> datetime:
    """Return the last instant of an ISO 8601 time, day, month or year. Raises InputError, see `parse_instant`."""
    return parse_span(value, what).last


def parse_span(value: str, what: str) -> TimeSpan:
    """Return the stretch that an ISO 8601 time, day, month or year names. Raises InputError, see `parse_instant`."""
    named = parse_date(value)
    if named is not None:
        return span_of(*named)
    instant = parse_instant(value, what)
    return TimeSpan(instant, instant)


def parse_date(value: str) -> tuple[datetime, Precision] | None:
    """Return the first instant of an ISO 8601 day, month or year in UTC, and which it is; None for anything else."""
    text = value.strip()
    month_or_year = _MONTH_OR_YEAR.fullmatch(text)
    try:
        if month_or_year is not None:
            year, month = month_or_year.groups()
            return datetime(int(year), int(month or 1), 1, tzinfo=UTC), "month" if month else "year"
        day = date.fromisoformat(text)
    except ValueError:
        return None
    return datetime(day.year, day.month, day.day, tzinfo=UTC), "day"


def is_day(value: str) -> bool:
    """Return whether an ISO 8601 text is a date without a time."""
    named = parse_date(value)
    return named is not None and named[1] == "day"


def span_of(instant: datetime, precision: Precision) -> TimeSpan:
    """Return the day, month or year in which an instant lies, or the instant itself if it is exact."""
    midnight = datetime(instant.year, instant.month, instant.day, tzinfo=UTC)
    if instant.year == MAXYEAR and precision:  # there is no time after it to count from
        return TimeSpan(midnight, datetime.max.replace(tzinfo=UTC))
    match precision:
        case "":
            return TimeSpan(instant, instant)
        case "day":
            first, after = midnight, midnight + timedelta(1)
        case "month":
            first = midnight.replace(day=1)
            after = (first + timedelta(32)).replace(day=1)
        case "year":
            first = midnight.replace(month=1, day=1)
            after = (first + timedelta(366)).replace(month=1, day=1)
    return TimeSpan(first, after - timedelta(microseconds=1))


def finer(
    new: tuple[datetime | None, Precision], old: tuple[datetime | None, Precision]
) -> tuple[datetime | None, Precision]:
    """Return the new one of two times with their precisions, or the old one if it says the same more exactly.

    Where one is not known the other one counts.
    """
    if new[0] is None or old[0] is None:
        return old if new[0] is None else new
    span, within = span_of(new[0], new[1]), span_of(old[0], old[1])
    return old if span.first <= within.first and within.last <= span.last else new


def shown_date(instant: datetime, precision: Precision = "") -> str:
    """Return the date of a time as ISO 8601, as exactly as it is known: a day, a month or a year."""
    return iso(instant)[: _DATE_CHARS[precision]]


def shown_time(instant: datetime, precision: Precision) -> str:
    """Return a time as ISO 8601 in UTC, as exactly as it is known."""
    return shown_date(instant, precision) if precision else iso(instant)


def exact_iso(instant: datetime) -> str:
    """Return a time as ISO 8601 in UTC with microseconds. Texts of this form sort by time."""
    return instant.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def iso(instant: datetime) -> str:
    """Return a time as ISO 8601 in UTC, rounded down to the second."""
    return instant.astimezone(UTC).replace(microsecond=0, tzinfo=None).isoformat() + "Z"
