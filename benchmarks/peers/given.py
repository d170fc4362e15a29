"""What every system is given: LoCoMo's turns and questions, the paraphrases, the texts and queries that are timed."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import startup
from locomo import Conversation

SEED = 20
QUERIES = 400
IN_A_ROW = 100
BESIDE = 70


@dataclass(frozen=True)
class Turn:
    """Hold one turn; `at` is ISO 8601, `session` the number of its session."""

    key: str
    speaker: str
    text: str
    at: str
    session: int

    @property
    def told(self) -> str:
        """Return the turn as one text with its speaker, for systems that know texts only."""
        return f"{self.speaker}: {self.text}"


@dataclass(frozen=True)
class Life:
    """Hold the memories of one life, and its questions with the number of the memory that each asks for."""

    kind: str
    memories: tuple[str, ...]
    asked: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Timed:
    """Hold the texts that are there, those added in turn, in a row, for what is timed beside, and the queries."""

    stored: tuple[str, ...]
    added: tuple[str, ...]
    in_a_row: tuple[str, ...]
    beside: tuple[str, ...]
    queries: tuple[str, ...]


def turns_of(conversation: Conversation) -> list[Turn]:
    """Return a conversation's turns a minute apart; what a shared picture shows is part of what was said."""
    turns: list[Turn] = []
    for number, session in enumerate(conversation.sessions):
        for minute, turn in enumerate(session.turns):
            caption = turn.get("blip_caption")
            text = turn["text"] + (f" [shares {caption}]" if caption else "")
            at = (session.said_at + timedelta(minutes=minute)).isoformat()
            turns.append(Turn(turn["dia_id"], turn["speaker"], text, at, number))
    return turns


def read_lives(path: Path) -> list[Life]:
    """Return the lives of a paraphrases file."""
    return [
        Life(
            life["kind"],
            tuple(life["memories"]),
            tuple((asked["question"], asked["memory"]) for asked in life["asked"]),
        )
        for life in json.loads(path.read_text("utf-8"))["lives"]
    ]


def timed(conversations: Sequence[Conversation], stored: int, added: int) -> Timed:
    """Choose texts and queries to be timed: different turns of the set, and generated texts where those run out."""
    chance = random.Random(SEED)  # noqa: S311 - a choice to be repeated, no secret
    told = sorted({turn.told for conversation in conversations for turn in turns_of(conversation)})
    chance.shuffle(told)
    ends = (stored, stored + added, stored + added + IN_A_ROW, stored + added + IN_A_ROW + BESIDE)
    texts = told + startup.texts(max(0, ends[-1] - len(told)))
    there, in_turn, in_a_row, beside = (tuple(texts[begin:end]) for begin, end in zip((0, *ends), ends, strict=False))
    questions = sorted({question.text for conversation in conversations for question in conversation.questions})
    chance.shuffle(questions)
    return Timed(there, in_turn, in_a_row, beside, tuple(questions[:QUERIES]))
