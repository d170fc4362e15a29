"""Who may open the page, and what every answer tells browsers."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from urllib.parse import urlsplit

from mcp.server.auth.provider import TokenVerifier
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from palimpsest.server.access_tokens import READ, Grant, digest_of, grant_from
from palimpsest.server.rate_limits import Failures

# What every answer of the page says to browsers, and which writes are refused.

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
"""No script and no style stands in a page itself, so that a text that got into one could not run.

No other site learns the address of a page. With the policy `no-referrer` browsers would send forms with the origin
`null`, which is refused.
"""

OF_PAGES = {
    "cache-control": "no-store",
    "vary": "HX-Request, HX-History-Restore-Request, HX-Current-URL, Accept-Language, Cookie",
}
"""What is said of everything that somebody's memory is in."""

OF_STATIC_FILES = {"cache-control": "no-cache"}
"""A browser keeps them, and asks whether they are still the same, which is answered without sending them again."""

STATIC = "/static/"

SAFE_METHODS = frozenset({"GET", "HEAD"})

MAX_BODY_BYTES = 256 * 1024
"""The largest form: the longest text of a memory, or the ids of all that one action may change."""

MAX_UPLOAD_BYTES = 512 * 1024 * 1024
"""The largest form with a file to import: more than the texts of years, and what a disk has room for."""

UPLOAD_PATH = "/care/import"


class Safety:
    """Set `HEADERS` on every answer. Refuse writes that this page did not send, or that are too long. ASGI middleware.

    Browsers say in `Sec-Fetch-Site` and `Origin` where a request comes from, and no page can set these. A write without
    either is refused, because every browser sends one of them.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        of_kind = OF_STATIC_FILES if scope["path"].startswith(STATIC) else OF_PAGES

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in (HEADERS | of_kind).items():
                    headers.setdefault(name, value)
            await send(message)

        refusal = None if scope["method"] in SAFE_METHODS else _refusal(scope)
        await (refusal or self._app)(scope, receive, send_with_headers)


def _refusal(scope: Scope) -> PlainTextResponse | None:
    """Return the answer to a write that is refused. Browsers say how long a form is before they send it."""
    headers = Headers(scope=scope)
    max_bytes = MAX_UPLOAD_BYTES if scope["path"] == UPLOAD_PATH else MAX_BODY_BYTES
    if not _is_own(headers):
        return PlainTextResponse("this write comes from another page; nothing was done", 403)
    length = headers.get("content-length", "")
    if "transfer-encoding" in headers or not length.isdecimal():
        return PlainTextResponse("the length of the form is missing; nothing was done", 411)
    if int(length) > max_bytes:
        return PlainTextResponse(f"a form has at most {max_bytes:,} bytes; nothing was done", 413)
    return None


def _is_own(headers: Headers) -> bool:
    """Return whether a request comes from a page of this server."""
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    if site is None and origin is None:
        return False
    is_same_site = site in (None, "same-origin")
    return is_same_site and (origin is None or urlsplit(origin).netloc == headers.get("host", ""))


# Who may open the page: single-use tokens of a first URL, access tokens, and the cookies that they are swapped for.

COOKIE = "palimpsest_page"

INVITED_FOR = timedelta(minutes=10)
"""How long the token of a first URL is valid: a browser that is slow to start still opens it."""

IDLE_FOR = timedelta(hours=12)
"""How long a page may stay unused before its cookie is no longer valid: a working day."""

MAX_OPEN = 1_000
"""How many cookies are valid at once. The one that was unused longest ends first."""

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
    def sees_settings(self) -> bool:
        """Return whether settings and prompts are shown."""
        return self.is_owner or self.reads_settings

    @property
    def may_import(self) -> bool:
        """Return whether a file may be imported. It may bring memories of any project, so no project may be given."""
        return not self.grant.read_only and not self.grant.project


@dataclass(slots=True)
class _Visit:
    """A visitor, when they were here last, and the access token that they signed in with; "" for a single-use one."""

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
    _invitations: dict[str, tuple[Visitor, datetime]] = field(default_factory=dict[str, tuple[Visitor, datetime]])
    _visits: dict[str, _Visit] = field(default_factory=dict[str, _Visit])
    _failures: Failures = field(default_factory=Failures)

    def invite(self, visitor: Visitor) -> str:
        """Return a token that opens the page once for a visitor."""
        now = self.clock()
        self._invitations = {key: kept for key, kept in self._invitations.items() if now < kept[1]}
        token = secrets.token_urlsafe(TOKEN_BYTES)
        self._invitations[digest_of(token)] = (visitor, now + INVITED_FOR)
        return token

    def enter(self, token: str) -> str | None:
        """Return a cookie for a single-use token, or None if it is unknown, used or too old."""
        visitor, until = self._invitations.pop(digest_of(token), (None, None))
        if visitor is None or until is None or until <= self.clock():
            return None
        return self._cookie(_Visit(visitor, self.clock()))

    async def sign_in(self, access_token: str, address: str) -> tuple[str, int]:
        """Return a cookie for an access token, "" if it is not valid, and the seconds until another may be sent.

        A token is looked at however many wrong ones its address has sent: others may be behind the same address, and
        tokens are too long to be guessed.
        """
        visitor = await self._visitor_of(access_token)
        if visitor is not None:
            return self._cookie(_Visit(visitor, self.clock(), access_token)), 0
        wait_seconds = self._failures.seconds_to_wait(address)
        if not wait_seconds:
            self._failures.note(address)
        return "", wait_seconds

    async def visitor(self, cookie: str, *, is_use: bool = True) -> Visitor | None:
        """Return whose cookie this is, or None if it is not valid, or the access token behind it no longer is.

        A look that is no request is no use of the cookie.
        """
        key, now = digest_of(cookie), self.clock()
        visit = self._visits.get(key)
        if visit is None:
            return None
        visitor = await self._visitor_of(visit.access_token) if visit.access_token else visit.visitor
        if visitor is None or now - visit.seen_at > IDLE_FOR:
            self._visits.pop(key, None)
            return None
        if is_use:
            visit.seen_at = now
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
