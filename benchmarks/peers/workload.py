"""The inputs that all systems get: LoCoMo turns and questions, paraphrases, and the timed texts and queries."""

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
EXTRA = 70


@dataclass(frozen=True)
class Turn:
    """One turn of a LoCoMo conversation. `at` is an ISO 8601 time, and `session` the number of its session."""

    key: str
    speaker: str
    text: str
    at: str
    session: int

    @property
    def text_with_speaker(self) -> str:
        """Return the turn as one text that begins with the speaker, for systems that store texts only."""
        return f"{self.speaker}: {self.text}"


@dataclass(frozen=True)
class Life:
    """The memories of one life, and its questions with the number of the memory that answers each."""

    kind: str
    memories: tuple[str, ...]
    questions: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Workload:
    """The inputs of the timed operations.

    `stored` are stored before, `added` are added in turn with the other systems, `in_a_row` one right after the other,
    and `extra` are for the additional operation that some systems have.
    """

    stored: tuple[str, ...]
    added: tuple[str, ...]
    in_a_row: tuple[str, ...]
    extra: tuple[str, ...]
    queries: tuple[str, ...]


def turns_of(conversation: Conversation) -> list[Turn]:
    """Return the turns of a conversation one minute apart. The caption of a shared picture is part of the text."""
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
            tuple((entry["question"], entry["memory"]) for entry in life["asked"]),
        )
        for life in json.loads(path.read_text("utf-8"))["lives"]
    ]


def choose_workload(conversations: Sequence[Conversation], stored: int, added: int) -> Workload:
    """Choose the inputs of the timed operations: distinct turns, then generated texts if there are too few turns."""
    rng = random.Random(SEED)  # noqa: S311 - a repeatable choice, not a secret
    turns = sorted({turn.text_with_speaker for conversation in conversations for turn in turns_of(conversation)})
    rng.shuffle(turns)
    ends = (stored, stored + added, stored + added + IN_A_ROW, stored + added + IN_A_ROW + EXTRA)
    texts = turns + startup.texts(max(0, ends[-1] - len(turns)))
    stored_texts, added_texts, in_a_row, extra = (
        tuple(texts[begin:end]) for begin, end in zip((0, *ends), ends, strict=False)
    )
    questions = sorted({question.text for conversation in conversations for question in conversation.questions})
    rng.shuffle(questions)
    return Workload(stored_texts, added_texts, in_a_row, extra, tuple(questions[:QUERIES]))
