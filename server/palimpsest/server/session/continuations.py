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

Answer: TypeAlias = BaseModel
"""What a client sends back; whoever asked judges whether it is an answer."""


@dataclass(frozen=True, slots=True)
class Question:
    """Hold what the client is to ask its model; `key` is under which name the answer comes back."""

    key: str
    request: CreateMessageRequest


@dataclass(frozen=True, slots=True)
class Outcome:
    """Hold what the work came to: a value, or the error it ended with."""

    value: Any = None
    error: Exception | None = None


class Talk:
    """Hold one piece of work, the question it waits on, and what it came to."""

    def __init__(self, user: str) -> None:
        self.id = secrets.token_hex(8)
        self.user = user
        self.scope = anyio.CancelScope()
        self.outcome: Outcome | None = None
        self.ended = 0.0
        self.waiting = 0
        self._question: Question | None = None
        self._answer: Answer | None = None
        self._asked = 0
        self._moved = anyio.Event()
        self._answered = anyio.Event()

    async def put(self, request: CreateMessageRequest) -> Answer:
        """Put a question to the client, for the work; return the answer."""
        self._asked += 1
        self._question, self._answered = Question(f"model-{self._asked}", request), anyio.Event()
        self._moved.set()
        try:
            await self._answered.wait()
        finally:
            if not self._answered.is_set():
                self._withdraw()
        return cast("Answer", self._answer)

    def answer(self, key: str, answer: Answer) -> None:
        """Give the work the answer it waits for; one to an earlier question is passed over."""
        if self._question is not None and self._question.key == key:
            self._withdraw()
            self._answer = answer
            self._answered.set()

    def _withdraw(self) -> None:
        self._question, self._moved = None, anyio.Event()

    def end(self, outcome: Outcome) -> None:
        """Note what the work came to."""
        self.outcome = outcome
        self.ended = anyio.current_time()
        self._moved.set()

    async def step(self) -> Question | Outcome:
        """Return the next question, or what the work came to."""
        while self._question is None and self.outcome is None:
            await self._moved.wait()
        return self.outcome or cast("Question", self._question)


class Rounds:
    """Own the work that goes on between the rounds of calls."""

    def __init__(self) -> None:
        self._talks: dict[str, Talk] = {}
        self._tasks: anyio.abc.TaskGroup | None = None

    async def keep(self) -> None:
        """Let work go on until cancelled."""
        async with anyio.create_task_group() as self._tasks:
            await anyio.sleep_forever()

    def has_room(self, user: str) -> bool:
        """Say whether another talk of a user may begin."""
        self._drop_old()
        mine = [talk for talk in self._talks.values() if talk.user == user and talk.outcome is None]
        return self._tasks is not None and len(mine) < MAX_TALKS

    def begin(self, user: str, work: Callable[[Talk], Awaitable[Any]]) -> Talk:
        """Begin a talk; ask `has_room` before."""
        if self._tasks is None:
            raise RuntimeError("nobody keeps the rounds")
        talk = Talk(user)
        self._talks[talk.id] = talk
        self._tasks.start_soon(self._run, talk, work)
        return talk

    def find(self, talk_id: str) -> Talk:
        """Return a talk that goes on, or that ended a while ago. Raises PalimpsestError for another."""
        try:
            return self._talks[talk_id]
        except KeyError as error:
            raise PalimpsestError(OVER) from error

    async def step(self, talk: Talk) -> Question | Outcome:
        """Return a talk's next question, or its outcome. When the last that waits for it gives up, the work ends."""
        talk.waiting += 1
        try:
            return await talk.step()
        except anyio.get_cancelled_exc_class():
            if talk.waiting == 1:
                talk.scope.cancel()
            raise
        finally:
            talk.waiting -= 1

    def _drop_old(self) -> None:
        now = anyio.current_time()
        for old in [talk for talk in self._talks.values() if talk.outcome and now - talk.ended > KEPT_SECONDS]:
            del self._talks[old.id]

    @staticmethod
    async def _run(talk: Talk, work: Callable[[Talk], Awaitable[Any]]) -> None:
        with talk.scope:
            try:
                talk.end(Outcome(await work(talk)))
            except Exception as error:  # noqa: BLE001 - raised again in the round that comes for it
                talk.end(Outcome(error=error))
        if talk.outcome is None:  # its caller gave up
            talk.end(Outcome(error=PalimpsestError(OVER)))
