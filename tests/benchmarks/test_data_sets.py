"""The data sets of the benchmarks are what their descriptions say."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from measures.hand_written import data_file
from measures.look_alikes import COUNT, FAMILIES, Family
from measures.personas import Persona, read_personas

FILES = ("everyday", "lives", "cross_language")
PERSONAS = [persona for name in FILES for persona in read_personas([data_file(name)])]


def name_of(value: Persona | Family) -> str:
    return value.name if isinstance(value, Persona) else f"{value.language} {value.name}"


@pytest.mark.parametrize("persona", PERSONAS, ids=name_of)
def test_every_answer_and_every_update_is_a_fact_of_the_persona(persona: Persona) -> None:
    """Guards the hand-written ids: a wrong one would count as a miss of the search."""
    named = [*(question.answers for question in persona.questions), *persona.updates]
    assert {fact for facts in named for fact in facts} <= set(persona.texts)
    assert all(question.answers for question in persona.questions)


@pytest.mark.parametrize("persona", PERSONAS, ids=name_of)
def test_the_newer_fact_of_an_update_is_newer(persona: Persona) -> None:
    """Guards the order of the pairs, from which "newer first" is derived."""
    dates = {fact.id: fact.at for fact in persona.facts}
    assert all(dates[older] < dates[newer] for older, newer in persona.updates)


@pytest.mark.parametrize("persona", PERSONAS, ids=name_of)
def test_facts_and_questions_occur_once(persona: Persona) -> None:
    """Guards the numbers of questions: one that occurs twice would count twice."""

    def repeated(texts: Sequence[str]) -> set[str]:
        return {text for text in texts if texts.count(text) > 1}

    assert repeated([fact.text for fact in persona.facts]) == set()
    assert repeated([*(question.text for question in persona.questions), *persona.unknown]) == set()


@pytest.mark.parametrize("family", FAMILIES, ids=name_of)
def test_the_look_alikes_of_a_family_are_distinct_and_have_digits_or_not(family: Family) -> None:
    """Guards the templates: each text must have one right answer, also in lower case and without its full stop."""
    texts = family.texts()
    assert len({text.lower().rstrip(".。") for text in texts}) == COUNT
    assert {any(letter.isdigit() for letter in text) for text in texts} == {family.has_digits}
