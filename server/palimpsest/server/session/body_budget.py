"""How much the bodies of unfinished requests may hold, in all and by caller."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager

FREE_BYTES = 64 * 1024
"""The part of each body that is not counted, so that a small request is accepted whatever others send."""

MAX_HELD_BYTES = 32 * 1024 * 1024
"""How much the bodies of unfinished requests may hold together. Parsed, they take a few times that. Set by hand."""

MAX_HELD_BYTES_PER_CALLER = 8 * 1024 * 1024
"""The same for one caller: two of the longest bodies."""

SHARE = "palimpsest.body"
"""The key of a request's `BodyShare` in its ASGI scope."""


class BodyBudget:
    """How much the bodies of unfinished requests hold, in all and by caller."""

    def __init__(self, max_bytes: int = MAX_HELD_BYTES, max_bytes_per_caller: int = MAX_HELD_BYTES_PER_CALLER) -> None:
        self._max_bytes = max_bytes
        self._max_bytes_per_caller = max_bytes_per_caller
        self._by_caller: Counter[str] = Counter()

    def has_room(self, caller: str, size: int) -> bool:
        """Return whether a caller may hold `size` bytes more."""
        return (
            self._by_caller[caller] + size <= self._max_bytes_per_caller
            and self._by_caller.total() + size <= self._max_bytes
        )

    def add(self, caller: str, size: int) -> None:
        """Count bytes that a caller holds; a negative size, bytes it no longer holds."""
        self._by_caller[caller] += size
        if not self._by_caller[caller]:
            del self._by_caller[caller]


class BodyShare:
    """What the body of one request holds of the budget, until everybody who held it has let go."""

    def __init__(self, budget: BodyBudget, caller: str) -> None:
        self._budget = budget
        self._caller = caller
        self._counted = 0
        self._holders = 0

    def take(self, size: int) -> bool:
        """Count the body as `size` bytes long. Return False if there is no room for that."""
        more = max(0, size - FREE_BYTES) - self._counted
        if more <= 0:
            return True
        if not self._budget.has_room(self._caller, more):
            return False
        self._budget.add(self._caller, more)
        self._counted += more
        return True

    @contextmanager
    def held(self) -> Generator[None]:
        """Count the body as held until the block ends. A call over SSE goes on after its request was answered."""
        self._holders += 1
        try:
            yield
        finally:
            self._holders -= 1
            if not self._holders:
                self._budget.add(self._caller, -self._counted)
                self._counted = 0
