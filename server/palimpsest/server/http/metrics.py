"""Numbers for Prometheus at `/metrics`, with `http.metrics`. No label names a user, or anything that is stored."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse, Response
from starlette.types import Receive, Scope, Send

from palimpsest.core.errors import LedgerError
from palimpsest.server.mcp_server import Ended
from palimpsest.server.session.context import LazyMemory

if TYPE_CHECKING:
    from palimpsest.admin.doctor import Numbers


BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
"""Upper bounds in seconds: a search takes some milliseconds, and a call with a language model up to minutes."""

PER_MINUTE = 60
"""How often an address may read them, or try a token. Prometheus reads them every 15 to 60 seconds."""


class Metrics(Collector):
    """Counts what it is told of, and answers with it and with what the ledger says at that time. ASGI app.

    What the ledger says is the same for all servers over it, but for the state and the lag.

    With `token`, it is for requests with this bearer token alone. `sessions` and `in_flight` return how many there are.
    """

    def __init__(
        self, memory: LazyMemory, token: str, sessions: Callable[[], int], in_flight: Callable[[], int]
    ) -> None:
        self._memory = memory
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
        self._states: dict[str, str] = {}
        self._numbers: Numbers | None = None
        registry.register(self)

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
        await (await self._response(scope))(scope, receive, send)

    async def _response(self, scope: Scope) -> Response:
        if scope["method"] != "GET":
            return PlainTextResponse("only GET", 405, headers={"allow": "GET"})
        given = Headers(scope=scope).get("authorization", "")
        if self._token and not hmac.compare_digest(given.encode(), f"Bearer {self._token}".encode()):
            text = "http.metrics_token is needed as a bearer token"
            return PlainTextResponse(text, 401, headers={"www-authenticate": "Bearer"})
        states = await self._memory.health()
        memory = self._memory.opened
        try:
            self._numbers = None if memory is None else await memory.care.numbers()
        except LedgerError:
            self._numbers, states = None, {"status": "failed", "ledger": "unreadable"}
        self._states = states
        return Response(generate_latest(self._registry), media_type=CONTENT_TYPE_PLAIN_0_0_4)

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the numbers."""
        state = GaugeMetricFamily("palimpsest_state", "1 for the state that a part is in.", labels=["part", "state"])
        for part, value in self._states.items():
            state.add_metric([part, value], 1)
        yield state
        if self._numbers is None:
            return
        lag = self._numbers.index_lag
        yield GaugeMetricFamily("palimpsest_index_lag", "Rows of the index log that this index lacks.", lag)
        jobs = GaugeMetricFamily("palimpsest_jobs", "Jobs of the ledger that are not done.", labels=["kind", "state"])
        for (kind, job_state), count in sorted(self._numbers.jobs.items()):
            jobs.add_metric([kind, job_state], count)
        yield jobs
        calls = GaugeMetricFamily("palimpsest_model_calls", "Calls of the model today.", labels=["kind"])
        tokens = GaugeMetricFamily("palimpsest_model_tokens", "Tokens of these calls.", labels=["kind"])
        for kind, use in self._numbers.model_use.today.items():
            calls.add_metric([kind], use.calls)
            tokens.add_metric([kind], use.tokens)
        yield calls
        yield tokens
