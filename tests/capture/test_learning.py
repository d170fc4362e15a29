"""Facts are learned from captured messages in batches, by an endpoint, and only so often a day."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from loopback import OpenAIServer
from palimpsest.core.models import Scope
from palimpsest.learn.job_runner import work_on_jobs
from palimpsest.memory import Memory
from tests.support.learning_jobs import TIMEOUT, HastyClock, model, next_news
from tests.support.memory import StoppedClock, llm_settings, memory_in, memory_texts
from tests.support.sessions import kept, spooled, waiting

pytestmark = pytest.mark.anyio

SCOPE = Scope("alice")


def with_model(
    folder: Path, url: str, clock: StoppedClock, calls: int = 50, **settings: Any
) -> AbstractAsyncContextManager[Memory]:
    """Open a memory with an endpoint."""
    learn = {"captured_calls_per_day": calls}
    return memory_in(folder, clock, llm=llm_settings(url, timeout=TIMEOUT), learn=learn, **settings)


async def jobs_of(memory: Memory) -> list[tuple[str, str, int]]:
    """Return kind, state and number of messages of each job, the newest first."""
    return [(item.job.kind, item.job.state, len(item.job.message_ids)) for item in await memory.care.jobs()]


class TestBatches:
    @pytest.mark.parametrize("event", ["end", "compact"])
    async def test_a_session_is_learned_from_when_it_ends(self, tmp_path: Path, event: str) -> None:
        """Taking in asks no model; the end of the session queues its messages as one job, once."""
        with OpenAIServer(model) as server:
            async with with_model(tmp_path, server.base_url, StoppedClock()) as memory:
                spooled(tmp_path, "prompt", "I like tea")
                await memory.capture.take_in()
                assert await jobs_of(memory) == []
                spooled(tmp_path, "reply", "Noted")
                spooled(tmp_path, "prompt", "another session", session="s2")
                for _ in range(2):
                    spooled(tmp_path, event)
                    await memory.capture.take_in()
                assert await jobs_of(memory) == [("capture", "waiting", 2)]
                assert server.requests == []

    async def test_a_long_session_is_learned_from_before_it_ends(self, tmp_path: Path) -> None:
        """Thirty messages that no job has are queued together."""
        with OpenAIServer(model) as server:
            async with with_model(tmp_path, server.base_url, StoppedClock()) as memory:
                for number in range(59):
                    spooled(tmp_path, "prompt", f"thought {number}")
                    if number in (28, 29, 58):
                        await memory.capture.take_in()
                        expected = {28: [], 29: [("capture", "waiting", 30)], 58: [("capture", "waiting", 30)]}[number]
                        assert await jobs_of(memory) == expected

    async def test_without_an_endpoint_nothing_is_queued(self, tmp_path: Path) -> None:
        """The client's model is never asked."""
        async with memory_in(tmp_path, llm={"provider": "sampling"}) as memory:
            spooled(tmp_path, "prompt", "I like tea")
            spooled(tmp_path, "end")
            await memory.capture.take_in()
            assert await jobs_of(memory) == []

    async def test_a_server_takes_in_and_learns_by_itself(self, tmp_path: Path) -> None:
        """From a record in the spool to a memory."""
        with OpenAIServer(model) as server:
            spooled(tmp_path, "prompt", "I like tea")
            spooled(tmp_path, "end")
            async with with_model(tmp_path, server.base_url, HastyClock(), background=True) as memory:
                assert await next_news(memory) == ("learned from 1 message:\n- Alice likes tea",)
                assert await memory_texts(memory) == ["Alice likes tea"]
                assert waiting(tmp_path) == []


class TestDailyLimit:
    async def test_what_is_over_the_limit_waits_until_the_next_day(self, tmp_path: Path) -> None:
        """The calls of all jobs and processes of a UTC day count; waiting is no failure."""
        clock = StoppedClock()
        with OpenAIServer(model) as server:
            async with with_model(tmp_path, server.base_url, clock, calls=2) as memory:
                engine = memory.engine
                assert engine.model is not None
                for session, text in (("s1", "I like tea"), ("s2", "I like cake")):
                    spooled(tmp_path, "prompt", text, session=session)
                    spooled(tmp_path, "end", session=session)
                    await memory.capture.take_in()
                    clock.forward(minutes=1)
                    assert await work_on_jobs(engine, engine.model)
                assert (len(server.requests), await memory_texts(memory)) == (2, ["Alice likes tea"])
                [report, _] = await memory.care.jobs()
                assert (report.job.state, report.job.attempts) == ("waiting", 0)
                assert "learn.captured_calls_per_day" in report.job.error
                assert await memory.news(SCOPE) == ()
                clock.at = clock.at.replace(hour=0, minute=1) + timedelta(days=1)
                assert await work_on_jobs(engine, engine.model)
                assert await memory_texts(memory) == ["Alice likes cake", "Alice likes tea"]
                assert len(server.requests) == 4
                assert len(kept(memory)) == 2


async def test_a_server_takes_in_what_comes_while_it_runs(tmp_path: Path) -> None:
    """It looks every few seconds."""
    async with memory_in(tmp_path, background=True) as memory:
        for text in ("first", "second"):
            spooled(tmp_path, "prompt", text)
            with anyio.fail_after(TIMEOUT):
                while waiting(tmp_path):
                    await anyio.lowlevel.checkpoint()
            assert kept(memory)[-1] == ("user", text)
