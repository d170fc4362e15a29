"""The lock that processes get in the order in which they ask for it."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from filelock import Timeout

from palimpsest.core.files import file_lock
from palimpsest.store.sqlite.ledger_files import in_turn

LONG = 60


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "work.lock"


def wait_until_one_is_next(path: Path) -> None:
    """Wait until a thread or process is the next to get the lock: it holds the lock of the line."""
    while True:
        try:
            file_lock(path.with_name("work.next.lock")).acquire(timeout=0).lock.release()
        except Timeout:
            return


def test_who_is_next_is_not_passed(path: Path) -> None:
    """Guards a writer that waits from those that ask again and again."""
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
