"""Open the memory when it is first wanted, so that the client's handshake is answered at once.

What opening needs (SQLAlchemy, Chroma, the embedder) takes seconds to import; it is imported in a worker thread,
after the first request that is not the handshake.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread

from palimpsest.core.errors import PalimpsestError

if TYPE_CHECKING:
    from palimpsest.core.settings import Settings
    from palimpsest.memory import Memory

logger = logging.getLogger(__name__)


class LazyMemory:
    """Give the open memory to whoever asks; a failure to open is told to each, and the next one tries again."""

    def __init__(self, load: Callable[[], Settings]) -> None:
        self._load = load
        self._memory: Memory | None = None
        self._fault: PalimpsestError | None = None
        self._wanted = anyio.Event()
        self._settled = anyio.Event()

    def knock(self) -> None:
        """Begin opening, if that has not begun."""
        self._wanted.set()

    async def memory(self) -> Memory:
        """Return the open memory. Raises the PalimpsestError that kept it from opening."""
        if self._memory is not None:
            return self._memory
        self.knock()
        await self._settled.wait()
        if self._memory is None:
            raise self._fault or PalimpsestError("the memory is closed")
        return self._memory

    async def health(self) -> dict[str, str]:
        """Return how the parts are, without anything of what they hold; `status` is ok, opening, degraded or failed."""
        if self._memory is None:
            return {"status": "failed" if self._fault is not None else "opening"}
        return await self._memory.health()

    async def keep(self) -> None:
        """Open the memory when it is wanted and keep it open until cancelled."""
        while True:
            await self._wanted.wait()
            try:
                await self._hold()
            except* PalimpsestError as group:
                self._fail(group)
            except* Exception:  # told to whoever asks; the server stays up to tell it
                logger.exception("the memory could not be opened")
                self._settle(PalimpsestError("the memory could not be opened; the server's log says why"))

    async def _hold(self) -> None:
        module = await anyio.to_thread.run_sync(importlib.import_module, "palimpsest.memory")
        async with module.open_memory(self._load()) as memory:
            self._memory = memory
            self._settled.set()
            try:
                await anyio.sleep_forever()
            finally:
                self._memory = None

    def _fail(self, group: BaseExceptionGroup[PalimpsestError]) -> None:
        error: PalimpsestError | BaseExceptionGroup[PalimpsestError] = group
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        logger.error("the memory could not be opened: %s", error)
        self._settle(error)

    def _settle(self, error: PalimpsestError) -> None:
        """Tell whoever waits, and let the next one try again."""
        self._fault = error
        settled, self._settled = self._settled, anyio.Event()
        self._wanted = anyio.Event()
        settled.set()
