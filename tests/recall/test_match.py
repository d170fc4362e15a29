"""What the score of a hit and its reasons mean, and what a question asks for as it is written."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from palimpsest.memory import Memory
from palimpsest.recall.query import exact_form, exact_parts, look_alikes, said_match, text_match
from palimpsest.text.dates.date_finder import dates_in
from tests.support.memory import ALICE, add_text, memory_in

pytestmark = pytest.mark.anyio

FAR_OFF = "Which verdict did the tribunal give on the stolen reindeer herd?"
HERD = ("The tribunal ordered the stolen reindeer to be given back", "ruling in a case of rustled animals")

LIFE = (
    "User lives in a small flat in Lyon near the river",
    "User's daughter Lina plays the violin",
    "User works as a nurse on night shifts",
    "User is allergic to peanuts",
    "The dentist appointment is on 3 March 2026",
    "User's brother Tom runs a bakery in Bristol",
)
REMEMBERED = (
    *LIFE,
    "Deploys to production happen on Tuesdays and Thursdays, never on a Friday",
    "The billing database is Postgres 16 and runs on port 5433",
    "Marta reviews every change to the payment code",
    "The staging server is reset every night at 3 o'clock",
    "The team decided to replace Redis with a table in Postgres",
    "User's mother Helga turns seventy on 4 May 2027",
    "User runs every Sunday morning along the river with Jonas",
    "Jonas moved to Hamburg in the autumn and works at a hospital",
    "User reads mostly science fiction, and likes Ursula Le Guin best",
    "The kitchen was painted green in spring",
    "User plans to visit Lisbon with Lina in the summer holidays",
    "Lina is afraid of dogs",
    "Lina's best friend is Emma",
    "Lina loves strawberry ice cream",
)

IN_OTHER_WORDS = (
    "What do you know about Lina?",
    "facts about Lina",
    "Was weißt du über Lina?",
    "Which days may we release?",
    "What food must I avoid?",
    "mum's birthday",
    "favourite author",
)

FAR_OFF_QUESTIONS = {
    FAR_OFF: HERD,
    "Who was the first emperor of the Ming dynasty?": ("Zhu Yuanzhang founded the Ming dynasty", "Chinese emperors"),
    "Wie entsteht ein Polarlicht?": ("Polarlichter entstehen durch Sonnenwind", "aurora borealis"),
}


async def fill(memory: Memory, *texts: str) -> None:
    for text in texts:
        await add_text(memory, text)
    await memory.care.rebuild()


@pytest.mark.parametrize("embedder", ["static", "local"])
async def test_an_answer_is_not_called_weak_and_what_is_far_off_is(tmp_path: Path, embedder: str) -> None:
    async with memory_in(tmp_path, embedder={"provider": embedder}) as memory:
        await fill(memory, *REMEMBERED)
        weak = [question for question in IN_OTHER_WORDS if (await memory.search(ALICE, question)).is_weak]
        assert weak == []
        far_off = FAR_OFF_QUESTIONS.items()
        sure = [asked for asked, also in far_off if not (await memory.search(ALICE, asked, also=also)).is_weak]
        assert sure == []


async def test_all_that_a_filter_leaves_is_not_called_weak(memory: Memory) -> None:
    """Whoever narrows a search to a few memories wants these, in whatever words they ask. All of them are shown."""
    await fill(memory, *LIFE)
    for number in range(7):
        await add_text(memory, f"Rule {number}: lint before a commit", metadata={"area": "work"})
    await memory.care.rebuild()
    narrowed = await memory.search(ALICE, FAR_OFF, also=HERD, filters={"area": "work"})
    assert (len(narrowed.hits), narrowed.is_weak, narrowed.confident) == (7, False, False)
    assert (await memory.search(ALICE, FAR_OFF, also=HERD, filters={"area": "work"}, limit=6)).is_weak
    assert (await memory.search(ALICE, FAR_OFF, also=HERD, filters={"area": "work"}, max_tokens=50)).is_weak
    for filters in ({}, {"kind": "memory"}, {"created_at": {"gte": "2000-01-01"}}):
        wide = await memory.search(ALICE, FAR_OFF, also=HERD, filters=filters)
        assert wide.is_weak
        assert len(wide.hits) == 5


def test_what_is_asked_for_as_it_is_written() -> None:
    for question in ("What was in 2022?", "on the 3rd floor", "tea and/or coffee", "User's wife", "10 km", "#general"):
        assert exact_parts(question) == (), question
    assert [name for name, _ in look_alikes("does invoice-sync know M.C.?")] == [" invoice sync ", " m c "]
    assert exact_parts("Is LDG-1117 in `app.py`, v2?") == (" app py ", " ldg 1117 ", " v2 ")
    assert " 0612345678 " in exact_form("call 0612 345 678 or 06 12")


TODAY = datetime(2026, 5, 8, 12, tzinfo=UTC)
DATES: dict[str, list[Any]] = json.loads(Path(__file__).with_name("date_matches.json").read_text("utf-8"))


def test_how_well_dates_agree() -> None:
    for query, at, expected in DATES["said"]:
        found = said_match(dates_in(query, TODAY), datetime.fromisoformat(at).replace(tzinfo=UTC))
        assert found == expected, (query, at)
    for query, text, at, expected in DATES["told"]:
        in_text = dates_in(text, datetime.fromisoformat(at).replace(tzinfo=UTC), guesses=True)
        assert text_match(dates_in(query, TODAY, guesses=True), in_text) == expected, (query, text)
