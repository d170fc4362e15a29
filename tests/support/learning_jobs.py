"""A memory that learns in the background, its model and its clock."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio

from loopback import Chat, OpenAIServer, Reply
from palimpsest.core.models import Scope
from palimpsest.learn.job_runner import JobReport, work_on_jobs
from palimpsest.memory import Memory
from tests.support.memory import ALICE, StoppedClock, llm_settings, memory_in
from tests.support.scripted_model import add_all, answering, given

# Seconds to wait for work in the background.
TIMEOUT = 30


class HastyClock(StoppedClock):
    """A clock that moves ten seconds ahead whenever it is read, so that what waits is soon due."""

    def __call__(self) -> Any:
        """Return the next time."""
        self.forward(seconds=10)
        return self.at


def extract(request: dict[str, Any]) -> dict[str, Any]:
    """Extract each message as a fact about Alice."""
    said = [item["text"].replace("I like", "Alice likes") for item in given(request, "New messages")]
    return {"facts": [{"text": text, "sources": [number]} for number, text in enumerate(said, 1)]}


# A model that learns each message, and adds everything.
model = answering(extract=extract, decide=add_all)


@asynccontextmanager
async def learning_memory(
    folder: Path, url: str, clock: StoppedClock | None = None, **others: Any
) -> AsyncGenerator[Memory]:
    """Open Alice's memory, which learns in the background. `others` are further settings."""
    learning = {"llm": llm_settings(url, timeout=TIMEOUT), "learn": {"in_background": True}}
    settings: dict[str, Any] = learning | others
    async with memory_in(folder, clock or HastyClock(), background=True, **settings) as memory:
        yield memory


@asynccontextmanager
async def memory_learning(
    model: Chat | Sequence[Reply | str], folder: Path, clock: StoppedClock | None = None, **others: Any
) -> AsyncGenerator[tuple[Memory, OpenAIServer]]:
    """Open the same with a model behind a loopback server."""
    with OpenAIServer(model) as server:
        async with learning_memory(folder, server.base_url, clock, **others) as memory:
            yield memory, server


async def next_news(memory: Memory, scope: Scope = ALICE) -> tuple[str, ...]:
    """Wait until something was learned and return the notes on it."""
    with anyio.fail_after(TIMEOUT):
        while not (notes := await memory.news(scope)):  # noqa: ASYNC110 - another task learns, and says nothing
            await anyio.sleep(0.005)
    return notes


async def learning_jobs(memory: Memory) -> list[JobReport]:
    """Return the jobs that learn, the newest first, without those that make views of what is known."""
    return [report for report in await memory.care.jobs() if report.job.kind == "learn"]


async def do_due_jobs(memory: Memory) -> None:
    """Do the work that is due by the memory's clock, and wait if its own background is at it."""
    with anyio.fail_after(TIMEOUT):
        while not await work_on_jobs(memory.engine, memory.engine.own_model):  # noqa: ASYNC110 - likewise
            await anyio.sleep(0.005)
