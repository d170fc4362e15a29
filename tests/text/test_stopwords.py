"""Words of change and of the past, and what sort of answer a question asks for."""

from __future__ import annotations

from palimpsest.text.stopwords import AnswerType, asked_types, asks_for_the_past, can_hold, change_words

CHANGES = """
Since March the office is in Winterthur
User no longer drinks coffee
Die Probe ist jetzt mittwochs
Le bureau a déménagé à Lyon
La oficina se trasladó a Sevilla
L'ufficio si è trasferito a Torino
O escritório mudou para o Porto
Het kantoor is verhuisd naar Utrecht
Kontoret har flyttat till Lund
Biuro przeniosła do Gdańska
Офис переехал в Казань
办公室搬到了深圳
事務所は大阪に移った
"""

PAST = """
Where was the office before the move?
Which laptop did I use to have previously?
Where did we used to live?
Wo war das Büro vor dem Umzug?
Où était le bureau avant ?
Где был офис раньше?
搬家之前我住在哪里
"""

ASKED: dict[str, set[AnswerType]] = {
    "How many boxes are there?": {"number"},
    "What is her phone number?": {"number"},
    "When was Biscuit born?": {"time"},
    "Who teaches statistics?": {"person"},
    "Wie alt ist der Kater?": {"number"},
    "Wann hat Wiebke Geburtstag?": {"time"},
    "Wer leitet das Team?": {"person"},
    "Combien coûte le billet ?": {"number"},
    "Когда отпуск?": {"time"},
    "小学在哪里": set(),
    "她的生日是什么时候": {"time"},
    "谁是组长": {"person"},
    "Where does she live?": set(),
    "The whole team": set(),
}

HOLDING: tuple[tuple[str, AnswerType, bool], ...] = (
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
)


def test_words_of_change_are_counted_once_each() -> None:
    for text in CHANGES.strip().splitlines():
        assert change_words(text) >= 1, text
    for text in ("The office is in Zurich", "User likes tea", "Das Auto ist blau", "猫很黑", ""):
        assert change_words(text) == 0, text
    assert change_words("now, now and NOW") == 1
    assert change_words("She moved and now commutes") == 2


def test_questions_about_the_past_are_recognized() -> None:
    for question in PAST.strip().splitlines():
        assert asks_for_the_past(question), question
    for question in ("Where is the office?", "Wo ist das Büro?", "现在住在哪里", ""):
        assert not asks_for_the_past(question), question


def test_the_sort_of_answer_is_read_from_the_question_words() -> None:
    for question, asked in ASKED.items():
        assert asked_types(question) == asked, question
    for text, kind, holds in HOLDING:
        assert can_hold(text, kind) is holds, text
