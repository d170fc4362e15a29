"""What somebody has several of at a time: the one that is asked for comes first, and not the one told last."""

from __future__ import annotations

from pathlib import Path

import pytest

from palimpsest.core.models import Relation
from tests.support.memory import ALICE, StoppedClock, add_text, memory_in

pytestmark = pytest.mark.anyio

TOLD = (
    ("Tom is allergic to nuts", ("Tom", "is allergic to", "nuts")),
    ("Tom speaks Portuguese", ("Tom", "speaks", "Portuguese")),
    ("Tom's sister is Ida", ("Ida", "is sister of", "Tom")),
    ("Tom is allergic to latex", ("Tom", "is allergic to", "latex")),
    ("Tom speaks Greek", ("Tom", "speaks", "Greek")),
    ("Tom's sister is Bea", ("Bea", "is sister of", "Tom")),
)


@pytest.mark.parametrize("has_relations", [True, False])
@pytest.mark.parametrize(
    ("question", "answer"),
    [("Is Tom allergic to nuts?", 0), ("does Tom speak Portuguese?", 1), ("who is Ida", 2), ("who is Bea", 5)],
)
async def test_the_value_that_is_asked_for_comes_first(
    tmp_path: Path, question: str, answer: int, *, has_relations: bool
) -> None:
    """Guards against taking a second allergy, language or sister for an update."""
    clock = StoppedClock()
    async with memory_in(tmp_path, clock) as memory:
        for text, relation in TOLD:
            clock.forward(days=10)
            await add_text(memory, text, relations=[Relation(*relation)] if has_relations else ())
        hits = (await memory.search(ALICE, question)).hits
    assert hits[0].text == TOLD[answer][0]
