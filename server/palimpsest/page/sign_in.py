"""Who may open the page: single-use tokens of a first URL, access tokens, and the cookies that they are swapped for."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from mcp.server.auth.provider import TokenVerifier

from palimpsest.server.access_tokens import READ, Grant, grant_from
from palimpsest.server.rate_limits import Failures

COOKIE = "palimpsest_page"

INVITED_FOR = timedelta(minutes=10)
"""How long the token of a first URL is valid. Set by hand: a browser that is slow to start still opens it."""

IDLE_FOR = timedelta(hours=12)
"""How long a page may stay unused before its cookie is no longer valid. Set by hand: a working day."""

MAX_OPEN = 1_000
"""How many cookies are valid at once. The one that was unused longest ends first. Set by hand."""

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


@dataclass(frozen=True, slots=True)
class SignIn:
    """What became of an access token: the cookie for a valid one, else "".

    `wait_seconds` is not 0 if its address has sent so many wrong ones that it should wait before it sends another.
    """

    cookie: str = ""
    wait_seconds: int = 0


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
        self._invitations[_digest(token)] = (visitor, now + INVITED_FOR)
        return token

    def enter(self, token: str) -> str | None:
        """Return a cookie for a single-use token, or None if it is unknown, used or too old."""
        visitor, until = self._invitations.pop(_digest(token), (None, None))
        if visitor is None or until is None or until <= self.clock():
            return None
        return self._cookie(_Visit(visitor, self.clock()))

    async def sign_in(self, access_token: str, address: str) -> SignIn:
        """Swap an access token for a cookie if it is valid.

        A token is looked at however many wrong ones its address has sent: others may be behind the same address, and
        tokens are too long to be guessed.
        """
        visitor = await self._visitor_of(access_token)
        if visitor is not None:
            return SignIn(self._cookie(_Visit(visitor, self.clock(), access_token)))
        wait_seconds = self._failures.seconds_to_wait(address)
        if not wait_seconds:
            self._failures.note(address)
        return SignIn(wait_seconds=wait_seconds)

    async def visitor(self, cookie: str) -> Visitor | None:
        """Return whose cookie this is, or None if it is not valid, or the access token behind it no longer is."""
        key, now = _digest(cookie), self.clock()
        visit = self._visits.get(key)
        if visit is None:
            return None
        visitor = await self._visitor_of(visit.access_token) if visit.access_token else visit.visitor
        if visitor is None or now - visit.seen_at > IDLE_FOR:
            self._visits.pop(key, None)
            return None
        visit.seen_at = now
        return visitor

    async def is_valid(self, cookie: str) -> bool:
        """Return whether a cookie is still valid. Unlike a request, this is no use of it."""
        visit = self._visits.get(_digest(cookie))
        if visit is None or self.clock() - visit.seen_at > IDLE_FOR:
            return False
        return not visit.access_token or await self._visitor_of(visit.access_token) is not None

    def leave(self, cookie: str) -> None:
        """Make a cookie invalid."""
        self._visits.pop(_digest(cookie), None)

    async def _visitor_of(self, access_token: str) -> Visitor | None:
        verified = None if self.verifier is None else await self.verifier.verify_token(access_token)
        return None if verified is None or READ not in verified.scopes else Visitor(grant_from(verified))

    def _cookie(self, visit: _Visit) -> str:
        if len(self._visits) >= MAX_OPEN:
            del self._visits[min(self._visits, key=lambda key: self._visits[key].seen_at)]
        cookie = secrets.token_urlsafe(TOKEN_BYTES)
        self._visits[_digest(cookie)] = visit
        return cookie


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
