"""What sort of answer a question asks for, and whether a text can hold one."""

from __future__ import annotations

from collections.abc import Set

import pytest

from palimpsest.text.stopwords import AnswerType, asked_types, can_hold


@pytest.mark.parametrize(
    ("question", "asked"),
    [
        ("How many boxes are there?", {"number"}),
        ("What is her phone number?", {"number"}),
        ("When was Biscuit born?", {"time"}),
        ("Who teaches statistics?", {"person"}),
        ("Wie alt ist der Kater?", {"number"}),
        ("Wann hat Wiebke Geburtstag?", {"time"}),
        ("Wer leitet das Team?", {"person"}),
        ("Combien coûte le billet ?", {"number"}),
        ("Когда отпуск?", {"time"}),
        ("小学在哪里", frozenset[AnswerType]()),
        ("她的生日是什么时候", {"time"}),
        ("谁是组长", {"person"}),
        ("Where does she live?", frozenset[AnswerType]()),
        ("The whole team", frozenset[AnswerType]()),
    ],
)
def test_the_sort_of_answer_is_read_from_the_question_words(question: str, asked: Set[AnswerType]) -> None:
    """A question without such a word asks for nothing in particular."""
    assert asked_types(question) == asked


@pytest.mark.parametrize(
    ("text", "kind", "holds"),
    [
        ("The office has 12 desks", "number", True),
        ("The office has twelve desks", "number", True),
        ("The office is bright", "number", False),
        ("The exam is in March", "time", True),
        ("考试在三月", "time", True),
        ("The exam is hard", "time", False),
        ("the lead is Nadia", "person", True),
        ("组长是黄蕾", "person", True),
        ("the lead is on leave", "person", False),
        ("", "person", False),
    ],
)
def test_a_text_can_hold_an_answer_of_a_sort(text: str, kind: AnswerType, *, holds: bool) -> None:
    """Numbers and times are digits and words; a person has a capital letter, in scripts that have them."""
    assert can_hold(text, kind) is holds
