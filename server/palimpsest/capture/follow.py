"""Take the spool in while a server runs."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio

from palimpsest.capture import spool
from palimpsest.capture.intake import CAPTURING, take_in
from palimpsest.core.errors import LedgerError
from palimpsest.core.models import Scope
from palimpsest.core.settings import Settings
from palimpsest.core.threads import in_background
from palimpsest.learn.engine import Engine

logger = logging.getLogger(__name__)

LOOK_SECONDS = 2.0
"""How often a server looks into the spool. Set by hand: a look lists one folder, and what was said a moment ago is
known to a session that begins now."""

BUSY_SECONDS = 30.0
"""How long a server waits after an error. Set by hand."""

AfterWrite = Callable[[Scope], Awaitable[None]]


async def follow_spool(engine: Engine, settings: Settings, after_write: AfterWrite) -> None:
    """Take in what hooks leave until cancelled. `after_write` is awaited with each scope that has new messages."""
    if settings.hooks not in CAPTURING:
        return
    rest: frozenset[Path] = frozenset()
    with in_background():
        while True:
            seconds = LOOK_SECONDS
            try:
                files = await engine.run(lambda: spool.waiting_files(settings.data_dir))
                if set(files) - rest:
                    intake = await take_in(engine, settings)
                    rest = intake.rest if not intake.is_busy else rest
                    for scope in intake.scopes:
                        await after_write(scope)
            except LedgerError as error:
                logger.warning("what hooks captured waits in the spool: %s", error)
                seconds = BUSY_SECONDS
            except Exception:  # one that escaped would close the memory for all its callers
                logger.exception("what hooks captured waits in the spool")
                seconds = BUSY_SECONDS
            await anyio.sleep(seconds)
