"""The recall log of a memory: when each memory came back, and for which question."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial

import anyio
from sqlalchemy import Connection

from palimpsest.core.errors import LedgerError
from palimpsest.core.models import Scope
from palimpsest.core.settings import Settings
from palimpsest.core.threads import in_background
from palimpsest.core.validation import one_line
from palimpsest.facade.recall.forgetting import REST_SECONDS
from palimpsest.learn.engine import Engine
from palimpsest.learn.sanitize import Cleaner
from palimpsest.store.queries.index_log import epoch
from palimpsest.store.views import recalls
from palimpsest.store.views.recalls import MAX_RECALLS, NewRecall, Recall
from palimpsest.text.shorten import shorten

logger = logging.getLogger(__name__)

LOOK_SECONDS = 3600.0
"""How often recalls are looked for that are too old, if nobody searches. Set by hand: they are kept for days."""

MAX_QUESTION_CHARS = 500
"""How much of a question is kept. Set by hand: a person recognizes it by less, and a prompt may hold a whole file."""

MAX_CALLER_CHARS = 256
"""How much of a caller's name is kept, which a client chooses: as much as its column holds."""


class RecallLog:
    """When memories came back and for which question, as `memory.recall_log`.

    A recall is what a search of a tool, a prompt of the server or the command line showed, and what a hook recalled for
    a prompt. What does not count: searches of the page, those with a read-only access token, and what was believed at
    another time (`as_of`). `days` is how long recalls are kept; with 0 none are noted, and those that were are erased.
    """

    def __init__(self, settings: Settings, engine: Engine) -> None:
        self._engine = engine
        self._new = _empty()
        self._woken = anyio.Event()
        self._epoch: str | None = None
        self.days = settings.recall_log_days

    def note(
        self, scope: Scope, question: str, owner_ids: Sequence[str], caller: str, *, all_projects: bool = False
    ) -> None:
        """Collect what a question brought back, the best first. Nothing is read or written yet."""
        if self.days and owner_ids:
            now, name = self._engine.clock(), one_line(caller)[:MAX_CALLER_CHARS]
            self._new.append(NewRecall(scope, question, now, name, tuple(owner_ids), all_projects))
            self._woken.set()

    async def run(self) -> None:
        """Write what is collected, in batches, and erase what is too old, until cancelled."""
        with in_background():
            while True:
                await self.write()
                with anyio.move_on_after(LOOK_SECONDS):
                    await self._woken.wait()
                    await anyio.sleep(REST_SECONDS)

    async def write(self) -> None:
        """Write what is collected, and erase what is too old. A failure is logged: the search has been answered."""
        new, self._new, self._woken = self._new, _empty(), anyio.Event()
        try:
            if new or await self._engine.read(self._has_outdated):
                self._epoch = await self._engine.write(partial(self._write, new))
        except LedgerError as error:
            logger.warning("what was recalled was not noted: %s", error)

    def _has_outdated(self, conn: Connection) -> bool:
        if self._epoch is None:
            self._epoch = epoch(conn)
        return recalls.has_outdated(conn, self._since)

    def _write(self, new: Sequence[NewRecall]) -> str:
        cleaner = Cleaner(self._engine)
        texts = [shorten(cleaner.text(one_line(recall.question)), MAX_QUESTION_CHARS) for recall in new]
        cleaned = [replace(recall, question=text) for recall, text in zip(new, texts, strict=True)]
        return self._engine.ledger.note_recalls(cleaned, self._since, self._epoch)

    async def recalls(
        self, scope: Scope, owner_id: str, *, limit: int = 20, in_all_projects: bool = False
    ) -> Sequence[Recall]:
        """Return up to `limit` recalls of a memory or message that the scope sees, the newest first.

        With `in_all_projects` those of searches in any project of the user. What was recalled in the last seconds may
        not be among them yet. Raises LedgerError.
        """
        since = self._since
        if since is None:
            return ()
        return await self._engine.read(
            lambda conn: recalls.recalls_of(conn, scope, owner_id, since, limit, in_all_projects=in_all_projects)
        )

    async def count_by_day(self, scope: Scope) -> Mapping[str, int]:
        """Return on which days, as in ISO 8601, the scope was searched how often, as far as that is kept."""
        zone = self._engine.ledger.zones.of(scope.user_id)
        since = self._since and self._since.astimezone(zone)
        return {} if since is None else await self._engine.read(lambda conn: recalls.count_by_day(conn, scope, since))

    @property
    def _since(self) -> datetime | None:
        return self._engine.clock() - timedelta(days=self.days) if self.days else None


def _empty() -> deque[NewRecall]:
    """Return a list for new recalls. More than are kept are not collected, however long nobody writes them."""
    return deque(maxlen=MAX_RECALLS)
