"""The kind `procedures`: instructions for an agent, from what worked, what failed and what it was corrected in.

Procedural memory as LangMem has it. They are drawn from memories that a model tagged so, from those that stem from the
agent's own messages, and from those whose words are those of a rule, a success or a failure. What is said of the user
and of other people counts only if it says how to help. Without a model these memories themselves are the instructions.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from sqlalchemy import Connection

from palimpsest.core.models import Memory
from palimpsest.learn.views.kinds import (
    MAX_SOURCE_MEMORIES,
    Material,
    PlainText,
    SummaryKind,
    SummaryRequest,
    memory_item,
)
from palimpsest.learn.views.portrait import signs
from palimpsest.learn.views.portrait.sections import ALSO, READ, Section, by_tags_and_signs, lasting, portrait
from palimpsest.learn.views.portrait.written import material
from palimpsest.llm.names import is_about_user
from palimpsest.store.queries import memories as memory_queries

RULES, WORKED, FAILED = "Instructions and corrections", "What worked", "What failed"

SECTIONS = (
    Section(RULES, frozenset({"instruction", "correction", "style", "promise"}), signs.ALWAYS),
    Section(WORKED, frozenset({"procedure", "solution", "ability"}), signs.WORKED),
    Section(FAILED, frozenset({"failure"}), signs.FAILED),
)
"""The sections, in the order in which a memory that fits several is put into one."""

HEADINGS = {RULES: 240, WORKED: 180, FAILED: 180}
"""The sections in the order in which they are shown, each with its room in tokens. Set by hand."""

LIFE = frozenset({"identity", "health", "family", "relationship", "possession", "place", "event", "preference"})
"""Tags of memories about a person's life, whose words say nothing about how an agent should work."""


def _material(conn: Connection, request: SummaryRequest) -> Material:
    name = memory_queries.name_of_user(conn, request.scope)
    about = [memory for memory in _memories(conn, request) if _place(name, memory)][:MAX_SOURCE_MEMORIES]

    def item(memory: Memory) -> Mapping[str, Any]:
        return {**memory_item(memory), "about": _place(name, memory)}

    return material(conn, request, PROCEDURES.name, about, item)


def _plain(conn: Connection, request: SummaryRequest) -> PlainText:
    name = memory_queries.name_of_user(conn, request.scope)
    return portrait(conn, request, _memories(conn, request), HEADINGS, partial(_place, name))


def _memories(conn: Connection, request: SummaryRequest) -> list[Memory]:
    return lasting([memory for _, memory in memory_queries.list_memories(conn, request.scope, READ)])


def _place(user_name: str, memory: Memory) -> str:
    """Return the heading of a memory; "" if it says nothing about how an agent should work."""
    if any(not section.tags.isdisjoint(memory.all_tags) for section in SECTIONS):
        return by_tags_and_signs(SECTIONS, memory)
    if not LIFE.isdisjoint(memory.all_tags):
        return ""
    if signs.HELP.count(memory.text):
        return RULES
    if memory.role == "assistant":
        return WORKED if (heading := by_tags_and_signs(SECTIONS, memory)) == ALSO else heading
    is_of_user = is_about_user(memory.text) or bool(
        user_name and memory.text.startswith(user_name.split(maxsplit=1)[0])
    )
    is_of_people = is_of_user or any(entity.type == "person" for entity in memory.entities)
    return "" if is_of_people else by_tags_and_signs(SECTIONS, memory).replace(ALSO, "")


PROCEDURES = SummaryKind("procedures", "procedures", _material, _plain)
