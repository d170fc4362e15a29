"""Who may open the page and what its answers tell browsers; what a request asks for, and how it is answered."""

import secrets
import tomllib
from collections import OrderedDict
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cache
from http import HTTPStatus
from importlib.resources import files
from typing import Any, TypeAlias, cast
from urllib.parse import parse_qsl, urlencode, urlsplit

from jinja2 import Environment, PackageLoader, StrictUndefined, pass_context
from jinja2.runtime import Context
from mcp.server.auth.provider import TokenVerifier
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Send
from starlette.types import Scope as AsgiScope

from palimpsest.core.clock import in_zone, zone_shown
from palimpsest.core.errors import InputError, PromptError
from palimpsest.core.models import Hit, Memory, Scope
from palimpsest.memory import Memory as OpenMemory
from palimpsest.recall.listing import MAX_CURSOR_DIGITS
from palimpsest.server.access_tokens import READ, Grant, digest_of, grant_from
from palimpsest.server.session.context import LazyMemory
from palimpsest.server.session.rate_limits import Failures

# The words of the page in the language of a browser. They stand in `words.toml`.

ENGLISH = "en"


@cache
def languages() -> Mapping[str, Mapping[str, str]]:
    """Return the words of each language, by key. What a language lacks is in English."""
    stored: dict[str, dict[str, str]] = tomllib.loads((files("palimpsest.page") / "words.toml").read_text("utf-8"))
    return {language: {**stored[ENGLISH], **words} for language, words in stored.items()}


def language_of(accepted: str) -> str:
    """Return the first language of `Accept-Language` that the page has; browsers name the best first. Else English."""
    wanted = (item.strip().lower()[:2] for item in accepted.split(","))
    return next((language for language in wanted if language in languages()), ENGLISH)


# What every answer of the page says to browsers, and which writes are refused.

