"""Render templates. Every text is escaped, because what a memory holds may be hostile."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from typing import Any
from urllib.parse import urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined, pass_context
from jinja2.runtime import Context
from starlette.requests import Request
from starlette.responses import HTMLResponse

from palimpsest.core.clock import in_zone, zone_shown
from palimpsest.core.models import Memory, Scope
from palimpsest.core.search.hits import Hit
from palimpsest.page.asked import DONE, place_of
from palimpsest.page.words import language_of, languages


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("palimpsest.page", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters: dict[str, Any] = environment.filters  # its own type knows the filters of Jinja alone
    filters |= {"in_project": in_project, "day": _day, "minute": _minute, "dated": _dated}
    return environment


def is_part(request: Request) -> bool:
    """Return whether a request is for a part of a page that is open, which htmx then replaces.

    When htmx goes back in the history, it asks for a whole page.
    """
    asks = request.headers.get
    return asks("hx-request") == "true" and asks("hx-history-restore-request") != "true"


def in_project(path: str, scope: Scope | None) -> str:
    """Return a path that asks for the project of a scope, if there is one and it has one."""
    if scope is None or not scope.project:
        return path
    return f"{path}{'&' if '?' in path else '?'}{urlencode({'project': scope.project})}"


@pass_context
def _day(context: Context, instant: datetime) -> str:
    """Return the day of an instant where the visitor is."""
    return f"{in_zone(instant, context['now'].tzinfo):%Y-%m-%d}"


@pass_context
def _minute(context: Context, instant: datetime) -> str:
    """Return the day and the minute of an instant where the visitor is."""
    return f"{in_zone(instant, context['now'].tzinfo):%Y-%m-%d %H:%M}"


@pass_context
def _dated(context: Context, shown: Memory | Hit) -> str:
    """Return the date of a memory or hit, as exactly as it is known, where the visitor is."""
    return shown.in_zone(context["now"].tzinfo).date


def rendered(request: Request, template: str, values: Mapping[str, Any], status: int = 200) -> HTMLResponse:
    """Return a template as a page."""
    language = language_of(request.headers.get("accept-language", ""))
    now: datetime = getattr(request.state, "now", datetime.now(UTC))
    shared = {
        "now": now,
        "zone": zone_shown(now),
        "words": languages()[language],
        "language": language,
        "visitor": getattr(request.state, "visitor", None),
        "path": request.url.path,
        "scope": None,
        "here": place_of(request),
        "undone": request.query_params.get(DONE) == "undone",
    }
    text = _environment().get_template(template).render(shared | dict(values))
    return HTMLResponse(text, status)
