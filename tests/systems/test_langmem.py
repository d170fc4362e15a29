"""LangMem (documentation, "Core concepts"): when memory is formed, and of which kinds it is.

Memories are formed in the hot path, by tools that the agent calls, and in the background, by a manager that waits until
a conversation rests and then reads it at once. They are semantic (facts), episodic (what happened in a session) and
procedural (how to do it, from what worked and was corrected). The hot path is in `tests/server/scenarios.json`.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from loopback import OpenAIServer
from palimpsest.core.models import Scope
from palimpsest.hooks.events import find_brief
from tests.support.learning_jobs import do_due_jobs, learning_jobs, learning_memory
from tests.support.memory import ALICE, StoppedClock, add_text, memory_in, messages_from
from tests.support.scripted_model import add_all, answering, given, prompt_of

pytestmark = pytest.mark.anyio

OTTO = Scope("alice", agent_id="otto")

RULE = "Otto must write numbers of platforms as digits, as Yusra corrected on 2026-05-08."

# What is learned from what is said, with its tag.
LEARNED: dict[str, tuple[str, str]] = {
    "I play the bassoon in Malmö": ("Yusra plays the bassoon in Malmö.", "identity"),
    "No: write platform 4, not platform four": (RULE, "correction"),
    "The ferry page works once the date is set first": (
        "Otto reads the ferry page after setting the date first, which worked.",
        "solution",
    ),
    "The bus page gave no times": ("Otto could not read times from the bus page.", "failure"),
}


def extract(request: dict[str, Any]) -> dict[str, Any]:
    said = [item["text"] for item in given(request, "New messages")]
    learned = [(*LEARNED[text], place) for place, text in enumerate(said, 1) if text in LEARNED]
    return {"facts": [{"text": text, "sources": [place], "tags": [tag]} for text, tag, place in learned]}


def instruct(request: dict[str, Any]) -> dict[str, Any]:
    return {"summary": "\n".join(f"- {item['about']}: {item['text']}" for item in given(request, "Memories"))}


def tell(request: dict[str, Any]) -> dict[str, Any]:
    return {"summary": f"Yusra and Otto planned a journey in {len(given(request, 'Messages'))} turns."}


MANAGER = answering(extract_agent=extract, decide=add_all, procedures=instruct, session=tell)

SAID = (
    ("user", "I play the bassoon in Malmö"),
    ("assistant", "The train leaves from platform four"),
    ("user", "No: write platform 4, not platform four"),
    ("assistant", "The bus page gave no times"),
    ("assistant", "The ferry page works once the date is set first"),
    *(("user", f"And the connection of {hour} o'clock?") for hour in range(6, 21)),
)


async def test_the_background_reads_many_adds_in_one_call(tmp_path: Path) -> None:
    """Each add puts the work off; once the conversation rests, one call extracts from all of it, and one decides."""
    clock = StoppedClock()
    with OpenAIServer(MANAGER) as server:
        async with learning_memory(tmp_path, server.base_url, clock) as memory:
            for said in SAID:
                await memory.add_messages(messages_from(said, scope=OTTO, at=clock.at))
                clock.forward(seconds=2)
                await do_due_jobs(memory)
            assert server.chat_requests == [], "the conversation goes on"
            (report,) = await learning_jobs(memory)
            assert report.job.due_at - clock.at == timedelta(seconds=3), "five after the last turn"
            clock.forward(seconds=3)
            await do_due_jobs(memory)
            asked = [prompt_of(request) for request in server.chat_requests]
            assert asked == ["extract_agent", "decide"]
            assert len(given(server.chat_requests[0], "New messages")) == len(SAID)
            assert {hit.text for hit in (await memory.list(OTTO)).hits} == {text for text, _ in LEARNED.values()}


async def test_facts_sessions_and_procedures_come_from_one_conversation(tmp_path: Path) -> None:
    """Semantic memory answers a question, episodic memory tells the session, procedural memory what to do next time."""
    clock = StoppedClock()
    with OpenAIServer(MANAGER) as server:
        async with learning_memory(tmp_path, server.base_url, clock) as memory:
            await memory.add_messages(messages_from(*SAID, scope=OTTO, at=clock.at))
            clock.forward(minutes=1)
            await do_due_jobs(memory)
            (fact, *_) = (await memory.search(OTTO, "Which instrument does Yusra play?")).hits
            session = await memory.summary(OTTO, "session")
            procedures = await memory.summary(OTTO, "procedures")
            correction = next(hit for hit in (await memory.list(OTTO)).hits if hit.text == RULE)
            await memory.delete(OTTO, [correction.id])
            without = await memory.summary(OTTO, "procedures")
    assert fact.text == "Yusra plays the bassoon in Malmö."
    assert session.text.startswith(f"Yusra and Otto planned a journey in {len(SAID)} turns.\n- Yusra plays")
    rules = {
        f"- Instructions and corrections: {RULE}",
        "- What worked: Otto reads the ferry page after setting the date first, which worked.",
        "- What failed: Otto could not read times from the bus page.",
    }
    assert set(procedures.text.split("\n")) == rules
    assert correction.id in procedures.sources
    assert set(without.text.split("\n")) == rules - {f"- Instructions and corrections: {RULE}"}


async def test_procedures_head_the_brief_and_the_instructions_and_are_refined(tmp_path: Path) -> None:
    """Without a model, too: what was corrected comes first, and a procedure that failed gives way to its successor."""
    corrected = "Reports are sent as PDF files."
    async with memory_in(tmp_path) as memory:
        await add_text(memory, "The Rhine is 1,230 km long")
        fact = await add_text(
            memory, "Restarting the importer twice solved the deadlock", metadata={"tags": ["procedure"]}
        )
        await add_text(memory, corrected, metadata={"tags": ["correction"]})
        replaced = await memory.add_text(
            ALICE,
            "Deleting its lock file solved the deadlock",
            replaces=[fact],
            metadata={"tags": ["procedure"]},
        )
        await memory.briefs.render()
        brief = find_brief(str(memory.settings.data_dir), "alice", "/anywhere")
        history = await memory.history(ALICE, fact)
        instructions = await memory.briefs.instructions(ALICE)
    assert brief is not None
    assert "How to work, from experience:" in brief.text
    for text in (brief.text, instructions):
        said = [corrected, "lock file", "The Rhine"]
        assert [text.index(words) for words in said] == sorted(text.index(words) for words in said)
        assert "Restarting the importer twice" not in text
    assert "Restarting the importer twice" in str(history)
    assert history[0].superseded_by == replaced.outcomes[0].memory.id
