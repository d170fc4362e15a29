"""A lock between processes that is granted about in the order in which they ask for it.

SQLite's own lock is not. Who finds it held sleeps and asks again, up to a tenth of a second later, and under load some
wait for seconds while others pass. Here the system wakes those who wait, in order. But who asks just when a lock is
released may pass one that is still waking up. So there are two locks: a process takes the first, waits with it for the
second, and then gives the first back. Only one process at a time waits for the second, so nobody passes it, and the
next has the whole time of its work to wake up.

The lock keeps order and nothing else. What must not happen at the same time is kept apart by the database.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Generator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path

from palimpsest.core.files import OWNER_ONLY, file_lock

POLL_SECONDS = 0.005
"""The pause between two attempts on Windows, whose locks cannot be waited for. Set by hand."""


@contextmanager
def in_turn(path: Path, timeout: float) -> Generator[None]:
    """Wait in line for the lock on `path`, and hold it for the block. The line is a lock on a file beside it.

    The system releases it when the process ends, also when it is killed. Raises TimeoutError after `timeout` seconds,
    and OSError if the files cannot be opened or locked.
    """
    line = path.with_name(f"{path.stem}.next{path.suffix}")
    if sys.platform == "win32":  # pragma: no cover
        end = time.monotonic() + timeout
        with file_lock(line).acquire(timeout, poll_interval=POLL_SECONDS):
            lock = file_lock(path).acquire(max(0.0, end - time.monotonic()), poll_interval=POLL_SECONDS)
        with lock:
            yield
        return
    held = _waited(path, line, timeout)
    try:
        yield
    finally:
        os.close(held)


if sys.platform != "win32":
    import fcntl

    def _waited(path: Path, line: Path, timeout: float) -> int:
        """Return the descriptor that holds the lock. Raises as `in_turn`.

        A thread waits, because `flock` has no time limit.
        """
        try:
            return _locked(path, line, fcntl.LOCK_NB)
        except BlockingIOError:
            pass
        granted: Future[int] = Future()
        threading.Thread(target=_fulfil, args=(granted, path, line), name="palimpsest-turn", daemon=True).start()
        try:
            return granted.result(timeout)
        except BaseException:
            if not granted.cancel() and granted.exception() is None:
                os.close(granted.result())  # it was granted just now
            raise

    def _fulfil(granted: Future[int], path: Path, line: Path) -> None:
        """Wait for the lock. Close it at once if nobody waits for it any more."""
        try:
            descriptor = _locked(path, line, 0)
        except OSError as error:
            if granted.set_running_or_notify_cancel():
                granted.set_exception(error)
            return
        if granted.set_running_or_notify_cancel():
            granted.set_result(descriptor)
        else:
            os.close(descriptor)

    def _locked(path: Path, line: Path, flags: int) -> int:
        """Return a descriptor of `path` that is locked. With LOCK_NB, raises BlockingIOError instead of waiting."""
        descriptors = [_opened(line)]
        try:
            fcntl.flock(descriptors[0], fcntl.LOCK_EX | flags)
            descriptors.append(_opened(path))
            fcntl.flock(descriptors[1], fcntl.LOCK_EX | flags)
            return descriptors.pop()
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def _opened(path: Path) -> int:
        return os.open(path, os.O_CREAT | os.O_RDWR, OWNER_ONLY)
