"""Work that puts questions to the client and waits for the answers from one round of a call to the next.

From protocol 2026-07-28 on a server does not ask in the middle of a call: it answers the call with the question, and
the client calls again with the answer. The work goes on where it stood; it lives in this process and nowhere else.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import anyio
import anyio.abc
from mcp.types import CreateMessageRequest
from pydantic import BaseModel

from palimpsest.core.errors import PalimpsestError

OVER = "this call is over; look with search_memories before calling again"

ASKED_BETWEEN_CALLS_SINCE = "2026-07-28"
"""From this protocol version on a server asks its client between the rounds of a call; before, in the middle of it."""

MAX_TALKS = 20
"""So many calls of one user may have a question out at a time."""

KEPT_SECONDS = 600
"""For so long an outcome is there for a client that comes, or comes again, for it."""

ClientReply: TypeAlias = BaseModel
"""What a client sends back; whoever asked judges whether it is an answer."""


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """Hold what the client is to ask its model; `key` is under which name the answer comes back."""

    key: str
    request: CreateMessageRequest


@dataclass(frozen=True, slots=True)
class WorkResult:
    """Hold what the work came to: a value, or the error it ended with."""

    value: Any = None
    error: Exception | None = None


class Continuation:
    """Hold one piece of work, the question it waits on, and what it came to."""

    def __init__(self, user: str) -> None:
        self.id = secrets.token_hex(8)
        self.user = user
        self.scope = anyio.CancelScope()
        self.result: WorkResult | None = None
        self.ended = 0.0
        self.waiting = 0
        self._question: ModelRequest | None = None
        self._answer: ClientReply | None = None
        self._asked = 0
        self._moved = anyio.Event()
        self._answered = anyio.Event()

    async def put(self, request: CreateMessageRequest) -> ClientReply:
        """Put a question to the client, for the work; return the answer."""
        self._asked += 1
        self._question, self._answered = ModelRequest(f"model-{self._asked}", request), anyio.Event()
        self._moved.set()
        try:
            await self._answered.wait()
        finally:
            if not self._answered.is_set():
                self._withdraw()
        return cast("ClientReply", self._answer)

    def answer(self, key: str, answer: ClientReply) -> None:
        """Give the work the answer it waits for; one to an earlier question is passed over."""
        if self._question is not None and self._question.key == key:
            self._withdraw()
            self._answer = answer
            self._answered.set()

    def _withdraw(self) -> None:
        self._question, self._moved = None, anyio.Event()

    def end(self, result: WorkResult) -> None:
        """Note what the work came to."""
        self.result = result
        self.ended = anyio.current_time()
        self._moved.set()

    async def step(self) -> ModelRequest | WorkResult:
        """Return the next question, or what the work came to."""
        while self._question is None and self.result is None:
            await self._moved.wait()
        return self.result or cast("ModelRequest", self._question)


class Continuations:
    """Own the work that goes on between the rounds of calls."""

    def __init__(self) -> None:
        self._talks: dict[str, Continuation] = {}
        self._tasks: anyio.abc.TaskGroup | None = None

    async def keep(self) -> None:
        """Let work go on until cancelled."""
        async with anyio.create_task_group() as self._tasks:
            await anyio.sleep_forever()

    def has_room(self, user: str) -> bool:
        """Say whether another talk of a user may begin."""
        self._drop_old()
        mine = [
            continuation
            for continuation in self._talks.values()
            if continuation.user == user and continuation.result is None
        ]
        return self._tasks is not None and len(mine) < MAX_TALKS

    def begin(self, user: str, work: Callable[[Continuation], Awaitable[Any]]) -> Continuation:
        """Begin a talk; ask `has_room` before."""
        if self._tasks is None:
            raise RuntimeError("nobody keeps the rounds")
        continuation = Continuation(user)
        self._talks[continuation.id] = continuation
        self._tasks.start_soon(self._run, continuation, work)
        return continuation

    def find(self, continuation_id: str) -> Continuation:
        """Return a talk that goes on, or that ended a while ago. Raises PalimpsestError for another."""
        try:
            return self._talks[continuation_id]
        except KeyError as error:
            raise PalimpsestError(OVER) from error

    async def step(self, continuation: Continuation) -> ModelRequest | WorkResult:
        """Return a talk's next question, or its outcome. When the last that waits for it gives up, the work ends."""
        continuation.waiting += 1
        try:
            return await continuation.step()
        except anyio.get_cancelled_exc_class():
            if continuation.waiting == 1:
                continuation.scope.cancel()
            raise
        finally:
            continuation.waiting -= 1

    def _drop_old(self) -> None:
        now = anyio.current_time()
        for old in [
            continuation
            for continuation in self._talks.values()
            if continuation.result and now - continuation.ended > KEPT_SECONDS
        ]:
            del self._talks[old.id]

    @staticmethod
    async def _run(continuation: Continuation, work: Callable[[Continuation], Awaitable[Any]]) -> None:
        with continuation.scope:
            try:
                continuation.end(WorkResult(await work(continuation)))
            except Exception as error:  # noqa: BLE001 - raised again in the round that comes for it
                continuation.end(WorkResult(error=error))
        if continuation.result is None:  # its caller gave up
            continuation.end(WorkResult(error=PalimpsestError(OVER)))
