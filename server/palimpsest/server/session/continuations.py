"""Calls that are answered over several requests, because they ask the client's language model or its user in between.

Since protocol 2026-07-28 a server cannot send a request to its client in the middle of a call. It answers the call
with its question, and the client repeats the call with the answer. The work of such a call waits in this process
until the answer arrives; it does not survive a restart.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import anyio
import anyio.abc
from mcp.server.mcpserver import Context
from mcp.types import CreateMessageRequest, ElicitRequest
from pydantic import BaseModel

from palimpsest.core.errors import PalimpsestError

if TYPE_CHECKING:
    from palimpsest.core.protocols import ReportProgress


# Tell clients how their calls go on, again and again: many give up on a call that is silent for a minute.

REPEAT_SECONDS = 10.0
"""How often the last report of a call is sent again: many clients give up after a minute of silence."""

SEND_SECONDS = 1.0
"""How long a client may take to read a repeated report. One that takes longer has no part in the others' waiting."""


class RunningCalls:
    """The progress of all calls that are running: functions that send the last report of each again."""

    def __init__(self) -> None:
        self._repeats: set[Callable[[], Awaitable[None]]] = set()

    @contextmanager
    def reporting(self, ctx: Context[Any, Any]) -> Generator[ReportProgress]:
        """Yield a function that reports the progress of a call. Until the block ends, its reports are repeated.

        A report is sent if the client asked for it; the numbers rise with each. Before the first there is none.
        """
        reports: list[str] = []

        async def report(message: str) -> None:
            reports.append(message)
            await ctx.report_progress(len(reports), message=message)

        async def repeat() -> None:
            if reports:
                await report(reports[-1])

        self._repeats.add(repeat)
        try:
            yield report
        finally:
            self._repeats.discard(repeat)

    async def run(self) -> None:
        """Repeat the reports until cancelled."""
        while True:
            await anyio.sleep(REPEAT_SECONDS)
            for repeat in list(self._repeats):
                with anyio.move_on_after(SEND_SECONDS):
                    try:
                        await repeat()
                    except (anyio.ClosedResourceError, anyio.BrokenResourceError):  # the client is gone; the call ends
                        self._repeats.discard(repeat)


CALL_ENDED = "this call has ended; look with search_memories before calling again"

ASKED_BETWEEN_REQUESTS_SINCE = "2026-07-28"
"""Since this protocol version a server asks its client between two requests. Earlier versions ask during a call."""

MAX_WAITING_PER_USER = 20
"""The number of one user's calls that may wait for an answer at a time."""

RESULT_SECONDS = 600
"""How long a result is kept for a client that fetches it late, or twice."""

ClientReply: TypeAlias = BaseModel
"""What a client sends back. The code that asked checks whether it is an answer."""


@dataclass(frozen=True, slots=True)
class ClientRequest:
    """A request for the client's language model, or for its user. The answer comes back under `key`."""

    key: str
    request: CreateMessageRequest | ElicitRequest


@dataclass(frozen=True, slots=True)
class WorkResult:
    """What a piece of work returned, or the error it ended with."""

    value: Any = None
    error: Exception | None = None


class Continuation:
    """The work of one call: its open request to the client, and its result once there is one."""

    def __init__(self, user: str) -> None:
        self.id = secrets.token_hex(8)
        self.user = user
        self.scope = anyio.CancelScope()
        self.result: WorkResult | None = None
        self.ended_at = 0.0
        self.waiting = 0
        self._request: ClientRequest | None = None
        self._reply: ClientReply | None = None
        self._requests = 0
        self._progressed = anyio.Event()
        self._replied = anyio.Event()

    async def ask(self, request: CreateMessageRequest | ElicitRequest) -> ClientReply:
        """Ask the client's model, or its user, on behalf of the work, and return the reply."""
        self._requests += 1
        self._request, self._replied = ClientRequest(f"request-{self._requests}", request), anyio.Event()
        self._progressed.set()
        try:
            await self._replied.wait()
        finally:
            if not self._replied.is_set():
                self._clear_request()
        return cast("ClientReply", self._reply)

    def reply(self, key: str, reply: ClientReply) -> None:
        """Give the work the reply it waits for. A reply to an earlier request is ignored."""
        if self._request is not None and self._request.key == key:
            self._clear_request()
            self._reply = reply
            self._replied.set()

    def _clear_request(self) -> None:
        self._request, self._progressed = None, anyio.Event()

    def end(self, result: WorkResult) -> None:
        """Record the result of the work."""
        self.result = result
        self.ended_at = anyio.current_time()
        self._progressed.set()

    async def next_step(self) -> ClientRequest | WorkResult:
        """Return the next request to the client, or the result of the work."""
        while self._request is None and self.result is None:
            await self._progressed.wait()
        return self.result or cast("ClientRequest", self._request)


class Continuations:
    """All calls of a server that wait for a client."""

    def __init__(self) -> None:
        self._by_id: dict[str, Continuation] = {}
        self._tasks: anyio.abc.TaskGroup | None = None

    async def run(self) -> None:
        """Keep the work of waiting calls going until cancelled."""
        async with anyio.create_task_group() as self._tasks:
            await anyio.sleep_forever()

    def has_room(self, user: str) -> bool:
        """Return whether another call of this user may wait."""
        self._drop_old()
        unfinished = [call for call in self._by_id.values() if call.user == user and call.result is None]
        return self._tasks is not None and len(unfinished) < MAX_WAITING_PER_USER

    def begin(self, user: str, work: Callable[[Continuation], Awaitable[Any]]) -> Continuation:
        """Start the work of a call. Check `has_room` first."""
        if self._tasks is None:
            raise RuntimeError("continuations can only begin while `run` is running")
        continuation = Continuation(user)
        self._by_id[continuation.id] = continuation
        self._tasks.start_soon(self._run_work, continuation, work)
        return continuation

    def find(self, continuation_id: str) -> Continuation:
        """Return a call that is waiting or ended recently. Raises PalimpsestError if there is none with this id."""
        try:
            return self._by_id[continuation_id]
        except KeyError as error:
            raise PalimpsestError(CALL_ENDED) from error

    async def next_step(self, continuation: Continuation) -> ClientRequest | WorkResult:
        """Return the next request to the client, or the result. The work is cancelled if nobody waits for it."""
        continuation.waiting += 1
        try:
            return await continuation.next_step()
        except anyio.get_cancelled_exc_class():
            if continuation.waiting == 1:
                continuation.scope.cancel()
            raise
        finally:
            continuation.waiting -= 1

    def _drop_old(self) -> None:
        oldest = anyio.current_time() - RESULT_SECONDS
        self._by_id = {key: call for key, call in self._by_id.items() if not call.result or call.ended_at >= oldest}

    @staticmethod
    async def _run_work(continuation: Continuation, work: Callable[[Continuation], Awaitable[Any]]) -> None:
        with continuation.scope:
            try:
                continuation.end(WorkResult(await work(continuation)))
            except Exception as error:  # noqa: BLE001 - raised again in the request that fetches the result
                continuation.end(WorkResult(error=error))
        if continuation.result is None:  # the client gave up, and the work was cancelled
            continuation.end(WorkResult(error=PalimpsestError(CALL_ENDED)))
