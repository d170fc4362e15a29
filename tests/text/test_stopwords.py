"""Words of change and of the past, and what sort of answer a question asks for."""

from __future__ import annotations

from collections.abc import Set

import pytest

from palimpsest.text.stopwords import AnswerType, asked_types, asks_for_the_past, can_hold, change_words


@pytest.mark.parametrize(
    "text",
    [
        "Since March the office is in Winterthur",
        "User no longer drinks coffee",
        "Die Probe ist jetzt mittwochs",
        "Le bureau a déménagé à Lyon",
        "La oficina se trasladó a Sevilla",
        "L'ufficio si è trasferito a Torino",
        "O escritório mudou para o Porto",
        "Het kantoor is verhuisd naar Utrecht",
        "Kontoret har flyttat till Lund",
        "Biuro przeniosła do Gdańska",
        "Офис переехал в Казань",
        "办公室搬到了深圳",
        "事務所は大阪に移った",
    ],
)
def test_a_change_is_recognized(text: str) -> None:
    """Each language has words that say that something has changed."""
    assert change_words(text) >= 1


@pytest.mark.parametrize("text", ["The office is in Zurich", "User likes tea", "Das Auto ist blau", "猫很黑", ""])
def test_a_plain_statement_is_no_change(text: str) -> None:
    """What merely is so has no word of change."""
    assert change_words(text) == 0


def test_each_word_counts_once() -> None:
    """Saying a word twice does not make a change more certain."""
    assert change_words("now, now and NOW") == 1
    assert change_words("She moved and now commutes") == 2


@pytest.mark.parametrize(
    ("question", "past"),
    [
        ("Where was the office before the move?", True),
        ("Which laptop did I use to have previously?", True),
        ("Where did we used to live?", True),
        ("Wo war das Büro vor dem Umzug?", True),
        ("Où était le bureau avant ?", True),
        ("Где был офис раньше?", True),
        ("搬家之前我住在哪里", True),
        ("Where is the office?", False),
        ("Wo ist das Büro?", False),
        ("现在住在哪里", False),
        ("", False),
    ],
)
def test_questions_about_the_past_are_recognized(question: str, *, past: bool) -> None:
    """Such a question asks for the older of two facts."""
    assert asks_for_the_past(question) is past


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
