"""Numbers for Prometheus at `/metrics`, with `http.metrics`. No label names a user, or anything that is stored."""

import hmac
from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse, Response
from starlette.types import Receive, Scope, Send

from palimpsest.server.mcp_server import Ended

# Upper bounds in seconds: a search takes some milliseconds, and a call with a language model up to minutes.
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)

# How often an address may read them, or try a token. Prometheus reads them every 15 to 60 seconds.
PER_MINUTE = 60


class Metrics:
    """Counts what it is told of, and answers with it. ASGI app.

    With `token`, it is for requests with this bearer token alone. `sessions` and `in_flight` return how many there are.
    """

    def __init__(self, token: str, sessions: Callable[[], int], in_flight: Callable[[], int]) -> None:
        self._token = token
        self._registry = registry = CollectorRegistry()
        self._calls = Counter("palimpsest_calls", "Calls of tools.", ["tool", "outcome"], registry=registry)
        self._seconds = Histogram(
            "palimpsest_call_seconds", "How long calls of tools took.", ["tool"], registry=registry, buckets=BUCKETS
        )
        self._requests = Counter("palimpsest_requests", "Requests over HTTP.", ["path", "status"], registry=registry)
        Gauge("palimpsest_sessions", "Open sessions of MCP.", registry=registry).set_function(sessions)
        Gauge("palimpsest_calls_under_way", "Calls that are being answered.", registry=registry).set_function(in_flight)
        ProcessCollector(registry=registry)

    def observe(self, ended: Ended) -> None:
        """Count a call or a request."""
        fields = {name: str(value) for name, value in ended.fields.items()}
        if ended.kind == "request":
            self._requests.labels(fields["path"], fields["status"]).inc()
        else:
            self._calls.labels(fields["tool"], fields["outcome"]).inc()
            self._seconds.labels(fields["tool"]).observe(ended.seconds)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request."""
        given = Headers(scope=scope).get("authorization", "")
        if self._token and not hmac.compare_digest(given.encode(), f"Bearer {self._token}".encode()):
            text = "http.metrics_token is needed as a bearer token"
            response = PlainTextResponse(text, 401, headers={"www-authenticate": "Bearer"})
        else:
            response = Response(generate_latest(self._registry), media_type=CONTENT_TYPE_PLAIN_0_0_4)
        await response(scope, receive, send)
