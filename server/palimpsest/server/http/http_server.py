"""Serve MCP over HTTP: streamable HTTP at /mcp and SSE at /sse, on one port, with one open memory.

`application` says how a request is checked before it gets there.
"""

import gc
import json
import logging
import signal
import socket
import sys
import time
import traceback
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from types import FrameType
from typing import Any, Literal, TypeAlias, cast

import anyio
import uvicorn
from mcp.server.auth.middleware.auth_context import AuthContextMiddleware
from mcp.server.auth.middleware.bearer_auth import RequireAuthMiddleware
from mcp.server.auth.routes import build_resource_metadata_url, create_protected_resource_routes
from mcp.server.transport_security import TransportSecuritySettings
from pydantic import AnyHttpUrl, TypeAdapter
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.authentication import AuthenticationMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.config import LOGGING_CONFIG

from palimpsest import __version__
from palimpsest.core.clock import now
from palimpsest.core.errors import LedgerError, SettingsError, raised_as
from palimpsest.core.settings import HttpSettings, Settings, is_loopback
from palimpsest.core.threads import running
from palimpsest.server import access_tokens
from palimpsest.server.access_tokens import READ, WRITE, AccessTokenVerifier
from palimpsest.server.app import LoadSettings, build_server
from palimpsest.server.http import middleware
from palimpsest.server.http.middleware import Session
from palimpsest.server.jsonrpc import MAX_MESSAGE_BYTES
from palimpsest.server.mcp_server import Ended, MemoryServer, Observer
from palimpsest.server.session import rate_limits
from palimpsest.server.session.context import LazyMemory, ServerState
from palimpsest.server.session.rate_limits import Calls

# End a server in order: first it is not ready, then it takes no connections, calls end, streams end, it closes.

# How long calls that are under way may go on after the server stopped to listen. With the streams' time after it, it is
# below the 30 seconds after which Kubernetes kills a process.
CALLS_SECONDS = 20.0

# How often it is looked whether calls have ended. The handler of a signal cannot set an event of the loop; the rest of
# uvicorn looks as often.
LOOK_SECONDS = 0.1


class DrainingServer(uvicorn.Server):
    """A server that SIGTERM ends in order, and that a second signal, or Ctrl-C, ends without waiting for calls.

    For `drain_seconds` after SIGTERM it serves as before and only `is_draining`. Then it waits for what is in flight,
    because streams, among them those that calls are answered in, end as soon as `should_exit` is set. What ended in
    order ends with the status 0.
    """

    def __init__(self, config: uvicorn.Config, calls: Calls, drain_seconds: float) -> None:
        super().__init__(config)
        self._calls = calls
        self._drain_seconds = drain_seconds
        self._stop_at: float | None = None

    @property
    def is_draining(self) -> bool:
        """Return whether the server is asked to stop."""
        return self._stop_at is not None or self.should_exit

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Handle a signal."""
        if sig != signal.SIGTERM or self.is_draining:
            super().handle_exit(sig, frame)
        else:
            self._stop_at = time.monotonic() + self._drain_seconds

    async def on_tick(self, counter: int) -> bool:
        """Return whether to stop now."""
        is_time = self._stop_at is not None and time.monotonic() >= self._stop_at
        return await super().on_tick(counter) or is_time

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Take no more connections, wait for calls, and then end everything else."""
        for server in self.servers:
            server.close()
        for listener in sockets or []:
            listener.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        end = time.monotonic() + CALLS_SECONDS
        while self._calls.in_flight and not self.should_exit and time.monotonic() < end:  # noqa: ASYNC110 - see LOOK_SECONDS
            await anyio.sleep(LOOK_SECONDS)
        await anyio.sleep(LOOK_SECONDS)  # the last answers are sent
        self.should_exit = True
        await super().shutdown(sockets)


# The probes: `/health` says whether the process works, and `/ready` whether it should get requests now.


def probes(memory: LazyMemory, is_draining: Callable[[], bool]) -> list[Route]:
    """Return the routes of the probes.

    The server is ready if the memory is open and the ledger can be read, unless it `is_draining`. If the memory could
    not be opened, the probe has it opened again: no other request would come that does.
    """

    async def health(_: Request) -> Response:
        content: dict[str, Any] = {"version": __version__, **await memory.health()}
        return JSONResponse(content, 200 if content["status"] != "failed" else 503)

    async def ready(_: Request) -> Response:
        status = "failed"
        if is_draining():
            status = "draining"
        elif memory.opened is not None:
            with suppress(LedgerError):
                await memory.opened.care.read_ledger()
                status = "ready"
        elif not memory.has_failed:
            status = "opening"
        else:
            memory.start_opening()
        return JSONResponse({"status": status}, 200 if status == "ready" else 503)

    return [Route(rate_limits.HEALTH, health, methods=["GET"]), Route(rate_limits.READY, ready, methods=["GET"])]


