"""Of two names that are easily taken for each other the one that is asked for comes first, whatever helps the other."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.memory import ALICE, add_text, memory_in

pytestmark = pytest.mark.anyio

HELPED = {
    "invoice-sink drops duplicates and runs on port 7001": ("What does the invoice service do?", "invoice service"),
    "M.G. is allergic to latex": ("Which allergies does the patient have?", "patient allergy"),
}
PLAIN = ("invoice-sync copies invoices to the books at two", "M.C. is allergic to penicillin")


@pytest.mark.parametrize(
    ("question", "answer"), [("what does invoice-sync do?", PLAIN[0]), ("is M.C. allergic to anything?", PLAIN[1])]
)
async def test_the_name_that_is_asked_for_comes_first(tmp_path: Path, question: str, answer: str) -> None:
    """Guards compounds and initials against look-alikes that have hints."""
    async with memory_in(tmp_path) as memory:
        for text in PLAIN:
            await add_text(memory, text)
        for text, hints in HELPED.items():
            await add_text(memory, text, hints=hints)
        hits = (await memory.search(ALICE, question)).hits
        about = (await memory.search(ALICE, "allergies", filters={"entity": "M.C."})).hits
    assert hits[0].text == answer
    assert [hit.text for hit in about] == [PLAIN[1]]
