"""Short memories and questions about them, made of word lists by a seed; and the file that an import reads.

Every kind of word (names, verbs, things, …) has a head of common English words and a tail of made-up rare ones. The
n-th word of a kind is drawn about n to the power of -1.25 times as often as the first (Zipf's law); about one word of a
memory in six is a made-up one.
"""

from __future__ import annotations

import itertools
import json
import random
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

AGENT = "coder"
"""The agent of one memory in a hundred; the others have none."""

MIN_WORDS, MAX_WORDS = 6, 14
FIRST_DAY = datetime(2024, 1, 1, tzinfo=UTC)
DAYS = 600.0

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
TAILS = {"name": 4_000, "verb": 600, "thing": 12_000, "quality": 1_500, "place": 3_000, "time": 0}
ENDINGS = {"name": "a", "verb": "ed", "thing": "er", "quality": "ish", "place": "burg", "time": ""}

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
"""The exponent of Zipf's law, for a kind of words; 1 is usual for all words of a language together."""


class Sentences:
    """Draw distinct memories and distinct questions; one seed always gives the same ones in the same order."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)  # noqa: S311 - a script, no secret
        heads = {kind: words for kind, *words in (line.split() for line in HEADS.splitlines())}
        # The words are the same for every seed: only what is said with them differs.
        coined = random.Random(0)  # noqa: S311 - likewise
        self._words = {kind: [*head, *_coined(coined, kind)] for kind, head in heads.items()}
        self._weights = {
            kind: list(itertools.accumulate((rank + 2) ** -STEEPNESS for rank in range(len(words))))
            for kind, words in self._words.items()
        }
        self._taken: set[str] = set()

    def memories(self, count: int) -> list[str]:
        """Return memories of 6 to 14 words, none of which this object gave before."""
        return [self._fresh_memory() for _ in range(count)]

    def questions(self, count: int, memories: Sequence[str]) -> list[str]:
        """Return questions of 4 to 8 words: every other one of words of a memory, the others of any words."""
        found: list[str] = []
        while len(found) < count:
            question = self._question(self._chance.choice(memories) if len(found) % 2 else None)
            if question not in self._taken:
                self._taken.add(question)
                found.append(question)
        return found

    def _fresh_memory(self) -> str:
        while True:
            wanted = self._chance.randint(MIN_WORDS, MAX_WORDS)
            text = self._filled(self._chance.choice(OPENINGS))
            while len(text.split()) < wanted:
                text = f"{text} {self._filled(self._chance.choice(CLOSINGS))}"
            if len(text.split()) <= MAX_WORDS and text.casefold() not in self._taken:
                self._taken.add(text.casefold())
                return text

    def _question(self, memory: str | None) -> str:
        frame = self._chance.choice(FRAMES)
        room = self._chance.randint(4, 8) - len(frame.replace("{}", "").split())
        if memory is None:
            words = [self._word(self._chance.choice(list(self._words))) for _ in range(room)]
        else:
            said = memory.split()
            words = self._chance.sample(said, min(room, len(said)))
        return frame.format(" ".join(words)) + "?"

    def _filled(self, frame: str) -> str:
        return " ".join(self._word(part[1:-1]) if part.startswith("{") else part for part in frame.split())

    def _word(self, kind: str) -> str:
        return self._chance.choices(self._words[kind], cum_weights=self._weights[kind])[0]


def _coined(chance: random.Random, kind: str) -> list[str]:
    """Return the rare words of a kind, made of syllables."""
    found: dict[str, None] = {}
    while len(found) < TAILS[kind]:
        word = "".join(chance.choices(SYLLABLES, k=chance.randint(2, 3))) + ENDINGS[kind]
        found[word.capitalize() if kind in ("name", "place") else word] = None
    return list(found)


def agent_of(number: int) -> str:
    """Return the agent of the memory of this number: every hundredth has one."""
    return AGENT if number % 100 == 50 else ""


def write_export(file: Path, user_id: str, texts: Sequence[str]) -> None:
    """Write texts as an export of Palimpsest's, spread evenly over a time, each an edit of its own."""
    with file.open("w", encoding="utf-8") as opened:
        opened.write(json.dumps({"format": "palimpsest-export", "version": 1, "user_id": user_id}) + "\n")
        for number, text in enumerate(texts):
            at = (FIRST_DAY + timedelta(days=DAYS * number / len(texts))).isoformat()
            opened.write(json.dumps(_line(number, text, at)) + "\n")


def _line(number: int, text: str, at: str) -> dict[str, object]:
    labels: dict[str, object] = {"metadata": {}, "keywords": [], "tags": []}
    origin = {"actor_id": "", "role": ""}
    past = {
        "id": str(uuid.uuid5(uuid.NAMESPACE_OID, str(number))),
        "old_memory": None,
        "new_memory": text,
        "event": "ADD",
        "created_at": at,
        "updated_at": at,
        "is_deleted": False,
        **origin,
        "state": {**labels, "happened_at": None, "valid_from": at, "superseded_by": None},
        "stage": "agent",
        "model": "",
        "prompt": "",
        "caller": "benchmark",
        "change": number + 1,
    }
    return {
        "type": "memory",
        "id": str(uuid.uuid5(uuid.NAMESPACE_URL, str(number))),
        "project": "",
        "agent_id": agent_of(number),
        "run_id": "",
        "text": text,
        **labels,
        **origin,
        "happened_at": None,
        "valid_from": at,
        "valid_until": None,
        "created_at": at,
        "updated_at": at,
        "deleted_at": None,
        "superseded_by": None,
        "revision": 1,
        "history": [past],
        "sources": [],
    }
