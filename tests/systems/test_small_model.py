"""A real model that is far too small: whatever it replies, nothing is lost and nothing hangs.

It is SmolLM2 with 135 million parameters, which a package brings, behind llama.cpp. `.ci/nightly` installs both.
"""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import anyio
import pytest

from palimpsest.core.models import Undo
from palimpsest.memory import Memory
from tests.support.memory import ALICE, llm_settings, memory_in, memory_texts, messages_from
from tests.support.small_model import small_model

pytestmark = [pytest.mark.anyio, pytest.mark.nightly]

SAID = (
    ("user", "I moved to Bern in April, and my dog Pixel is allergic to chicken."),
    ("assistant", "Noted. How does Pixel like Bern?"),
    ("user", "Very much. We walk along the Aare every morning."),
)

# Of this the model makes a fact, and asks over and over to forget something from the examples of the prompt.
SHORT = (("user", "My name is Alice and I live in Bern."),)


# Seconds in which a call must have ended on a machine that does other work: far longer than the model takes.
MINUTES = 600.0


@pytest.fixture(scope="module")
def url() -> Generator[str]:
    """Run the model."""
    with small_model() as base_url:
        yield base_url


async def kept(memory: Memory) -> list[str]:
    """Return the texts of Alice's messages, in the order in which they were said."""
    page = await memory.list(ALICE, filters={"kind": "message"})
    return [hit.text for hit in reversed(page.hits)]


async def test_nonsense_in_the_right_form_loses_nothing(url: str, tmp_path: Path) -> None:
    llm = llm_settings(url, timeout=MINUTES, max_tokens=300, temperature=0.0)
    with anyio.fail_after(MINUTES):
        async with memory_in(tmp_path, llm=llm) as memory:
            result = await memory.add_messages(messages_from(*SHORT))
            assert (result.kept_messages, await kept(memory)) == (len(SHORT), [text for _, text in SHORT])
            assert len(set(result.notes)) == len(result.notes)
            found = await memory.search(ALICE, "Where does Alice live?", filters={"kind": "message"})
            assert SHORT[0][1] in {hit.text for hit in found.hits}
            before = await memory_texts(memory)
            log = await memory.log(ALICE, limit=100)
            assert sorted(outcome.memory.text for outcome in result.outcomes if outcome.event == "ADD") == before
            for edit in (edit for edit in log if any(step.kind == "memory" for step in edit.steps)):
                await memory.undo(ALICE, Undo(edit=edit.number))
            assert await memory_texts(memory) == []
            assert (await memory.health())["ledger"] == "ok"


async def test_cut_replies_lose_nothing(url: str, tmp_path: Path) -> None:
    """A reply of 64 tokens ends in the middle of its JSON."""
    llm = llm_settings(url, timeout=MINUTES, max_tokens=64)
    with anyio.fail_after(MINUTES):
        async with memory_in(tmp_path, llm=llm) as memory:
            result = await memory.add_messages(messages_from(*SAID))
            assert (result.kept_messages, await kept(memory)) == (len(SAID), [text for _, text in SAID])
            added = await memory.add_text(ALICE, "Alice plays the viola")
            assert added.outcomes
            assert "Alice plays the viola" in " ".join(await memory_texts(memory))


async def test_slow_replies_lose_nothing(url: str, tmp_path: Path) -> None:
    """The model takes seconds. Calls end long before, and what was said is learned from later."""
    llm = llm_settings(url, timeout=0.5)
    async with memory_in(tmp_path, llm=llm) as memory:
        with anyio.fail_after(MINUTES):
            result = await memory.add_messages(messages_from(*SAID))
            summary = await memory.summary(ALICE, refresh=True)
        assert (result.kept_messages, result.is_learning, await kept(memory)) == (3, True, [text for _, text in SAID])
        assert "did not answer in time" in result.notes[0]
        assert summary.is_plain
        assert (await memory.health())["ledger"] == "ok"
