"""The current time, the zones in which days are counted, and ISO 8601 texts.

Whatever needs the time receives a `Clock`, so tests can set it. A time that a clock returns is in the zone of the
person it is read for: its `date()` is that person's day, and its `tzinfo` what their dates and naive times are in.
A stored day, month or year is a date of the calendar, whatever the zone, and is written as its first instant in UTC.
"""

import re
import time as system_time
from calendar import isleap, monthrange
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar, cast
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from palimpsest.core.errors import InputError

_T = TypeVar("_T")

_HAS_TIME = re.compile(r"\d[T_ ]\d\d", re.IGNORECASE)
_MONTH_OR_YEAR = re.compile(r"(\d{4})(?:-(\d\d))?")

# A function that returns the current time as an aware datetime.
Clock: TypeAlias = Callable[[], datetime]

# The first and the last time of the calendar.
EARLIEST, LATEST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)

# How exactly a time is known; empty for an exact instant.
Precision: TypeAlias = Literal["", "day", "month", "year"]

_DATE_CHARS: dict[Precision, int] = {"day": 10, "month": 7, "year": 4}


@dataclass(frozen=True, slots=True)
class TimeSpan:
    """The first and the last instant of a stretch of time, in UTC. Of an instant they are the same."""

    first: datetime
    last: datetime


@dataclass(frozen=True, slots=True)
class Zones:
    """The zone of each user, and that of everybody else."""

    default: tzinfo = UTC
    of_users: Mapping[str, tzinfo] = field(default_factory=dict[str, tzinfo])

    def of(self, user_id: str) -> tzinfo:
        """Return the zone of a user."""
        return self.of_users.get(user_id, self.default)

    def clock(self, clock: Clock, user_id: str) -> Clock:
        """Return a clock that shows the time of a user."""
        zone = self.of(user_id)
        return lambda: clock().astimezone(zone)


# The zones of what works for no user.
UTC_FOR_ALL = Zones()


class _SystemZone(tzinfo):
    """The zone of the operating system where its name is not known, as on Windows, with its daylight saving time."""

    def utcoffset(self, dt: datetime | None) -> timedelta | None:
        return None if dt is None else dt.replace(tzinfo=None).astimezone().utcoffset()

    def dst(self, dt: datetime | None) -> timedelta | None:
        del dt
        return None

    def fromutc(self, dt: datetime) -> datetime:
        return dt.replace(tzinfo=UTC).astimezone().replace(tzinfo=self)


def zone_named(name: str) -> tzinfo:
    """Return a zone by its IANA name, such as Europe/Vienna. Raises InputError."""
    if name.upper().removeprefix("ETC/") in ("UTC", "UCT", "ZULU"):
        return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise InputError(f"'{name[:60]}' is no time zone; use an IANA name, such as Europe/Vienna") from None


def system_zone(variable: str = "") -> tzinfo:
    """Return the zone of the operating system: that of its variable TZ, if this is set, else of its files."""
    for place in (variable.removeprefix(":"), str(Path("/etc/localtime").resolve())):
        name = place.rpartition("zoneinfo/")[2]
        if name and not Path(name).is_absolute():
            try:
                return zone_named(name)
            except InputError:
                break
    return UTC if system_time.timezone == 0 and not system_time.daylight else _SystemZone()


def zone_shown(instant: datetime) -> str:
    """Return the zone of an aware time: its IANA name if it has one, and how far it is from UTC then."""
    name = getattr(instant.tzinfo, "key", "")
    offset = f"UTC{instant:%z}"[: len("UTC+0800")] if instant.utcoffset() else "UTC"
    offset = f"{offset[:-2]}:{offset[-2:]}" if offset != "UTC" else offset
    return f"{name}, {offset}" if name else offset


def now() -> datetime:
    """Return the current time in UTC."""
    return datetime.now(UTC)


def parse_instant(value: str, what: str, zone: tzinfo = UTC) -> datetime:
    """Return an ISO 8601 date or time. A time without a zone is one in `zone`; a date is its first instant there.

    A time that names an offset keeps it, because its day is the one it was said on; "Z" only names an instant.
    `what` names the value in the error. Raises InputError.
    """
    if (named := parse_date(value)) is not None and named[1] == "day":
        return in_zone(span_of(*named, zone).first, zone)
    # datetime.fromisoformat reads a date with a zone, such as 2026-05-08+02:00, as a time of that day.
    try:
        instant = datetime.fromisoformat(value.strip() if _HAS_TIME.search(value) else "")
        instant = instant if instant.tzinfo is not None else instant.replace(tzinfo=zone)
        in_utc = instant.astimezone(UTC)  # so late or early a time that it has none in UTC is refused
        return in_utc.astimezone(zone) if value.strip()[-1:] in ("Z", "z") else instant
    except (ValueError, OverflowError):
        raise InputError(
            f"{what} '{value[:40]}' is not an ISO 8601 date or time, such as 2026-05-08 or 2026-05-08T13:56:00Z"
        ) from None


