"""The project by the folders that a client has open (its roots), where the settings leave the project to be found.

A client is asked with the first calls of a connection. Up to protocol 2025-11-25 that is a request in the middle of a
call; from 2026-07-28 on the call is answered with the question, where there is a connection: over streamable HTTP there
is none any more, and every call would be.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

import anyio
import anyio.to_thread
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp.types import InputRequiredResult, ListRootsRequest, ListRootsResult
from pydantic import ValidationError

from palimpsest.core.errors import InputError
from palimpsest.core.git_project import project_of
from palimpsest.core.validation import scope_part
from palimpsest.server.session.continuations import ASKED_BETWEEN_CALLS_SINCE

CALLS = ("tools/call", "resources/read", "prompts/get")
"""What can be answered with a question."""

KEY = "roots"
PATIENCE = 5.0
"""Seconds that a client has to say what it has open; the folder the server was started in serves then."""

MAX_CONNECTIONS = 1_000

Call = ServerRequestContext[Any, Any]


class Roots:
    """Remember the project of each connection, and when a client was asked that did not answer yet."""

    def __init__(self) -> None:
        self._projects: dict[str, str] = {}
        self._asked: dict[str, float] = {}
        self._threads = anyio.CapacityLimiter(2)

    async def project(self, call: Call) -> str | InputRequiredResult:
        """Return the project of the call's connection, "" where its roots name none, or the question to answer with."""
        connection = connection_of(call)
        answered = _answer(call)
        if answered is None and connection in self._projects:
            return self._projects[connection]
        capabilities = call.session.client_capabilities
        if not connection or capabilities is None or capabilities.roots is None:
            return ""
        if answered is None:
            if not self._may_ask(connection):
                return ""
            if call.protocol_version >= ASKED_BETWEEN_CALLS_SINCE:
                # A call that comes with a state of its own is in the middle of something else.
                asks = call.method in CALLS and (call.params or {}).get("requestState") is None
                return InputRequiredResult(input_requests={KEY: ListRootsRequest()}) if asks else ""
            answered = await _listed(call)
        return "" if answered is None else await self._found(connection, answered)

    def forget(self, call: Call) -> None:
        """Ask the client of a connection anew: what it has open has changed."""
        self._projects.pop(connection_of(call), None)
        self._asked.pop(connection_of(call), None)

    def _may_ask(self, connection: str) -> bool:
        """Say whether to ask: of calls that come at once each is, of a client that never answered none any more."""
        now = anyio.current_time()
        return now - self._asked.setdefault(connection, now) < PATIENCE

    async def _found(self, connection: str, uris: Sequence[str]) -> str:
        if len(self._projects) >= MAX_CONNECTIONS:
            self._projects.clear()
            self._asked.clear()
        named = ""
        with anyio.move_on_after(PATIENCE):  # a folder on a network that does not answer
            named = await anyio.to_thread.run_sync(
                lambda: _first_project(uris), limiter=self._threads, abandon_on_cancel=True
            )
        self._projects[connection] = named
        return named


async def _listed(call: Call) -> Sequence[str] | None:
    """Return the roots of a client that can be asked in the middle of a call; None where it does not answer."""
    if not call.session.can_send_request:
        return None
    related = ServerMessageMetadata(related_request_id=call.request_id)
    try:
        with anyio.fail_after(PATIENCE):
            found = await call.session.send_request(ListRootsRequest(), ListRootsResult, metadata=related)
    except TimeoutError:
        return None
    except (MCPError, ValidationError):  # it has none to tell of: the server's own folder serves
        return ()
    return [str(root.uri) for root in found.roots]


def _answer(call: Call) -> Sequence[str] | None:
    """Return the roots that came with a call; None where none came."""
    given: Any = (call.params or {}).get("inputResponses")
    if not isinstance(given, Mapping) or KEY not in given:
        return None
    try:
        return [str(root.uri) for root in ListRootsResult.model_validate(given[KEY]).roots]
    except ValidationError:  # no list of roots: as if it had none
        return ()


def _first_project(uris: Sequence[str]) -> str:
    """Return the project of the first root on this machine that has one."""
    return next((named for named in map(_project_at, uris) if named), "")


def _project_at(uri: str) -> str:
    try:
        parts = urlsplit(uri)
        return scope_part("project", project_of(Path(url2pathname(parts.path)))) if parts.scheme == "file" else ""
    except (OSError, ValueError, InputError):  # not ours to read, no path, or no name for a project: as if it had none
        return ""


def connection_of(call: Call) -> str:
    """Name the connection of a call: by its session over HTTP and SSE, "" without one; over stdio there is one."""
    request: Any = call.request
    if request is None:
        return "stdio"
    by_header = request.headers.get("mcp-session-id") if call.protocol_version < ASKED_BETWEEN_CALLS_SINCE else None
    return str(by_header or request.query_params.get("session_id") or "")