# No script and no style stands in a page itself, so that a text that got into one could not run.
#
# No other site learns the address of a page. With the policy `no-referrer` browsers would send forms with the origin
# `null`, which is refused.
HEADERS = {
    "content-security-policy": (
        "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; form-action 'self'; "
        "frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}

# What is said of everything that somebody's memory is in.
OF_PAGES = {
    "cache-control": "no-store",
    "vary": "HX-Request, HX-History-Restore-Request, HX-Current-URL, Accept-Language, Cookie",
}

# A browser keeps them, and asks whether they are still the same, which is answered without sending them again.
OF_STATIC_FILES = {"cache-control": "no-cache"}

STATIC = "/static/"

SAFE_METHODS = frozenset({"GET", "HEAD"})

# The largest form: the longest text of a memory, or the ids of all that one action may change.
MAX_BODY_BYTES = 256 * 1024

# The largest form with a file to import: more than the texts of years, and what a disk has room for.
MAX_UPLOAD_BYTES = 512 * 1024 * 1024

UPLOAD_PATH = "/care/import"


def keep_safe(app: ASGIApp) -> ASGIApp:
    """Set `HEADERS` on every answer. Refuse writes that this page did not send, or that are too long. ASGI middleware.

    Browsers say in `Sec-Fetch-Site` and `Origin` where a request comes from, and no page can set these. A write without
    either is refused, because every browser sends one of them.
    """

    async def answer(scope: AsgiScope, receive: Receive, send: Send) -> None:
        of_kind = OF_STATIC_FILES if scope["path"].startswith(STATIC) else OF_PAGES

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in (HEADERS | of_kind).items():
                    headers.setdefault(name, value)
            await send(message)

        refusal = None if scope["method"] in SAFE_METHODS else _refusal(scope)
        await (refusal or app)(scope, receive, send_with_headers)

    return answer


def _refusal(scope: AsgiScope) -> PlainTextResponse | None:
    """Return the answer to a write that is refused. Browsers say how long a form is before they send it."""
    headers = Headers(scope=scope)
    max_bytes = MAX_UPLOAD_BYTES if scope["path"] == UPLOAD_PATH else MAX_BODY_BYTES
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    is_own = site in (None, "same-origin") and (origin is None or urlsplit(origin).netloc == headers.get("host", ""))
    if not is_own or (site is None and origin is None):
        return PlainTextResponse("this write comes from another page; nothing was done", 403)
    length = headers.get("content-length", "")
    if "transfer-encoding" in headers or not length.isdecimal():
        return PlainTextResponse("the length of the form is missing; nothing was done", 411)
    if int(length) > max_bytes:
        return PlainTextResponse(f"a form has at most {max_bytes:,} bytes; nothing was done", 413)
    return None


# Who may open the page: single-use tokens of a first URL, access tokens, and the cookies that they are swapped for.

COOKIE = "palimpsest_page"

# How long the token of a first URL is valid: a browser that is slow to start still opens it.
INVITED_FOR = timedelta(minutes=10)

# How long a page may stay unused before its cookie is no longer valid: a working day.
IDLE_FOR = timedelta(hours=12)

# How many cookies are valid at once. The one that was unused longest ends first.
MAX_OPEN = 1_000

TOKEN_BYTES = 32


@dataclass(frozen=True, slots=True)
class Visitor:
    """Who looks at the page: whose memory it is, and what they may do.

    `is_owner` is who opened the page with `palimpsest ui`. To others nothing is shown that belongs to the machine;
    with `reads_settings` its settings and prompts are.
    """

    grant: Grant
    is_owner: bool = False
    reads_settings: bool = False

    @property
    def may_import(self) -> bool:
        """Return whether a file may be imported. It may bring memories of any project, so no project may be given."""
        return not self.grant.read_only and not self.grant.project


@dataclass(slots=True)
class _Visit:
    """A visitor, when they were invited or here last, and the access token that they signed in with, or ""."""

    visitor: Visitor
    seen_at: datetime
    access_token: str = ""


@dataclass(slots=True)
class Visits:
    """The cookies of open pages, kept as digests.

    A cookie that was given for an access token is valid as long as that token is, which is kept to be checked at every
    request.
    """

    clock: Callable[[], datetime]
    verifier: TokenVerifier | None = None
    _invited: dict[str, _Visit] = field(default_factory=dict[str, _Visit])
    _visits: dict[str, _Visit] = field(default_factory=dict[str, _Visit])
    _failures: Failures = field(default_factory=Failures)

    def invite(self, visitor: Visitor) -> str:
        """Return a token that opens the page once for a visitor."""
        now = self.clock()
        self._invited = {key: kept for key, kept in self._invited.items() if now - kept.seen_at < INVITED_FOR}
        token = secrets.token_urlsafe(TOKEN_BYTES)
        self._invited[digest_of(token)] = _Visit(visitor, now)
        return token

    def enter(self, token: str) -> str | None:
        """Return a cookie for a single-use token, or None if it is unknown, used or too old."""
        visit, now = self._invited.pop(digest_of(token), None), self.clock()
        if visit is None or now - visit.seen_at >= INVITED_FOR:
            return None
        return self._cookie(replace(visit, seen_at=now))

    async def sign_in(self, access_token: str, address: str) -> tuple[str, int]:
        """Return a cookie for an access token, "" if it is not valid, and the seconds until another may be sent.

        A token is looked at however many wrong ones its address has sent: others may be behind the same address, and
        tokens are too long to be guessed.
        """
        if (visitor := await self._visitor_of(access_token)) is not None:
            return self._cookie(_Visit(visitor, self.clock(), access_token)), 0
        if not (wait_seconds := self._failures.seconds_to_wait(address)):
            self._failures.note(address)
        return "", wait_seconds

    async def visitor(self, cookie: str, *, is_use: bool = True) -> Visitor | None:
        """Return whose cookie this is, or None if it is not valid, or the access token behind it no longer is.

        A look that is no request is no use of the cookie.
        """
        key, now = digest_of(cookie), self.clock()
        if (visit := self._visits.get(key)) is None:
            return None
        visitor = await self._visitor_of(visit.access_token) if visit.access_token else visit.visitor
        if visitor is None or now - visit.seen_at > IDLE_FOR:
            self._visits.pop(key, None)
            return None
        visit.seen_at = now if is_use else visit.seen_at
        return visitor

    def leave(self, cookie: str) -> None:
        """Make a cookie invalid."""
        self._visits.pop(digest_of(cookie), None)

    async def _visitor_of(self, access_token: str) -> Visitor | None:
        verified = None if self.verifier is None else await self.verifier.verify_token(access_token)
        return None if verified is None or READ not in verified.scopes else Visitor(grant_from(verified))

    def _cookie(self, visit: _Visit) -> str:
        if len(self._visits) >= MAX_OPEN:
            del self._visits[min(self._visits, key=lambda key: self._visits[key].seen_at)]
        cookie = secrets.token_urlsafe(TOKEN_BYTES)
        self._visits[digest_of(cookie)] = visit
        return cookie


# What a request asks for: whose memory, which project, and how it may be changed.

# Who makes the edits of the page, in the history.
CALLER = "page"

# The parameter that says what was done just before a page was opened.
DONE = "done"

# The parameter that names what there is to say about the write that led to a page.
TOLD = "told"

# How many answers to writes are kept to be shown again: far more than anybody goes back to.
MAX_TOLD = 1_000


# What the answers to writes say, by the cookie of who wrote and by a name. They are forgotten with the process.
Told: TypeAlias = OrderedDict[tuple[str, str], Mapping[str, Any]]


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
    if not grant.sees(project := request.query_params.get("project", "") or grant.project):
        raise HTTPException(404)
    return grant.within(Scope(grant.user_id, project))


def writable_scope_of(request: Request) -> Scope:
    """Return the scope of a write. Raises HTTPException if the visitor may only read."""
    if visitor_of(request).grant.read_only:
        raise HTTPException(403)
    return scope_of(request)


def number_in(sent: Mapping[str, Any], name: str) -> int | None:
    """Return a whole number of a query or a form, or None if it is none or needs more than 64 bits."""
    text = str(sent.get(name, ""))
    return int(text) if text.isdecimal() and len(text) <= MAX_CURSOR_DIGITS else None


def place_of(request: Request) -> str:
    """Return the path and the query of the page that a request belongs to: of a part of a page, that of the page."""
    current = own_path(request.headers.get("hx-current-url", ""))
    own = _path_and_query(str(request.url))
    # A search as one types changes the address of its page only once it is answered.
    return own if not current or urlsplit(current).path == request.url.path else current


def own_path(url: str) -> str:
    """Return the path and the query of a URL, or "" if they might lead to another site."""
    path = _path_and_query(url)
    is_own = path.startswith("/") and not path.startswith(("//", "/\\")) and path.isprintable()
    return path if is_own else ""


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
    return HTMLResponse(_environment().get_template(template).render(shared | values), status)


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
