"""The benchmarks count what they say: measures on a small persona, data sets, made-up vectors, a fair comparison."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from compare import served
from embedders import mixed, model_rss, open_named
from measures.everyday import everyday
from measures.hand_written import data_file, read_data
from measures.near_duplicates import near_duplicates
from measures.personas import Persona, read_personas
from measures.tables import ALL
from measures.unknown import ASKED, Answers, unknown
from peers.systems import PREFIXES

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
async def test_unknown_counts_the_questions_of_both_sorts(file: Path) -> None:
    """Guards the two numbers that the shares of `unknown` are of."""
    (table,) = await unknown([file], EMBEDDER)
    row = table.figures["alone"]
    assert (row["answerable"], row["far-off"]) == (len(PERSONA["questions"]), ASKED)


def test_the_shares_of_unknown_are_those_of_results_without_confidence() -> None:
    row = Answers([True, True, True, False], [True, False]).row()
    assert (row["far-off told"], row["answerable told"]) == (1 / 2, 1 / 4)


@pytest.mark.anyio
async def test_near_duplicates_finds_the_pair(file: Path) -> None:
    (table,) = await near_duplicates([file], EMBEDDER)
    row = table.figures[ALL]
    assert (row["pairs"], row["recall"]) == (1, 1)


FILES = ("everyday", "lives", "cross_language")
PERSONAS = [persona for name in FILES for persona in read_personas([data_file(name)])]


@pytest.mark.parametrize("persona", PERSONAS, ids=lambda persona: persona.name)
def test_a_persona_names_its_own_facts_once_and_the_newer_one_is_newer(persona: Persona) -> None:
    """Guards the hand-written data: a wrong id would count as a miss of the search, a question twice as two."""
    named = [*(question.answers for question in persona.questions), *persona.updates]
    assert {fact for facts in named for fact in facts} <= set(persona.texts)
    assert all(question.answers for question in persona.questions)
    dates = {fact.id: fact.at for fact in persona.facts}
    assert all(dates[older] < dates[newer] for older, newer in persona.updates)
    asked = [*(question.text for question in persona.questions), *persona.unknown]
    for texts in ([fact.text for fact in persona.facts], asked):
        assert len({*texts}) == len(texts)


@pytest.mark.parametrize(
    "family", read_data("look_alikes"), ids=lambda family: f"{family['language']} {family['name']}"
)
def test_the_look_alikes_of_a_family_are_distinct_and_have_digits_or_not(family: dict[str, Any]) -> None:
    """Guards the texts: each must have one right answer, also in lower case and without its full stop."""
    texts = family["texts"]
    assert len({text.lower().rstrip(".。") for text in texts}) == 60
    assert {any(letter.isdigit() for letter in text) for text in texts} == {family["has_digits"]}


def test_mixtures_are_distinct_unit_vectors_that_begin_with_the_given_ones() -> None:
    """Guards the sizes of the benchmarks of speed: an index with equal vectors would be another one."""
    given = np.eye(7, dtype=np.float32)
    vectors = mixed(given, 49)
    assert np.allclose(vectors[:7], given)
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1)
    assert len({vector.tobytes() for vector in vectors}) == len(vectors)


@pytest.mark.nightly
def test_the_memory_of_a_process_grows_by_its_embedder() -> None:
    """Guards that the share of the model is measured in a process that has it."""
    assert model_rss("static", ["The key is under the mat."]) > 0


def test_marked_texts_are_embedded_as_questions_and_as_passages() -> None:
    """Guards a fair comparison: the mark says how to embed a text and is not a part of it."""
    embedder = open_named("static")
    embed = served(embedder)
    text = "The key is under the mat."
    assert np.allclose(embed([PREFIXES["query"] + text]), [embedder.embed_queries([text])[0]])
    assert np.allclose(embed([PREFIXES["passage"] + text]), embedder.embed_passages([text]))
