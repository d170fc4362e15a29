"""The current time, and ISO 8601 texts. Whatever needs the time receives a `Clock`, so tests can set it."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import TypeAlias

from palimpsest.core.errors import InputError

_HAS_TIME = re.compile(r"\d[T_ ]\d\d", re.IGNORECASE)

Clock: TypeAlias = Callable[[], datetime]
"""A function that returns the current time as an aware datetime in UTC."""


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
    """Return an ISO 8601 date or time in UTC; a date is its last instant. Raises InputError, see `parse_instant`."""
    instant = parse_instant(value, what)
    return last_instant(instant) if is_day(value) else instant


def is_day(value: str) -> bool:
    """Return whether an ISO 8601 text is a date without a time."""
    try:
        date.fromisoformat(value.strip())
    except ValueError:
        return False
    return True


def last_instant(day: datetime) -> datetime:
    """Return the last microsecond of the day that begins at `day`."""
    return day + timedelta(hours=23, minutes=59, seconds=59, microseconds=999_999)


def exact_iso(instant: datetime) -> str:
    """Return a time as ISO 8601 in UTC with microseconds. Texts of this form sort by time."""
    return instant.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def iso(instant: datetime) -> str:
    """Return a time as ISO 8601 in UTC, rounded down to the second."""
    return instant.astimezone(UTC).replace(microsecond=0, tzinfo=None).isoformat() + "Z"
