"""Jobs of all kinds: their order, their budget, what is asked for meanwhile, and processes that are killed."""

from __future__ import annotations

import json
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from loopback import OpenAIServer, Reply
from palimpsest.core.models import Scope
from palimpsest.learn.job_runner import work_on_jobs
from palimpsest.memory import Memory, open_memory
from palimpsest.store import jobs as job_queries
from palimpsest.store.jobs import DEBOUNCE, MEMORIES, ORDER, OVERDUE, PAUSES, Job, JobKind, JobRequest, unreported_jobs
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
from tests.support.memory_process import start
from tests.support.scripted_model import is_extraction
from tests.support.slow_model import HeldModel

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


class TestOrder:
    async def test_what_was_said_is_learned_from_before_views_of_it_are_made(self, tmp_path: Path) -> None:
        """Expiry comes first, whatever was queued first. But what has been due for an hour goes before the rest."""
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


class TestAskedAgain:
    async def test_what_is_asked_for_meanwhile_is_a_job_of_its_own(self, tmp_path: Path) -> None:
        """Also for the same memory, which may have changed since it was looked at."""
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

    async def test_a_job_of_erased_memories_goes_with_them(self, tmp_path: Path) -> None:
        """Of the others what is left stays, also of a job that is under way."""
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


class TestBudget:
    async def test_a_call_too_many_is_made_the_next_day(self, tmp_path: Path) -> None:
        """The calls of all scopes count together, and learning what was said does not count."""
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


class TestFailure:
    async def test_silent_work_is_told_of_once_when_it_has_failed_for_good(self, tmp_path: Path) -> None:
        """Each write asks for it again: it is then tried seldom, and nothing is told twice."""
        clock = StoppedClock()
        with OpenAIServer(lambda _: Reply("no credit", status=402)) as server:
            every: dict[str, Any] = {"summary": {"every": 1}}
            async with memory_in(tmp_path, clock, llm=llm_settings(server.base_url), **every) as memory:
                engine = memory.engine
                await add_text(memory, "Alice likes tea")
                queue(memory, "summarize")
                for pause in (DEBOUNCE, *PAUSES):
                    assert await memory.news(ALICE) == ()
                    clock.forward(seconds=pause.total_seconds())
                    assert await work_on_jobs(engine, engine.own_model)
                assert await states(memory) == [("summarize", "failed")]
            async with memory_in(tmp_path, clock, background=True, **every) as memory:
                (note,) = await memory.news(ALICE)
                assert note.startswith("the summaries are not up to date: ")
                assert "no credit" in note
                with anyio.fail_after(TIMEOUT):
                    while not _is_reported(memory):
                        await anyio.lowlevel.checkpoint()
            async with memory_in(tmp_path, clock, llm=llm_settings(server.base_url), **every) as memory:
                engine, made = memory.engine, len(server.chat_requests)
                queue(memory, "summarize")
                clock.forward(minutes=1)
                assert await work_on_jobs(engine, engine.own_model)
                assert len(server.chat_requests) == made
                clock.forward(seconds=PAUSES[-1].total_seconds())
                assert await work_on_jobs(engine, engine.own_model)
                assert await states(memory) == [("summarize", "failed")]


async def test_a_job_of_a_process_that_was_killed_is_done_by_the_next_one(tmp_path: Path) -> None:
    """It was begun and never finished: the memory that ends is closed once all the same."""
    clock = StoppedClock()
    async with memory_in(tmp_path, clock) as memory:
        await add_text(memory, "Alice is ill", metadata={"expires_at": "2026-05-09"})
        clock.forward(days=3)
        begin(memory, "expire")
    async with memory_in(tmp_path, clock) as memory:
        assert await work_on_jobs(memory.engine, None)
        assert await memory_texts(memory) == []
        assert await states(memory) == [("expire", "done")]


def _is_reported(memory: Memory) -> bool:
    with memory.engine.ledger.read() as conn:
        return not unreported_jobs(conn, ALICE)


class TestKilled:
    @pytest.mark.nightly
    @pytest.mark.parametrize("kind", ["learn", "summarize", "link"])
    async def test_a_process_that_is_killed_while_the_model_thinks(self, tmp_path: Path, kind: JobKind) -> None:
        """The next one asks again for that answer alone, and every job is done once."""
        held = HeldModel(model, lambda request: kind_of(request) == kind)
        clock = StoppedClock()
        with OpenAIServer(held) as server:
            settings: dict[str, Any] = {
                "llm": llm_settings(server.base_url, timeout=TIMEOUT),
                "learn": {"in_background": True},
                "summary": {"every": 1},
                "links": "on" if kind == "link" else "off",
                "embedder": {"provider": "static"},  # in both processes
            }
            async with memory_in(tmp_path, clock, background=True, **settings) as memory:
                await add_text(memory, "Alice lives in Oslo")
                await add_text(memory, "Alice works in Oslo")
                if kind != "link":  # what is learned is linked too, and the job then waits for more of it
                    await memory.add_messages(messages_from(("user", "I like tea")))
            process = start(tmp_path, "jobs", json.dumps(settings))
            await held.wait()
            process.kill()
            process.communicate()
            held.may_answer.set()
            made = [kind_of(request) for request in server.chat_requests]
            async with memory_in(tmp_path, clock, **settings) as memory:
                await memory.care.retry_jobs()
                texts = await memory_texts(memory)
                left = [report.job for report in await memory.care.jobs() if report.job.state != "done"]
                waiting = [job.kind for job in left if job.due_at <= clock.at]
            assert process.returncode == -signal.SIGKILL
            learned = [] if kind == "link" else ["Alice likes tea"]
            assert (waiting, texts) == ([], [*learned, "Alice lives in Oslo", "Alice works in Oslo"])
            again = [kind_of(request) for request in server.chat_requests[len(made) :]]
            assert again[0] == kind
            assert "learn" not in again or kind == "learn"
