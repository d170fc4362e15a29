"""The benchmarks count what they say: measures on a small persona, data sets, made-up vectors, a fair comparison."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from measures.everyday import everyday
from measures.hand_written import FOLDER, data_file, read_data
from measures.near_duplicates import near_duplicates
from measures.personas import read_personas
from measures.tables import ALL

EMBEDDER = "static"
PERSONA = {
    "persona": "ada",
    "about": "Two cities and a cat",
    "language": "en",
    "facts": [
        {"id": "f1", "text": "Ada lives in Porto.", "at": "2026-03-01"},
        {"id": "f2", "text": "Ada lives in Lisbon.", "at": "2026-05-01"},
        {"id": "f3", "text": "The cat Grace sleeps on the piano.", "at": "2026-04-01"},
    ],
    "questions": [
        {"q": "In which city does Ada live?", "answers": ["f2"], "kind": "update"},
        {"q": "Where does the cat sleep?", "answers": ["f3"], "kind": "direct"},
        {"q": "Where do Ada and the cat live and sleep?", "answers": ["f2", "f3"], "kind": "multi"},
        {"q": "Where does the cat sleep at night?", "answers": ["f1"], "kind": "paraphrase"},
    ],
    "unknown": ["Which bank is Ada with?"],
    "updates": [["f1", "f2"]],
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "personas.json"
    path.write_text(json.dumps([PERSONA]), "utf-8")
    return path


@pytest.mark.anyio
async def test_everyday_counts_the_first_hit_and_the_share_of_the_answers_among_three(file: Path) -> None:
    """Guards the two figures of the table. One question has a wrong answer on purpose, which must count as a miss."""
    answered, current = await everyday([file], EMBEDDER)
    assert answered.figures["direct"] == {"n": 1, "first": 1, "among 3": 1}
    assert answered.figures["multi"]["among 3"] == 1
    assert answered.figures["paraphrase"]["first"] == 0
    assert answered.figures["en"] == answered.figures[ALL]
    assert current.figures[ALL] == {"n": 1, "newer first": 1}
    assert any("paraphrase" in miss and "Porto" in miss for miss in answered.misses)


@pytest.mark.anyio
async def test_near_duplicates_finds_the_pair(file: Path) -> None:
    (table,) = await near_duplicates([file], EMBEDDER)
    row = table.figures[ALL]
    assert (row["pairs"], row["recall"]) == (1, 1)


def test_a_persona_names_its_own_facts_once_and_the_newer_one_is_newer() -> None:
    """Guards the hand-written data: a wrong id would count as a miss of the search, a question twice as two."""
    files = [data_file(name) for name in ("everyday", "lives", "cross_language")]
    for persona in read_personas(files):
        named = [*(question.answers for question in persona.questions), *persona.updates]
        assert {fact for facts in named for fact in facts} <= set(persona.texts), persona.name
        assert all(question.answers for question in persona.questions), persona.name
        dates = {fact.id: fact.at for fact in persona.facts}
        assert all(dates[older] < dates[newer] for older, newer in persona.updates), persona.name
        asked = [*(question.text for question in persona.questions), *persona.unknown]
        for texts in ([fact.text for fact in persona.facts], asked):
            assert len({*texts}) == len(texts), persona.name
    for week in read_data("weeks")["weeks"]:
        pairs = [(number, text.get("changes", 1)) for number, text in enumerate(week["texts"], start=1)]
        assert all(older < newer for newer, older in pairs[1:])
    files = sorted((FOLDER / "stored").glob("*.txt"))
    assert files
    for file in files:
        # "12 | 5 | text": what an agent stored as its twelfth text makes the fifth out of date; "~5" only seems to.
        for block in file.read_text("utf-8").strip().split("\n\n"):
            for number, line in enumerate(block.splitlines()[1:], start=1):
                own, older, _ = line.split(" | ", maxsplit=2)
                assert int(own) == number
                assert older == "-" or 0 < int(older.lstrip("~")) < number, line
    for family in read_data("look_alikes"):
        # Each must have one right answer, also in lower case and without its full stop.
        assert len({text.lower().rstrip(".。") for text in family["texts"]}) == 60
        assert {any(letter.isdigit() for letter in text) for text in family["texts"]} == {family["has_digits"]}
