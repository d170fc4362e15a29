"""A share of the CPU, for one of several callers that work at the same time."""

from __future__ import annotations

import anyio

SHARE = 0.3
"""The part of one CPU that a caller may use for long. One that uses more makes the others wait, because Python computes
in one thread at a time. Set by hand: some ten searches a second, which is more than an agent makes for long."""

ADVANCE_SECONDS = 2.0
"""How long a caller may compute before only its share is left: some fifty searches at once. Set by hand."""


class CpuShare:
    """How much of its share a caller has used. Times are those of the event loop."""

    def __init__(self) -> None:
        self._paid_until = -ADVANCE_SECONDS / SHARE

    async def wait(self) -> None:
        """Wait until the caller has earned what it used before."""
        while not self._is_earned():  # noqa: ASYNC110 - what is waited for is time, and others may use more meanwhile
            await anyio.sleep_until(self._paid_until)

    def use(self, seconds: float) -> None:
        """Count seconds that were computed for the caller."""
        self._paid_until = max(self._paid_until, _earliest()) + seconds / SHARE

    def _is_earned(self) -> bool:
        return self._paid_until <= anyio.current_time()

    @property
    def is_unused(self) -> bool:
        """Return whether the caller has its whole advance."""
        return self._paid_until <= _earliest()


def _earliest() -> float:
    return anyio.current_time() - ADVANCE_SECONDS / SHARE
