"""What adding and editing work with: the ledger, the adapters, the prompts, and a way to run blocking work."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import anyio
from sqlalchemy import Connection

from palimpsest.core.clock import Clock
from palimpsest.core.configuration.sections import BackgroundConfig
from palimpsest.core.errors import CallTimeError
from palimpsest.core.protocols import Embedder, LanguageModel, ReportProgress
from palimpsest.core.threads import Threads
from palimpsest.llm import decide, extract
from palimpsest.llm.prompts import PromptFiles
from palimpsest.llm.views import about, gist, links, summarize
from palimpsest.recall.retrieval.candidates import NearestEntries
from palimpsest.store.ledger import Ledger

NEEDED_PROMPTS = {
    "extract": extract.INPUTS,
    "extract_agent": extract.INPUTS,
    "graph": frozenset[str](),
    "decide": decide.INPUTS,
    **summarize.PROMPTS,
    "about": about.INPUTS,
    "links": links.INPUTS,
    "gist": gist.INPUTS,
}
"""Every prompt by name, with the inputs that its stage passes. `graph` is added to those of the extraction."""

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class _TimedModel:
    """A language model that is asked until a time, on the clock of the event loop, and raises CallTimeError after it.

    `seconds` is the setting, for the error.
    """

    model: LanguageModel
    ends_at: float
    seconds: float

    @property
    def name(self) -> str:
        return self.model.name

    async def complete(self, messages: Sequence[Mapping[str, str]], schema: Mapping[str, Any] | None) -> str:
        if (left := self.ends_at - anyio.current_time()) > 0:
            with anyio.move_on_after(left):
                return await self.model.complete(messages, schema)
        raise CallTimeError(f"the model takes longer than a call may ({self.seconds:g} seconds, learn.call_seconds).")

    async def check(self) -> None:
        await self.model.check()

    async def aclose(self) -> None:
        await self.model.aclose()


async def _ignore_progress(message: str) -> None:
    """Ignore progress reports."""
    del message


@dataclass(frozen=True, slots=True)
class Engine:
    """The parts of one open memory.

    `clock` shows the time in the zone of the user whom it works for.
    `model` is None if there is no language model. With `keep_secrets` passwords, keys and tokens are stored like any
    other text. Facts with a tag in `excluded_topics` are not kept. `report_progress` receives messages about the
    progress of a call. `is_model_borrowed` means that the model is available during this call only, so the background
    work cannot use it. With `learns_in_background` messages are learned from after their call was answered.
    `captured_calls_per_day` is how often a model is asked a day (UTC) about what hooks captured, and `background` has
    the limits for work that nobody asked for. The summary of a scope is rewritten after `summary_every` edits. With
    `has_links` the background links new memories with others, and searches follow the links. Whatever works on jobs in
    this process holds `jobs_lock`.
    """

    ledger: Ledger
    embedder: Embedder
    model: LanguageModel | None
    prompts: PromptFiles
    clock: Clock
    index: NearestEntries
    threads: Threads
    keep_secrets: bool = False
    excluded_topics: tuple[str, ...] = ()
    report_progress: ReportProgress = _ignore_progress
    is_model_borrowed: bool = False
    learns_in_background: bool = False
    captured_calls_per_day: int = 0
    background: BackgroundConfig = field(default_factory=BackgroundConfig)
    summary_every: int = 20
    has_links: bool = False
    jobs_lock: anyio.Lock = field(default_factory=anyio.Lock)

    def answering_within(self, seconds: float) -> Engine:
        """Return this engine for one call that a client waits for, which asks a model for so long at most.

        That also holds for the client's own model: a client that never answers would keep its call waiting.
        """
        if self.model is None:
            return self
        return replace(self, model=_TimedModel(self.model, anyio.current_time() + seconds, seconds))

    def of_user(self, user_id: str) -> Engine:
        """Return this engine with a clock that shows the time of a user."""
        return replace(self, clock=self.ledger.zones.clock(self.clock, user_id))

    @property
    def own_model(self) -> LanguageModel | None:
        """Return the model that is always there, which alone is asked in the background, or None."""
        return None if self.is_model_borrowed else self.model

    @property
    def learns_later(self) -> bool:
        """Return whether messages are learned from after their call, which needs a model that is always there."""
        return self.learns_in_background and self.own_model is not None

    async def run(self, blocking: Callable[[], _T]) -> _T:
        """Run blocking work in one of our own threads. Unless it says otherwise, it finishes even if cancelled."""
        return await self.threads.run(blocking)

    async def read(self, query: Callable[[Connection], _T]) -> _T:
        """Run a query of the ledger in one of our own threads. All that it reads is of one state of the ledger."""

        def work() -> _T:
            with self.ledger.read() as conn:
                return query(conn)

        return await self.run(work)

    async def write(self, blocking: Callable[[], _T]) -> _T:
        """Run blocking work that writes the ledger in a thread that only writes. It finishes even if cancelled."""
        return await self.threads.write(blocking)
