"""Count the database connections that are in use, to show that none is held during a slow call."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager

from sqlalchemy import event
from sqlalchemy.pool import Pool


@contextmanager
def count_connections() -> Generator[Callable[[], int]]:
    """Yield a function that returns how many connections, of every database, are checked out of their pools."""
    in_use = 0

    def checked_out(*_: object) -> None:
        nonlocal in_use
        in_use += 1

    def checked_in(*_: object) -> None:
        nonlocal in_use
        in_use -= 1

    event.listen(Pool, "checkout", checked_out)
    event.listen(Pool, "checkin", checked_in)
    try:
        yield lambda: in_use
    finally:
        event.remove(Pool, "checkout", checked_out)
        event.remove(Pool, "checkin", checked_in)
