"""Choose who is told of calls and requests: nobody, a log, numbers for Prometheus, or both."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec

from starlette.middleware import Middleware
from starlette.types import ASGIApp

from palimpsest.core.configuration.sections import HttpSettings
from palimpsest.core.errors import SettingsError
from palimpsest.server.http.limits import RateLimit
from palimpsest.server.http.open_paths import METRICS
from palimpsest.server.http.operations.log import EventLog
from palimpsest.server.http.operations.requests import OnRequest, ToldRequests
from palimpsest.server.http.split import PageSplit
from palimpsest.server.session.lazy_memory import LazyMemory
from palimpsest.server.tools.outcomes import CallEnd, OnCall


@dataclass(frozen=True, slots=True)
class Observers:
    """Who is told of calls and of requests, and the steps of a request that answer `/metrics`."""

    on_call: tuple[OnCall, ...] = ()
    on_request: tuple[OnRequest, ...] = ()
    steps: tuple[Middleware, ...] = ()

    def of_calls(self) -> OnCall | None:
        """Return what is told of each call, or None if nobody wants to know."""
        return self._tell if self.on_call else None

    def around(self, app: ASGIApp) -> ASGIApp:
        """Return an application that tells of its requests, or the application itself."""
        return ToldRequests(app, self.on_request) if self.on_request else app

    def _tell(self, end: CallEnd) -> None:
        for tell in self.on_call:
            tell(end)


def observers(
    settings: HttpSettings,
    memory: LazyMemory,
    sessions: Callable[[], int],
    under_way: Callable[[], int],
    *,
    protected: bool,
) -> Observers:
    """Return who is told, as the settings say. Raises SettingsError if anybody could read the numbers."""
    chosen = Observers()
    if settings.log == "json":
        log = EventLog(lambda: memory.opened.care.ledger_id if memory.opened is not None else "")
        chosen = Observers((log.call,), (log.request,))
    if not settings.metrics:
        return chosen
    if protected and settings.metrics_token is None:
        raise SettingsError(
            "http.metrics needs http.metrics_token, because this server needs access tokens: at least 16 characters, "
            "which Prometheus sends as a bearer token. Nothing was served."
        )
    if find_spec("prometheus_client") is None:
        raise SettingsError(
            "http.metrics needs prometheus-client, which is not installed. Nothing was served. Install "
            "palimpsest-mcp[metrics]."
        )
    # The package is an extra, and takes time to import.
    from palimpsest.server.http.operations.metrics import PER_MINUTE, Metrics  # noqa: PLC0415 - as above

    token = settings.metrics_token.get_secret_value() if settings.metrics_token is not None else ""
    metrics = Metrics(memory, token, sessions, under_way)
    step = Middleware(PageSplit, page=RateLimit(metrics, PER_MINUTE), is_page=lambda path: path == METRICS)
    return Observers((*chosen.on_call, metrics.call), (*chosen.on_request, metrics.request), (step,))
