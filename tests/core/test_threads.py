"""Limits on threads, and work that ends when nobody waits for it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import anyio
import anyio.from_thread
import numpy as np
import pytest

from palimpsest.core.protocols import Vector
from palimpsest.core.threads import (
    ADVANCE_SECONDS,
    SHARE,
    CpuShares,
    Threads,
    end_if_cancelled,
)
from palimpsest.embed.workers import Workers

pytestmark = pytest.mark.anyio

NO_VECTOR = np.zeros((0, 0), dtype=np.float32)


async def test_work_that_nobody_waits_for_ends_at_its_next_check() -> None:
    threads, steps = Threads((anyio.CapacityLimiter(1),), (anyio.CapacityLimiter(1),)), list[int]()
    with anyio.CancelScope() as scope:

        def work() -> None:
            for step in range(100):
                end_if_cancelled()
                steps.append(step)
                if step == 2:
                    anyio.from_thread.run_sync(scope.cancel)

        await threads.run(work)
    assert scope.cancelled_caught
    assert steps == [0, 1, 2]


async def test_a_caller_that_computed_long_waits_until_it_has_earned_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards other callers' calls, because Python computes in one thread at a time."""
    seconds = [1_000.0]
    slept: list[float] = []

    async def sleep_until(deadline: float) -> None:
        slept.append(deadline - seconds[0])
        seconds[0] = deadline

    monkeypatch.setattr(anyio, "current_time", lambda: seconds[0])
    monkeypatch.setattr(anyio, "sleep_until", sleep_until)
    shares = CpuShares()
    shares.use("greedy", ADVANCE_SECONDS / 2)
    await shares.wait("greedy")
    assert slept == []
    shares.use("greedy", ADVANCE_SECONDS)
    await shares.wait("greedy")
    assert slept == pytest.approx([ADVANCE_SECONDS / 2 / SHARE])
    seconds[0] += 2 * ADVANCE_SECONDS / SHARE
    shares.use("greedy", ADVANCE_SECONDS)
    await shares.wait("greedy")
    assert len(slept) == 1, "its advance has come back, and has not grown"


def test_urgent_work_of_a_lower_rank_goes_first() -> None:
    workers = Workers(1)
    order: list[str] = []
    running, may_end = threading.Event(), threading.Event()

    def block() -> Vector:
        running.set()
        may_end.wait()
        return NO_VECTOR

    def embed(text: str) -> Vector:
        order.append(text)
        return NO_VECTOR

    def urgent(rank: int, work: Callable[[], Vector]) -> Vector:
        return workers.vectors(rank, [work], 0, background=False)

    with ThreadPoolExecutor(4) as pool:
        pool.submit(urgent, 0, block)
        running.wait()
        passages = [pool.submit(urgent, 1, partial(embed, "passage")) for _ in range(2)]
        while not all(future.running() for future in passages):
            pass
        question = pool.submit(urgent, 0, partial(embed, "question"))
        while workers.waiting < 4:
            pass
        may_end.set()
        question.result()
    assert order[0] == "question"
