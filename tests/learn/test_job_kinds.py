"""Jobs of all kinds: their order, their budget, what is asked for meanwhile, and processes that are killed."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from loopback import OpenAIServer
from palimpsest.core.models import Scope
from palimpsest.learn.job_runner import work_on_jobs
from palimpsest.memory import Memory, open_memory
from palimpsest.store import jobs as job_queries
from palimpsest.store.jobs import DEBOUNCE, MEMORIES, ORDER, OVERDUE, Job, JobKind, JobRequest
from tests.support.learning_jobs import TIMEOUT
from tests.support.learning_jobs import model as learning_model
from tests.support.memory import (
    ALICE,
    StoppedClock,
    add_text,
    llm_settings,
    memory_in,
    memory_texts,
    messages_from,
    settings_in,
)
from tests.support.scripted_model import is_extraction

pytestmark = pytest.mark.anyio


def kind_of(request: dict[str, Any]) -> str:
    """Return what a request asks for."""
    if is_extraction(request) or request["messages"][1]["content"].startswith("New facts: "):
        return "learn"
    return "summarize" if "summary" in request["response_format"]["json_schema"]["schema"]["properties"] else "link"


def model(request: dict[str, Any]) -> str:
    """Learn, summarize, or find nothing to link."""
    if (kind := kind_of(request)) == "learn":
        return learning_model(request)
    return json.dumps({"summary": "Alice likes tea."} if kind == "summarize" else {"notes": []})


async def states(memory: Memory) -> list[tuple[str, str]]:
    """Return kind and state of each job, the newest first."""
    return [(report.job.kind, report.job.state) for report in await memory.care.jobs()]


def queue(memory: Memory, *requests: JobRequest | JobKind, scope: Scope = ALICE) -> None:
    for request in requests:
        memory.engine.ledger.queue_job(scope, JobRequest(request) if isinstance(request, str) else request)


def begin(memory: Memory, *kinds: JobKind) -> Job:
    """Begin the next job, which has to be due."""
    job = begun(memory, *kinds)
    assert job is not None
    return job


def begun(memory: Memory, *kinds: JobKind) -> Job | None:
    return memory.engine.ledger.run(job_queries.take, kinds or ORDER, memory.engine.clock())


def finish(memory: Memory, job: Job, again: datetime | None = None) -> None:
    memory.engine.ledger.run_for(job.scope.user_id, job_queries.finish, job, "", again, memory.engine.clock())


async def test_what_was_said_is_learned_from_before_views_of_it_are_made(tmp_path: Path) -> None:
    clock = StoppedClock()
    async with memory_in(tmp_path, clock) as memory:
        for kind in reversed(ORDER):
            queue(memory, kind)
            clock.forward(seconds=1)
        clock.forward(minutes=1)
        kinds: list[str] = []
        while (job := begun(memory)) is not None:
            kinds.append(job.kind)
            finish(memory, job)
        assert kinds == ["expire", "learn", "capture", "gist", "link", "summarize", "enrich"]
        queue(memory, "summarize")
        clock.forward(seconds=OVERDUE.total_seconds())
        queue(memory, "learn")
        clock.forward(minutes=1)
        assert begin(memory).kind == "summarize"


async def test_what_is_asked_for_meanwhile_is_a_job_of_its_own(tmp_path: Path) -> None:
    clock = StoppedClock()
    async with memory_in(tmp_path, clock) as memory:
        queue(memory, JobRequest("link", payload={MEMORIES: ["a", "b"]}))
        clock.forward(minutes=1)
        job = begin(memory, "link")
        queue(memory, JobRequest("link", payload={MEMORIES: ["b", "c"]}))
        finish(memory, job)
        later, done = [report.job for report in await memory.care.jobs()]
        assert (done.state, done.memory_ids) == ("done", ("a", "b"))
        assert (later.state, later.memory_ids, later.due_at) == ("waiting", ("b", "c"), clock.at + DEBOUNCE)


async def test_a_job_of_erased_memories_goes_with_them(tmp_path: Path) -> None:
    clock = StoppedClock()
    async with memory_in(tmp_path, clock) as memory:
        tea, figs = await add_text(memory, "Alice likes tea"), await add_text(memory, "Alice likes figs")
        link, gist = ({MEMORIES: ids} for ids in ([tea, figs], [tea]))
        queue(memory, JobRequest("link", payload=link), JobRequest("gist", payload=gist), "summarize")
        clock.forward(minutes=1)
        begin(memory, "link")
        await memory.care.purge(ALICE, [tea])
        left = {report.job.kind: report.job.memory_ids for report in await memory.care.jobs()}
        assert left == {"link": (figs,), "summarize": ()}


async def test_what_needs_no_model_is_done_and_the_rest_says_what_it_waits_for(tmp_path: Path) -> None:
    """A borrowed model is no model for the background."""
    clock = StoppedClock()
    async with memory_in(tmp_path, clock) as memory:
        queue(memory, "expire", "summarize")
        clock.forward(minutes=1)
        assert await work_on_jobs(memory.engine, memory.engine.own_model)
        assert await states(memory) == [("summarize", "waiting"), ("expire", "done")]
        waits = [report.waits_for for report in await memory.care.jobs()]
        assert waits == ["waits for a server with llm.provider = 'openai'", ""]


@asynccontextmanager
async def memory_with_budget(folder: Path, clock: StoppedClock, url: str, **limits: int) -> AsyncGenerator[Memory]:
    """Open Alice's memory, which writes a summary after each edit, with limits a day."""
    settings = settings_in(
        folder,
        llm=llm_settings(url, timeout=TIMEOUT),
        learn={"in_background": True},
        summary={"every": 1},
        background=limits,
    )
    async with open_memory(settings, clock=clock) as memory:
        yield memory


async def test_a_call_too_many_is_made_the_next_day(tmp_path: Path) -> None:
    clock = StoppedClock()
    with OpenAIServer(model) as server:
        async with memory_with_budget(tmp_path, clock, server.base_url, calls_per_day=1) as memory:
            await memory.add_messages(messages_from(("user", "I like tea")))
            await memory.care.retry_jobs()
            for number in range(2):
                scope = Scope("alice", f"project{number}")
                await memory.add_text(scope, f"Alice likes number {number}", infer=False)
            await memory.care.retry_jobs()
            asked = [kind_of(request) for request in server.chat_requests]
            assert (asked.count("summarize"), "learn" in asked) == (1, True)
            jobs = [report.job for report in await memory.care.jobs() if report.job.kind == "summarize"]
            waiting = next(job for job in jobs if "background.calls_per_day" in job.error)
            assert (waiting.state, waiting.attempts) == ("waiting", 0)
            assert waiting.due_at == clock.at.replace(hour=0) + timedelta(days=1)
            use = await memory.care.model_use()
            assert use.budgeted.calls == 1
            assert use.today["learn"]["extract"].calls == 1
            clock.at = waiting.due_at
            assert await work_on_jobs(memory.engine, memory.engine.own_model)
            assert [kind_of(request) for request in server.chat_requests].count("summarize") == 2


async def test_a_job_of_a_process_that_was_killed_is_done_by_the_next_one(tmp_path: Path) -> None:
    clock = StoppedClock()
    async with memory_in(tmp_path, clock) as memory:
        await add_text(memory, "Alice is ill", metadata={"expires_at": "2026-05-09"})
        clock.forward(days=3)
        begin(memory, "expire")
    async with memory_in(tmp_path, clock) as memory:
        assert await work_on_jobs(memory.engine, None)
        assert await memory_texts(memory) == []
        assert await states(memory) == [("expire", "done")]
