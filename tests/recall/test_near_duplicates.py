"""Which memories an add names because the new one repeats or contradicts them."""

from __future__ import annotations

from pathlib import Path

import pytest

from palimpsest.memory import Memory
from tests.support.memory import ALICE, StoppedClock, memory_in

pytestmark = pytest.mark.anyio

OFFICE = "The team's office is at Hohlstrasse 188 in Zurich"
LIFE = (OFFICE, "User drinks no coffee after noon", "The printer is on the second floor", "User's cat is called Miso")


async def named(memory: Memory, text: str) -> list[str]:
    """Add a text, and return the texts of the memories that the reply names."""
    result = await memory.add_text(ALICE, text, infer=False)
    return [item.memory.text for item in result.similar.get(result.outcomes[0].memory.id, ())]


async def fill(memory: Memory, clock: StoppedClock) -> None:
    """Store a life, a day before the clock's time."""
    for text in LIFE:
        assert await named(memory, text) == []
    clock.forward(days=1)


async def test_the_memory_that_a_new_one_replaces_is_named(tmp_path: Path) -> None:
    """The new text is about the same matter and says that it has changed. Nothing else is named."""
    clock = StoppedClock()
    async with memory_in(tmp_path, clock=clock) as memory:
        await fill(memory, clock)
        assert await named(memory, "Since March the team's office is at Technoparkstrasse 3 in Winterthur") == [OFFICE]


@pytest.mark.few_by_day(1)
@pytest.mark.parametrize("again", [f"{OFFICE}.", OFFICE.replace(" ", "  "), f"{OFFICE} !"])
async def test_punctuation_and_white_space_make_no_difference(tmp_path: Path, again: str) -> None:
    """What says the same is found to be the same: it is not stored twice, or the first one is named."""
    clock = StoppedClock()
    async with memory_in(tmp_path, clock=clock) as memory:
        await fill(memory, clock)
        result = await memory.add_text(ALICE, again, infer=False)
        outcome = result.outcomes[0]
        similar = result.similar.get(outcome.memory.id, ())
        assert outcome.duplicate_of is not None or [(i.memory.text, i.likeness) for i in similar] == [(OFFICE, 1.0)]


async def test_an_unrelated_memory_names_nothing(tmp_path: Path) -> None:
    """A new subject contradicts nothing, however small the memory is."""
    clock = StoppedClock()
    async with memory_in(tmp_path, clock=clock) as memory:
        await fill(memory, clock)
        assert await named(memory, "Lina has violin lessons on Tuesdays") == []
