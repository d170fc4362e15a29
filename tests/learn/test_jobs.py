"""Work in the background: what is learned after its call, the order and budget of jobs, and what replies tell of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from loopback import OpenAIServer, Reply
from palimpsest.core.files import files_below
from palimpsest.core.models import Scope
from palimpsest.learn.job_runner import work_on_jobs
from palimpsest.memory import Memory
from palimpsest.store import jobs as job_queries
from palimpsest.store.jobs import MEMORIES, ORDER, PAUSES, Job, JobKind, JobRequest
from tests.support.learning_jobs import (
    TIMEOUT,
    HastyClock,
    learning_jobs,
    learning_memory,
    memory_learning,
    model,
    next_news,
)
from tests.support.memory import (
    ALICE,
    StoppedClock,
    add_text,
    memory_in,
    memory_texts,
    messages_from,
)
from tests.support.scripted_model import (
    ScriptedModel,
    decision,
    decisions_reply,
    facts_reply,
    given,
    is_extraction,
)

pytestmark = pytest.mark.anyio


async def test_the_background_sees_what_the_caller_sees(tmp_path: Path) -> None:
    asked: list[str] = []
    what = {"forget": "that Alice likes hazelnut cake", "sources": [1]}

    def forgetful(request: dict[str, Any]) -> str:
        asked.append(json.dumps(request))
        return json.dumps({"facts": [], "forget": [what]} if is_extraction(request) else {"decisions": []})

    async with memory_learning(forgetful, tmp_path) as (memory, _):
        await memory.add_text(ALICE, "Alice likes hazelnut cake with cream", infer=False)
        shop = Scope("alice", "shop", with_general=False)
        await memory.add_text(shop, "Alice sells hazelnut cake", infer=False)
        await memory.add_messages(messages_from(("user", "Please forget that I like hazelnut cake"), scope=shop))
        await next_news(memory, shop)
    assert any("Alice sells hazelnut cake" in request for request in asked)
    assert not any("hazelnut cake with cream" in request for request in asked)


async def test_a_purge_leaves_nothing_of_it_in_a_job(tmp_path: Path) -> None:
    async with memory_learning(model, tmp_path, StoppedClock()) as (memory, _):
        context = ("Alice was asked about gin",)
        await memory.add_messages(messages_from(("user", "I like gin")), context=context)
        (gin,) = (await memory.search(ALICE, "gin")).hits
        await memory.care.purge(ALICE, [gin.id])
        assert await learning_jobs(memory) == []
        await memory.add_messages(messages_from(("user", "I like rum")), context=context)
        await memory.care.retry_jobs()
        assert (await memory.care.purge(ALICE, None)).clean
        assert await learning_jobs(memory) == []
    assert b"asked about gin" not in b"".join(file.read_bytes() for file in files_below(tmp_path))


async def test_after_many_failures_a_person_is_needed(tmp_path: Path) -> None:
    answers: list[Reply] = [Reply("no credit", status=402)] * (len(PAUSES) + 1)
    with OpenAIServer(lambda request: answers.pop() if answers else model(request)) as server:
        clock = HastyClock()
        async with learning_memory(tmp_path, server.base_url, clock) as memory:
            await memory.add_messages(messages_from(("user", "I like tea")))
            with anyio.fail_after(TIMEOUT):
                while (await learning_jobs(memory))[0].job.state != "failed":
                    clock.forward(hours=3)
                    await memory.delete_all(Scope("nobody"))
            (note,) = await next_news(memory)
            assert note.startswith("not learned from 1 message, which are kept: ")
            assert "no credit" in note
            assert "palimpsest jobs --retry" in note
            result = await memory.add_messages(messages_from(("user", "I like tea")))
            assert (result.kept_messages, result.is_learning) == (0, True)
            assert await next_news(memory) == ("learned from 1 message:\n- Alice likes tea",)


async def test_an_error_that_nobody_foresaw_is_told_like_any_other(tmp_path: Path) -> None:
    """Guards the other jobs, and the callers whose memory would be closed."""

    class BrokenModel(ScriptedModel):
        async def complete(self, messages: Any, schema: Any) -> str:
            del messages, schema
            raise ArithmeticError("a division by zero")

    clock = StoppedClock()
    with OpenAIServer(model) as server:
        async with learning_memory(tmp_path, server.base_url, clock) as memory:
            await memory.add_messages(messages_from(("user", "I like tea")))
        clock.forward(minutes=1)
        async with memory_in(tmp_path, clock) as memory:  # in the background, the endpoint would be asked
            assert await work_on_jobs(memory.engine, BrokenModel([]))
        async with learning_memory(tmp_path, server.base_url, clock) as memory:
            (note,) = await memory.news(ALICE)
            assert "ArithmeticError: a division by zero" in note
            await memory.care.retry_jobs()
            assert await memory_texts(memory) == ["Alice likes tea"]


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


async def test_a_job_of_erased_memories_goes_with_them(memory: Memory, clock: StoppedClock) -> None:
    tea, figs = await add_text(memory, "Alice likes tea"), await add_text(memory, "Alice likes figs")
    link, gist = ({MEMORIES: ids} for ids in ([tea, figs], [tea]))
    queue(memory, JobRequest("link", payload=link), JobRequest("gist", payload=gist), "summarize")
    clock.forward(minutes=1)
    begin(memory, "link")
    await memory.care.purge(ALICE, [tea])
    left = {report.job.kind: report.job.memory_ids for report in await memory.care.jobs()}
    assert left == {"link": (figs,), "summarize": ()}


async def test_what_needs_no_model_is_done_and_the_rest_says_what_it_waits_for(
    memory: Memory, clock: StoppedClock
) -> None:
    """A borrowed model is no model for the background."""
    queue(memory, "expire", "summarize")
    clock.forward(minutes=1)
    assert await work_on_jobs(memory.engine, memory.engine.own_model)
    assert await states(memory) == [("summarize", "waiting"), ("expire", "done")]
    waits = [report.waits_for for report in await memory.care.jobs()]
    assert waits == ["waits for a server with llm.provider = 'openai'", ""]


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


def scripted(extractions: list[str], decide: Callable[[Any, Any], list[dict[str, Any]]]) -> Callable[[Any], str]:
    """Return a model that extracts these replies in order, and decides on what it is shown."""
    replies = iter(extractions)

    def chat(request: dict[str, Any]) -> str:
        if is_extraction(request):
            return next(replies)
        return decisions_reply(*decide(given(request, "New facts"), given(request, "Stored memories")))

    return chat


def keeps(facts: list[dict[str, Any]], memories: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Forget what names Mark, find trivia not worth keeping, and add the rest."""
    marks = [item["id"] for item in memories if "Mark" in item["text"]]
    forgotten = [decision(fact["fact"], "DELETE", mark, "") for fact in facts if "forget" in fact for mark in marks[:1]]
    told = [fact for fact in facts if "forget" not in fact]
    return [*forgotten, *(decision(each["fact"], "NONE" if "trivia" in each["text"] else "ADD") for each in told)]


