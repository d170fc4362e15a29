"""Limit by caller: requests, failed tokens, bodies, unfinished calls and their threads."""

import hashlib
import ipaddress
import math
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Generator
from contextlib import contextmanager, nullcontext
from typing import Any, cast
from weakref import WeakValueDictionary

import anyio
from limits import RateLimitItemPerMinute
from limits.storage import MemoryStorage
from limits.strategies import MovingWindowRateLimiter, SlidingWindowCounterRateLimiter
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser, BearerAuthBackend
from mcp.server.auth.provider import TokenVerifier
from mcp.server.context import CallNext, HandlerResult
from mcp.shared.exceptions import MCPError
from mcp.types import INTERNAL_ERROR
from starlette.authentication import AuthCredentials, AuthenticationError
from starlette.requests import HTTPConnection, Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from palimpsest.core.threads import CpuShares, Threads
from palimpsest.server.access_tokens import OPEN, current_grant
from palimpsest.server.session.client_requests import RequestContext

# Who sends a request, for limits: the owner of a verified access token, or else an address.

# The part of an IPv6 address that names a network. One machine has all the addresses of its network.
NETWORK_BITS = 64


def caller_of(scope: Scope) -> str:
    """Return a name for whoever sends a request.

    A header alone never decides it, because anybody can send any header.
    """
    user = scope.get("user")
    if isinstance(user, AuthenticatedUser):
        return f"token {user.access_token.client_id} of {user.access_token.subject}"
    return f"address {address_of(scope)}"


def address_of(scope: Scope) -> str:
    """Return the address that a request comes from, of IPv6 the network, or "" if it is unknown."""
    client = scope.get("client")
    host = str(client[0]) if client else ""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address) or address.ipv4_mapped is not None:
        return host
    return str(ipaddress.ip_network((int(address), NETWORK_BITS), strict=False))


@contextmanager
def counted(counts: Counter[str], key: str) -> Generator[None]:
    """Count one more until the block ends. What is counted no more is forgotten."""
    counts[key] += 1
    try:
        yield
    finally:
        counts[key] -= 1
        if not counts[key]:
            del counts[key]


def refused(status: int, text: str, retry_after: int = 1) -> PlainTextResponse:
    """Return the response to a request that may be sent again in some seconds."""
    return PlainTextResponse(text, status, headers={"retry-after": str(retry_after)})


def seconds_until(time_of_day: float) -> int:
    """Return the whole seconds, at least 1, until an instant."""
    return max(1, math.ceil(time_of_day - time.time()))


# Limit how often an address may send access tokens that are not valid.

# More than a client that was set up wrongly sends, and too few to guess a token or to keep an issuer busy.
FAILED_PER_MINUTE = 60

# How many headers that were valid are remembered. What is forgotten is only checked like a new one.
MAX_KNOWN = 10_000


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
        return 0 if stats.remaining > undecided else seconds_until(stats.reset_time)


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
        """Return who sent a request, or None without a valid access token. Raises AuthenticationError for `refusal`."""
        header = conn.headers.get("authorization", "")
        if not header.lower().startswith("bearer "):
            return None
        digest, address = hashlib.sha256(header.encode()).digest(), address_of(conn.scope)
        is_known = digest in self._known
        # The failures, and the attempts that are still being decided, must not reach the limit.
        if not is_known and (seconds := self._failures.seconds_to_wait(address, self._undecided[address])):
            text = f"more than {FAILED_PER_MINUTE} access tokens a minute that are not valid; nothing was done"
            raise AuthenticationError(text, seconds)
        with nullcontext() if is_known else counted(self._undecided, address):
            authenticated = await super().authenticate(conn)
        self._known.pop(digest, None)
        if authenticated is None:
            self._failures.note(address)
        else:
            self._known[digest] = None
            if len(self._known) > MAX_KNOWN:
                self._known.popitem(last=False)
        return authenticated


def refusal(_: HTTPConnection, error: AuthenticationError) -> Response:
    """Return the response to a request that `LimitedBearerAuth` refused."""
    return refused(429, *error.args)


# Paths that need no access token: the probes, and the metadata that says where to get a token.

HEALTH = "/health"
READY = "/ready"
PROBES = (HEALTH, READY)

# It has a token of its own.
METRICS = "/metrics"
WELL_KNOWN = "/.well-known/"


def is_open(path: str) -> bool:
    """Return whether anybody may request a path. Nothing behind it reads the body of a request."""
    return path in PROBES or path.startswith(WELL_KNOWN)


def switch_paths(app: ASGIApp, other: ASGIApp, is_other: Callable[[str], bool] = lambda _: True) -> ASGIApp:
    """Pass requests, or those for some paths, on to another application. ASGI middleware.

    `app` also gets what is no request: the start and the end of the server.
    """

    async def switch(scope: Scope, receive: Receive, send: Send) -> None:
        goes_to_other = scope["type"] == "http" and is_other(scope["path"])
        await (other if goes_to_other else app)(scope, receive, send)

    return switch


# Limit how many requests a caller sends a minute, and how many it has unfinished.
#
# Callers are distinguished by verified access token, or else by address. Requests for open paths are counted apart,
# so that the probes are answered whatever else an address sends.

# Requests of one caller that may be unfinished: calls, bodies that arrive, and streams. 200 sessions of one caller may
# each have a stream and a call, and some calls are just ending. It is half of all connections.
MAX_UNFINISHED = 450


