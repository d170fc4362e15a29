"""Read what a request asks for, and render its answer."""

from __future__ import annotations

import secrets
import tomllib
from collections import OrderedDict
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cache
from http import HTTPStatus
from importlib.resources import files
from typing import Any, TypeAlias, cast
from urllib.parse import parse_qsl, urlencode, urlsplit

from jinja2 import Environment, PackageLoader, StrictUndefined, pass_context
from jinja2.runtime import Context
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Match

from palimpsest.core.clock import in_zone, zone_shown
from palimpsest.core.errors import InputError, PromptError
from palimpsest.core.models import Hit, Memory, Scope
from palimpsest.memory import Memory as OpenMemory
from palimpsest.page.sign_in import COOKIE, Visitor
from palimpsest.server.session.lazy_memory import LazyMemory

# The words of the page in the language of a browser. They stand in `words.toml`.

ENGLISH = "en"


@cache
def languages() -> Mapping[str, Mapping[str, str]]:
    """Return the words of each language, by key. What a language lacks is in English."""
    stored: dict[str, dict[str, str]] = tomllib.loads(
        files("palimpsest.page").joinpath("words.toml").read_text("utf-8")
    )
    return {language: {**stored[ENGLISH], **words} for language, words in stored.items()}


def language_of(accepted: str) -> str:
    """Return the language that a browser would rather read, from its header `Accept-Language`; else English."""
    weighed: list[tuple[float, str]] = []
    for item in accepted.split(","):
        name, _, options = item.strip().partition(";")
        quality = options.strip().removeprefix("q=") if options.strip().startswith("q=") else "1"
        language = name.strip().lower().partition("-")[0]
        if language in languages() and quality.replace(".", "", 1).isdigit():
            weighed.append((-float(quality), language))
    return min(weighed, key=lambda pair: pair[0])[1] if weighed else ENGLISH


# What a request asks for: whose memory, which project, and how it may be changed.

CALLER = "page"
"""Who makes the edits of the page, in the history."""

DONE = "done"
"""The parameter that says what was done just before a page was opened."""

TOLD = "told"
"""The parameter that names what there is to say about the write that led to a page."""

MAX_TOLD = 1_000
"""How many answers to writes are kept to be shown again: far more than anybody goes back to."""


Told: TypeAlias = OrderedDict[tuple[str, str], Mapping[str, Any]]
"""What the answers to writes say, by the cookie of who wrote and by a name. They are forgotten with the process."""


def answered(request: Request, path: str, answer: Mapping[str, Any]) -> Response:
    """Answer a write by leading to a page of its scope that says what was done, and can be reloaded."""
    told, name = cast("Told", request.app.state.told), secrets.token_urlsafe(8)
    told[request.cookies.get(COOKIE, ""), name] = answer
    if len(told) > MAX_TOLD:
        told.popitem(last=False)
    return redirect(f"{path}?{TOLD}={name}", scope_of(request))


def told_to(request: Request, *, once: bool = False) -> Mapping[str, Any]:
    """Return what `answered` was given before it led to this page; {} for a page that was opened otherwise."""
    told = cast("Told", request.app.state.told)
    key = request.cookies.get(COOKIE, ""), request.query_params.get(TOLD, "")
    return told.pop(key, {}) if once else told.get(key, {})


def visitor_of(request: Request) -> Visitor:
    """Return who sent a request. The middleware has let nobody else through."""
    return cast("Visitor", request.state.visitor)


async def memory_of(request: Request) -> OpenMemory:
    """Return the open memory with the days of the visitor, in which the page is shown.

    Raises PalimpsestError if it cannot be opened.
    """
    memory = await cast("LazyMemory", request.app.state.memory).get()
    memory = memory.for_call(user_id=visitor_of(request).grant.user_id)
    request.state.now = memory.engine.clock()
    return memory


def scope_of(request: Request) -> Scope:
    """Return the visitor's memory, with the project that the request names. Raises HTTPException for another's."""
    grant = visitor_of(request).grant
    project = request.query_params.get("project", "") or grant.project
    if not grant.sees(project):
        raise HTTPException(404)
    return grant.within(Scope(grant.user_id, project))


def writable_scope_of(request: Request) -> Scope:
    """Return the scope of a write. Raises HTTPException if the visitor may only read."""
    if visitor_of(request).grant.read_only:
        raise HTTPException(403)
    return scope_of(request)


def place_of(request: Request) -> str:
    """Return the path and the query of the page that a request belongs to: of a part of a page, that of the page."""
    current = own_path(request, request.headers.get("hx-current-url", ""))
    own = _path_and_query(str(request.url))
    # A search as one types changes the address of its page only once it is answered.
    return own if not current or urlsplit(current).path == request.url.path else current


def own_path(request: Request, url: str) -> str:
    """Return the path and the query of a URL, or "" if this page shows nothing under its path.

    Nothing of a URL but these is used, so that nobody is led elsewhere.
    """
    path = _path_and_query(url)
    if not path.startswith("/") or path.startswith(("//", "/\\")) or not path.isprintable():
        return ""
    wanted = {"type": "http", "method": "GET", "path": urlsplit(path).path}
    routes = cast("Starlette", request.app).routes
    return path if any(route.matches(wanted)[0] is Match.FULL for route in routes) else ""


def _path_and_query(url: str) -> str:
    """Return the path and the query of a URL, without what was said to be done when it was opened."""
    try:
        parts = urlsplit(url)
    except ValueError:  # of an address that is none
        return ""
    query = [(name, value) for name, value in parse_qsl(parts.query) if name not in (DONE, TOLD)]
    return f"{parts.path}?{urlencode(query)}" if query else parts.path


# Render templates. Every text is escaped, because what a memory holds may be hostile.


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


def redirect(path: str, scope: Scope | None = None) -> RedirectResponse:
    """Return the answer that leads to a path, in the project of a scope."""
    return RedirectResponse(in_project(path, scope), HTTPStatus.SEE_OTHER)


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


def rendered(request: Request, template: str, status: int = 200, **values: Any) -> HTMLResponse:
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
    text = _environment().get_template(template).render(shared | values)
    return HTMLResponse(text, status)


def shown(request: Request, template: str, status: int = 200, **values: Any) -> HTMLResponse:
    """Return a template as a page of the scope that the request names. Raises HTTPException for another's."""
    return rendered(request, template, status, **{"scope": scope_of(request), **values})


@contextmanager
def or_not_found() -> Generator[None]:
    """Raise HTTPException in place of an error that says that there is no such thing."""
    try:
        yield
    except (InputError, PromptError, ValueError) as error:
        raise HTTPException(404) from error
