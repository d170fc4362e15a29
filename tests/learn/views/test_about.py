"""What is known about one entity: from the ledger alone, and as a model's text that rests on it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import pytest

from palimpsest.core.models import Decision, Event, Fact, NamedEntity, Relation
from palimpsest.learn.summaries.dossier import MAX_TOKENS
from palimpsest.memory import Memory
from palimpsest.text.tokenizer import count_tokens
from tests.support.ledger_access import write_decisions
from tests.support.memory import ALICE, memory_in
from tests.support.scripted_model import memory_with

pytestmark = pytest.mark.anyio

ANA = NamedEntity("Ana", "person")


async def test_it_stays_within_its_tokens_and_says_what_is_left_out(tmp_path: Path) -> None:
    """Guards the agent's context from somebody of whom a lot is known, and what somebody's safety depends on."""
    facts = [
        Fact(
            f"Ana met person number {number} and {'they talked for a while, ' * 4}about the weather",
            entities=(ANA, NamedEntity(f"person {number}", "person")),
            relations=(Relation("Ana", "met", f"person {number}"),),
        )
        for number in range(150)
    ]
    facts.insert(30, Fact("Ana is allergic to penicillin", entities=(ANA,)))
    async with memory_in(tmp_path) as memory:
        write_decisions(memory, *(Decision(Event.ADD, fact) for fact in facts))
        result = await memory.summary(ALICE, "about:Ana")
    text = result.text
    assert count_tokens(text) <= MAX_TOKENS + 20  # the counts of what was left out
    assert text.splitlines()[2].endswith("Ana is allergic to penicillin")
    assert "person number 149 " in text
    assert text.count(" more)") == 2
    assert "person number 0 " in text.split("(between these ")[1], "who she is was said first"
    assert result.is_cut


async def test_a_change_while_the_model_writes_is_not_lost(tmp_path: Path) -> None:
    """Guards against a text that was outdated before it was returned."""
    opened: list[Memory] = []

    def chat(_: dict[str, Any]) -> str:
        write_decisions(opened[0], Decision(Event.ADD, Fact("Ana sings", entities=(ANA,))))
        return json.dumps({"about": "Ana runs a bakery."})

    async with memory_with(chat, tmp_path) as (memory, _):
        opened.append(memory)
        write_decisions(memory, Decision(Event.ADD, Fact("Ana runs a bakery", entities=(ANA,))))
        with anyio.fail_after(30):
            result = await memory.summary(ALICE, "about:Ana")
    assert "Ana sings" in result.text
    assert "memories changed while the text was written" in result.notes[0]
