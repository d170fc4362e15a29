"""What the next reply says of work in the background: nothing that matters is left out, and nothing is told wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from loopback import OpenAIServer
from tests.learn.decisions import Items, ids_of, scripted
from tests.support.learning_jobs import (
    TIMEOUT,
    HastyClock,
    learning_jobs,
    learning_memory,
    memory_learning,
    next_news,
)
from tests.support.memory import messages_from
from tests.support.scripted_model import facts_reply, is_extraction
from tests.support.slow_model import HeldModel

pytestmark = pytest.mark.anyio


def keeps(facts: Items, memories: Items) -> list[tuple[Any, ...]]:
    """Forget what names Mark, find trivia not worth keeping, and add the rest."""
    decisions: list[tuple[Any, ...]] = []
    for fact in facts:
        if "forget" in fact:
            decisions += [(fact["fact"], "DELETE", number, "") for number in ids_of(memories, "Mark")[:1]]
        else:
            decisions.append((fact["fact"], "NONE" if "trivia" in fact["text"] else "ADD", None, None))
    return decisions


async def test_what_was_forgotten_is_told_first_and_once(tmp_path: Path) -> None:
    trivia = [f"Some trivia about cloud number {number}." for number in range(6)]
    replies = [
        facts_reply("Mark drinks."),
        facts_reply(forget="Mark"),
        facts_reply("Mark sings."),
        facts_reply(*trivia, forget="Mark"),
    ]
    async with memory_learning(scripted(replies, keeps), tmp_path) as (memory, _):
        told: list[tuple[str, ...]] = []
        for text in ("Mark drinks", "Forget Mark.", "Mark sings", "Clouds! And forget Mark."):
            await memory.add_messages(messages_from(("user", text)))
            told.append(await next_news(memory))
            with anyio.fail_after(TIMEOUT):
                while len(told) == 2 and any(report.job.notes for report in await learning_jobs(memory)):
                    await anyio.lowlevel.checkpoint()
    _, only_forgot, _, notes = told
    assert any(note.startswith("forgotten, as asked (Mark)") for note in only_forgot)
    assert not any("nothing new" in note for note in only_forgot)
    assert notes[0].startswith("forgotten, as asked (Mark)")
    assert sum(note.startswith("not kept") for note in notes) == 3
    assert "palimpsest jobs shows 3 more notes of this kind" in notes


async def test_what_a_process_did_before_it_ended_is_told_by_the_next_one(tmp_path: Path) -> None:
    replies = [facts_reply("Mark drinks."), facts_reply(forget="Mark"), facts_reply(), facts_reply("Alice has a cat.")]
    answers = scripted(replies, keeps)
    held = HeldModel(answers, lambda request: is_extraction(request) and held.extractions == 3)
    clock, gardens = HastyClock(), "All about gardens, hedges and ponds. " * 200
    with OpenAIServer(held) as server:
        async with learning_memory(tmp_path, server.base_url, clock) as memory:
            await memory.add_messages(messages_from(("user", "Mark drinks")))
            await next_news(memory)
            await memory.add_messages(messages_from(("user", f"Forget Mark. {gardens}"), ("user", f"A cat. {gardens}")))
            await held.wait()
        held.may_answer.set()
        async with learning_memory(tmp_path, server.base_url, clock) as memory:
            learned, *remarks = await next_news(memory)
    assert learned == "learned from 2 messages:\n- Alice has a cat."
    assert any(note.startswith("forgotten, as asked (Mark)") for note in remarks)


async def test_a_fact_that_holds_no_longer_is_told_as_such(tmp_path: Path) -> None:
    """A message of 2020 that arrives late is not "nothing new", and does not read as if it held."""
    rome, oslo = "User lives in Rome.", "User lives in Oslo."
    contradicts = scripted([facts_reply(rome), facts_reply(oslo)], lambda _, __: [(0, "DELETE", 0, None)])
    async with memory_learning(contradicts, tmp_path) as (memory, _):
        for text, year in (("I live in Rome", 2026), ("I live in Oslo", 2020)):
            said = {"role": "user", "content": text, "at": f"{year}-01-05T10:00:00Z"}
            await memory.add_messages(messages_from(said))
            notes = await next_news(memory)
    assert notes == (f"learned from 1 message:\n- {oslo} (until 2026-01-05)",)
