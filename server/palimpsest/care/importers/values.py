"""Values from JSON that another tool wrote, checked for their type: texts, objects, lists, times and tags."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, cast

from palimpsest.core.clock import parse_instant
from palimpsest.core.errors import InputError
from palimpsest.core.validation import trimmed

MAX_TAG_CHARS = 64
OLDEST = datetime.min.replace(tzinfo=UTC)
_FIRST_YEAR = 1970


def text_of(value: Any) -> str:
    """Return a string as `trimmed` does. Return "" for any other value."""
    return trimmed(value) if isinstance(value, str) else ""


def object_of(value: Any) -> dict[str, Any]:
    """Return a JSON object. Return an empty one for any other value."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def list_of(value: Any) -> list[Any]:
    """Return a JSON list. Return an empty one for any other value."""
    return cast("list[Any]", value) if isinstance(value, list) else []


def instant_of(value: Any) -> datetime | None:
    """Return the instant of an ISO 8601 string (UTC if it has no zone) or of a number of seconds since 1970.

    Return None if the value is neither.
    """
    try:
        if isinstance(value, str):
            return parse_instant(value, "a time").astimezone(UTC)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return datetime.fromtimestamp(value, UTC)
    except (InputError, ValueError, OverflowError, OSError):
        return None
    return None


def plausible_instant(at: datetime | None, now: datetime) -> datetime:
    """Return `at`, or `now` if `at` is missing, in the future or before 1970."""
    return now if at is None or at > now or at.year < _FIRST_YEAR else at


def tags_of(value: Any) -> tuple[str, ...]:
    """Return one tag made from a word of the other tool, or no tag if the word is empty."""
    tag = " ".join(text_of(value).lower().split())[:MAX_TAG_CHARS].strip()
    return (tag,) if tag else ()
