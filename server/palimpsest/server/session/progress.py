"""Tell clients how their calls go on, again and again: many give up on a call that is silent for a minute."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import anyio
from mcp.server.mcpserver import Context

if TYPE_CHECKING:
    from palimpsest.core.protocols import ReportProgress

REPEAT_SECONDS = 10.0
"""How often the last report of a call is sent again. Set by hand: many clients give up after a minute of silence."""

SEND_SECONDS = 1.0
"""How long a client may take to read a repeated report. One that takes longer has no part in the others' waiting."""


class CallProgress:
    """The progress of one call. It is sent if the client asked for it; the numbers rise with each report."""

    def __init__(self, ctx: Context[Any, Any]) -> None:
        self._ctx = ctx
        self._number = 0
        self._message = ""

    async def report(self, message: str) -> None:
        """Send a new report."""
        self._message = message
        self._number += 1
        await self._ctx.report_progress(self._number, message=message)

    async def repeat(self) -> None:
        """Send the last report again, with a higher number. Before the first report there is nothing to send."""
        if self._message:
            await self.report(self._message)


class RunningCalls:
    """The progress of all calls that are running."""

    def __init__(self) -> None:
        self._calls: set[CallProgress] = set()

    @contextmanager
    def reporting(self, ctx: Context[Any, Any]) -> Generator[ReportProgress]:
        """Yield a function that reports the progress of a call. Until the block ends, its reports are repeated."""
        call = CallProgress(ctx)
        self._calls.add(call)
        try:
            yield call.report
        finally:
            self._calls.discard(call)

    async def run(self) -> None:
        """Repeat the reports until cancelled."""
        while True:
            await anyio.sleep(REPEAT_SECONDS)
            for call in list(self._calls):
                with anyio.move_on_after(SEND_SECONDS):
                    await self._repeat(call)

    async def _repeat(self, call: CallProgress) -> None:
        try:
            await call.repeat()
        except (
            anyio.ClosedResourceError,
            anyio.BrokenResourceError,
        ):  # the client is gone, and the call ends by itself
            self._calls.discard(call)
