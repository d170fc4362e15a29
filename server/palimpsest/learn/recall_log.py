"""Record what was recalled for which question, and report which memories fade."""

from __future__ import annotations

import logging
import re
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial

import anyio
from sqlalchemy import Connection

from palimpsest.core.errors import logged
from palimpsest.core.models import Event, Memory, Outcome, Scope, has_expired
from palimpsest.core.settings import Settings
from palimpsest.core.validation import one_line
from palimpsest.learn.engine import Engine, OfMemory, reads
from palimpsest.learn.sanitize import Cleaner
from palimpsest.recall.forgetting import Fading, RetentionSettings, fading_of
from palimpsest.recall.search import SearchResult
from palimpsest.store import memories as memory_queries
from palimpsest.store import usage
from palimpsest.store.entries import epoch
from palimpsest.store.usage import MAX_RECALLS, NewRecall, Recall, Use
from palimpsest.text.display import shorten

# What fades in a memory: which memories were used, how well each is remembered, and what never fades.

logger = logging.getLogger(__name__)

# The score from which on a hit is rather about what is asked than not. What lies beside it has a tenth or two.
PROBABLE = 0.5

# An id in a text, as far as replies show it.
_NAMED = re.compile(r"(?<![0-9a-z])[0-9a-f]{8}(?![0-9a-z])")

# How long uses are collected before they are written: a burst of searches is one write, and a process that is killed
# loses the uses of a few seconds.
REST_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class FadingMemory:
    """A memory, and how well it is remembered."""

    memory: Memory
    fading: Fading


@dataclass(frozen=True, slots=True)
class FadingReport:
    """The memories of a scope that fade, those that are nearest to be forgotten first, and what never fades.

    `faded` of them are below the bound. `kept` counts those that never fade, by what keeps them.
    """

    forgetting: RetentionSettings
    fading: tuple[FadingMemory, ...]
    faded: int
    kept: Mapping[str, int] = field(default_factory=dict[str, int])


def forgetting_of(settings: Settings) -> RetentionSettings:
    """Return how memories fade by the settings."""
    return RetentionSettings(
        settings.forgetting, settings.forgetting_days, settings.forgetting_days_by_tag, settings.forgetting_bound
    )


class FadingMemories(OfMemory):
    """What fades, as `memory.fading`. Uses are noted only if the settings let memories fade.

    Where it runs, it also writes the recall log.
    """

    def __init__(self, engine: Engine, recall_log: RecallLog) -> None:
        super().__init__(engine)
        self._recall_log = recall_log
        self._uses: dict[str, Use] = {}
        self._named: dict[tuple[str, str], datetime] = {}
        self.forgetting = forgetting_of(engine.settings)

    def after_search(self, result: SearchResult) -> None:
        """Collect what a search used, if it probably answers (`PROBABLE`): the first hit, or what was learned from it.

        The other hits were shown, as the recall log says. They count once somebody names them (`after_naming`).
        """
        memories = [hit for hit in result.hits if hit.kind == "memory"]
        if result.confident and any(hit.score >= PROBABLE for hit in result.hits[:1]):
            self._collect((hit.id for hit in memories if result.hits[0].id in (hit.id, *hit.message_ids)), times=1)

    def after_naming(self, user_id: str, *texts: str) -> None:
        """Collect the ids in texts of a user. What was shown and not used since counts as used."""
        if self.forgetting.mode == "off":
            return
        for beginning in (name for text in texts for name in _NAMED.findall(text)):
            self._named[user_id, beginning] = self.engine.clock()
            self._recall_log.woken.set()

    def after_write(self, user_id: str, outcomes: Iterable[Outcome]) -> None:
        """Collect what was stated again by a write and was known already, and what it updates, replaces or names."""
        written = [outcome for outcome in outcomes if outcome.kind == "memory" and outcome.event is not Event.DELETE]
        known = (outcome.memory for outcome in written if outcome.event is Event.NONE)
        self._collect((memory.id for memory in known if memory.deleted_at is None), times=0)
        for outcome in written:
            memory, old = outcome.memory, outcome.replaced if outcome.event is Event.ADD else (outcome.memory.id,)
            self.after_naming(user_id, *old, memory.text, str(memory.metadata), str(memory.relations))

    def _collect(self, memory_ids: Iterable[str], times: int) -> None:
        if self.forgetting.mode == "off":
            return
        now = self.engine.clock()
        for memory_id in memory_ids:
            before = self._uses.get(memory_id, Use(0, now))
            self._uses[memory_id] = Use(before.times + times, max(before.last_at, now))
            self._recall_log.woken.set()

    async def run(self) -> None:
        """Write what is collected, here and in the recall log, in batches, until cancelled."""
        while True:
            await self.write()
            with anyio.move_on_after(LOOK_SECONDS):
                await self._recall_log.woken.wait()
                await anyio.sleep(REST_SECONDS)

    async def write(self) -> None:
        """Write the recall log, and what is collected. A failure is logged: a search has been answered by then."""
        uses, named = self._uses, self._named
        self._uses, self._named = {}, {}
        await self._recall_log.write()
        if uses or named:
            with logged(logger, "that memories were used was not noted"):
                await self.engine.write(lambda: self.engine.ledger.run(usage.note_uses, uses, named))

    @reads
    def report(self, conn: Connection, scope: Scope) -> FadingReport:
        """Return what fades in a scope, and how fast. Raises LedgerError."""
        now, forgetting = self.engine.clock(), self.forgetting
        traces = [trace for trace in usage.traces_in(conn, scope) if trace.owner_id == trace.memory_id]
        memories = memory_queries.memories_by_id(conn, [trace.memory_id for trace in traces])
        known = [
            FadingMemory(memories[trace.memory_id], fading_of(trace, forgetting, now).in_zone(now.tzinfo))
            for trace in traces
            if not has_expired(trace.metadata, now)
        ]
        fading = [item for item in known if not item.fading.kept_by]
        fading.sort(key=lambda item: (item.fading.retention, item.fading.last_at, item.memory.id))
        kept = Counter(item.fading.kept_by for item in known if item.fading.kept_by)
        faded = sum(item.fading.retention < forgetting.bound for item in fading)
        return FadingReport(forgetting, tuple(fading), faded, dict(kept.most_common()))


