"""Threads for urgent work and for work in the background."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

from palimpsest.embed.workers import Workers


def _nothing(_: bool) -> None:  # noqa: FBT001 - the type of a callback
    """Do nothing."""


def test_urgent_work_of_a_lower_rank_goes_first() -> None:
    workers = Workers(1, _nothing)
    order: list[str] = []
    running, may_end = threading.Event(), threading.Event()

    def block() -> None:
        running.set()
        may_end.wait()

    with ThreadPoolExecutor(4) as pool:
        pool.submit(workers.urgent, 0, block)
        running.wait()
        passages = [pool.submit(workers.urgent, 1, lambda n=n: order.append(f"passage {n}")) for n in range(2)]
        while not all(future.running() for future in passages):
            pass
        question = pool.submit(workers.urgent, 0, lambda: order.append("question"))
        while workers.waiting < 4:
            pass
        may_end.set()
        question.result()
    assert order[0] == "question"


def test_work_in_the_background_waits_while_a_call_waits() -> None:
    workers = Workers(1, _nothing)
    order: list[str] = []
    running = threading.Event()

    def call() -> None:
        running.set()
        order.append("call")

    with ThreadPoolExecutor(2) as pool:
        urgent = pool.submit(workers.urgent, 0, call)
        running.wait()
        background = pool.submit(workers.background, [lambda: order.append("background")])
        urgent.result()
        background.result()
    assert order == ["call", "background"]
