"""Ask clients: for their folders, and in the middle of calls for their language model or their user."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar
from urllib.parse import urlsplit
from urllib.request import url2pathname

import anyio.abc
import anyio.to_thread
from mcp import types
from mcp.server.context import ServerRequestContext
from mcp.server.mcpserver import Context
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from pydantic import BaseModel, ValidationError

from palimpsest.core.errors import InputError, PalimpsestError
from palimpsest.core.git_project import Repository, repository_of

if TYPE_CHECKING:
    from palimpsest.core.protocols import ReportProgress

RequestContext: TypeAlias = ServerRequestContext[Any, Any]
Reply = TypeVar("Reply", bound=BaseModel)

# Since this protocol version a server asks its client between two requests. Earlier versions ask during a call.
ASKED_BETWEEN_REQUESTS_SINCE = "2026-07-28"


async def ask_during_call(
    ctx: Context[Any, Any] | RequestContext, request: types.ServerRequest, reply: type[Reply]
) -> Reply:
    """Ask a client in the middle of a call, and return its reply. Raises MCPError and ValidationError."""
    related = ServerMessageMetadata(related_request_id=ctx.request_id)
    return await ctx.session.send_request(request, reply, metadata=related)


def reporting(ctx: Context[Any, Any]) -> ReportProgress:
    """Return a function that reports the progress of a call, if the client asked for it. The numbers rise."""
    numbers = count(1)

    async def report(message: str) -> None:
        await ctx.report_progress(next(numbers), message=message)

    return report


# Calls that are answered over several requests, because they ask the client's language model or its user in between.
#
# Since protocol 2026-07-28 a server cannot send a request to its client in the middle of a call. It answers the call
# with its question, and the client repeats the call with the answer. The work of such a call waits in this process
# until the answer arrives; it does not survive a restart.

CALL_ENDED = "this call has ended; look with search_memories before calling again"

# The number of one user's calls that may wait for an answer at a time.
MAX_WAITING_PER_USER = 20

# How long a result is kept for a client that fetches it late, or twice.
RESULT_SECONDS = 600


class Continuation:
    """The work of one call. `step` is its open question to the client, or its result once there is one."""

    def __init__(self, user: str) -> None:
        self.id = secrets.token_hex(8)
        self.user = user
        self.step: asyncio.Future[Any] = asyncio.Future()
        self.ended_at: float | None = None
        self._scope = anyio.CancelScope()
        self._waiting = 0
        self._reply: asyncio.Future[BaseModel] = asyncio.Future()
        self._numbers = count(1)
        self._key = ""

    async def run(self, work: Callable[[Continuation], Awaitable[Any]]) -> None:
        """Do the work, and keep its result, or the error that the request which fetches it is to raise."""
        result: Any = None
        error: Exception | None = PalimpsestError(CALL_ENDED)  # if the client gives up, and the work is cancelled
        with self._scope:
            try:
                result, error = await work(self), None
            except Exception as failure:  # noqa: BLE001 - raised again in the request that fetches the result
                error = failure
        self.ended_at = anyio.current_time()
        if error is None:
            self.step.set_result(result)
        else:
            self.step.set_exception(error)
            self.step.exception()  # asyncio shall not complain if nobody fetches it

    async def ask(self, request: types.CreateMessageRequest | types.ElicitRequest) -> BaseModel:
        """Ask the client's model, or its user, on behalf of the work, and return the reply."""
        self._key = f"request-{next(self._numbers)}"
        self._reply = asyncio.Future()
        self.step.set_result(types.InputRequiredResult(input_requests={self._key: request}, request_state=self.id))
        try:
            return await self._reply
        except asyncio.CancelledError:
            if self.step.done():
                self.step = asyncio.Future()
            raise

    def reply(self, key: str, reply: BaseModel) -> None:
        """Give the work the reply it waits for. A reply to an earlier request is ignored."""
        if key == self._key and self.step.done() and self.ended_at is None:
            self.step = asyncio.Future()
            self._reply.set_result(reply)

    async def next_step(self) -> Any:
        """Return the result of the work, or its next question. It is cancelled if nobody waits for it.

        Raises what the work raises.
        """
        self._waiting += 1
        try:
            return await asyncio.shield(self.step)
        except asyncio.CancelledError:
            if self._waiting == 1:
                self._scope.cancel()
            raise
        finally:
            self._waiting -= 1


class OpenCalls:
    """The calls of a server that wait for a client."""

    def __init__(self) -> None:
        self._by_id: dict[str, Continuation] = {}
        self._tasks: anyio.abc.TaskGroup | None = None

    async def run(self) -> None:
        """Keep the work of waiting calls going until cancelled."""
        async with anyio.create_task_group() as self._tasks:
            await anyio.sleep_forever()

    def has_room(self, user: str) -> bool:
        """Return whether another call of this user may wait."""
        oldest = anyio.current_time() - RESULT_SECONDS
        self._by_id = {id_: call for id_, call in self._by_id.items() if (call.ended_at or oldest) >= oldest}
        unfinished = [call for call in self._by_id.values() if call.user == user and call.ended_at is None]
        return self._tasks is not None and len(unfinished) < MAX_WAITING_PER_USER

    async def begin(self, user: str, work: Callable[[Continuation], Awaitable[Any]]) -> Any:
        """Start the work of a call, and return its result or its first question. Check `has_room` first."""
        if self._tasks is None:
            raise RuntimeError("calls can only begin to wait while `run` is running")
        continuation = Continuation(user)
        self._by_id[continuation.id] = continuation
        self._tasks.start_soon(continuation.run, work)
        return await continuation.next_step()

    async def go_on(self, continuation_id: str, replies: Mapping[str, BaseModel]) -> Any:
        """Give a call that waits its replies, and return its result or its next question.

        Raises PalimpsestError if no call with this id waits, or ended recently.
        """
        if (continuation := self._by_id.get(continuation_id)) is None:
            raise PalimpsestError(CALL_ENDED)
        for key, reply in replies.items():
            continuation.reply(key, reply)
        return await continuation.next_step()


