"""Render templates. Every text is escaped, because what a memory holds may be hostile."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any
from urllib.parse import urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse

from palimpsest.core.models import Scope
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
    filters["in_project"] = in_project
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


def rendered(request: Request, template: str, values: Mapping[str, Any], status: int = 200) -> HTMLResponse:
    """Return a template as a page."""
    language = language_of(request.headers.get("accept-language", ""))
    shared = {
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
