"""What sort of answer a question asks for, and whether a text can hold one: a number, a time, or a person.

"When was Biscuit born?" cannot be answered by a text without a date. Question words of the languages of the function
words, of Chinese and of Japanese are known; any other question asks for nothing in particular.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Literal, TypeAlias

AnswerType: TypeAlias = Literal["number", "time", "person"]

_QUESTION_PHRASES: dict[AnswerType, str] = {
    "number": """how many, how much, how old, how long, how big, how far, how often, how tall, how large, how high,
        how fast, phone, telephone, extension, price, salary, isbn, postcode, zip code, wie viel, wie viele,
        wie alt, wie lange, wie hoch, wie groß, wie oft, wie weit, kostet, telefonnummer, durchwahl, preis,
        gehalt, combien, cuánto, cuánta, cuántos, cuántas, quanto, quanta, quanti, quante, quantos, quantas,
        hoe veel, hoeveel, hoe oud, hoe lang, hoe vaak, hur många, hur mycket, hur gammal, hur länge, hur
        ofta, ile, сколько""",
    "time": """when, what time, what date, which day, what day, birthday, wann, uhrzeit, geburtstag, quand, à
        quelle heure, anniversaire, cuándo, a qué hora, cumpleaños, quando, a che ora, compleanno,
        aniversário, wanneer, hoe laat, verjaardag, när, födelsedag, kiedy, o której, urodziny, когда, день
        рождения""",
    "person": """who, whom, whose, wer, wem, wen, wessen, qui, quién, quiénes, chi, quem, wie is, vem, kto, кто,
        кого, кому""",
}
_QUESTION_SIGNS: dict[AnswerType, str] = {
    "number": "多少 几 幾 多大 多久 多长 号码 价格 工资 月薪 いくつ いくら 何人 何個 電話番号 値段",
    "time": "什么时候 何时 哪天 几点 几号 生日 いつ 何時 誕生日",
    "person": "谁 誰 だれ",
}
"""The same in Chinese and Japanese, which have no spaces."""

_ANSWER_WORDS: dict[AnswerType, str] = {
    "number": """one two three four five six seven eight nine ten eleven twelve fifteen twenty thirty forty fifty
        hundred half once twice double daily weekly every eins zwei drei vier fünf sechs sieben acht neun
        zehn elf zwölf zwanzig dreißig halb einmal zweimal jede jeden jeder jedes""",
    "time": """january february march april may june july august september october november december monday tuesday
        wednesday thursday friday saturday sunday noon midnight morning evening night week weekend month
        year spring summer autumn winter easter christmas daily weekly mondays tuesdays wednesdays thursdays
        fridays saturdays sundays januar februar märz mai juni juli oktober dezember montag montags dienstag
        dienstags mittwoch mittwochs donnerstag donnerstags freitag freitags samstag samstags sonntag
        sonntags mittag mittags morgens abends nachts woche monat jahr frühling sommer herbst ostern
        weihnachten""",
}
_ANSWER_SIGNS: dict[AnswerType, str] = {
    "number": "一二三四五六七八九十百千万两半每",
    "time": "年月日号點点周週星期春夏秋冬早晚夜午",
}
"""Characters of Chinese and Japanese that numbers and times are written with."""

_FIRST_LETTER = re.compile(r"[^\W\d_]")


def _asking(kind: AnswerType) -> re.Pattern[str]:
    phrases = [re.escape(" ".join(phrase.split())) for phrase in _QUESTION_PHRASES[kind].split(",")]
    return re.compile(rf"\b(?:{'|'.join(phrases)})\b|{'|'.join(_QUESTION_SIGNS[kind].split())}")


def _answering(kind: AnswerType) -> re.Pattern[str]:
    return re.compile(rf"\d|\b(?:{'|'.join(_ANSWER_WORDS[kind].split())})\b|[{_ANSWER_SIGNS[kind]}]")


_ASKS: dict[AnswerType, re.Pattern[str]] = {kind: _asking(kind) for kind in _QUESTION_PHRASES}
_ANSWERS: dict[AnswerType, re.Pattern[str]] = {kind: _answering(kind) for kind in _ANSWER_WORDS}


def asked_types(question: str) -> frozenset[AnswerType]:
    """Return what sorts of answer a question asks for."""
    plain = _plain(question)
    return frozenset(kind for kind, pattern in _ASKS.items() if pattern.search(plain))


def can_hold(text: str, kind: AnswerType) -> bool:
    """Return whether a text, less the words of the question, can hold an answer of a sort.

    A person has a capital letter. Scripts without capital letters can always hold one.
    """
    if kind == "person":
        letters = [word[0] for word in text.split() if _FIRST_LETTER.match(word)]
        return any(letter.isupper() or not (letter.isupper() or letter.islower()) for letter in letters)
    return bool(_ANSWERS[kind].search(_plain(text)))


def _plain(text: str) -> str:
    return unicodedata.normalize("NFKC", text).casefold()
