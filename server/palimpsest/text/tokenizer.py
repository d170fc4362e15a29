"""Split text in any language into search tokens, estimate token counts, and cut long texts into windows."""

import re
import unicodedata
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from functools import cache, lru_cache
from itertools import accumulate, pairwise
from threading import Lock
from typing import Any, cast

import snowballstemmer  # pyright: ignore[reportMissingTypeStubs] - it ships none

from palimpsest.text.stopwords import ASKING_WORDS, without_function_words
from palimpsest.text.word_lists import patterns

# Split text in any language into search tokens, and estimate its token count for language models.
#
# Search tokens are the entries of the full-text index. They contain no ASCII punctuation and no white space, so the
# index can store them joined by spaces and treat every other character as part of a token.

# Longer runs of letters and digits, such as hashes and base64, are cut. Nobody searches for them in full.
MAX_TOKEN_CHARS = 64

# The stemmer for each script. The English stemmer serves every language in Latin script: it treats a query and a text
# in the same language alike, and matching needs no more than that.
_LANGUAGES = {
    "LATIN": "english",
    "CYRILLIC": "russian",
    "ARABIC": "arabic",
    "GREEK": "greek",
    "DEVANAGARI": "hindi",
    "ARMENIAN": "armenian",
}

_STEMMERS = {name: cast("Any", snowballstemmer).stemmer(name) for name in (*_LANGUAGES.values(), "german")}

# A stemmer keeps the word it works on, so two threads at once would get parts of each other's words.
_STEMMER_LOCK = Lock()

# Scripts whose users leave out the marks when they type. In other scripts a mark makes another letter.
_FOLDED_MARKS = ("LATIN", "GREEK", "ARABIC", "HEBREW")

# The Arabic article, alone or with "and", "so", "in", "like" or "to" before it.
_ARABIC_PREFIX = re.compile("^[\u0648\u0641]?(?:[\u0628\u0643]?\u0627\u0644|\u0644\u0644)(?=..)")

_ARABIC_VOWELS = frozenset("\u0627\u0623\u0625\u0622\u0648\u064a\u0649\u0629\u0621\u0624\u0626")

# Fewer consonants are too common to identify a word.
MIN_CONSONANTS = 2

# The characters of scripts without spaces between words, for a character class of a regular expression.
UNSPACED_CHARS = (
    # Thai and Lao; Myanmar; Khmer; Hiragana and Katakana; Hangul is spaced, but words carry their particles; Han
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\uac00-\ud7af"
    "\u3005-\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
)

_UNSPACED_RUN = re.compile(f"[{UNSPACED_CHARS}]+")
_RUN = re.compile(f"([{UNSPACED_CHARS}]+)|[^{UNSPACED_CHARS}]+")
_MARKS = "".join(chr(c) for c in range(0x0300, 0x1CFF) if unicodedata.category(chr(c)) in ("Mn", "Mc"))
_WORD = re.compile(rf"(?:[^\W_]|[{re.escape(_MARKS)}])+")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def search_tokens(text: str) -> list[str]:
    """Return the search tokens of a text, in order and with repetitions.

    Words are case-folded and stemmed by script. Text without spaces between words becomes pairs of adjacent characters;
    each Han character is also a token of its own. `camelCase` becomes the whole identifier and its parts.
    """
    return [token for word in _words(text) for token in _tokens_of(word)]


def query_tokens(text: str) -> list[str]:
    """Return the search tokens of a question, without those of its function words."""
    words = _words(text)
    content_words = set(without_function_words([word.casefold() for word in words]))
    return [token for word in words if word.casefold() in content_words for token in _tokens_of(word)]


def subject_tokens(words: Iterable[str]) -> frozenset[str]:
    """Return what a question is about, of its search tokens without function words: those by which nobody just asks."""
    return frozenset(words) - _asking_tokens()


@cache
def _asking_tokens() -> frozenset[str]:
    return frozenset(token for word in ASKING_WORDS for token in search_tokens(word))


def _words(text: str) -> list[str]:
    return _WORD.findall(unicodedata.normalize("NFKC", text))