def parse_until(value: str, what: str, zone: tzinfo = UTC) -> datetime:
    """Return the last instant of an ISO 8601 time, day, month or year. Raises InputError, see `parse_instant`."""
    return in_zone(parse_span(value, what, zone).last, zone)


def parse_span(value: str, what: str, zone: tzinfo = UTC) -> TimeSpan:
    """Return the stretch that an ISO 8601 time, day, month or year names. Raises InputError, see `parse_instant`."""
    at, precision = parse_time(value, what, zone)
    return span_of(at.astimezone(UTC), precision, zone)


def parse_range(value: str, what: str, zone: tzinfo = UTC) -> TimeSpan:
    """Return the stretch of a day, month or year, or of two with a "/" between: "2024-03/2024-05".

    Raises InputError, also if the second ends before the first begins.
    """
    first, _, last = value.partition("/")
    span = TimeSpan(parse_span(first, what, zone).first, parse_span(last or first, what, zone).last)
    if span.last < span.first:
        raise InputError(f"{what} {value} ends before it begins")
    return span


def parse_date(value: str) -> tuple[datetime, Precision] | None:
    """Return an ISO 8601 day, month or year as it is stored, and which it is; None for anything else."""
    text = value.strip()
    month_or_year = _MONTH_OR_YEAR.fullmatch(text)
    with suppress(ValueError):
        if month_or_year is not None:
            year, month = month_or_year.groups()
            return datetime(int(year), int(month or 1), 1, tzinfo=UTC), "month" if month else "year"
        return datetime.combine(date.fromisoformat(text), time(), UTC), "day"
    return None


def parse_time(value: str, name: str, zone: tzinfo = UTC) -> tuple[datetime, Precision]:
    """Return a day, month or year, or an instant, as it is stored, and which it is. Raises InputError."""
    return parse_date(value) or (parse_instant(value, name, zone), "")


def span_of(instant: datetime, precision: Precision, zone: tzinfo = UTC) -> TimeSpan:
    """Return a stored day, month or year as it is in a zone, or the instant itself if it is exact."""
    if not precision:
        return TimeSpan(instant, instant)
    day = instant.astimezone(UTC).date()
    first = {"day": day, "month": day.replace(day=1), "year": day.replace(month=1, day=1)}[precision]
    days = {"day": 1, "month": monthrange(day.year, day.month)[1], "year": 365 + isleap(day.year)}[precision]
    begin = first_instant(first, zone)
    if first.toordinal() + days > date.max.toordinal():  # there is no day after it to count from
        return TimeSpan(begin, LATEST)
    return TimeSpan(begin, first_instant(first + timedelta(days), zone) - timedelta(microseconds=1))


def first_instant(day: date, zone: tzinfo | None) -> datetime:
    """Return in UTC when a day begins in a zone, which None is UTC. A day has 23 or 25 hours if the clocks change.

    At the ends of the calendar it is the first or the last time there is.
    """
    with suppress(OverflowError):
        return datetime.combine(day, time(), zone or UTC).astimezone(UTC)
    return EARLIEST if day.year == date.min.year else LATEST


def in_zone(instant: datetime, zone: tzinfo | None) -> datetime:
    """Return an instant as a time of a zone, which None is UTC; as it is if it lies at an end of the calendar."""
    with suppress(OverflowError):
        return instant.astimezone(zone or UTC)
    return instant


def times_in_zone(value: _T, zone: tzinfo | None, *names: str) -> _T:
    """Return a dataclass with those of its times that are named and known as times of a zone."""
    times = {name: getattr(value, name) for name in names}
    return replace(cast("Any", value), **{name: in_zone(at, zone) for name, at in times.items() if at is not None})


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
    """Return the date of a time as ISO 8601, as exactly as it is known: a day, a month or a year.

    The day of an exact time is that of the zone it is in.
    """
    return iso(instant)[: _DATE_CHARS[precision]] if precision else f"{instant.date()}"


def shown_time(instant: datetime, precision: Precision) -> str:
    """Return a time as ISO 8601 in UTC, as exactly as it is known."""
    return shown_date(instant, precision) if precision else iso(instant)


def exact_iso(instant: datetime) -> str:
    """Return a time as ISO 8601 in UTC with microseconds. Texts of this form sort by time."""
    return instant.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def local_iso(instant: datetime) -> str:
    """Return a time as ISO 8601 in the zone it is in, rounded down to the second; its day is that of who reads it."""
    return instant.isoformat(timespec="seconds") if instant.utcoffset() else iso(instant)


def iso(instant: datetime) -> str:
    """Return a time as ISO 8601 in UTC, rounded down to the second."""
    return instant.astimezone(UTC).replace(microsecond=0, tzinfo=None).isoformat() + "Z"
