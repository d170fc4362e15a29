"""The measures of `quality.py` count what they say, on a small persona in a real store."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from measures.everyday import everyday
from measures.near_duplicates import near_duplicates
from measures.tables import ALL
from measures.unknown import ASKED, Answers, unknown

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
    answered, current = await everyday([file], EMBEDDER, by_persona=True)
    assert answered.figures["direct"] == {"n": 1, "first": 1, "among 3": 1}
    assert answered.figures["multi"]["among 3"] == 1
    assert answered.figures["paraphrase"]["first"] == 0
    assert answered.figures["ada"] == answered.figures["en"] == answered.figures[ALL]
    assert current.figures[ALL] == {"n": 1, "newer first": 1}
    assert any("paraphrase" in miss and "Porto" in miss for miss in answered.misses)


@pytest.mark.anyio
async def test_unknown_counts_the_questions_of_both_sorts(file: Path) -> None:
    """Guards the two numbers that the shares of `unknown` are of."""
    (table,) = await unknown([file], EMBEDDER)
    row = table.figures["alone"]
    assert (row["answerable"], row["far-off"]) == (len(PERSONA["questions"]), ASKED)


def test_the_area_under_the_curve_is_the_share_of_pairs_in_the_right_order() -> None:
    """Guards the AUC, and the share of far-off questions below a threshold that hardly any answerable one is below."""
    answers = Answers([(0.9, True), (0.8, True), (0.5, True), (0.3, False)], [(0.5, True), (0.1, False)])
    row = answers.row()
    assert row["AUC"] == pytest.approx((2 + 2 + 1.5 + 1) / 8)
    assert (row["far-off told"], row["answerable told"], row["far-off at 2%"]) == (1 / 2, 1 / 4, 1 / 2)


@pytest.mark.anyio
async def test_near_duplicates_finds_the_pair_and_knows_what_was_said_before(file: Path) -> None:
    """Guards recall, and that a full stop, case and white space make no difference."""
    (table,) = await near_duplicates([file], EMBEDDER)
    row = table.figures[ALL]
    assert (row["pairs"], row["recall"], row["repeated"]) == (1, 1, 1)