def _tokens_of(word: str) -> tuple[str, ...]:
    # Text without spaces is one word, which may be long, and is seldom met twice.
    return (_read if len(word) <= MAX_TOKEN_CHARS else _read.__wrapped__)(word)


@lru_cache(maxsize=16_384)
def _read(word: str) -> tuple[str, ...]:
    tokens: list[str] = []
    for match in _RUN.finditer(word):
        run = match[0]
        if match[1]:  # a script without spaces
            tokens.extend(a + b for a, b in pairwise(run))
            tokens.extend(char for char in run if len(run) == 1 or "\u4e00" <= char <= "\u9fff")
            continue
        run = run[:MAX_TOKEN_CHARS]
        tokens.extend(_stems(run.casefold()))
        parts = _CAMEL.split(run)
        if len(parts) > 1:
            tokens.extend(_stem(part.casefold()) for part in parts)
    return tuple(filter(None, tokens))


def _without_marks(text: str) -> str:
    return "".join(char for char in text if unicodedata.category(char) != "Mn")


def fold_case_and_marks(text: str) -> str:
    """Return a text in lower case and without the marks on its letters, such as accents and umlauts."""
    lowered = text.casefold()
    if lowered.isascii():
        return lowered
    return unicodedata.normalize("NFKC", _without_marks(unicodedata.normalize("NFKD", lowered)))


