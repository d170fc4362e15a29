"""What hooks captured, and the old sessions of clients, as `memory.capture`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from palimpsest.capture.intake import CAPTURING, Intake, take_in
from palimpsest.capture.sessions import SessionsRequest, SessionsResult, take_in_sessions
from palimpsest.core.models import Scope
from palimpsest.core.protocols import Progress
from palimpsest.core.settings import Settings
from palimpsest.learn.engine import Engine


class Capture:
    """What takes conversations of clients into an open memory. Every method raises PalimpsestError."""

    def __init__(
        self, engine: Engine, settings: Settings, after_write: Callable[[Scope], Awaitable[None]] | None
    ) -> None:
        self._engine = engine
        self._settings = settings
        self._after_write = after_write

    async def take_in(self, seconds: float | None = None) -> Intake:
        """Take in what hooks left in the spool, for at most about `seconds`; nothing if the settings say so."""
        if self._settings.hooks not in CAPTURING:
            return Intake()
        return await self._and_follow(await take_in(self._engine, self._settings, seconds))

    async def take_in_sessions(self, request: SessionsRequest, progress: Progress) -> SessionsResult:
        """Take in the old sessions of a client, each into the project of its folder. Each message is kept once."""
        result = await take_in_sessions(self._engine, self._settings, request, progress)
        if self._after_write is not None:
            for scope in result.edits:
                await self._after_write(scope)
        return result

    async def _and_follow(self, intake: Intake) -> Intake:
        if self._after_write is not None:
            for scope in intake.scopes:
                await self._after_write(scope)
        return intake
