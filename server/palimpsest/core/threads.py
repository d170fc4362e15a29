"""Threads for blocking work, with limits on how many are used at once, and a way to end work that nobody waits for."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TypeVar

import anyio
import anyio.from_thread
import anyio.to_thread

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Threads:
    """Worker threads for blocking work. Work waits for its turn in each of the limits, the narrowest first."""

    limits: tuple[anyio.CapacityLimiter, ...]

    async def run(self, blocking: Callable[[], _T]) -> _T:
        """Run blocking work in a thread and return its result.

        If the caller is cancelled, the work finishes or ends at its next `end_if_cancelled`.
        """
        *outer, last = self.limits
        async with AsyncExitStack() as stack:
            for limit in outer:
                await stack.enter_async_context(limit)
            return await anyio.to_thread.run_sync(blocking, limiter=last)


def end_if_cancelled() -> None:
    """End the blocking work of this thread if the task that waits for it was cancelled. Elsewhere do nothing."""
    try:
        anyio.from_thread.check_cancelled()
    except RuntimeError:  # not one of anyio's threads
        return
