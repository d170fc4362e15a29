"""The kind `project`: what a project is, its stack, decisions, conventions and open points."""

from __future__ import annotations

from functools import partial

from sqlalchemy import Connection

from palimpsest.core.errors import InputError
from palimpsest.core.models import Memory
from palimpsest.learn.views.kinds import (
    MAX_SOURCE_MEMORIES,
    Material,
    PlainText,
    SummaryKind,
    SummaryRequest,
)
from palimpsest.learn.views.portrait import signs
from palimpsest.learn.views.portrait.sections import READ, Section, by_tags_and_signs, lasting, portrait
from palimpsest.learn.views.portrait.written import material
from palimpsest.store.queries import memories as memory_queries

SECTIONS = (
    Section("Open", frozenset({"plan", "promise"}), signs.OPEN),
    Section("Decisions", frozenset({"decision"}), signs.DECIDED),
    Section("Conventions", frozenset({"instruction", "style", "procedure", "correction"}), signs.RULES),
    Section("Stack", frozenset(), signs.STACK),
)
"""The sections, in the order in which a memory that fits several is put into one."""

ABOUT = "What it is"
HEADINGS = {ABOUT: 140, "Stack": 120, "Decisions": 140, "Conventions": 120, "Open": 120, "Also": 60}
"""The sections in the order in which they are shown, each with its room in tokens. Set by hand."""

NO_PROJECT = 'the scope has no project. Pass scope={"project": its name}; get_summary(kind="profile") is of the user'


def _material(conn: Connection, request: SummaryRequest) -> Material:
    return material(conn, request, PROJECT.name, _memories(conn, request, MAX_SOURCE_MEMORIES))


def _plain(conn: Connection, request: SummaryRequest) -> PlainText:
    place = partial(_place, request.scope.project.casefold())
    return portrait(conn, request, _memories(conn, request, READ), HEADINGS, place)


def _memories(conn: Connection, request: SummaryRequest, limit: int) -> list[Memory]:
    if not request.scope.project:
        raise InputError(NO_PROJECT)
    return lasting(memory_queries.newest_of_project(conn, request.scope, limit))


def _place(project: str, memory: Memory) -> str:
    heading = by_tags_and_signs(SECTIONS, memory)
    names_it = project.rsplit("/", maxsplit=1)[-1] in memory.text.casefold()
    return ABOUT if names_it and heading == "Also" else heading


PROJECT = SummaryKind("project", "project", _material, _plain)
