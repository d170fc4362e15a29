"""Cut texts: a long one into windows that an embedder reads one by one, a question to its first words."""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from itertools import accumulate

from palimpsest.text.tokenizer import UNSPACED_CHARS, is_unspaced

QUESTION_WORDS = 64
"""A question is cut here. A longer one is a pasted text, and what is asked stands at its beginning. It keeps the work
for one question below a tenth of a second. Set by hand."""

WORD_CHARS = 12
"""A longer run of characters counts as several words, so that a question without spaces is cut too. Nearly all words
of spaced scripts are shorter. Set by hand."""

UNSPACED_WORD_CHARS = 3
"""So many characters of an unspaced script count as one word: words of two and particles of one. Set by hand."""

_WORD = re.compile(r"\S+")
_UNSPACED_RUN = re.compile(rf"[{UNSPACED_CHARS}]+")


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
    for position in range(middle, middle // 2, -1):
        if text[position].isspace():
            return position
    return middle


def most_words_near(tokens: Sequence[str], sought: AbstractSet[str], size: int) -> frozenset[str]:
    """Return which of the words sought stand within `size` tokens of each other: as many different ones as anywhere.

    The window moves over the tokens once, because a stranger's text may be long and have nothing but these words.
    """
    best = frozenset[str]()
    window = deque[tuple[int, str]]()
    near = Counter[str]()
    for place, token in enumerate(tokens):
        if token not in sought:
            continue
        window.append((place, token))
        near[token] += 1
        while window[0][0] <= place - size:
            left = window.popleft()[1]
            near[left] -= 1
            if not near[left]:
                del near[left]
        if len(near) > len(best):
            best = frozenset(near)
    return best


def within(texts: Sequence[str], max_chars: int) -> Sequence[str]:
    """Return the first texts whose characters together are within a limit; at least one, if there are any."""
    sums = accumulate(len(text) for text in texts)
    return texts[: max(1, sum(1 for total in sums if total <= max_chars))]


def count_words(text: str) -> float:
    """Return about how many words a text has, in any script. A long run of characters counts as several words."""
    spaced = text if text.isascii() else _UNSPACED_RUN.sub(" ", text)
    unspaced = 0 if spaced is text else sum(map(len, _UNSPACED_RUN.findall(text)))
    words = spaced.split()
    return unspaced / UNSPACED_WORD_CHARS + sum(max(1.0, len(word) / WORD_CHARS) for word in words)


def first_words(text: str) -> str:
    """Return the first `QUESTION_WORDS` words of a question. A text without spaces is cut at about the same length."""
    left = float(QUESTION_WORDS)
    for match in _WORD.finditer(text):
        word = match.group()
        if len(word) <= WORD_CHARS and word.isascii():
            left -= 1
            if left <= 0:
                return text[: match.end()]
            continue
        spent = 0.0
        for position, char in enumerate(word):
            spent += 1 / (UNSPACED_WORD_CHARS if is_unspaced(char) else WORD_CHARS)
            if spent >= left:
                return text[: match.start() + position + 1]
        left -= max(1.0, spent)
        if left <= 0:
            return text[: match.end()]
    return text
