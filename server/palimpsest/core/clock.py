"""The time, from outside: everything that needs it is given a clock."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import TypeAlias

from palimpsest.core.errors import InputError

_HAS_TIME = re.compile(r"\d[T_ ]\d\d", re.IGNORECASE)

Clock: TypeAlias = Callable[[], datetime]
"""Return the present instant, aware and in UTC."""


def now() -> datetime:
    """Return the present instant in UTC."""
    return datetime.now(UTC)


def parse_instant(value: str, what: str) -> datetime:
    """Return the instant an ISO 8601 text names, in UTC; without a zone it is taken as UTC.

    Raises InputError naming `what`.
    """
    # Python takes a day with a zone and no time for something else.
    understood = is_day(value) or _HAS_TIME.search(value) is not None
    try:
        instant = datetime.fromisoformat(value.strip() if understood else "")
        return instant.replace(tzinfo=UTC) if instant.tzinfo is None else instant.astimezone(UTC)
    except (ValueError, OverflowError):
        raise InputError(f"{what} '{value[:40]}' is no ISO 8601 date or time, such as 2026-05-08T13:56:00Z") from None


def parse_until(value: str, what: str) -> datetime:
    """Return the instant an ISO 8601 text names, of a day alone its last. Raises InputError naming `what`."""
    instant = parse_instant(value, what)
    return last_instant(instant) if is_day(value) else instant


def is_day(value: str) -> bool:
    """Say whether an ISO 8601 text names a day and no time of it."""
    try:
        date.fromisoformat(value.strip())
    except ValueError:
        return False
    return True


def last_instant(day: datetime) -> datetime:
    """Return the last instant of the day that begins at `day`."""
    return day + timedelta(hours=23, minutes=59, seconds=59, microseconds=999_999)


def iso(instant: datetime) -> str:
    """Return an instant as ISO 8601 in UTC, to the second."""
    return instant.astimezone(UTC).replace(microsecond=0, tzinfo=None).isoformat() + "Z"
