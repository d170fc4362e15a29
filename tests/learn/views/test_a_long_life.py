"""A life of 300 days: what was told once and is lasting is carried on, and what a model is sent stays bounded."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from palimpsest.core.models import Decision, Event, Fact
from palimpsest.learn.job_runner import work_on_jobs
from palimpsest.learn.summaries.summary_kinds import MAX_SOURCE_TOKENS
from palimpsest.learn.summaries.summary_writer import DueSummaries
from palimpsest.text.tokenizer import count_tokens
from tests.support.ledger_access import write_decisions
from tests.support.memory import ALICE, StoppedClock
from tests.support.scripted_model import memory_with

pytestmark = pytest.mark.anyio

DAYS = 300
LASTING = {
    3: "User is allergic to penicillin",
    21: "User's daughter is named Ottoline",
    42: "User lives in Porto",
    171: "User lives in Lyon",
}
"""What is told once, by the day. On day 171 the user has moved, which corrects what was told on day 42."""

USED, FULL = 3, 21
"""Every so many days the user says something, and every so many days much, so that the day has a summary."""

CHATTER = "User spent day {day} on item {item}: " + "it was pleasant, took {item} hours, and cost little; " * 4
"""What passes. All of it is more than one prompt has room for."""

LASTS = re.compile(r"User(?: is allergic to \w+|'s daughter is named \w+| lives in \w+)")

PROMPT_TOKENS = MAX_SOURCE_TOKENS + 2_000
"""What a prompt may have: its material, and the instructions, the last summary and JSON around it."""


class Diarist:
    """A model that keeps what is lasting of what it is given, and of the rest the last words. It knows nothing else."""

    def __init__(self) -> None:
        self.calls = 0
        self.largest = 0

    def __call__(self, request: dict[str, Any]) -> str:
        """Return the summary."""
        self.calls += 1
        self.largest = max(self.largest, sum(count_tokens(message["content"]) for message in request["messages"]))
        given = request["messages"][1]["content"]
        lasting = list(dict.fromkeys(LASTS.findall(given)))
        return json.dumps(
            {"summary": f"{'. '.join(lasting)}. Otherwise a day like others, of {len(given)} characters."}
        )


@pytest.mark.nightly
async def test_what_was_told_once_is_in_the_summary_after_300_days(tmp_path: Path) -> None:
    """Guards what is old but lasting: an allergy, a child's name. And calls and prompts do not grow with the life."""
    clock, diarist, said = StoppedClock(), Diarist(), dict[int, str]()
    async with memory_with(diarist, tmp_path, clock) as (memory, _):
        due, model = DueSummaries(memory.engine), memory.engine.model
        for day in range(USED, DAYS + 1, USED):
            facts = [Fact(CHATTER.format(day=day, item=item)) for item in range(1, 21 if day % FULL == 0 else 2)]
            if day in LASTING:
                facts.append(Fact(LASTING[day]))
            outcomes = write_decisions(memory, *(Decision(Event.ADD, fact) for fact in facts)).outcomes
            said[day] = outcomes[-1].memory.id
            if day == 171:
                await memory.delete(ALICE, [said[42]])
            await due.after_write(ALICE)
            clock.forward(days=USED)
            while await work_on_jobs(memory.engine, model) and await due.after_write(ALICE):
                clock.at += timedelta(minutes=2)
        text = (await memory.summary(ALICE)).text
    assert "allergic to penicillin" in text
    assert "daughter is named Ottoline" in text
    assert "lives in Lyon" in text
    assert "Porto" not in text, "what was corrected is not carried on"
    assert diarist.largest <= PROMPT_TOKENS
    assert diarist.calls <= DAYS / 4
