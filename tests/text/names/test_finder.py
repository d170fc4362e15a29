"""Names are found by what the text shows and by what is known, in any script."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from palimpsest.core.models import EntityType, NamedEntity
from palimpsest.text.names.known_names import MAX_CANDIDATES, name_candidates, told_self_name
from palimpsest.text.names.name_finder import find_names

CASES: dict[str, Any] = json.loads((Path(__file__).parent / "sentences.json").read_text("utf-8"))


def test_names_in_sentences() -> None:
    for text, names in CASES["sentences"].items():
        assert {entity.name: entity.type for entity in find_names(text, {})} == names, text


def test_names_that_programs_know() -> None:
    for text, names in CASES["of_programs"].items():
        assert [entity.name for entity in find_names(text, {})] == names, text


@pytest.mark.few_by_day(10)
@pytest.mark.parametrize("text", ["`" * 4000, "Ab /" * 1000, "A@" * 2000, "理L" * 2000, "«A " * 1300, "同事王" * 1300])
def test_hostile_texts_name_little(text: str) -> None:
    assert len(find_names(text, {})) <= 1


def test_sentences_of_somebody_who_had_not_seen_the_rules() -> None:
    """First, 14 of 60 words that name nothing were taken for names, and 11 of 60 names were missed."""
    cases = json.loads((Path(__file__).parent / "names.json").read_text("utf-8"))

    def found(text: str) -> list[str]:
        return [entity.name for entity in find_names(text, {})]

    taken = [case for case in cases["not_names"] if any(case["token"] in name for name in found(case["text"]))]
    missed = [case for case in cases["names"] if case["name"] not in found(case["text"])]
    assert taken == []
    assert len(missed) <= 6, missed


def test_a_known_name_that_is_part_of_a_longer_one_is_not_meant() -> None:
    known: dict[str, EntityType] = {"tom": "person", "ghent": "place", "stripe": "organization", "garcía": "person"}
    for text, names in CASES["part_of_longer"].items():
        assert [entity.name for entity in find_names(text, known)] == names, text


@pytest.mark.parametrize("long", ["https://example.org/" + "a/" * 200, "/srv/" + "b" * 300 + ".txt", "@" + "h" * 300])
def test_what_is_too_long_for_a_name_is_none(long: str) -> None:
    """Guards exports: a name of more than 256 characters cannot be imported."""
    assert [found.name for found in find_names(f"Ana Silva read {long} today", {})] == ["Ana Silva"]


def test_a_known_name_is_found() -> None:
    for text, key, name in CASES["known"]:
        assert key in name_candidates(text)
        assert NamedEntity(name, "person") in find_names(text, {key: "person"}), text
    assert find_names("she will come", {"will": "person"}) == [], "a common word needs its capital"
    assert find_names("she asked Will", {"will": "person"}) == [NamedEntity("Will", "person")]
    assert len(name_candidates("one two three four " * 10_000 + "山" * 10_000)) <= MAX_CANDIDATES


def test_a_text_that_only_says_what_the_user_is_called_tells_the_name() -> None:
    for text, name in CASES["own_names"].items():
        assert told_self_name(text) == name, text
