"""Which memories say most about a user, if only a few can be shown."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from palimpsest.core.models import USER_NAME, Memory
from palimpsest.llm.names import with_name

LASTING = frozenset(
    {"identity", "work", "health", "family", "relationship", "preference", "skill", "place", "instruction"}
)
"""Tags of what holds for long. The model gives them; memories in an agent's words have none."""

ABOUT_USER, TELLS_NAME, IS_LASTING, IS_PAST, IS_SOON = 1.5, 3.0, 1.0, -1.0, 0.5
"""What each sign is worth. Set by hand: a fact about the user comes before one about the world, whatever its age, and
a lasting fact before what happened once. What will happen within `SOON` is worth half a lasting fact."""

FADES_WITHIN = timedelta(days=180)
"""A fact that was last said this long ago is worth half a point less than a new one; at most one point. Set by hand."""

SOON = timedelta(days=30)


_NAMING = re.compile(r"User(?:['’]s (?:full |first )?name is| is (?:called|named)) ", re.IGNORECASE)  # noqa: RUF001 - people write this apostrophe
"""How a memory begins that names the user, in an agent's words. The model's facts have a sign of their own."""


def most_telling(
    memories: Sequence[Memory], times_said: Mapping[str, int], user_name: str, now: datetime
) -> list[Memory]:
    """Return memories, the most telling first: about the user, lasting, often said and new.

    `times_said` is how many messages each was learned from, by its id. `user_name` may be "".
    """

    def worth(memory: Memory) -> tuple[float, datetime]:
        return _worth(memory, times_said.get(memory.id, 0), user_name, now), memory.stated_at

    return sorted(memories, key=worth, reverse=True)


def _worth(memory: Memory, times_said: int, user_name: str, now: datetime) -> float:
    age = max(now - memory.stated_at, timedelta())
    worth = 0.5 * math.log2(1 + times_said) + 2 ** (-age / FADES_WITHIN)
    worth += TELLS_NAME if USER_NAME in memory.metadata or _NAMING.match(memory.text) else 0.0
    worth += ABOUT_USER if _is_about(memory, user_name) else 0.0
    worth += IS_LASTING if not LASTING.isdisjoint(memory.all_tags) else 0.0
    if memory.happened_at is not None:
        worth += IS_SOON if now <= memory.happened_at <= now + SOON else IS_PAST
    return worth


def _is_about(memory: Memory, user_name: str) -> bool:
    """Return whether the user is the subject of a memory: it begins with "User", or with the user's name."""
    first_name = user_name.split(maxsplit=1)[0] if user_name.strip() else ""
    return with_name(memory.text, "somebody") != memory.text or bool(first_name and memory.text.startswith(first_name))
