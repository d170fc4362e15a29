"""Follow the ledger with a graph database in the background, for as long as a memory is open."""

from __future__ import annotations

import logging
from typing import Literal, TypeAlias

import anyio

from palimpsest.core.errors import GraphStoreError, LedgerError
from palimpsest.core.threads import in_background
from palimpsest.index.graph.sync import GraphProjection

logger = logging.getLogger(__name__)

LOOK_SECONDS = 30.0
"""How often to look for what other processes wrote. Set by hand: a look that finds nothing asks the ledger alone, and
takes less than a millisecond."""

REST_SECONDS = 1.0
"""The rest after each time the database has caught up, so that writes in quick succession are applied together. Set by
hand."""

FIRST_RETRY_SECONDS = 1.0
"""The rest after a failure. It doubles with each failure that follows, because a server that is down stays so for
minutes as a rule. Set by hand."""

MAX_RETRY_SECONDS = 60.0
"""The longest rest, so that a server which comes back is up to date a minute later. Set by hand."""

GraphState: TypeAlias = Literal["waiting", "ready", "failing"]


class GraphFollower:
    """Keeps a graph database up to date. `state` is "waiting" before the first attempt has ended."""

    def __init__(self, projection: GraphProjection) -> None:
        self.state: GraphState = "waiting"
        self._projection = projection
        self._woken = anyio.Event()
        self._failures = 0
        self._last_failure = ""

    def wake(self) -> None:
        """Look for what is new, unless the last attempt failed and it rests."""
        self._woken.set()

    async def run(self) -> None:
        """Follow the ledger until cancelled. A failure is logged, and tried again after a rest."""
        with in_background():
            while True:
                self._woken = anyio.Event()
                if await self._try():
                    await anyio.sleep(REST_SECONDS)
                    with anyio.move_on_after(LOOK_SECONDS):
                        await self._woken.wait()
                else:
                    await anyio.sleep(min(FIRST_RETRY_SECONDS * 2 ** (self._failures - 1), MAX_RETRY_SECONDS))

    async def _try(self) -> bool:
        """Catch up once, and return whether that went well."""
        try:
            await self._projection.catch_up()
        except (GraphStoreError, LedgerError) as error:
            self._failed(str(error))
            return False
        except Exception as error:  # one that escaped would close the memory for all its callers
            logger.exception("the graph database is not up to date")
            self._failed(str(error))
            return False
        if self._failures:
            logger.info("the graph database is up to date again")
        self.state, self._failures, self._last_failure = "ready", 0, ""
        return True

    def _failed(self, text: str) -> None:
        """Log a failure, unless it is the one that the log names already."""
        if text != self._last_failure:
            logger.warning("%s", text)
        self.state, self._failures, self._last_failure = "failing", self._failures + 1, text
