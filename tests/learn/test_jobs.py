"""Messages that are learned from after their call: nothing is lost, done twice, or told twice."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from loopback import OpenAIServer, Reply
from palimpsest.core.files import files_below
from palimpsest.core.models import Scope
from palimpsest.learn.job_runner import work_on_jobs
from palimpsest.learn.summaries.summary_writer import kept_summary
from palimpsest.store.jobs import PAUSES
from tests.support.learning_jobs import (
    TIMEOUT,
    HastyClock,
    do_due_jobs,
    extract,
    learning_jobs,
    learning_memory,
    memory_learning,
    model,
    next_news,
)
from tests.support.memory import ALICE, StoppedClock, llm_settings, memory_in, memory_texts, messages_from
from tests.support.scripted_model import ScriptedModel, add_all, answering, is_extraction, memory_with
from tests.support.slow_model import HeldModel

pytestmark = pytest.mark.anyio


def held_model() -> HeldModel:
    """Return the model above, which answers when it may, and writes a summary."""
    written = {"summary": "Likes sweet things."}
    return HeldModel(answering(extract=extract, decide=add_all, summarize=lambda _: written))


@pytest.mark.few_by_day(1)
@pytest.mark.parametrize("sees_general", [True, False])
async def test_the_background_sees_what_the_caller_sees(tmp_path: Path, *, sees_general: bool) -> None:
    asked: list[str] = []
    what = {"forget": "that Alice likes hazelnut cake", "sources": [1]}

    def forgetful(request: dict[str, Any]) -> str:
        asked.append(json.dumps(request))
        return json.dumps({"facts": [], "forget": [what]} if is_extraction(request) else {"decisions": []})

    async with memory_learning(forgetful, tmp_path) as (memory, _):
        await memory.add_text(ALICE, "Alice likes hazelnut cake with cream", infer=False)
        shop = Scope("alice", "shop", with_general=sees_general)
        await memory.add_text(shop, "Alice sells hazelnut cake", infer=False)
        await memory.add_messages(messages_from(("user", "Please forget that I like hazelnut cake"), scope=shop))
        await next_news(memory, shop)
    assert any("Alice sells hazelnut cake" in request for request in asked)
    assert any("hazelnut cake with cream" in request for request in asked) == sees_general


async def test_a_failure_leaves_a_job(tmp_path: Path) -> None:
    """An outage loses no facts, and nobody has to send the messages again."""
    clock, is_down = StoppedClock(), True
    async with memory_with(lambda request: Reply(status=500) if is_down else model(request), tmp_path, clock) as (
        memory,
        _,
    ):
        result = await memory.add_messages(messages_from(("user", "I like tea")))
        assert (result.kept_messages, result.is_learning, result.outcomes) == (1, True, ())
        assert "500" in result.notes[0]
        assert "learned from in the background" in result.notes[0]
        is_down = False
        clock.forward(minutes=1)
        await do_due_jobs(memory)
        assert await memory_texts(memory) == ["Alice likes tea"]


async def test_a_call_ends_within_its_time_and_the_rest_goes_on(tmp_path: Path) -> None:
    """Guards clients that give up: the reply comes in time, and what the model finds later is told later."""
    held = held_model()
    with OpenAIServer(held) as server:
        settings: dict[str, Any] = {"llm": llm_settings(server.base_url, timeout=TIMEOUT)}
        learn = {"call_seconds": 0.2}
        async with memory_in(tmp_path, HastyClock(), background=True, learn=learn, **settings) as memory:
            result = await memory.add_messages(messages_from(("user", "I like tea")))
            assert (result.kept_messages, result.is_learning, result.outcomes) == (1, True, ())
            assert "learn.call_seconds" in result.notes[0]
            await memory.add_text(ALICE, "Alice likes figs", infer=False)
            summary = await memory.summary(ALICE)
            assert "Alice likes figs" in summary.text
            assert "learn.call_seconds" in summary.notes[0]
            held.may_answer.set()
            with anyio.fail_after(TIMEOUT):
                while await memory_texts(memory) != ["Alice likes figs", "Alice likes tea"]:
                    await anyio.lowlevel.checkpoint()
                while (await kept_summary(memory.engine, ALICE, "overall", 1)).result.text != "Likes sweet things.":
                    await anyio.lowlevel.checkpoint()


async def test_two_adds_become_one_job(tmp_path: Path) -> None:
    clock = StoppedClock()
    async with memory_learning(model, tmp_path, clock) as (memory, server):
        await memory.add_messages(messages_from(("user", "I like secrets")), infer=False)
        await memory.add_messages(messages_from(("user", "I like tea")))
        await memory.add_messages(messages_from(("user", "I like figs")))
        (report,) = await learning_jobs(memory)
        assert (report.job.state, len(report.job.message_ids)) == ("waiting", 2)
        assert await memory.care.retry_jobs() == 1
        assert sum(map(is_extraction, server.chat_requests)) == 1
        assert await memory_texts(memory) == ["Alice likes figs", "Alice likes tea"]


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


async def test_the_first_failure_and_the_success_after_it_are_told(tmp_path: Path) -> None:
    """It is tried again after a pause. Between the first failure and the last lie hours: nobody would know."""
    replies, clock = iter([Reply("no credit", status=402)]), StoppedClock()

    def failing(request: dict[str, Any]) -> Reply | str:
        return next(replies, None) or model(request)

    async with memory_learning(failing, tmp_path, clock) as (memory, _):
        await memory.add_messages(messages_from(("user", "I like tea")))
        await memory.care.retry_jobs()
        (report,) = await learning_jobs(memory)
        assert (report.job.state, report.job.attempts) == ("waiting", 1)
        assert report.job.due_at == clock.at + PAUSES[0]
        assert "no credit" in report.job.error
        (note,) = await memory.news(ALICE)
        assert note.startswith("not learned yet from 1 message, which are kept: ")
        assert "no credit" in note
        assert "This is tried again after 2026-05-08T12:01:00Z" in note
        assert await memory.news(ALICE) == ()
        await memory.care.retry_jobs()
        assert await next_news(memory) == ("learned from 1 message:\n- Alice likes tea",)


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
