"""Text to search tokens, in any language, and to a count of model tokens.

The tokens are what the full-text index holds. They contain no ASCII punctuation and no white space, so the
index can store them joined by spaces and take every other character as part of a token.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from itertools import pairwise
from typing import Any, cast

import snowballstemmer  # pyright: ignore[reportMissingTypeStubs] - it ships none

from palimpsest.text.stopwords import is_english, without_function_words

MAX_TOKEN_CHARS = 64
"""Longer runs (hashes, base64) are cut: nobody searches them whole."""

_LANGUAGES = {
    "LATIN": "english",
    "CYRILLIC": "russian",
    "ARABIC": "arabic",
    "GREEK": "greek",
    "DEVANAGARI": "hindi",
    "ARMENIAN": "armenian",
}
"""One stemmer a script. Latin takes English for every language: a query and a text in the same language are
stemmed alike, which is all that matching needs."""

_STEMMERS = {script: cast("Any", snowballstemmer).stemmer(language) for script, language in _LANGUAGES.items()}

_FOLDED_MARKS = ("LATIN", "GREEK", "ARABIC", "HEBREW")
"""Scripts whose readers drop the marks when they type. Elsewhere a mark makes another letter."""

_ARABIC_PREFIX = re.compile("^[\u0648\u0641]?(?:[\u0628\u0643]?\u0627\u0644|\u0644\u0644)(?=..)")
"""The article, alone or with "and", "so", "in", "like" or "to" before it."""

_ARABIC_VOWELS = frozenset("\u0627\u0623\u0625\u0622\u0648\u064a\u0649\u0629\u0621\u0624\u0626")
MIN_CONSONANTS = 2

_CYRILLIC_VOWELS = re.compile(
    "[\u0430\u0435\u0438\u043e\u0443\u044b\u044d\u044e\u044f\u0439\u044c\u044a\u0456\u0457\u0454]"
)
"""With the signs that only soften or part; a stem of some forms has one of them that another has not."""

_UNSPACED = (
    (0x0E00, 0x0EFF),  # Thai, Lao
    (0x1000, 0x109F),  # Myanmar
    (0x1780, 0x17FF),  # Khmer
    (0x3005, 0x3007),
    (0x3040, 0x30FF),  # Hiragana, Katakana
    (0x3400, 0x4DBF),
    (0x4E00, 0x9FFF),  # Han
    (0xAC00, 0xD7AF),  # Hangul: spaced, but words carry their particles
    (0xF900, 0xFAFF),
    (0x20000, 0x3FFFF),
)

_MARKS = "".join(chr(c) for c in range(0x0300, 0x1CFF) if unicodedata.category(chr(c)) in ("Mn", "Mc"))
_WORD = re.compile(rf"(?:[^\W_]|[{re.escape(_MARKS)}])+")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def search_tokens(text: str) -> list[str]:
    """Return the search tokens of a text, in order and with repetitions.

    Words are case-folded and stemmed by script; text written without spaces becomes pairs of characters,
    and Han characters stand alone besides; `camelCase` gives its parts besides the whole.
    """
    return [token for word in _words(text) for token in _tokens_of(word)]


def query_tokens(text: str) -> list[str]:
    """Return the search tokens of a question: those of the words that say what it is about."""
    words = _words(text)
    about = set(without_function_words([word.casefold() for word in words]))
    return [token for word in words if word.casefold() in about for token in _tokens_of(word)]


def query_words(text: str) -> dict[str, list[str]]:
    """Return the words of a question that say what it is about, as they are but for case, with their tokens."""
    words = [word.casefold() for word in _words(text)]
    return {word: found for word in without_function_words(words) if (found := _tokens_of(word))}


def is_english_query(text: str) -> bool:
    """Say whether a question is English, as far as its function words tell."""
    return is_english([word.casefold() for word in _words(text)])


def _words(text: str) -> list[str]:
    return [match.group() for match in _WORD.finditer(unicodedata.normalize("NFKC", text))]


def _tokens_of(word: str) -> list[str]:
    found: list[str] = []
    for run, unspaced in _runs(word):
        if unspaced:
            found.extend(a + b for a, b in pairwise(run))
            found.extend(char for char in run if len(run) == 1 or "\u4e00" <= char <= "\u9fff")
            continue
        run = run[:MAX_TOKEN_CHARS]  # noqa: PLW2901 - the run as it is to be used
        found.extend(_stems(run.casefold()))
        parts = _CAMEL.split(run)
        if len(parts) > 1:
            found.extend(_stem(part.casefold()) for part in parts)
    return [token for token in found if token]


def folded(text: str) -> str:
    """Return a text in lower case without the marks that stand on letters."""
    lowered = text.casefold()
    if lowered.isascii():
        return lowered
    plain = unicodedata.normalize("NFKD", lowered)
    return unicodedata.normalize("NFKC", "".join(char for char in plain if unicodedata.category(char) != "Mn"))


def is_cyrillic(token: str) -> bool:
    """Say whether a token is written in Cyrillic."""
    return not token.isascii() and _script(token) == "CYRILLIC"


def is_inflected(one: str, other: str) -> bool:
    """Say whether two Cyrillic stems differ in one fleeting vowel only, which comes and goes from case to case."""
    if abs(len(one) - len(other)) > 1:
        return False
    bare = _CYRILLIC_VOWELS.sub("", one)
    return len(bare) >= MIN_CONSONANTS and bare == _CYRILLIC_VOWELS.sub("", other)


def count_tokens(text: str) -> int:
    """Estimate how many tokens a language model makes of a text.

    Four ASCII characters count one token and every other character one: within about a fifth of the
    common byte-pair tokenizers for English, and above them for other scripts.
    """
    ascii_chars = sum(1 for char in text if char.isascii())
    return -(-ascii_chars // 4) + len(text) - ascii_chars


def _runs(word: str) -> list[tuple[str, bool]]:
    """Split a word where it changes between spaced and unspaced script."""
    if word.isascii():
        return [(word, False)]
    runs: list[tuple[str, bool]] = []
    start = 0
    kinds = [_is_unspaced(char) for char in word]
    for i in range(1, len(word) + 1):
        if i == len(word) or kinds[i] != kinds[start]:
            runs.append((word[start:i], kinds[start]))
            start = i
    return runs


def _is_unspaced(char: str) -> bool:
    code = ord(char)
    return code >= _UNSPACED[0][0] and any(low <= code <= high for low, high in _UNSPACED)


@lru_cache(maxsize=16_384)
def _stems(word: str) -> tuple[str, ...]:
    """Return what a word is searched by: its stem, and for an Arabic one its consonants too.

    Arabic makes plurals inside the word, which no stemmer undoes; the consonants mostly stay.
    """
    stem = _stem(word)
    if word.isascii() or _script(word) != "ARABIC":
        return (stem,)
    bare = _ARABIC_PREFIX.sub("", "".join(char for char in word if unicodedata.category(char) != "Mn"))
    consonants = "".join(char for char in bare if char not in _ARABIC_VOWELS)
    return (stem, consonants) if len(consonants) >= MIN_CONSONANTS and consonants != stem else (stem,)


@lru_cache(maxsize=16_384)
def _stem(word: str) -> str:
    script = "LATIN" if word.isascii() else _script(word)
    if script in _FOLDED_MARKS and not word.isascii():
        decomposed = unicodedata.normalize("NFKD", word)
        word = "".join(char for char in decomposed if unicodedata.category(char) != "Mn")
    elif script == "CYRILLIC":
        word = word.replace("\u0451", "\u0435")  # yo is mostly written ye
    stemmer = _STEMMERS.get(script)
    if stemmer is None:
        return word
    stem = str(stemmer.stemWord(word))
    # A Russian noun that ends like a case of another loses that; once more, its own cases lose it too.
    return str(stemmer.stemWord(stem)) if script == "CYRILLIC" else stem


def _script(word: str) -> str:
    """Name the script of a word's first letter, as Unicode's character names begin."""
    letter = next((char for char in word if char.isalpha()), "")
    return unicodedata.name(letter, "").split(" ", 1)[0] if letter else ""
