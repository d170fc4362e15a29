"""Which memories say most about a user, if only a few can be shown, and which of them must never be left out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from palimpsest.core.models import Memory
from palimpsest.learn.views.portrait import signs
from palimpsest.learn.views.portrait.ranks import is_about, is_rule, rank_of

LASTING = frozenset(
    {"identity", "work", "health", "family", "relationship", "preference", "skill", "place", "instruction"}
)
"""Tags of what holds for long. The model gives them; memories in an agent's words have none."""

_LASTING = (signs.PREFERENCES, signs.PEOPLE, signs.WORK, signs.HELP)

ABOUT_USER, IS_LASTING, IS_PAST, IS_SOON = 1.5, 1.0, -1.0, 0.5
"""What each sign is worth. Set by hand: a fact about the user comes before one about the world, whatever its age, and
a lasting fact before what happened once. What will happen within `SOON` is worth half a lasting fact."""

FADES_WITHIN = timedelta(days=180)
"""A fact that was last said this long ago is worth half a point less than a new one; at most one point. Set by hand."""

SOON = timedelta(days=30)


def in_project_order(memories: Sequence[Memory]) -> tuple[list[Memory], list[Memory]]:
    """Return the rules and commands of a project, and its other memories, each in the order they came."""
    rules = [memory for memory in memories if _is_rule_of_project(memory)]
    ids = {memory.id for memory in rules}
    return rules, [memory for memory in memories if memory.id not in ids]


def _is_rule_of_project(memory: Memory) -> bool:
    is_worded = signs.RULES.count(memory.text) + signs.COMMANDS.count(memory.text) > 0
    return is_worded or "`" in memory.text or is_rule(memory, "")


def most_telling(
    memories: Sequence[Memory], times_said: Mapping[str, int], user_name: str, now: datetime
) -> list[Memory]:
    """Return memories, the most telling first: by rank, then about the user, lasting, often said and new.

    `times_said` is how many messages each was learned from, by its id. `user_name` may be "".
    """

    def place(memory: Memory) -> tuple[int, float, float]:
        worth = _worth(memory, times_said.get(memory.id, 0), user_name, now)
        return rank_of(memory, user_name), -worth, -memory.stated_at.timestamp()

    return sorted(memories, key=place)


def _worth(memory: Memory, times_said: int, user_name: str, now: datetime) -> float:
    age = max(now - memory.stated_at, timedelta())
    worth = 0.5 * math.log2(1 + times_said) + 2 ** (-age / FADES_WITHIN)
    worth += ABOUT_USER if is_about(memory, user_name) else 0.0
    worth += IS_LASTING if _is_lasting(memory) else 0.0
    if memory.happened_at is not None:
        worth += IS_SOON if now <= memory.happened_at <= now + SOON else IS_PAST
    return worth


def _is_lasting(memory: Memory) -> bool:
    is_worded = memory.happened_at is None and any(words.count(memory.text) for words in _LASTING)
    return is_worded or not LASTING.isdisjoint(memory.all_tags)
