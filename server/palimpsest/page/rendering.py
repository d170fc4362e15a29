"""Render templates. Every text is escaped, because what a memory holds may be hostile."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse

from palimpsest import __version__
from palimpsest.page.words import language_of, languages


@cache
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("palimpsest.page", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def rendered(request: Request, template: str, values: Mapping[str, Any], status: int = 200) -> HTMLResponse:
    """Return a template as a page. A request of htmx gets only what replaces a part of its page."""
    language = language_of(request.headers.get("accept-language", ""))
    shared = {
        "words": languages()[language],
        "language": language,
        "version": __version__,
        "visitor": getattr(request.state, "visitor", None),
        "path": request.url.path,
        "is_part": request.headers.get("hx-request") == "true",
    }
    text = _environment().get_template(template).render(shared | dict(values))
    return HTMLResponse(text, status)
