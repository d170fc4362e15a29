"""Function words, words of change and answer types, by language."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import Literal, TypeAlias

from palimpsest.text.word_lists import word_lists

_LISTS = word_lists("palimpsest.text", "stopwords.txt")

# Function words by language: articles, pronouns, prepositions, conjunctions, auxiliaries, question words and
# particles.
#
# They build a sentence and say nothing about its subject. A question is searched without them, because in a small
# collection they are rare enough to look significant.

FUNCTION_WORDS: dict[str, frozenset[str]] = {
    language: frozenset(words.split())
    for language, words in {
        "en": _LISTS["function words en"],
        "de": _LISTS["function words de"],
        "fr": _LISTS["function words fr"],
        "es": _LISTS["function words es"],
        "it": _LISTS["function words it"],
        "pt": _LISTS["function words pt"],
        "nl": _LISTS["function words nl"],
        "sv": _LISTS["function words sv"],
        "pl": _LISTS["function words pl"],
        "ru": _LISTS["function words ru"],
    }.items()
}

_ASKING = _LISTS["asking"]
ASKING_WORDS = frozenset(_ASKING.split())
"""Words by which a memory is asked, and not what it is asked about: "What do you know about Lina?" is about Lina."""

_NEGATION = re.compile(
    r"\b(?:no|not|never|none|cannot|stopped|avoid|don|doesn|didn|isn|aren|won|nicht|nie|niemals|kein\w{0,2}|pas|jamais|plus|aucune?"
    r"|nunca|jamás|non|mai|nessun\w?|não|jamais|niet|nooit|geen|inte|aldrig|ingen|nie|nigdy|не|нет|никогда|никаких)\b"
    r"|n['\u2019]t\b|不|没有|沒有|ない|ません|안 |않",
    re.IGNORECASE,
)
"""Words by which a sentence denies something, in the languages above and some others."""

MIN_FOREIGN_WORDS = 2
"""A question counts as another language than English only if it has this many of its function words.

One is not enough: many short words, such as "die" and "me", are function words of several languages."""


def is_denial(text: str) -> bool:
    """Return whether a text denies something."""
    return _NEGATION.search(text) is not None


def without_function_words(words: Sequence[str]) -> list[str]:
    """Return the words of a question without its function words, or all of them if it has no other words.

    `words` are case-folded and not stemmed. The language is the one with the most function words in the question.
    """
    function_words = FUNCTION_WORDS[_language_of(words)]
    return [word for word in words if word not in function_words] or list(words)


def is_english(words: Sequence[str]) -> bool:
    """Return whether a question has English function words, and no other language has more of them."""
    return _language_of(words) == "en" and any(word in FUNCTION_WORDS["en"] for word in words)


def _language_of(words: Sequence[str]) -> str:
    counts = {
        language: sum(word in function_words for word in words) for language, function_words in FUNCTION_WORDS.items()
    }
    best = max(counts, key=lambda language: counts[language])
    return "en" if counts[best] < MIN_FOREIGN_WORDS or counts[best] <= counts["en"] else best


# Words that say that something has changed, and words that ask for how it was before, by language.
#
# The first are signs that a new fact replaces an older one: "since", "moved", "no longer". The second turn the order
# of two such facts around: "before", "used to", "originally".

CHANGE_WORDS: dict[str, frozenset[str]] = {
    language: frozenset(words.split())
    for language, words in {
        "en": _LISTS["change words en"],
        "de": _LISTS["change words de"],
        "fr": _LISTS["change words fr"],
        "es": _LISTS["change words es"],
        "it": _LISTS["change words it"],
        "pt": _LISTS["change words pt"],
        "nl": _LISTS["change words nl"],
        "sv": _LISTS["change words sv"],
        "pl": _LISTS["change words pl"],
        "ru": _LISTS["change words ru"],
    }.items()
}

CHANGE_SIGNS = (
    *_LISTS["change signs"].split(),
    *("辞", "今は", "から", "もう"),
)
"""The same in Chinese and Japanese, which have no spaces: characters and pairs of them."""

PAST_WORDS = frozenset(_LISTS["past words"].split())

PAST_SIGNS = (
    *("used to", "vor dem ", "vor der ", "à l'origine", "до того"),
    *("以前", "之前", "原来", "原本", "曾", "从前", "前は", "かつて", "もともと", "元々"),
)

_WORD = re.compile(r"[^\W\d_]+")


def change_words(text: str) -> int:
    """Return how many different words of a text say that something has changed."""
    plain = unicodedata.normalize("NFKC", text).casefold()
    words = set(_WORD.findall(plain))
    signs = 0 if plain.isascii() else sum(sign in plain for sign in CHANGE_SIGNS)
    if _ALL_CHANGE_WORDS.isdisjoint(words):
        return signs
    return max(len(words & known) for known in CHANGE_WORDS.values()) + signs


_ALL_CHANGE_WORDS = frozenset[str]().union(*CHANGE_WORDS.values())


def asks_for_the_past(question: str) -> bool:
    """Return whether a question asks how something was before it changed."""
    plain = unicodedata.normalize("NFKC", question).casefold()
    return not PAST_WORDS.isdisjoint(_WORD.findall(plain)) or any(sign in plain for sign in PAST_SIGNS)


# What sort of answer a question asks for, and whether a text can hold one: a number, a time, or a person.
#
# "When was Biscuit born?" cannot be answered by a text without a date. Question words of the languages of the
# function words, of Chinese and of Japanese are known; any other question asks for nothing in particular.

AnswerType: TypeAlias = Literal["number", "time", "person"]

_QUESTION_PHRASES: dict[AnswerType, str] = {
    "number": _LISTS["question phrases number"],
    "time": _LISTS["question phrases time"],
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
    "number": _LISTS["answer words number"],
    "time": _LISTS["answer words time"],
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
