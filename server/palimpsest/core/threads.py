"""Threads for blocking work: limits on how many are used at once, shares of the CPU, and who waits for the work."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import AsyncExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TypeVar

import anyio
import anyio.from_thread
import anyio.to_thread

_T = TypeVar("_T")

SHARE = 0.3
"""The part of one CPU that a caller may use for long. One that uses more makes the others wait, because Python computes
in one thread at a time; so several who use more have it together: some ten searches a second, which is
more than an agent makes for long."""

ADVANCE_SECONDS = 2.0
"""How long a caller may compute before only its share is left: some fifty searches at once."""


MAX_SHARES = 1_000
"""Of more callers, those who have their whole advance again are forgotten, which changes nothing for them."""

_is_background: ContextVar[bool] = ContextVar("_is_background", default=False)


class CpuShare:
    """How much of its share a caller has used. Times are those of the event loop.

    `callers_in_debt` returns how many callers have used more than they have earned.
    """

    def __init__(self, callers_in_debt: Callable[[], int]) -> None:
        self._callers_in_debt = callers_in_debt
        self._paid_until = -ADVANCE_SECONDS / SHARE

    async def wait(self) -> None:
        """Wait until the caller has earned what it used before."""
        while self.is_in_debt:  # noqa: ASYNC110 - what is waited for is time, and others may use more meanwhile
            await anyio.sleep_until(self._paid_until)

    def use(self, seconds: float) -> None:
        """Count seconds that were computed for the caller."""
        share = SHARE / max(self._callers_in_debt(), 1)
        self._paid_until = max(self._paid_until, _earliest()) + seconds / share

    @property
    def is_in_debt(self) -> bool:
        """Return whether the caller has used more than it has earned."""
        return self._paid_until > anyio.current_time()

    @property
    def is_unused(self) -> bool:
        """Return whether the caller has its whole advance."""
        return self._paid_until <= _earliest()


def _earliest() -> float:
    return anyio.current_time() - ADVANCE_SECONDS / SHARE


class CpuShares:
    """The share of the CPU of every caller that has used some of it lately."""

    def __init__(self) -> None:
        self._by_caller: dict[str, CpuShare] = {}

    def of(self, caller: str) -> CpuShare:
        """Return a caller's share."""
        share = self._by_caller.get(caller)
        if share is None:
            if len(self._by_caller) >= MAX_SHARES:
                self._by_caller = {name: share for name, share in self._by_caller.items() if not share.is_unused}
            share = self._by_caller[caller] = CpuShare(self._in_debt)
        return share

    def _in_debt(self) -> int:
        return sum(share.is_in_debt for share in self._by_caller.values())


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Threads:
    """Worker threads for blocking work. Work waits for its turn in each of the limits, the narrowest first.

    Writes have limits of their own. They wait for other processes, and must not keep threads from reads meanwhile.
    With `share`, work also waits until its caller has earned it. What a thread computes is counted, not its waiting.
    """

    limits: tuple[anyio.CapacityLimiter, ...]
    writing: tuple[anyio.CapacityLimiter, ...]
    share: CpuShare | None = None

    async def run(self, blocking: Callable[[], _T]) -> _T:
        """Run blocking work in a thread and return its result.

        If the caller is cancelled, the work finishes or ends at its next `end_if_cancelled`.
        """
        return await _run(blocking, self.limits, self.share)

    async def write(self, blocking: Callable[[], _T]) -> _T:
        """Run blocking work that writes in a thread and return its result. It is finished even if cancelled."""
        return await _run(blocking, self.writing, self.share)


async def _run(blocking: Callable[[], _T], limits: tuple[anyio.CapacityLimiter, ...], share: CpuShare | None) -> _T:
    *outer, last = limits
    async with AsyncExitStack() as stack:
        for limit in outer:
            await stack.enter_async_context(limit)
        if share is None:
            return await anyio.to_thread.run_sync(blocking, limiter=last)
        await share.wait()
        used: list[float] = []
        try:
            return await anyio.to_thread.run_sync(_timed, blocking, used, limiter=last)
        finally:
            share.use(sum(used))


def _timed(blocking: Callable[[], _T], used: list[float]) -> _T:
    """Run blocking work, and add the seconds that this thread computed to `used`."""
    started = time.thread_time()
    try:
        return blocking()
    finally:
        used.append(time.thread_time() - started)


@contextmanager
def in_background() -> Generator[None]:
    """Mark the work of the block, also in threads that it starts, as work that no caller waits for."""
    token = _is_background.set(True)
    try:
        yield
    finally:
        _is_background.reset(token)


def is_background() -> bool:
    """Return whether no caller waits for this work, so that nobody would read an error."""
    return _is_background.get()


def end_if_cancelled() -> None:
    """End the blocking work of this thread if the task that waits for it was cancelled. Elsewhere do nothing."""
    try:
        anyio.from_thread.check_cancelled()
    except RuntimeError:  # not one of anyio's threads
        return
