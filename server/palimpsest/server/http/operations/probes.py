"""The probes: `/health` says whether the process works, and `/ready` whether it should get requests now."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import anyio
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from palimpsest import __version__
from palimpsest.core.errors import LedgerError
from palimpsest.server.session.lazy_memory import LazyMemory

RETRY_SECONDS = 5.0
"""How long after a failed attempt to open the memory a probe makes another one. Set by hand."""

Readiness: TypeAlias = Literal["ready", "opening", "failed", "draining"]


class Health:
    """The health check: 200 if the server works, 503 if it does not, and nothing about what it stores. ASGI app."""

    def __init__(self, memory: LazyMemory) -> None:
        self._memory = memory

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request."""
        await (await self._response())(scope, receive, send)

    async def _response(self) -> Response:
        content: dict[str, Any] = {"version": __version__, **await self._memory.health()}
        return JSONResponse(content, 200 if content["status"] != "failed" else 503)


class Ready:
    """The readiness check: 200 if the memory is open and the ledger can be read, else 503. ASGI app.

    While the server `is_draining`, it is not ready. If the memory could not be opened, the check has it opened again:
    no other request would come that does.
    """

    def __init__(self, memory: LazyMemory, is_draining: Callable[[], bool]) -> None:
        self._memory = memory
        self._is_draining = is_draining
        self._retried_at = -RETRY_SECONDS

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request."""
        readiness = await self.readiness()
        response = JSONResponse({"status": readiness}, 200 if readiness == "ready" else 503)
        await response(scope, receive, send)

    async def readiness(self) -> Readiness:
        """Return whether requests should come."""
        if self._is_draining():
            return "draining"
        memory = self._memory.opened
        if memory is not None:
            try:
                await memory.care.read_ledger()
            except LedgerError:
                return "failed"
            return "ready"
        if not self._memory.has_failed:
            return "opening"
        if anyio.current_time() - self._retried_at >= RETRY_SECONDS:
            self._retried_at = anyio.current_time()
            self._memory.start_opening()
        return "failed"
