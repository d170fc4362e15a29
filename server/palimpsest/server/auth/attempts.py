"""Limit how often an address may send access tokens that are not valid."""

from __future__ import annotations

import hashlib
import math
import time
from collections import Counter, OrderedDict
from collections.abc import Generator
from contextlib import contextmanager

from limits import RateLimitItemPerMinute
from limits.storage import MemoryStorage
from limits.strategies import MovingWindowRateLimiter
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser, BearerAuthBackend
from mcp.server.auth.provider import TokenVerifier
from starlette.authentication import AuthCredentials, AuthenticationError
from starlette.requests import HTTPConnection
from starlette.responses import PlainTextResponse, Response

from palimpsest.server.auth.caller import address_of

FAILED_PER_MINUTE = 60
"""More than a client that was set up wrongly sends, and too few to guess a token or to keep an issuer busy."""

MAX_KNOWN = 10_000
"""How many headers that were valid are remembered. What is forgotten is only checked like a new one."""


class TooManyAttempts(AuthenticationError):  # noqa: N818 - it is an answer, not a fault
    """An address sent too many access tokens that are not valid. `seconds` is when the next may be sent."""

    def __init__(self, seconds: int) -> None:
        super().__init__(f"more than {FAILED_PER_MINUTE} access tokens a minute that are not valid; nothing was done")
        self.seconds = seconds


class Failures:
    """The access tokens that were not valid within the last minute, by the address that sent them."""

    def __init__(self) -> None:
        self._limit = RateLimitItemPerMinute(FAILED_PER_MINUTE)
        self._counts = MovingWindowRateLimiter(MemoryStorage())

    def note(self, address: str) -> None:
        """Count one more."""
        self._counts.hit(self._limit, address)

    def seconds_to_wait(self, address: str, undecided: int = 0) -> int:
        """Return 0 if an address may send another one, else in how many seconds it may.

        `undecided`: how many are being looked at that may prove not to be valid.
        """
        stats = self._counts.get_window_stats(self._limit, address)
        return 0 if stats.remaining > undecided else max(1, math.ceil(stats.reset_time - time.time()))


class LimitedBearerAuth(BearerAuthBackend):
    """Authenticate requests by their access token. Tokens of an address with too many failures are not looked at.

    A token that was valid before is always looked at, so that nobody can lock out others behind the same address.
    """

    def __init__(self, verifier: TokenVerifier) -> None:
        super().__init__(verifier)
        self._failures = Failures()
        self._undecided: Counter[str] = Counter()
        self._known: OrderedDict[bytes, None] = OrderedDict()

    async def authenticate(self, conn: HTTPConnection) -> tuple[AuthCredentials, AuthenticatedUser] | None:
        """Return who sent a request, or None without a valid access token. Raises TooManyAttempts."""
        header = conn.headers.get("authorization", "")
        if not header.lower().startswith("bearer "):
            return None
        digest, address = hashlib.sha256(header.encode()).digest(), address_of(conn.scope)
        if digest in self._known:
            authenticated = await super().authenticate(conn)
        else:
            with self._attempt(address):
                authenticated = await super().authenticate(conn)
        self._remember(digest, address, is_valid=authenticated is not None)
        return authenticated

    @contextmanager
    def _attempt(self, address: str) -> Generator[None]:
        """Count an attempt as undecided until the block ends. Raises TooManyAttempts if it may not be made."""
        self._refuse_if_limited(address)
        self._undecided[address] += 1
        try:
            yield
        finally:
            self._undecided[address] -= 1
            if not self._undecided[address]:
                del self._undecided[address]

    def _refuse_if_limited(self, address: str) -> None:
        """Raise TooManyAttempts if the failures, and the attempts that are still being decided, reach the limit."""
        seconds = self._failures.seconds_to_wait(address, self._undecided[address])
        if seconds:
            raise TooManyAttempts(seconds)

    def _remember(self, digest: bytes, address: str, *, is_valid: bool) -> None:
        if is_valid:
            self._known[digest] = None
            self._known.move_to_end(digest)
            if len(self._known) > MAX_KNOWN:
                self._known.popitem(last=False)
        else:
            self._known.pop(digest, None)
            self._failures.note(address)


def refusal(_: HTTPConnection, error: AuthenticationError) -> Response:
    """Return the response to a request that authentication refused."""
    seconds = error.seconds if isinstance(error, TooManyAttempts) else 1
    return PlainTextResponse(str(error), 429, headers={"retry-after": str(seconds)})
