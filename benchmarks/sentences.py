"""Generate short memories and questions about them from word lists and a seed.

Each kind of word (names, verbs, things, …) has a head of common English words and a tail of rare made-up words. The
n-th word of a kind is drawn about n to the power of -1.25 times as often as the first (Zipf's law). About one in six
words of a memory is made up.
"""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

MIN_WORDS, MAX_WORDS = 6, 14

# The heads of the kinds of words, and the frames of memories and questions.
FORMS: dict[str, Any] = json.loads(Path(__file__).with_name("sentences.json").read_text("utf-8"))

# How many rare words each kind has, and how they end.
TAILS = {
    "name": (4_000, "a"),
    "verb": (600, "ed"),
    "thing": (12_000, "er"),
    "quality": (1_500, "ish"),
    "place": (3_000, "burg"),
    "time": (0, ""),
}

ONSETS = (*"bcdfghjklmnprstvwz", "br", "dr", "kl", "pr", "st", "tr")
SYLLABLES = [onset + vowel for onset in ONSETS for vowel in "aeiou"]

# The exponent of Zipf's law for one kind of word. For all words of a language together it is about 1.
STEEPNESS = 1.25


class Sentences:
    """A generator of distinct memories and questions. The same seed gives the same texts in the same order."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)  # noqa: S311 - not a secret
        # The words are the same for every seed. Only the texts made of them differ.
        word_rng = random.Random(0)  # noqa: S311 - not a secret
        self._words = {kind: [*head.split(), *_made_up_words(word_rng, kind)] for kind, head in FORMS["heads"].items()}
        self._weights = {
            kind: list(itertools.accumulate((rank + 2) ** -STEEPNESS for rank in range(len(words))))
            for kind, words in self._words.items()
        }
        self._used: set[str] = set()

    def memories(self, count: int) -> list[str]:
        """Return memories of 6 to 14 words that this object has not returned before."""
        return [self._fresh_memory() for _ in range(count)]

    def questions(self, count: int, memories: Sequence[str]) -> list[str]:
        """Return questions of 4 to 8 words. Every second one consists of words of a memory, the others of any words."""
        questions: list[str] = []
        while len(questions) < count:
            question = self._question(self._rng.choice(memories) if len(questions) % 2 else None)
            if question not in self._used:
                self._used.add(question)
                questions.append(question)
        return questions

    def _fresh_memory(self) -> str:
        while True:
            length = self._rng.randint(MIN_WORDS, MAX_WORDS)
            text = self._filled(self._rng.choice(FORMS["openings"]))
            while len(text.split()) < length:
                text += f" {self._filled(self._rng.choice(FORMS['closings']))}"
            if len(text.split()) <= MAX_WORDS and text.casefold() not in self._used:
                self._used.add(text.casefold())
                return text

    def _question(self, memory: str | None) -> str:
        frame: str = self._rng.choice(FORMS["frames"])
        word_count = self._rng.randint(4, 8) - len(frame.replace("{}", "").split())
        if memory is None:
            words = [self._word(self._rng.choice(list(self._words))) for _ in range(word_count)]
        else:
            words = self._rng.sample(memory.split(), min(word_count, len(memory.split())))
        return frame.format(" ".join(words)) + "?"

    def _filled(self, frame: str) -> str:
        return " ".join(self._word(part[1:-1]) if part.startswith("{") else part for part in frame.split())

    def _word(self, kind: str) -> str:
        return self._rng.choices(self._words[kind], cum_weights=self._weights[kind])[0]


def _made_up_words(rng: random.Random, kind: str) -> list[str]:
    """Return the rare words of a kind, which are made of syllables."""
    count, ending = TAILS[kind]
    words: dict[str, None] = {}
    while len(words) < count:
        word = "".join(rng.choices(SYLLABLES, k=rng.randint(2, 3))) + ending
        words[word.capitalize() if kind in ("name", "place") else word] = None
    return list(words)