async def test_what_was_forgotten_is_told_first_and_once(tmp_path: Path) -> None:
    trivia = [f"Some trivia about cloud number {number}." for number in range(6)]
    replies = [facts_reply("Mark drinks."), facts_reply(forget="Mark"), facts_reply(*trivia, forget="Mark")]
    async with memory_learning(scripted(replies, keeps), tmp_path) as (memory, _):
        told: list[tuple[str, ...]] = []
        for text in ("Mark drinks", "Forget Mark.", "Clouds! And forget Mark."):
            await memory.add_messages(messages_from(("user", text)))
            told.append(await next_news(memory))
            with anyio.fail_after(TIMEOUT):
                while len(told) == 2 and any(report.job.notes for report in await learning_jobs(memory)):
                    await anyio.lowlevel.checkpoint()
    _, only_forgot, notes = told
    assert any(note.startswith("forgotten, as asked (Mark)") for note in only_forgot)
    assert not any("nothing new" in note for note in only_forgot)
    assert sum(note.startswith("not kept") for note in notes) == 3
    assert any("palimpsest jobs shows" in note for note in notes)


async def test_a_fact_that_holds_no_longer_is_told_as_such(tmp_path: Path) -> None:
    """A message of 2020 that arrives late is not "nothing new", and does not read as if it held."""
    rome, oslo = "User lives in Rome.", "User lives in Oslo."
    contradicts = scripted([facts_reply(rome), facts_reply(oslo)], lambda _, __: [decision(0, "DELETE", 0)])
    async with memory_learning(contradicts, tmp_path) as (memory, _):
        for text, year in (("I live in Rome", 2026), ("I live in Oslo", 2020)):
            said = {"role": "user", "content": text, "at": f"{year}-01-05T10:00:00Z"}
            await memory.add_messages(messages_from(said))
            notes = await next_news(memory)
    assert notes == (f"learned from 1 message:\n- {oslo} (until 2026-01-05)",)