def limit_callers(app: ASGIApp, per_minute: int) -> ASGIApp:
    """Answer 429 to a caller that sends too many requests a minute, and 503 to one with too many unfinished ones.

    The last minute is estimated from the counts of this clock minute and the one before, so that each caller takes the
    same small amount of memory. Each unfinished request holds a connection. ASGI middleware.
    """
    limit, limiter = RateLimitItemPerMinute(per_minute), SlidingWindowCounterRateLimiter(MemoryStorage())
    unfinished: Counter[str] = Counter()

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        caller = f"{caller_of(scope)}, open paths" if is_open(scope["path"]) else caller_of(scope)
        if not limiter.hit(limit, caller):
            text = f"more than {per_minute} requests a minute; nothing was done"
            reset_at = limiter.get_window_stats(limit, caller).reset_time
            await refused(429, text, seconds_until(reset_at))(scope, receive, send)
        elif unfinished[caller] >= MAX_UNFINISHED:
            text = f"{MAX_UNFINISHED} of your requests are unfinished; nothing was done. Wait until one ends."
            await refused(503, text)(scope, receive, send)
        else:
            with counted(unfinished, caller):
                await app(scope, receive, send)

    return switch_paths(app, answer)


# How much the bodies of unfinished requests may hold, in all and by caller.

# The part of each body that is not counted, so that a small request is accepted whatever others send.
FREE_BYTES = 64 * 1024

# How much the bodies of unfinished requests may hold together. Parsed, they take a few times that.
MAX_HELD_BYTES = 32 * 1024 * 1024

# The same for one caller: two of the longest bodies.
MAX_HELD_BYTES_PER_CALLER = 8 * 1024 * 1024

# The key of the size of a request's body in its ASGI scope.
BODY_SIZE = "palimpsest.body_size"


class BodyBudget:
    """How much the bodies of unfinished requests hold, in all and by caller."""

    def __init__(self) -> None:
        self._by_caller: Counter[str] = Counter()

    @contextmanager
    def share(self, caller: str) -> Generator[Callable[[int], bool]]:
        """Yield a function that counts a body, until the block ends, and returns False if there is no room for it."""
        counted = 0

        def take(size: int) -> bool:
            nonlocal counted
            more = max(counted, size - FREE_BYTES) - counted
            held, of_caller = self._by_caller.total() + more, self._by_caller[caller] + more
            if more and (of_caller > MAX_HELD_BYTES_PER_CALLER or held > MAX_HELD_BYTES):
                return False
            self._by_caller[caller] += more
            counted += more
            return True

        try:
            yield take
        finally:
            self._by_caller[caller] -= counted
            if not self._by_caller[caller]:
                del self._by_caller[caller]


# How many calls of one caller may be unfinished, and how many threads they use.

# A request whose answer is a stream without an end of its own.
STREAM = "subscriptions/listen"

# Requests that may take long.
COUNTED = ("tools/call", "resources/read", "prompts/get", "completion/complete", STREAM)

# The number of one caller's calls that may be unfinished at a time. A person's agents make a few.
MAX_CALLS = 200

# How many threads all callers over HTTP use together. What the server does itself has its own.
THREADS = 8

# How many of them one caller uses at a time; its other calls wait: three leave some to a fourth.
THREADS_PER_CALLER = 2


class Calls:
    """The unfinished calls of every caller over HTTP. Over stdio there is one caller, and nothing is bounded."""

    def __init__(self) -> None:
        self._unfinished: Counter[str] = Counter()
        self._shared = anyio.CapacityLimiter(THREADS)
        self._writing = anyio.CapacityLimiter(1)
        self._by_caller: WeakValueDictionary[str, Threads] = WeakValueDictionary()
        self.shares = CpuShares()
        self.bodies = BodyBudget()
        self.in_flight = 0

    def threads(self, ctx: RequestContext) -> Threads | None:
        """Return the threads that a request may use, or None if it came over stdio."""
        if (request := _http_request(ctx.request)) is None:
            return None
        if current_grant() is OPEN:  # without access tokens, all callers are one
            return Threads((self._shared,), (self._writing,))
        caller = caller_of(request.scope)
        if (threads := self._by_caller.get(caller)) is None:
            own, own_writing = anyio.CapacityLimiter(THREADS_PER_CALLER), anyio.CapacityLimiter(1)
            threads = Threads((own, self._shared), (own_writing, self._writing), self.shares, caller)
            self._by_caller[caller] = threads
        return threads

    async def limit_calls(self, ctx: RequestContext, call_next: CallNext) -> HandlerResult:
        """Handle a request, unless its caller has too many unfinished ones. MCP middleware."""
        request = _http_request(ctx.request)
        if ctx.method not in COUNTED or request is None:
            return await call_next(ctx)
        caller = caller_of(request.scope)
        if self._unfinished[caller] >= MAX_CALLS:
            text = f"{MAX_CALLS} of your calls are unfinished; nothing was done. Wait until one ends."
            raise MCPError(INTERNAL_ERROR, text)
        is_waited_for = ctx.method != STREAM  # a stream is ended by its client
        with counted(self._unfinished, caller), self.bodies.share(caller) as take:
            if "session_id" in request.query_params:  # over SSE the HTTP request has been answered already
                take(request.scope.get(BODY_SIZE, 0))
            self.in_flight += is_waited_for
            try:
                return await call_next(ctx)
            finally:
                self.in_flight -= is_waited_for


def _http_request(request: Any) -> Request[Any] | None:
    return cast("Request[Any]", request) if isinstance(request, Request) else None
