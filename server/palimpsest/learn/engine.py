"""What the flows work with: the ledger, the ports, the prompts, and a way to run blocking work."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import anyio
import anyio.to_thread

from palimpsest.core.clock import Clock
from palimpsest.core.protocols import Embedder, LanguageModel, ReportProgress
from palimpsest.llm import decide, extract, summarize
from palimpsest.llm.prompts import PromptFiles
from palimpsest.recall.candidates import NearestEntries
from palimpsest.store.ledger import Ledger

NEEDED_PROMPTS = {
    "extract": extract.INPUTS,
    "extract_agent": extract.INPUTS,
    "decide": decide.INPUTS,
    "summarize": summarize.INPUTS,
}
"""Every prompt by name, with the inputs its stage passes."""

_T = TypeVar("_T")


async def _nobody(what: str) -> None:
    """Hear nothing."""
    del what


@dataclass(frozen=True, slots=True)
class Engine:
    """Hold the parts of one open memory. `model` is None where there is no language model to ask.

    With `keep_secrets` passwords, keys and tokens are stored like any other text. `report_progress` is told how far a
    call is.
    `lent` says that the model is there during this call only, so that nothing is asked in the background.
    """

    ledger: Ledger
    embedder: Embedder
    model: LanguageModel | None
    prompts: PromptFiles
    clock: Clock
    index: NearestEntries
    threads: anyio.CapacityLimiter
    keep_secrets: bool = False
    report_progress: ReportProgress = _nobody
    lent: bool = False

    async def run(self, blocking: Callable[[], _T]) -> _T:
        """Run blocking work in a worker thread of our own pool; it runs to its end even when cancelled."""
        return await anyio.to_thread.run_sync(blocking, limiter=self.threads)
