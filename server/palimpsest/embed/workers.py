"""Threads that compute for a caller who waits: one for what is urgent, and slow ones for what has time.

Work in the background must not delay a call. Its threads have the lowest priority that the operating system offers,
and rest while urgent work is going on.
"""

from __future__ import annotations

import itertools
import os
import queue
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar

_T = TypeVar("_T")

_LOWEST_PRIORITY = 19
"""The highest niceness of Linux: a thread that has it gets a hundredth of a core beside one that is busy."""

_MAX_REST = 1.0
"""Seconds after which a resting thread goes on, so that a busy server also embeds what waits. Set by hand."""


class Workers:
    """One urgent thread and `background_threads` slow ones. They start at the first work and never keep a process.

    `prepare` runs first in each thread and is told whether the thread is a slow one.
    """

    def __init__(self, background_threads: int, prepare: Callable[[bool], None]) -> None:
        self._background_threads = background_threads
        self._prepare = prepare
        self._lock = threading.Lock()
        self._reset()

    @property
    def waiting(self) -> int:
        """Return how many callers wait for urgent work."""
        return self._waiting

    def urgent(self, rank: int, work: Callable[[], _T]) -> _T:
        """Run work in the urgent thread and return its result. Work of a lower rank goes first."""
        self._start()
        future: Future[_T] = Future()
        with self._busy:
            self._waiting += 1
        try:
            self._urgent.put((rank, next(self._numbers), future, work))
            return future.result()
        finally:
            with self._busy:
                self._waiting -= 1
                self._busy.notify_all()

    def background(self, work: Sequence[Callable[[], _T]]) -> list[_T]:
        """Run pieces of work in the slow threads, several at a time, and return their results in order."""
        self._start()
        futures: list[Future[_T]] = [Future() for _ in work]
        for future, piece in zip(futures, work, strict=True):
            self._slow.put((future, piece))
        return [future.result() for future in futures]

    def _reset(self) -> None:
        self._process: int | None = None
        self._numbers = itertools.count()
        self._urgent: queue.PriorityQueue[tuple[int, int, Future[Any], Callable[[], Any]]] = queue.PriorityQueue()
        self._slow: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = queue.SimpleQueue()
        self._busy = threading.Condition()
        self._waiting = 0

    def _start(self) -> None:
        """Start the threads, again in a forked process: a fork copies none of them."""
        if self._process == os.getpid():
            return
        with self._lock:
            if self._process == os.getpid():
                return
            self._reset()
            targets = [self._work_urgently, *[self._work_slowly] * self._background_threads]
            for target in targets:
                threading.Thread(target=target, name="palimpsest-embedder", daemon=True).start()
            self._process = os.getpid()

    def _work_urgently(self) -> None:
        self._prepare(False)  # noqa: FBT003 - a callback takes it by position
        while True:
            _, _, future, work = self._urgent.get()
            _fulfil(future, work)

    def _work_slowly(self) -> None:
        _lower_priority()
        self._prepare(True)  # noqa: FBT003 - likewise
        while True:
            future, work = self._slow.get()
            with self._busy:
                self._busy.wait_for(lambda: not self._waiting, timeout=_MAX_REST)
            _fulfil(future, work)


def _fulfil(future: Future[Any], work: Callable[[], Any]) -> None:
    try:
        future.set_result(work())
    except Exception as error:  # noqa: BLE001 - it is raised again in the thread that waits
        future.set_exception(error)


def _lower_priority() -> None:
    """Give this thread the lowest priority. Elsewhere than on Linux it only rests while urgent work is going on."""
    if sys.platform == "linux":
        with suppress(OSError):  # a sandbox may forbid it
            os.setpriority(os.PRIO_PROCESS, 0, _LOWEST_PRIORITY)  # there it is the thread's own, not the process's
