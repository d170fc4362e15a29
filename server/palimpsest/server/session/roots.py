"""Find the project from the folders that a client has open (MCP roots), if the settings leave the project open.

A client is asked with the first requests of a connection. Up to protocol 2025-11-25 the server asks during a call.
Since 2026-07-28 it answers the call with its question. It does so only over stdio, because streamable HTTP no longer
has connections then, and every call would have to be asked.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias
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
from palimpsest.core.git_project import Repository, repository_of
from palimpsest.server.session.continuations import ASKED_BETWEEN_REQUESTS_SINCE

ANSWERABLE_METHODS = ("tools/call", "resources/read", "prompts/get")
"""The requests that the protocol allows to be answered with a question."""

KEY = "roots"
TIMEOUT = 5.0
"""Seconds that a client has to list its roots. After that the project of the server's own folder is used."""

MAX_CONNECTIONS = 1_000

RequestContext: TypeAlias = ServerRequestContext[Any, Any]
Identify: TypeAlias = Callable[[Repository], Awaitable[str]]

OnFolder: TypeAlias = Callable[[str, str], None]


class Roots:
    """The project of each connection, and when a client was asked that has not answered yet.

    `on_folder` is called with the first folder of a client that has a project, and the project.
    """

    def __init__(self, on_folder: OnFolder) -> None:
        self._on_folder = on_folder
        self._projects: dict[str, str] = {}
        self._asked_at: dict[str, float] = {}
        self._threads = anyio.CapacityLimiter(2)

    async def project(self, ctx: RequestContext, identify: Identify) -> str | InputRequiredResult:
        """Return the project of the request's connection, or the question to answer the request with.

        `identify` returns the project of a repository.
        The project is "" if the client's roots name none, or if the client cannot be asked.
        """
        connection = connection_of(ctx)
        uris = _roots_in_request(ctx)
        if uris is None and connection in self._projects:
            return self._projects[connection]
        capabilities = ctx.session.client_capabilities
        if not connection or capabilities is None or capabilities.roots is None:
            return ""
        if uris is None:
            if not self._may_ask(connection):
                return ""
            if ctx.protocol_version >= ASKED_BETWEEN_REQUESTS_SINCE:
                # A request that carries state already continues another exchange.
                may_answer = ctx.method in ANSWERABLE_METHODS and (ctx.params or {}).get("requestState") is None
                return InputRequiredResult(input_requests={KEY: ListRootsRequest()}) if may_answer else ""
            uris = await _ask_for_roots(ctx)
        return "" if uris is None else await self._store_project(connection, uris, identify)

    def ask_again(self, ctx: RequestContext) -> None:
        """Ask the client of this connection again at its next request, because its roots have changed."""
        self._projects.pop(connection_of(ctx), None)
        self._asked_at.pop(connection_of(ctx), None)

    def _may_ask(self, connection: str) -> bool:
        """Return whether to ask: every concurrent first request is, but a client that did not answer is left alone."""
        now = anyio.current_time()
        if len(self._asked_at) >= MAX_CONNECTIONS:  # of clients that did not answer
            self._asked_at.clear()
        return now - self._asked_at.setdefault(connection, now) < TIMEOUT

    async def _store_project(self, connection: str, uris: Sequence[str], identify: Identify) -> str:
        if len(self._projects) >= MAX_CONNECTIONS:
            self._projects.clear()
            self._asked_at.clear()
        repositories: Sequence[tuple[str, Repository]] = ()
        with anyio.move_on_after(TIMEOUT):  # the folder may be on a network drive that does not answer
            repositories = await anyio.to_thread.run_sync(
                lambda: _repositories(uris), limiter=self._threads, abandon_on_cancel=True
            )
        folder, project = await _first_project(repositories, identify)
        if project:
            self._on_folder(folder, project)
        self._projects[connection] = project
        return project


async def _ask_for_roots(ctx: RequestContext) -> Sequence[str] | None:
    """Ask a client for its roots during a call, and return them. Return None if it does not answer."""
    if not ctx.session.can_send_request:
        return None
    related = ServerMessageMetadata(related_request_id=ctx.request_id)
    try:
        with anyio.fail_after(TIMEOUT):
            result = await ctx.session.send_request(ListRootsRequest(), ListRootsResult, metadata=related)
    except TimeoutError:
        return None
    except (MCPError, ValidationError):  # the client has no roots to list: the server's own folder decides
        return ()
    return [str(root.uri) for root in result.roots]


def _roots_in_request(ctx: RequestContext) -> Sequence[str] | None:
    """Return the roots that the client sent along with its request, or None if it sent none."""
    responses: Any = (ctx.params or {}).get("inputResponses")
    if not isinstance(responses, Mapping) or KEY not in responses:
        return None
    try:
        return [str(root.uri) for root in ListRootsResult.model_validate(responses[KEY]).roots]
    except ValidationError:  # not a list of roots: treated as an empty one
        return ()


async def _first_project(repositories: Sequence[tuple[str, Repository]], identify: Identify) -> tuple[str, str]:
    """Return the first folder whose repository is a project, and the project; "" for both if there is none."""
    for folder, repository in repositories:
        try:
            return folder, await identify(repository)
        except InputError:  # its name is not valid in a scope
            continue
    return "", ""


def _repositories(uris: Sequence[str]) -> list[tuple[str, Repository]]:
    """Return the roots on this machine that are in a repository, each with it."""
    found: list[tuple[str, Repository]] = []
    for uri in uris:
        try:
            parts = urlsplit(uri)
            if parts.scheme == "file":
                folder = Path(url2pathname(parts.path))
                found.append((str(folder), repository_of(folder)))
        except (OSError, ValueError):  # unreadable, or not a path
            continue
    return [(folder, repository) for folder, repository in found if repository.path]


def connection_of(ctx: RequestContext) -> str:
    """Return a name for the request's connection: its HTTP or SSE session, "" without one, or "stdio"."""
    request: Any = ctx.request
    if request is None:
        return "stdio"
    has_sessions = ctx.protocol_version < ASKED_BETWEEN_REQUESTS_SINCE
    session_id = request.headers.get("mcp-session-id") if has_sessions else None
    return str(session_id or request.query_params.get("session_id") or "")