# Find the project from the folders that a client has open (MCP roots), if the settings leave the project open.
#
# A client is asked with the first requests of a connection. Up to protocol 2025-11-25 the server asks during a call.
# Since 2026-07-28 it answers the call with its question. It does so only over stdio, because streamable HTTP no longer
# has connections then, and every call would have to be asked.

# The requests that the protocol allows to be answered with a question.
ANSWERABLE_METHODS = ("tools/call", "resources/read", "prompts/get")

KEY = "roots"

# Seconds that a client has to list its roots. After that the project of the server's own folder is used.
TIMEOUT = 5.0

MAX_CONNECTIONS = 1_000

Identify: TypeAlias = Callable[[Repository], Awaitable[str]]


class Roots:
    """The project of each connection, and when a client was asked that has not answered yet.

    `on_folder` is called with the first folder of a client that has a project, and the project.
    """

    def __init__(self, on_folder: Callable[[str, str], None]) -> None:
        self._on_folder = on_folder
        self._projects: dict[str, str] = {}
        self._asked_at: dict[str, float] = {}
        self._threads = anyio.CapacityLimiter(2)

    async def project(self, ctx: RequestContext, identify: Identify) -> str | types.InputRequiredResult:
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
            now = anyio.current_time()
            if len(self._asked_at) >= MAX_CONNECTIONS:
                self._asked_at.clear()
                self._projects.clear()
            # Every concurrent first request asks, but a client that did not answer is left alone.
            if now - self._asked_at.setdefault(connection, now) >= TIMEOUT:
                return ""
            if ctx.protocol_version >= ASKED_BETWEEN_REQUESTS_SINCE:
                # A request that carries state already continues another exchange.
                may_answer = ctx.method in ANSWERABLE_METHODS and (ctx.params or {}).get("requestState") is None
                return types.InputRequiredResult(input_requests={KEY: types.ListRootsRequest()}) if may_answer else ""
            uris = await _ask_for_roots(ctx)
        return "" if uris is None else await self._store_project(connection, uris, identify)

    def ask_again(self, ctx: RequestContext) -> None:
        """Ask the client of this connection again at its next request, because its roots have changed."""
        self._projects.pop(connection_of(ctx), None)
        self._asked_at.pop(connection_of(ctx), None)

    async def _store_project(self, connection: str, uris: Sequence[str], identify: Identify) -> str:
        repositories: Sequence[tuple[str, Repository]] = ()
        with anyio.move_on_after(TIMEOUT):  # the folder may be on a network drive that does not answer
            repositories = await anyio.to_thread.run_sync(
                lambda: _repositories(uris), limiter=self._threads, abandon_on_cancel=True
            )
        project = ""
        for folder, repository in repositories:
            with suppress(InputError):  # its name is not valid in a scope
                if project := await identify(repository):
                    self._on_folder(folder, project)
                break
        self._projects[connection] = project
        return project


async def _ask_for_roots(ctx: RequestContext) -> Sequence[str] | None:
    """Ask a client for its roots during a call, and return them. Return None if it does not answer."""
    if not ctx.session.can_send_request:
        return None
    try:
        with anyio.fail_after(TIMEOUT):
            result = await ask_during_call(ctx, types.ListRootsRequest(), types.ListRootsResult)
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
    with suppress(ValidationError):  # not a list of roots: treated as an empty one
        return [str(root.uri) for root in types.ListRootsResult.model_validate(responses[KEY]).roots]
    return ()


def _repositories(uris: Sequence[str]) -> list[tuple[str, Repository]]:
    """Return the roots on this machine that are in a repository, each with it."""
    found: list[tuple[str, Repository]] = []
    for uri in uris:
        with suppress(OSError, ValueError):  # unreadable, or not a path
            parts = urlsplit(uri)
            if parts.scheme == "file":
                folder = Path(url2pathname(parts.path))
                found.append((str(folder), repository_of(folder)))
    return [(folder, repository) for folder, repository in found if repository.path]


def connection_of(ctx: RequestContext) -> str:
    """Return a name for the request's connection: its HTTP or SSE session, "" without one, or "stdio"."""
    request: Any = ctx.request
    if request is None:
        return "stdio"
    has_sessions = ctx.protocol_version < ASKED_BETWEEN_REQUESTS_SINCE
    session_id = request.headers.get("mcp-session-id") if has_sessions else None
    return str(session_id or request.query_params.get("session_id") or "")
