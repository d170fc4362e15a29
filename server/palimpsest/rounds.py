"""Work that puts questions to the client and waits for the answers from one round of a call to the next.

From protocol 2026-07-28 on a server does not ask in the middle of a call: it answers the call with the question, and
the client calls again with the answer. The work goes on where it stood; it lives in this process and nowhere else.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, cast

import anyio
import anyio.abc
from mcp.types import CreateMessageRequest, CreateMessageResult

from palimpsest.errors import InputError, ModelUnreachableError

logger = logging.getLogger(__name__)

ASKED_BETWEEN_CALLS_SINCE = "2026-07-28"
"""From this protocol version on a server asks its client between the rounds of a call; before, in the middle of it."""

MAX_TALKS = 200
"""So many calls may have a question out, or an outcome that was not fetched, at a time."""

KEPT_SECONDS = 600
"""An outcome that its client does not come for is dropped after this long."""


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

    def __init__(self, began: float) -> None:
        self.id = secrets.token_hex(8)
        self.began = began
        self.scope = anyio.CancelScope()
        self.outcome: Outcome | None = None
        self._question: Question | None = None
        self._answer: CreateMessageResult | None = None
        self._asked = 0
        self._moved = anyio.Event()
        self._answered = anyio.Event()

    async def put(self, request: CreateMessageRequest) -> CreateMessageResult:
        """Put a question to the client, for the work; return the answer."""
        self._asked += 1
        self._question, self._answered = Question(f"model-{self._asked}", request), anyio.Event()
        self._moved.set()
        try:
            await self._answered.wait()
        finally:
            if not self._answered.is_set():
                self._withdraw()
        return cast("CreateMessageResult", self._answer)

    def answer(self, key: str, answer: CreateMessageResult) -> None:
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

    async def next(
        self, talk_id: str | None, answers: dict[str, CreateMessageResult], work: Callable[[Talk], Awaitable[Any]]
    ) -> tuple[str, Question | Outcome]:
        """Go on with a talk, or begin one with `work`; return its id with its next question or its outcome.

        A caller that gives up while it waits here ends the work. Raises InputError for a talk that is over, and
        ModelUnreachableError where there are too many.
        """
        talk = self._begun(work) if talk_id is None else self._known(talk_id)
        for key, answer in answers.items():
            talk.answer(key, answer)
        try:
            step = await talk.step()
        except anyio.get_cancelled_exc_class():
            talk.scope.cancel()
            self._talks.pop(talk.id, None)
            raise
        if isinstance(step, Outcome):
            self._talks.pop(talk.id, None)
        return talk.id, step

    def _begun(self, work: Callable[[Talk], Awaitable[Any]]) -> Talk:
        now = anyio.current_time()
        for old in [talk for talk in self._talks.values() if talk.outcome and now - talk.began > KEPT_SECONDS]:
            del self._talks[old.id]
        if self._tasks is None or len(self._talks) >= MAX_TALKS:
            raise ModelUnreachableError("too many calls wait for their client's model; nothing was done, try again")
        talk = Talk(now)
        self._talks[talk.id] = talk
        self._tasks.start_soon(self._run, talk, work)
        return talk

    def _known(self, talk_id: str) -> Talk:
        try:
            return self._talks[talk_id]
        except KeyError as error:
            raise InputError("this call is over; look with search_memories before calling again") from error

    @staticmethod
    async def _run(talk: Talk, work: Callable[[Talk], Awaitable[Any]]) -> None:
        with talk.scope:
            try:
                talk.end(Outcome(await work(talk)))
            except Exception as error:  # noqa: BLE001 - raised again in the round that comes for it
                talk.end(Outcome(error=error))
        if talk.outcome is None:  # its caller gave up
            talk.end(
                Outcome(error=InputError("this call was cancelled; look with search_memories before calling again"))
            )