# The recall log of a memory: when each memory came back, and for which question.

# How often recalls are looked for that are too old, if nobody searches: they are kept for days.
LOOK_SECONDS = 3600.0

# How much of a question is kept: a person recognizes it by less, and a prompt may hold a whole file.
MAX_QUESTION_CHARS = 500

# How much of a caller's name is kept, which a client chooses: as much as its column holds.
MAX_CALLER_CHARS = 256


class RecallLog(OfMemory):
    """When memories came back and for which question, as `memory.recall_log`.

    A recall is what a search of a tool, a prompt of the server or the command line showed, and what a hook recalled for
    a prompt. What does not count: searches of the page, those with a read-only access token, and what was believed at
    another time (`as_of`). `days` is how long recalls are kept; with 0 none are noted, and those that were are erased.
    `woken` is set when there is something to write.
    """

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        # More than are kept are not collected, however long nobody writes them.
        self._new = deque[NewRecall](maxlen=MAX_RECALLS)
        self.woken = anyio.Event()
        self._epoch: str | None = None
        self.days = engine.settings.recall_log_days

    def note(
        self, scope: Scope, question: str, owner_ids: Sequence[str], caller: str, *, all_projects: bool = False
    ) -> None:
        """Collect what a question brought back, the best first. Nothing is read or written yet."""
        if self.days and owner_ids:
            now, name = self.engine.clock(), one_line(caller)[:MAX_CALLER_CHARS]
            self._new.append(NewRecall(scope, question, now, name, tuple(owner_ids), all_projects))
            self.woken.set()

    async def write(self) -> None:
        """Write what is collected, and erase what is too old. A failure is logged: the search has been answered."""
        new, self.woken = tuple(self._new), anyio.Event()
        self._new.clear()
        with logged(logger, "what was recalled was not noted"):
            if new or await self.engine.read(self._has_outdated):
                self._epoch = await self.engine.write(partial(self._write, new))

    def _has_outdated(self, conn: Connection) -> bool:
        if self._epoch is None:
            self._epoch = epoch(conn)
        return usage.has_outdated(conn, self._since)

    def _write(self, new: Sequence[NewRecall]) -> str:
        cleaner = Cleaner(self.engine)
        texts = [shorten(cleaner.text(one_line(recall.question)), MAX_QUESTION_CHARS) for recall in new]
        cleaned = [replace(recall, question=text) for recall, text in zip(new, texts, strict=True)]
        return self.engine.ledger.note_recalls(cleaned, self._since, self._epoch)

    @reads
    def recalls(
        self, conn: Connection, scope: Scope, owner_id: str, *, limit: int = 20, in_all_projects: bool = False
    ) -> Sequence[Recall]:
        """Return up to `limit` recalls of a memory or message that the scope sees, the newest first.

        With `in_all_projects` those of searches in any project of the user. What was recalled in the last seconds may
        not be among them yet. Raises LedgerError.
        """
        if (since := self._since) is None:
            return ()
        return usage.recalls_of(conn, scope, owner_id, since, limit, in_all_projects=in_all_projects)

    async def count_by_day(self, scope: Scope) -> Mapping[str, int]:
        """Return on which days, as in ISO 8601, the scope was searched how often, as far as that is kept."""
        zone = self.engine.ledger.zones.of(scope.user_id)
        since = self._since and self._since.astimezone(zone)
        return {} if since is None else await self.engine.read(lambda conn: usage.count_by_day(conn, scope, since))

    @property
    def _since(self) -> datetime | None:
        return self.engine.clock() - timedelta(days=self.days) if self.days else None
