"""The lock that processes get in the order in which they ask for it."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

import pytest
from filelock import Timeout

from palimpsest.core.files import file_lock
from palimpsest.store.sqlite.ledger_files import in_turn

HOLDS_FOR_EVER = """
import sys, threading
from pathlib import Path
from palimpsest.store.sqlite.ledger_files import in_turn
with in_turn(Path(sys.argv[1]), 60):
    print("held", flush=True)
    threading.Event().wait()
"""

LONG = 60


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "work.lock"


@contextmanager
def holder(path: Path) -> Generator[subprocess.Popen[bytes]]:
    """Start a process that holds the lock until it is killed."""
    process = subprocess.Popen([sys.executable, "-c", HOLDS_FOR_EVER, str(path)], stdout=subprocess.PIPE)
    try:
        assert cast("IO[bytes]", process.stdout).readline() == b"held\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def wait_until_one_is_next(path: Path) -> None:
    """Wait until a thread or process is the next to get the lock: it holds the lock of the line."""
    while True:
        try:
            file_lock(path.with_name("work.next.lock")).acquire(timeout=0).lock.release()
        except Timeout:
            return


def test_who_is_next_is_not_passed(path: Path) -> None:
    order: list[str] = []

    def take(name: str) -> None:
        with in_turn(path, LONG):
            order.append(name)

    with in_turn(path, LONG):
        first = threading.Thread(target=take, args=("first",))
        first.start()
        wait_until_one_is_next(path)
        others = [threading.Thread(target=take, args=("other",)) for _ in range(8)]
        for thread in others:
            thread.start()
        order.append("holder")
    for thread in (first, *others):
        thread.join()
    assert order == ["holder", "first", *["other"] * 8]


def test_a_killed_holder_frees_the_lock(path: Path) -> None:
    held = threading.Event()

    def take() -> None:
        with in_turn(path, LONG):
            held.set()

    with holder(path) as process:
        thread = threading.Thread(target=take)
        thread.start()
        wait_until_one_is_next(path)
        assert not held.is_set()
        process.send_signal(signal.SIGKILL)
        thread.join()
    assert held.is_set()
