"""What the next reply says of work in the background: nothing that matters is left out, and nothing is told wrong."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from loopback import OpenAIServer, Reply
from palimpsest.core.models import Scope
from palimpsest.store.jobs import KEPT_DONE
from tests.support.learning_jobs import TIMEOUT, HastyClock, learning_jobs, learning_memory, model, next_news
from tests.support.memory import ALICE, StoppedClock, messages_from
from tests.support.scripted_model import is_extraction

pytestmark = pytest.mark.anyio

Decide = Callable[[dict[str, Any], list[dict[str, Any]]], tuple[str, int | None]]


def scripted(extractions: list[Any], decide: Decide) -> Callable[[dict[str, Any]], str | Reply]:
    """Return a model that extracts by a script, and decides on each fact, given what is stored, by a function."""
    script = iter(extractions)

    def answer(request: dict[str, Any]) -> str | Reply:
        if is_extraction(request):
            extraction = next(script)
            return extraction if isinstance(extraction, Reply) else json.dumps(extraction)
        prompt = request["messages"][1]["content"].removeprefix("New facts: ")
        facts, stored = (json.loads(part) for part in prompt.split("\n\nStored memories: "))
        decisions: list[dict[str, Any]] = []
        for fact in facts:
            event, memory = decide(fact, stored)
            text = "" if "forget" in fact else None
            decisions.append({"fact": fact["fact"], "event": event, "memory": memory, "text": text})
        return json.dumps({"decisions": decisions})

    return answer


def facts(*texts: str, forget: str = "") -> dict[str, Any]:
    requests = [{"forget": forget, "sources": [1]}] if forget else []
    return {"facts": [{"text": text, "sources": [1]} for text in texts], "forget": requests}


def keeps(fact: dict[str, Any], stored: list[dict[str, Any]]) -> tuple[str, int | None]:
    """Forget what names Mark, find trivia not worth keeping, and add the rest."""
    if "forget" in fact:
        about_mark = [item["id"] for item in stored if "Mark" in item["text"]]
        return ("DELETE", about_mark[0]) if about_mark else ("NONE", None)
    return ("NONE", None) if "trivia" in fact["text"] else ("ADD", None)


async def test_what_was_forgotten_is_told_however_much_else_there_is_to_say(tmp_path: Path) -> None:
    """Remarks on facts that were not kept are cut. A request to forget is answered in any case, and first."""
    trivia = [f"Some trivia about cloud number {number}." for number in range(6)]
    with OpenAIServer(scripted([facts("Mark drinks."), facts(*trivia, forget="Mark")], keeps)) as server:
        async with learning_memory(tmp_path, server.base_url) as memory:
            await memory.add_messages(messages_from(("user", "Mark drinks")))
            await next_news(memory)
            await memory.add_messages(messages_from(("user", "Clouds! And forget Mark.")))
            notes = await next_news(memory)
    assert notes[0].startswith("forgotten, as asked (Mark)")
    assert sum(note.startswith("not kept") for note in notes) == 3
    assert "palimpsest jobs shows 3 more notes of this kind" in notes


async def test_a_job_that_only_forgot_does_not_say_that_there_is_nothing_new(tmp_path: Path) -> None:
    """Guards a reply that denies what it says in its next line. Once told, what was forgotten is quoted no more."""
    with OpenAIServer(scripted([facts("Mark drinks."), facts(forget="Mark")], keeps)) as server:
        async with learning_memory(tmp_path, server.base_url) as memory:
            await memory.add_messages(messages_from(("user", "Mark drinks")))
            await next_news(memory)
            await memory.add_messages(messages_from(("user", "Forget Mark.")))
            notes = await next_news(memory)
            with anyio.fail_after(TIMEOUT):
                while any(report.job.notes for report in await learning_jobs(memory)):
                    await anyio.lowlevel.checkpoint()
    assert any(note.startswith("forgotten, as asked (Mark)") for note in notes)
    assert not any("nothing new" in note for note in notes)


async def test_a_fact_that_holds_no_longer_is_told_as_such(tmp_path: Path) -> None:
    """A message of 2020 that arrives late is not "nothing new", and does not read as if it held."""

    def contradicts(_: dict[str, Any], stored: list[dict[str, Any]]) -> tuple[str, int | None]:
        return ("DELETE", stored[0]["id"]) if stored else ("ADD", None)

    rome, oslo = "User lives in Rome.", "User lives in Oslo."
    with OpenAIServer(scripted([facts(rome), facts(oslo)], contradicts)) as server:
        async with learning_memory(tmp_path, server.base_url) as memory:
            await memory.add_messages(
                messages_from({"role": "user", "content": "I live in Rome", "at": "2026-01-05T10:00:00Z"})
            )
            await next_news(memory)
            await memory.add_messages(
                messages_from({"role": "user", "content": "I live in Oslo", "at": "2020-01-05T10:00:00Z"})
            )
            assert await next_news(memory) == (f"learned from 1 message:\n- {oslo} (until 2026-01-05)",)


async def test_what_a_process_did_before_it_ended_is_told_by_the_next_one(tmp_path: Path) -> None:
    """The first half of a long job forgot something; the process ends while the model reads the second half."""
    was_asked, may_answer = threading.Event(), threading.Event()
    answers = scripted([facts("Mark drinks."), facts(forget="Mark"), facts(), facts("Alice has a cat.")], keeps)
    extractions = 0

    def held(request: dict[str, Any]) -> str | Reply:
        nonlocal extractions
        extractions += is_extraction(request)
        if is_extraction(request) and extractions == 3:
            was_asked.set()
            may_answer.wait(TIMEOUT)
        return answers(request)

    clock, gardens = HastyClock(), "All about gardens, hedges and ponds. " * 200
    with OpenAIServer(held) as server:
        async with learning_memory(tmp_path, server.base_url, clock) as memory:
            await memory.add_messages(messages_from(("user", "Mark drinks")))
            await next_news(memory)
            await memory.add_messages(messages_from(("user", f"Forget Mark. {gardens}"), ("user", f"A cat. {gardens}")))
            assert await anyio.to_thread.run_sync(was_asked.wait, TIMEOUT)
        may_answer.set()
        async with learning_memory(tmp_path, server.base_url, clock) as memory:
            learned, *remarks = await next_news(memory)
    assert learned == "learned from 2 messages:\n- Alice has a cat."
    assert any(note.startswith("forgotten, as asked (Mark)") for note in remarks)


async def test_the_first_failure_is_told_and_so_is_the_success_after_it(tmp_path: Path) -> None:
    """Between the first failure and the last lie hours, in which nobody would know."""
    replies = iter([Reply("no credit", status=402)])
    clock = StoppedClock()
    with OpenAIServer(lambda request: next(replies, None) or model(request)) as server:
        async with learning_memory(tmp_path, server.base_url, clock) as memory:
            await memory.add_messages(messages_from(("user", "I like tea")))
            await memory.care.retry_jobs()
            (note,) = await memory.news(ALICE)
            assert note.startswith("not learned yet from 1 message, which are kept: ")
            assert "no credit" in note
            assert "This is tried again after 2026-05-08T12:01:00Z" in note
            assert await memory.news(ALICE) == ()
            await memory.care.retry_jobs()
            assert await next_news(memory) == ("learned from 1 message:\n- Alice likes tea",)


@pytest.mark.nightly
async def test_news_wait_until_somebody_asks_for_them(tmp_path: Path) -> None:
    """However much is learned in other scopes meanwhile, and whatever is purged there."""
    garden = Scope("alice", "garden")
    with OpenAIServer(model) as server:
        async with learning_memory(tmp_path, server.base_url, StoppedClock()) as memory:
            await memory.add_messages(messages_from(("user", "I like figs"), scope=garden))
            await memory.care.retry_jobs()
            for number in range(KEPT_DONE + 2):
                await memory.add_messages(messages_from(("user", f"I like cake number {number}")))
                await memory.care.retry_jobs()
                await memory.news(ALICE)
            (cake, *_) = (await memory.search(ALICE, "cake number 1")).hits
            await memory.care.purge(ALICE, [cake.id])
            assert await memory.news(garden) == ("learned from 1 message:\n- Alice likes figs",)
