"""Generate short memories and questions about them from word lists and a seed.

Each kind of word (names, verbs, things, …) has a head of common English words and a tail of rare made-up words. The
n-th word of a kind is drawn about n to the power of -1.25 times as often as the first (Zipf's law). About one in six
words of a memory is made up.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence

MIN_WORDS, MAX_WORDS = 6, 14

HEADS = """\
name User Anna Ben Carla David Elena Farid Grace Hugo Ines Jonas Keiko Liam Maya Noor Oscar Priya Rosa Samir Tara \
Yusuf Alice Bruno Chloe Dmitri Emma Felix Greta Hana Ivan Julia Karim Lena Marco Nadia Olga Paul Quentin Rahul Sofia
verb likes uses wants prefers has needs keeps bought fixed moved sold wrote built tested reviewed cleaned borrowed \
planned cancelled renamed deployed painted learned watched ordered measured avoided repaired printed photographed \
found lost opened closed shared visited finished started changed checked drew cooked carried returned collected
thing coffee report garden bicycle meeting server guitar release invoice kitchen camera database recipe contract \
laptop ticket blanket printer notebook migration lantern compiler violin passport greenhouse ladder backup telescope \
book car house phone train table window song letter photo dog cat letterbox class test branch query script folder \
chair piano bread cheese soup salad jacket shoes bag clock map boat tent garage roof fence hospital school library \
course exam budget salary loan deadline interview newsletter dashboard cluster queue parser keyboard monitor router
quality new old small red quiet broken weekly cheap spare heavy shared blue public noisy wooden temporary Italian \
handmade encrypted second-hand waterproof abandoned big green early late good long short white black private French
place Berlin London Paris Oslo Lisbon Boston Kyoto Vienna Lagos Porto Quito Tallinn Accra Hanoi Perth Ghent Tromsø \
Madrid Rome Dublin Prague Warsaw Athens Cairo Lima Seoul Toronto Chicago Denver Austin Zurich Hamburg Leeds Bergen
time Monday Friday March summer weekends June Sunday evenings October winter Tuesday mornings 2024 2023 lunchtime 2019
"""
TAILS = {
    "name": (4_000, "a"),
    "verb": (600, "ed"),
    "thing": (12_000, "er"),
    "quality": (1_500, "ish"),
    "place": (3_000, "burg"),
    "time": (0, ""),
}
"""How many rare words each kind has, and how they end."""

OPENINGS = (
    "{name} {verb} the {quality} {thing} in {place}",
    "{name} {verb} a {quality} {thing} and two {thing} boxes",
    "The {thing} of {name} is {quality} and {quality}",
    "{name} never {verb} the {thing} before {time}",
    "{name} lives in {place} and {verb} a {thing}",
    "In {place} {name} {verb} every {thing}",
    "The {quality} {thing} belongs to {name} now",
    "{name} told {name} that the {thing} is {quality}",
)
CLOSINGS = (
    "since {time}",
    "with {name}",
    "near {place}",
    "because of the {thing}",
    "after the {quality} {thing} in {place}",
    "and {verb} the {thing}",
    "for {name} in {place}",
    "until next {time}",
)
FRAMES = ("what did {} mean", "which {} was it", "where is {}", "who knows {}", "when was {}", "{}")
ONSETS = (*"bcdfghjklmnprstvwz", "br", "dr", "kl", "pr", "st", "tr")
SYLLABLES = [onset + vowel for onset in ONSETS for vowel in "aeiou"]
STEEPNESS = 1.25
"""The exponent of Zipf's law for one kind of word. For all words of a language together it is about 1."""


class Sentences:
    """A generator of distinct memories and questions. The same seed gives the same texts in the same order."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)  # noqa: S311 - not a secret
        # The words are the same for every seed. Only the texts made of them differ.
        word_rng = random.Random(0)  # noqa: S311 - not a secret
        heads = {kind: words for kind, *words in (line.split() for line in HEADS.splitlines())}
        self._words = {kind: [*head, *_made_up_words(word_rng, kind)] for kind, head in heads.items()}
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
            text = self._filled(self._rng.choice(OPENINGS))
            while len(text.split()) < length:
                text = f"{text} {self._filled(self._rng.choice(CLOSINGS))}"
            if len(text.split()) <= MAX_WORDS and text.casefold() not in self._used:
                self._used.add(text.casefold())
                return text

    def _question(self, memory: str | None) -> str:
        frame = self._rng.choice(FRAMES)
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
