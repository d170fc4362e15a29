"""What fades in a memory: which memories were used, how well each is remembered, and what never fades."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial

import anyio

from palimpsest.core.errors import LedgerError
from palimpsest.core.models import Event, Memory, Outcome, Scope, has_expired
from palimpsest.core.settings import Settings
from palimpsest.core.threads import in_background
from palimpsest.learn.engine import Engine
from palimpsest.recall.pipeline import SearchResult
from palimpsest.recall.scoring.forgetting import Fading, Forgetting, fading_of
from palimpsest.store.queries import memories as memory_queries
from palimpsest.store.views import uses
from palimpsest.store.views.uses import Use

logger = logging.getLogger(__name__)

FIRST = 3
"""A hit counts as used if it is among so many of the first of a confident answer. If weak matches among them were no
uses, `archive` would leave out every fifth lasting fact within a year (benchmarks/forgetting.py), in place of one in
25."""

REST_SECONDS = 5.0
"""How long uses are collected before they are written. Set by hand: a burst of searches is one write, and a process
that is killed loses the uses of a few seconds."""


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

    forgetting: Forgetting
    fading: tuple[FadingMemory, ...]
    faded: int
    kept: Mapping[str, int] = field(default_factory=dict[str, int])


def forgetting_of(settings: Settings) -> Forgetting:
    """Return how memories fade by the settings."""
    return Forgetting(
        settings.forgetting, settings.forgetting_days, settings.forgetting_days_by_tag, settings.forgetting_bound
    )


class FadingMemories:
    """What fades, as `memory.fading`. Uses are noted only if the settings let memories fade."""

    def __init__(self, settings: Settings, engine: Engine) -> None:
        self._engine = engine
        self._uses: dict[str, Use] = {}
        self._woken = anyio.Event()
        self.forgetting = forgetting_of(settings)

    def after_search(self, result: SearchResult) -> None:
        """Collect what a search used: the memories among the first hits, if any of these probably answers."""
        if result.confident:
            self._collect((hit.id for hit in result.hits[:FIRST] if hit.kind == "memory"), times=1)

    def after_write(self, outcomes: Iterable[Outcome]) -> None:
        """Collect what was stated again by a write, and was known already."""
        known = (outcome.memory for outcome in outcomes if outcome.event is Event.NONE and outcome.kind == "memory")
        self._collect((memory.id for memory in known if memory.deleted_at is None), times=0)

    def _collect(self, memory_ids: Iterable[str], times: int) -> None:
        if self.forgetting.mode == "off":
            return
        now = self._engine.clock()
        for memory_id in memory_ids:
            before = self._uses.get(memory_id, Use(0, now))
            self._uses[memory_id] = Use(before.times + times, max(before.last_at, now))
            self._woken.set()

    async def run(self) -> None:
        """Write what is collected, in batches, until cancelled."""
        with in_background():
            while True:
                await self._woken.wait()
                await anyio.sleep(REST_SECONDS)
                await self.write()

    async def write(self) -> None:
        """Write what is collected. A failure is logged: a search has been answered by then."""
        collected, self._uses, self._woken = self._uses, {}, anyio.Event()
        if not collected:
            return
        try:
            await self._engine.write(partial(self._engine.ledger.note_uses, collected))
        except LedgerError as error:
            logger.warning("that memories were used was not noted: %s", error)

    async def report(self, scope: Scope) -> FadingReport:
        """Return what fades in a scope, and how fast. Raises LedgerError."""
        return await self._engine.run(lambda: self._report(scope))

    def _report(self, scope: Scope) -> FadingReport:
        now, forgetting = self._engine.clock(), self.forgetting
        with self._engine.ledger.read() as conn:
            traces = [trace for trace in uses.traces_in(conn, scope) if trace.owner_id == trace.memory_id]
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
