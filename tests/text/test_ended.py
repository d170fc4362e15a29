"""Which texts say that something has ended, words of change and of the past, and what answer a question asks for."""

from __future__ import annotations

import json
from pathlib import Path

from palimpsest.text.relation_updates import may_have_several, says_ended, without_times
from palimpsest.text.stopwords import AnswerType, asked_types, asks_for_the_past, can_hold, change_words

LEAST_FOUND = 8
"""Of 22 pairs that somebody else wrote, of which a newer text ends the older one."""

ENDED = """
Ida is allergic to hazelnuts | It turned out Ida is allergic to walnuts, not hazelnuts
Takes coffee black | Takes oat milk in coffee now
Flies to Cremona on 4 December | The Cremona trip is cancelled
Jonas works for Volvo | Jonas has resigned
Eats meat every day | Is vegetarian since May
We have a sailing boat | We sold the boat
Uses Jenkins for CI | We no longer use Jenkins
Lives in Wels | Moved to Salzburg
Has a meeting on Friday | The meeting on Friday is called off
The gym membership costs 40 | I cancelled the gym membership
Bo plays the cello | Bo gave up the cello
Jonas is engaged to Lena | Jonas has broken off the engagement
Ida is engaged to Bo | Ida broke off the engagement
Jonas is engaged to Lena | The engagement of Jonas was broken off
Tom is dating Ida | Tom broke up with Ida
"""

BOTH_HOLD = """
Jonas likes chess | Jonas sold the boat
Ana lives in Lyon with Tom | Tom moved to Salzburg
Ana is vegetarian | Bo eats meat
Ana is allergic to cats | Ana is not allergic to dogs
Tom drinks tea | Tom drinks coffee
Ana works at Siemens | Ana visited Volvo
Uses Postgres | Never use Mongo with Postgres
Jonas is engaged to Lena | Jonas broke off a piece of chocolate
Tom is dating Ida | Tom broke up the old patio
Priya is the team lead | Tomas left the team in February
The model predicts who leaves within 90 days | The blackout left a gap of 11 hours
The router 3 is reset with the reset hole | The router 5 has no reset hole
Her student number is 4711 | She plays left back for the student team
"""


def test_what_ended_is_known_and_what_holds_beside_is_left_alone() -> None:
    for lines, is_ended in ((ENDED, True), (BOTH_HOLD, False)):
        for line in lines.strip().splitlines():
            older, newer = line.split(" | ")
            assert says_ended(newer, older) is is_ended, line


def test_somebody_elses_pairs_that_both_hold_are_left_alone() -> None:
    """`ended_cases.json` was written without sight of the rules, which see a third: the rest is seen by likeness."""
    cases: list[dict[str, str]] = json.loads(Path(__file__).with_name("ended_cases.json").read_text("utf-8"))
    found = [case for case in cases if says_ended(case["new"], case["old"])]
    assert [case for case in found if case["relation"] == "compatible"] == []
    assert len(found) >= LEAST_FOUND


def test_two_times_of_one_meeting_are_told_from_two_things() -> None:
    same = (
        ("Band practice is on Wednesdays at 19:00", "Band practice is every Thursday at 7 pm"),
        ("Standup is at 9:15.", "Standup has been moved to 10:00"),
        ("Die Probe ist mittwochs um 19 Uhr", "Die Probe ist jetzt donnerstags um 20 Uhr"),
        ("The service is deployed every weekday", "The service is deployed on Tuesdays and Thursdays only"),
    )
    other = (
        ("Invoice 88124 was paid", "Invoice 88125 was paid"),
        ("Runs on version 3.11", "Runs on version 3.12"),
        ("Standup is at 9:15", "Retro is at 16:00"),
    )
    assert all(without_times(one) == without_times(two) for one, two in same)
    assert not any(without_times(one) == without_times(two) for one, two in other)
    assert may_have_several("Tom is allergic to nuts")
    assert not may_have_several("Tom lives in Wels")


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
