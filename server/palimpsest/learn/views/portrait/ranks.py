"""How much depends on a memory, judged by its words and tags: what must be in view wherever little fits."""

from __future__ import annotations

from enum import IntEnum

from palimpsest.core.models import USER_NAME, Memory
from palimpsest.learn.views.portrait import signs
from palimpsest.llm.names import is_about_user

RULES = frozenset({"instruction", "style", "procedure", "correction"})
"""Tags of how something is to be done."""

BEGINNING = 3
"""Within how many words a text names whom it is about."""


class Rank(IntEnum):
    """How much depends on a memory. What is in front is shown first, however old it is and however much is pinned."""

    SAFETY = 0
    NAME = 1
    IDENTITY = 2
    HELP = 3
    OTHER = 4


MUST = Rank.IDENTITY
"""The last rank that never yields to what is pinned or new."""


def rank_of(memory: Memory, user_name: str) -> Rank:
    """Return how much depends on a memory. `user_name` may be ""."""
    if is_safety(memory, user_name):
        return Rank.SAFETY
    if USER_NAME in memory.metadata or signs.NAME.match(memory.text):
        return Rank.NAME
    if memory.happened_at is None and is_about(memory, user_name) and signs.WHO.count(memory.text):
        beginning = " ".join(memory.text.split(maxsplit=BEGINNING)[:BEGINNING])
        return Rank.OTHER if signs.PEOPLE.count(beginning) else Rank.IDENTITY  # "User's brother lives in Bern"
    is_help = is_rule(memory, user_name) or signs.HELP.count(memory.text)
    return Rank.HELP if is_help else Rank.OTHER


def is_safety(memory: Memory, user_name: str) -> bool:
    """Return whether somebody's health or access depends on a memory. Most of the words may be about a machine."""
    if not signs.SAFETY.count(memory.text):
        return False
    is_of_person = is_about(memory, user_name) or any(entity.type == "person" for entity in memory.entities)
    is_sure = not memory.scope.project and signs.ALLERGY.count(memory.text) > 0
    return is_of_person or is_sure or signs.PEOPLE.count(memory.text) > 0


def is_rule(memory: Memory, user_name: str) -> bool:
    """Return whether a memory says how something is to be done, by its tags or words. "User always …" is a habit."""
    is_worded = signs.ALWAYS.count(memory.text) > 0 and not is_about(memory, user_name)
    return is_worded or not RULES.isdisjoint(memory.all_tags)


def is_about(memory: Memory, user_name: str) -> bool:
    """Return whether the user is the subject of a memory: it begins with "User" or "I", or with the user's name."""
    first_name = user_name.split(maxsplit=1)[0] if user_name.strip() else ""
    return is_about_user(memory.text) or bool(first_name and memory.text.startswith(first_name))