def count_tokens(text: str) -> int:
    """Estimate the token count of a text for a language model.

    Four ASCII characters count as one token, two letters of other alphabets, and every other character. For English the
    estimate is within about a fifth of the common byte-pair tokenizers; for other scripts it is higher than theirs.
    """
    ascii_chars = len(text) if text.isascii() else len(text.encode("ascii", "ignore"))
    # UTF-8 has one byte more than UTF-16 has units for a letter of an alphabet, and two for what counts whole.
    others = len(text.encode("utf-8", "surrogatepass")) - len(text.encode("utf-16-le", "surrogatepass")) // 2
    return -(-(ascii_chars + 2 * others) // 4)


def lines_within(lines: Sequence[str], budget: int) -> list[str]:
    """Return the lines that fit a token budget, skipping those that do not; the first line if none fits."""
    kept: list[str] = []
    for line in lines:
        cost = count_tokens(line)
        if cost <= budget:
            kept.append(line)
            budget -= cost
    return kept or list(lines[:1])


def is_unspaced(char: str) -> bool:
    """Return whether a character is of a script that writes words without spaces between them, or of Hangul."""
    return char > "\u0e00" and _UNSPACED_RUN.match(char) is not None


def _stems(word: str) -> tuple[str, ...]:
    """Return the search tokens of a case-folded word: its stem, and for an Arabic word also its consonants.

    Arabic forms many plurals inside the word, which no stemmer reverses. The consonants mostly stay the same.
    """
    stem = _stem(word)
    if word.isascii() or _script(word) != "ARABIC":
        return (stem,)
    bare = _ARABIC_PREFIX.sub("", _without_marks(word))
    consonants = "".join(char for char in bare if char not in _ARABIC_VOWELS)
    return (stem, consonants) if len(consonants) >= MIN_CONSONANTS and consonants != stem else (stem,)


@lru_cache(maxsize=16_384)
def _stem(word: str) -> str:
    script = "LATIN" if word.isascii() else _script(word)
    if script in _FOLDED_MARKS and not word.isascii():
        word = _without_marks(unicodedata.normalize("NFKD", word))
    elif script == "CYRILLIC":
        word = word.replace("\u0451", "\u0435")  # the letter yo is mostly written as ye
    if (language := _LANGUAGES.get(script)) is None:
        return word
    stem = stem_in(language, word)
    # A Russian noun may itself end like a case ending, and the stemmer then removes too much from one of its forms.
    # Stemming every word twice removes the same from its other forms.
    return stem_in(language, stem) if script == "CYRILLIC" else stem


def stem_in(language: str, word: str) -> str:
    """Return the stem of a word of a language."""
    with _STEMMER_LOCK:
        return str(_STEMMERS[language].stemWord(word))


def _script(word: str) -> str:
    """Return the script of the first letter of a word, as in its Unicode character name; "" if it has no letter."""
    letter = next((char for char in word if char.isalpha()), "")
    return unicodedata.name(letter, "").split(" ", 1)[0] if letter else ""


# Cut texts: into sentences, a long one into windows that an embedder reads one by one, a question to its first words.

# A question is cut here. A longer one is a pasted text, and what is asked stands at its beginning. It keeps the work
# for one question below a tenth of a second.
QUESTION_WORDS = 64

# A longer run of characters counts as several words, so that a question without spaces is cut too. Nearly all words of
# spaced scripts are shorter.
WORD_CHARS = 12

# So many characters of an unspaced script count as one word: words of two and particles of one.
UNSPACED_WORD_CHARS = 3

_UNBROKEN = re.compile(r"\S+")

_RE = patterns("palimpsest.text", "sentence_ends.txt")


def sentences(text: str) -> list[str]:
    """Return the sentences of a text, or its lines where these are shorter. Joined they are the text."""
    ends = [0, *(found.end() for found in _RE["end or none"].finditer(text) if found["end"]), len(text)]
    return [text[start:end] for start, end in pairwise(ends) if start < end]


def windows(text: str, max_chars: int, fits: Callable[[str], bool] = lambda _: True) -> list[str]:
    """Split a text into windows of up to `max_chars` characters that fit, of about the same length, at white space.

    A text that fits is returned as it is. Joined, the windows are the text.
    """
    done: list[str] = []
    waiting = [text]
    while waiting:
        part = waiting.pop()
        if len(part) <= 1 or (len(part) <= max_chars and fits(part)):
            done.append(part)
            continue
        middle = _space_near(part, len(part) // 2)
        waiting += [part[middle:], part[:middle]]
    return done


def _space_near(text: str, middle: int) -> int:
    """Return where to split a text: at the white space nearest before the middle, if it is in the second quarter."""
    return next((position for position in range(middle, middle // 2, -1) if text[position].isspace()), middle)


def most_words_near(tokens: Sequence[str], sought: AbstractSet[str], size: int) -> frozenset[str]:
    """Return which of the words sought stand within `size` tokens of each other: as many different ones as anywhere.

    The window moves over the tokens once, because a stranger's text may be long and have nothing but these words.
    """
    best, last = frozenset[str](), OrderedDict[str, int]()
    for place, token in enumerate(tokens):
        if token in sought:
            last[token] = place
            last.move_to_end(token)
            while next(iter(last.values())) <= place - size:
                last.popitem(last=False)
            if len(last) > len(best):
                best = frozenset(last)
    return best


def within(texts: Sequence[str], max_chars: int) -> Sequence[str]:
    """Return the first texts whose characters together are within a limit; at least one, if there are any."""
    return texts[: max(1, sum(total <= max_chars for total in accumulate(map(len, texts))))]


def count_words(text: str) -> float:
    """Return about how many words a text has, in any script. A long run of characters counts as several words."""
    spaced = text if text.isascii() else _UNSPACED_RUN.sub(" ", text)
    unspaced = 0 if spaced is text else sum(map(len, _UNSPACED_RUN.findall(text)))
    return unspaced / UNSPACED_WORD_CHARS + sum(max(1.0, len(word) / WORD_CHARS) for word in spaced.split())


def first_words(text: str) -> str:
    """Return the first `QUESTION_WORDS` words of a question. A text without spaces is cut at about the same length."""
    left = float(QUESTION_WORDS)
    for match in _UNBROKEN.finditer(text):
        word, spent = match.group(), 0.0
        is_plain = len(word) <= WORD_CHARS and word.isascii()  # it counts as one, however short
        for position, char in enumerate("" if is_plain else word):
            spent += 1 / (UNSPACED_WORD_CHARS if is_unspaced(char) else WORD_CHARS)
            if spent >= left:
                return text[: match.start() + position + 1]
        left -= max(1.0, spent)
        if left <= 0:
            return text[: match.end()]
    return text
