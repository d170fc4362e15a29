"""Open the memory after the client's handshake, so that the handshake is answered at once.

Opening the memory imports SQLAlchemy, Chroma and the embedder, which takes seconds. The imports run in a worker thread
and start with the first request after the handshake.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread

from palimpsest.core.errors import PalimpsestError

if TYPE_CHECKING:
    from palimpsest.core.models import ChangedMemory, Outcome
    from palimpsest.core.settings import Settings
    from palimpsest.hooks.instructions import Launch
    from palimpsest.memory import Memory


logger = logging.getLogger(__name__)


@dataclass(eq=False, slots=True)
class LazyMemory:
    """A memory that is opened on first use, and then is `opened`. If that fails, every waiting request gets the error.

    The next request after a failure tries to open the memory again. `on_learned` is awaited with what was learned in
    the background, `on_changed` with what other servers have changed. `launch` is how this process was started, if the
    instructions of its next start are to be rendered.
    """

    load_settings: Callable[[], Settings]
    on_learned: Callable[[Sequence[Outcome]], Awaitable[None]]
    on_changed: Callable[[Sequence[ChangedMemory]], Awaitable[None]]
    launch: Launch | None = None
    opened: Memory | None = None
    _settings: Settings | None = None
    _settings_loaded: anyio.Event = field(default_factory=anyio.Event)
    _error: PalimpsestError | None = None
    _requested: anyio.Event = field(default_factory=anyio.Event)
    _settled: anyio.Event = field(default_factory=anyio.Event)

    def start_opening(self) -> None:
        """Start to open the memory in the background, unless that has started already."""
        self._requested.set()

    async def get(self) -> Memory:
        """Return the open memory. Raises the PalimpsestError that kept it from opening."""
        if self.opened is not None:
            return self.opened
        self.start_opening()
        await self._settled.wait()
        if self.opened is None:
            raise self._error or PalimpsestError("the memory is closed")
        return self.opened

    @property
    def has_failed(self) -> bool:
        """Return whether the memory is closed because the last attempt to open it failed."""
        return self.opened is None and self._error is not None

    def learn_folder(self, folder: str, project: str) -> None:
        """Have what sessions in a folder begin with rendered, if the memory is open."""
        if self.opened is not None:
            self.opened.briefs.learn_folder(folder, project)

    async def settings(self) -> Settings:
        """Return the settings once they are loaded, which is before the memory is open."""
        while self._settings is None:
            await self._settings_loaded.wait()
        return self._settings

    async def health(self) -> dict[str, str]:
        """Return the state of each part, without any content. `status` is ok, opening, degraded or failed."""
        if self.opened is None:
            return {"status": "failed" if self.has_failed else "opening"}
        return await self.opened.health()

    async def run(self) -> None:
        """Open the memory when it is first requested, and keep it open until cancelled."""
        while True:
            await self._requested.wait()
            try:
                await self._keep_open()
            except* PalimpsestError as group:
                error: PalimpsestError | BaseExceptionGroup[PalimpsestError] = group
                while isinstance(error, BaseExceptionGroup):
                    error = error.exceptions[0]
                fields = {"reason": str(error)}  # nothing was read of what is stored
                logger.error("the memory could not be opened: %s", error, extra={"fields": fields})  # noqa: TRY400 - the text is complete
                self._error = error
            except* Exception:  # the server must stay up to report it to its clients
                logger.exception("the memory could not be opened")
                self._error = PalimpsestError("the memory could not be opened; see the server's log for the reason")
            # Every waiting request gets the error, and the next one tries again.
            settled, self._settled, self._requested = self._settled, anyio.Event(), anyio.Event()
            settled.set()

    async def _keep_open(self) -> None:
        module = await anyio.to_thread.run_sync(importlib.import_module, "palimpsest.memory")
        settings = self._settings = self.load_settings()
        self._settings_loaded.set()
        async with module.open_memory(settings, on_learned=self.on_learned, launch=self.launch) as memory:
            self.opened = memory
            self._settled.set()
            try:
                if settings.ledger_url is not None:
                    from palimpsest.learn.browsing import hear_changes  # noqa: PLC0415 - only with a database for many

                    await hear_changes(memory.engine, self.on_changed)
                await anyio.sleep_forever()
            finally:
                self.opened = None
