"""Threads for blocking work: limits on how many are used at once, shares of the CPU, and who waits for the work."""

import math
import time
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, TypeVar

import anyio
import anyio.from_thread
import anyio.to_thread
from anyio.abc import TaskGroup

_T = TypeVar("_T")

# The part of one CPU that a caller may use for long. One that uses more makes the others wait, because Python computes
# in one thread at a time; so several who use more have it together: some ten searches a second, which is more than an
# agent makes for long.
SHARE = 0.3

# How long a caller may compute before only its share is left: some fifty searches at once.
ADVANCE_SECONDS = 2.0


# Of more callers, those who have their whole advance again are forgotten, which changes nothing for them.
MAX_SHARES = 1_000


class CpuShares:
    """How much of its share of the CPU each caller has used. Times are those of the event loop."""

    def __init__(self) -> None:
        # When each caller has earned all that it used: with its whole advance `ADVANCE_SECONDS / SHARE` ago.
        self._paid_until: dict[str, float] = {}

    async def wait(self, caller: str) -> None:
        """Wait until a caller has earned what it used before."""
        while self._paid_until.get(caller, -math.inf) > anyio.current_time():  # noqa: ASYNC110 - time is waited for
            await anyio.sleep_until(self._paid_until[caller])

    def use(self, caller: str, seconds: float) -> None:
        """Count seconds that were computed for a caller. Those who have used more than they earned have one share."""
        now = anyio.current_time()
        unused = now - ADVANCE_SECONDS / SHARE
        if len(self._paid_until) >= MAX_SHARES:
            self._paid_until = {name: time for name, time in self._paid_until.items() if time > unused}
        in_debt = sum(time > now for time in self._paid_until.values())
        cost = seconds * max(in_debt, 1) / SHARE
        self._paid_until[caller] = max(self._paid_until.get(caller, unused), unused) + cost


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Threads:
    """Worker threads for blocking work. Work waits for its turn in each of the limits, the narrowest first.

    Writes have limits of their own. They wait for other processes, and must not keep threads from reads meanwhile.
    With `shares`, work also waits until its caller has earned it. What a thread computes is counted, not its waiting.
    """

    limits: tuple[anyio.CapacityLimiter, ...]
    writing: tuple[anyio.CapacityLimiter, ...]
    shares: CpuShares | None = None
    caller: str = ""

    async def run(self, blocking: Callable[[], _T]) -> _T:
        """Run blocking work in a thread and return its result.

        If the caller is cancelled, the work finishes or ends at its next `end_if_cancelled`.
        """
        return await self._run(blocking, self.limits)

    async def write(self, blocking: Callable[[], _T]) -> _T:
        """Run blocking work that writes in a thread and return its result. It is finished even if cancelled."""
        return await self._run(blocking, self.writing)

    async def _run(self, blocking: Callable[[], _T], limits: tuple[anyio.CapacityLimiter, ...]) -> _T:
        *outer, last = limits
        seconds = 0.0

        def timed() -> _T:
            nonlocal seconds
            started = time.thread_time()
            try:
                return blocking()
            finally:
                seconds = time.thread_time() - started

        async with AsyncExitStack() as stack:
            for limit in outer:
                await stack.enter_async_context(limit)
            if self.shares is None:
                return await anyio.to_thread.run_sync(blocking, limiter=last)
            await self.shares.wait(self.caller)
            try:
                return await anyio.to_thread.run_sync(timed, limiter=last)
            finally:
                self.shares.use(self.caller, seconds)


@asynccontextmanager
async def running(*works: Callable[[], Coroutine[Any, Any, object]]) -> AsyncGenerator[TaskGroup]:
    """Do works beside the block, and cancel what of them is not done at its end."""
    async with anyio.create_task_group() as tasks:
        for work in works:
            tasks.start_soon(work)
        yield tasks
        tasks.cancel_scope.cancel()


def end_if_cancelled() -> None:
    """End the blocking work of this thread if the task that waits for it was cancelled. Elsewhere do nothing."""
    with suppress(RuntimeError):  # not one of anyio's threads
        anyio.from_thread.check_cancelled()