# Tell how every request ended, whoever refused or answered it. ASGI middleware.

# The paths that are told apart. All others are told as "other".
OBSERVED = ("/mcp", "/sse", rate_limits.HEALTH, rate_limits.READY, rate_limits.METRICS)


def observe_requests(app: ASGIApp, observers: Sequence[Observer]) -> ASGIApp:
    """Tell observers how each request ended. It is the outermost middleware.

    A status of 0 means that nothing was answered, because the client had gone.
    """

    async def observe(scope: Scope, receive: Receive, send: Send) -> None:
        began, status = time.monotonic(), 0

        async def watch(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await app(scope, receive, watch)
        finally:
            fields = {"path": scope["path"] if scope["path"] in OBSERVED else "other", "status": status}
            ended = Ended("request", fields, time.monotonic() - began)
            for observer in observers:
                observer(ended)

    return rate_limits.switch_paths(app, observe)


# A log of JSON objects, one a line, that holds nothing of what is stored or asked: `http.log = "json"`.
#
# A message of ours is the text as it stands in the code, without what would be put into it. A library may put anything
# into its messages, so that only the place in its code is named.

# The loggers whose messages are constant texts.
OURS = ("palimpsest", "uvicorn")

# The attribute of a record with further fields, which its logger vouches for.
FIELDS = "fields"

calls = logging.getLogger("palimpsest.calls")
requests = logging.getLogger("palimpsest.requests")


class JsonFormatter(logging.Formatter):
    """Writes a record as a JSON object."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        is_ours = record.name.partition(".")[0] in OURS
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": str(record.msg).strip() if is_ours else f"(left out) {record.module}:{record.lineno}",
            **cast("Mapping[str, Any]", getattr(record, FIELDS, {})),
        }
        if (error := record.exc_info[1] if record.exc_info else None) is not None:
            line["error"] = type(error).__name__
            line["frames"] = [
                f"{frame.filename}:{frame.lineno} {frame.name}" for frame in traceback.extract_tb(error.__traceback__)
            ]
        return json.dumps(line)


def log_as_json() -> None:
    """Have every logger of this process write JSON objects to stderr, and nothing else."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(handlers=[handler], force=True, level=logging.WARNING)
    logging.captureWarnings(capture=True)
    for logger in (calls, requests):
        logger.setLevel(logging.INFO)


def log_ended(ended: Ended) -> None:
    """Log a call or a request."""
    if ended.fields.get("path") in rate_limits.PROBES and ended.fields["status"] == 200:  # noqa: PLR2004 - OK
        return  # a probe that was answered as always
    logger = calls if ended.kind == "call" else requests
    logger.info(ended.kind, extra={FIELDS: {**ended.fields, "duration_ms": round(ended.seconds * 1000, 3)}})


# Choose what observes calls and requests: nothing, a log, numbers for Prometheus, or both.


def observers(
    settings: HttpSettings, state: ServerState, sessions: list[Session], *, protected: bool
) -> tuple[list[Observer], list[Middleware]]:
    """Return the observers that the settings name, and the middleware that answers `/metrics`.

    Raises SettingsError if anybody could read the numbers.
    """
    chosen: list[Observer] = [log_ended] if settings.log == "json" else []
    if not settings.metrics:
        return chosen, []
    if protected and settings.metrics_token is None:
        raise SettingsError("http.metrics needs http.metrics_token on a server with access tokens. Nothing was served.")
    fault, advice = "http.metrics needs palimpsest-mcp[metrics]", ". Nothing was served. Install that."
    with raised_as(SettingsError, fault, advice, ImportError):
        from palimpsest.server.http.metrics import PER_MINUTE, Metrics  # noqa: PLC0415 - an extra that takes time

    token = settings.metrics_token.get_secret_value() if settings.metrics_token is not None else ""
    metrics = Metrics(token, lambda: len(sessions), lambda: state.calls.in_flight)
    limited = rate_limits.limit_callers(metrics, PER_MINUTE)
    step = Middleware(rate_limits.switch_paths, other=limited, is_other=lambda path: path == rate_limits.METRICS)
    return [*chosen, metrics.observe], [step]


# Keep the pauses of the garbage collector short.
#
# A full collection visits every object of the process, half a million after the imports, and stops all threads for
# some 200 ms meanwhile. Requests that create many objects, such as open streams, would cause one collection after
# the other.

# After how many new objects the youngest are collected, and after how many of these collections the older ones are.
# Python's own (700, 10, 10) suit small programs.
THRESHOLDS = (50_000, 20, 100)

# When the memory is open and the background has loaded the vector index.
LOADED_SECONDS = 15.0


async def keep_pauses_short() -> None:
    """Collect seldom, and exclude from collections what is there once everything is loaded."""
    gc.set_threshold(*THRESHOLDS)
    await anyio.sleep(LOADED_SECONDS)
    gc.freeze()


# The application: the middleware stack in front of MCP and the page, and its start and end.

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
ALL_ADDRESSES = ("0.0.0.0", "::")  # noqa: S104 - compared with, not bound to

URL: TypeAdapter[AnyHttpUrl] = TypeAdapter(AnyHttpUrl)

Transport: TypeAlias = Literal["http", "sse", "all"]


@dataclass(frozen=True, slots=True)
class Page:
    """The page of a memory: its application, which paths it has, and the path of its first URL.

    `run` is what it does in the background while it is served.
    """

    app: ASGIApp
    has_path: Callable[[str], bool]
    first_path: str
    run: Callable[[], Coroutine[Any, Any, None]]


# Returns the page over a memory; the last argument says whether requests need an access token.
BuildPage: TypeAlias = Callable[[LazyMemory, Settings, bool], Page]


def application(
    server: MemoryServer,
    page: Page,
    settings: Settings,
    transport: Transport,
    host: str,
    is_draining: Callable[[], bool],
    *,
    protected: bool,
) -> ASGIApp:
    """Return what is served. It opens the memory at startup and closes it at shutdown.

    `protected`: whether requests need an access token, and callers have shares. Each step of the middleware reads only
    what the steps before it have let through. Before them, `BoundedConnection` waits for the headers. After them, the
    SDK and our `Calls` answer the request.
    """
    calls, sessions = server.state.calls, list[Session]()
    observing, metrics_step = observers(settings.http, server.state, sessions, protected=protected)
    server.observers = observing
    # `check_host` checks hosts. The SDK's own check takes anything after a name's colon for a port.
    of_mcp: dict[str, Any] = {
        "transport_security": TransportSecuritySettings(enable_dns_rebinding_protection=False),
        "host": host,
        "max_request_body_size": MAX_MESSAGE_BYTES,
    }
    routes: list[BaseRoute] = [*probes(server.state.memory, is_draining)]
    if transport != "sse":
        routes += server.streamable_http_app(**of_mcp).routes
    if transport != "http":
        routes += server.sse_app(**of_mcp).routes
    identify, require = list[Middleware](), list[Middleware]()
    if protected:
        verifier = AccessTokenVerifier(settings.http, settings.data_dir, now)
        backend = rate_limits.LimitedBearerAuth(verifier)
        identify = [Middleware(AuthenticationMiddleware, backend=backend, on_error=rate_limits.refusal)]
        require = [
            Middleware(_require_token, audience=settings.http.audience),
            # A stream ends with its token.
            Middleware(middleware.end_with_token, verifier=verifier),
            Middleware(AuthContextMiddleware),
        ]
        if settings.http.issuer:
            # Clients learn there which OAuth server issues access tokens (RFC 9728).
            routes += create_protected_resource_routes(
                resource_url=URL.validate_python(settings.http.audience),
                authorization_servers=[URL.validate_python(settings.http.issuer)],
                scopes_supported=[READ, WRITE],
            )
    bound = [] if host in ALL_ADDRESSES else [f"[{host}]" if ":" in host else host]
    names = [*LOOPBACK, *bound, socket.gethostname(), *settings.http.allowed_hosts]
    steps = [
        # Web pages of other sites are kept out (DNS rebinding).
        Middleware(middleware.check_host, names=names),
        *metrics_step,
        # Visitors of the page have a cookie and no access token, and send forms and no JSON.
        Middleware(rate_limits.switch_paths, other=page.app, is_other=page.has_path),
        # The access token says who calls; without one it is the address. An address may try few wrong tokens.
        *identify,
        # Each caller sends so many requests a minute, and has so many unfinished.
        Middleware(rate_limits.limit_callers, per_minute=settings.http.requests_per_minute),
        # Without a valid access token, it ends here: 401, and no body was read.
        *require,
        # The body is read, within its limits.
        Middleware(middleware.limit_bodies, budget=calls.bodies, shares=calls.shares if protected else None),
        # A new session may close an old one.
        Middleware(middleware.limit_sessions, sessions=sessions),
    ]

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncGenerator[None]:
        async with running(server.state.run, page.run, keep_pauses_short):
            server.state.memory.start_opening()
            async with server.session_manager.run() if transport != "sse" else nullcontext():
                yield

    app = Starlette(routes=routes, middleware=steps, lifespan=lifespan)
    return observe_requests(app, observing) if observing else app


def _require_token(app: ASGIApp, audience: str) -> ASGIApp:
    """Return an application that answers 401 or 403 without a valid access token, except on open paths."""
    metadata_url = build_resource_metadata_url(URL.validate_python(audience)) if audience else None
    protected = RequireAuthMiddleware(app, [READ], metadata_url)
    return rate_limits.switch_paths(app, protected, lambda path: not rate_limits.is_open(path))


# Serve it.

logger = logging.getLogger(__name__)

PATHS = {"http": ("mcp",), "sse": ("sse",), "all": ("mcp", "sse")}

# How long open streams may continue when the server stops and its calls have ended.
SHUTDOWN_SECONDS = 3

# How long a tool call over HTTP may take. What it had stored by then is kept.
CALL_SECONDS = 300.0

# How long a thread computes before another may. With Python's own 5 ms, each step of a call waits for the calls of
# others.
SWITCH_SECONDS = 0.001


def serve(
    load_settings: LoadSettings, transport: Transport, host: str | None, port: int | None, build_page: BuildPage
) -> None:
    """Serve until the process is asked to stop. Raises SettingsError if the address cannot be served like this."""
    settings = load_settings()
    http = settings.http
    host = http.host if host is None else host
    port = http.port if port is None else port
    protected = bool(http.tokens or http.issuer or access_tokens.stored_tokens(settings.data_dir))
    if not protected and not is_loopback(host):
        advice = "Create one (palimpsest token create), set http.tokens or http.issuer, or serve on 127.0.0.1."
        raise SettingsError(f"{host} can be reached from other machines, and no access token is required. {advice}")
    sys.setswitchinterval(SWITCH_SECONDS)
    with listen(host, port) as listener:
        mcp = build_server(lambda: load_settings().learning_in_background(), run_state=False, call_seconds=CALL_SECONDS)
        page = build_page(mcp.state.memory, settings, protected)
        app = application(mcp, page, settings, transport, host, lambda: server.is_draining, protected=protected)
        if http.log == "json":  # after the SDK has set up the log in its own way
            log_as_json()
        config = uvicorn.Config(
            app,
            log_config=LOGGING_CONFIG if http.log == "text" else None,
            log_level="warning",
            server_header=False,
            ws="none",
            http=middleware.BoundedConnection,
            proxy_headers=bool(http.trusted_proxies),
            forwarded_allow_ips=[str(network) for network in http.trusted_proxies],
            timeout_graceful_shutdown=SHUTDOWN_SECONDS,
        )
        base = f"http://{f'[{host}]' if ':' in host else host}:{listener.getsockname()[1]}"
        urls = " and ".join(f"{base}/{path}" for path in PATHS[transport])
        if http.log == "json":  # a log does not name the page, whose URL may let somebody in
            logger.warning("serving", extra={"fields": {"urls": urls, "with_token": protected}})
        else:
            for line in (f"{urls}{', with a token' if protected else ''}", f"page: {base}{page.first_path}"):
                print(f"palimpsest: {line}", file=sys.stderr, flush=True)  # noqa: T201 - for the person who starts the server
        server = DrainingServer(config, mcp.state.calls, http.drain_seconds)
        server.run(sockets=[listener])


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens; `port` 0 picks a free one. Raises SettingsError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with raised_as(SettingsError, f"cannot listen on {host} port {port}", ". --port names another one.", OSError):
        return socket.create_server((host, port), family=family)
