"""Every kind of summary by name."""

from __future__ import annotations

from palimpsest.core.errors import InputError
from palimpsest.learn.views.about.text import ABOUT
from palimpsest.learn.views.days import DAY
from palimpsest.learn.views.kinds import LiveKind, SummaryKind
from palimpsest.learn.views.overall import OVERALL
from palimpsest.learn.views.portrait.procedures import PROCEDURES
from palimpsest.learn.views.portrait.profile import PROFILE
from palimpsest.learn.views.portrait.project import PROJECT
from palimpsest.learn.views.recent import RECENT
from palimpsest.learn.views.sessions import SESSION

KEPT_KINDS = (OVERALL, RECENT, SESSION, DAY, PROFILE, PROJECT, PROCEDURES)
"""The kinds whose summaries are kept, and may be due."""

KINDS = {kind.name: kind for kind in (*KEPT_KINDS, ABOUT)}
"""All kinds, in the order in which replies and help name them."""


def kind_named(text: str) -> tuple[SummaryKind | LiveKind, str]:
    """Return the kind that a caller names, and what follows its colon. Raises InputError."""
    name, _, argument = text.partition(":")
    kind = KINDS.get(name.strip().lower())
    argument = argument.strip()
    if kind is None or (argument and not kind.argument):
        raise InputError(f"there is no summary '{text[:80]}'; there are {forms()}")
    return kind, argument


def forms() -> str:
    """Return how each kind is written, such as day:DATE."""
    *others, last = (f"{kind.name}:{kind.argument}" if kind.argument else kind.name for kind in KINDS.values())
    return f"{', '.join(others)} and {last}"
