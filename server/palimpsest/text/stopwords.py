"""Function words, words of change and answer types, by language."""

import unicodedata
from collections.abc import Sequence
from typing import Literal, TypeAlias, get_args

from palimpsest.text.word_lists import headed, patterns, word_sets

_WORDS = word_sets("palimpsest.text", "stopwords.txt")
_RE = patterns("palimpsest.text", "stopwords.txt")


# Function words by language: articles, pronouns, prepositions, conjunctions, auxiliaries, question words and
# particles.
#
# They build a sentence and say nothing about its subject. A question is searched without them, because in a small
# collection they are rare enough to look significant.

FUNCTION_WORDS = headed(_WORDS, "function words ")
ALL_FUNCTION_WORDS = frozenset[str]().union(*FUNCTION_WORDS.values())

# Words by which a memory is asked, and not what it is asked about: "What do you know about Lina?" is about Lina.
ASKING_WORDS = _WORDS["asking"]

# A question counts as another language than English only if it has this many of its function words.
#
# One is not enough: many short words, such as "die" and "me", are function words of several languages.
MIN_FOREIGN_WORDS = 2


def is_denial(text: str) -> bool:
    """Return whether a text denies something."""
    return _RE["negation"].search(_RE["in the"].sub("", text) if is_portuguese(text) else text) is not None


def is_portuguese(text: str) -> bool:
    """Return whether a text is surely Portuguese, where "no" is "in the"."""
    return _RE["portuguese"].search(text) is not None


def without_function_words(words: Sequence[str]) -> list[str]:
    """Return the words of a question without its function words, or all of them if it has no other words.

    `words` are case-folded and not stemmed. The language is the one with the most function words in the question.
    """
    counts = function_word_counts(words)
    best = max(counts, key=lambda language: counts[language])
    is_foreign = counts[best] >= MIN_FOREIGN_WORDS and counts[best] > counts["en"]
    function_words = FUNCTION_WORDS[best if is_foreign else "en"]
    return [word for word in words if word not in function_words] or list(words)


def function_word_counts(words: Sequence[str]) -> dict[str, int]:
    """Return how many of some words are function words of each language."""
    return {language: sum(word in known for word in words) for language, known in FUNCTION_WORDS.items()}


# Words that say that something has changed, and words that ask for how it was before, by language.
#
# The first are signs that a new fact replaces an older one: "since", "moved", "no longer". The second turn the order
# of two such facts around: "before", "used to", "originally".

_CHANGE_WORDS = headed(_WORDS, "change words ")
_ALL_CHANGE_WORDS = frozenset[str]().union(*_CHANGE_WORDS.values())


def change_words(text: str) -> int:
    """Return how many different words of a text say that something has changed."""
    plain = _RE["no change"].sub(" ", _plain(text))
    words = set(_RE["word"].findall(plain))
    # Chinese and Japanese have no spaces: characters and pairs of them.
    signs = 0 if plain.isascii() else sum(sign in plain for sign in _WORDS["change signs"])
    signs += _RE["from a day"].search(plain) is not None
    if _ALL_CHANGE_WORDS.isdisjoint(words):
        return signs
    return max(len(words & known) for known in _CHANGE_WORDS.values()) + signs


def has_words_of_the_past(question: str) -> bool:
    """Return whether a question has a word for how something was before it changed."""
    plain = _plain(question)
    words = _RE["word"].findall(plain)
    return not _WORDS["past words"].isdisjoint(words) or _RE["past signs"].search(plain) is not None


# What sort of answer a question asks for, and whether a text can hold one: a number or a time.
#
# "When was Biscuit born?" cannot be answered by a text without a date. Question words of the languages of the
# function words, of Chinese and of Japanese are known; any other question asks for nothing in particular.

AnswerType: TypeAlias = Literal["number", "time"]


def asked_types(question: str) -> frozenset[AnswerType]:
    """Return what sorts of answer a question asks for."""
    plain = _plain(question)
    return frozenset(kind for kind in get_args(AnswerType) if _RE[f"asks {kind}"].search(plain))


def can_hold(text: str, kind: AnswerType) -> bool:
    """Return whether a text, less the words of the question, can hold an answer of a sort."""
    return bool(_RE[f"can hold {kind}"].search(_plain(text)))


def _plain(text: str) -> str:
    return unicodedata.normalize("NFKC", text).casefold()
