"""What a search says about questions to which nothing stored holds the answer.

*AUC*: how often the first hit of an answerable question has a higher relevance than that of an unknown one; half of the
ties count. *Told*: the share of the questions whose result is not `confident`. *Unknown at 3 %*: the share of the
unknown questions that a threshold would tell which also tells 3 % of the answerable ones of the same row.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from measures.personas import read_personas, store_facts
from measures.stores import StoppedClock, new_memory, search
from measures.tables import ALL, Row, Table, described
from palimpsest.memory import Memory

FALSE_ALARMS = 0.03


class Answers:
    """The relevance of the first hit and `confident`, for answerable and for unknown questions."""

    def __init__(self) -> None:
        self.answerable: list[tuple[float, bool]] = []
        self.unknown: list[tuple[float, bool]] = []

    def row(self) -> Row:
        """Return the figures of these questions."""
        known = np.array([relevance for relevance, _ in self.answerable])
        unknown = np.array([relevance for relevance, _ in self.unknown])
        threshold = np.sort(known)[int(FALSE_ALARMS * len(known))]
        wins = (known[:, None] > unknown).mean() + (known[:, None] == unknown).mean() / 2
        return {
            "answerable": len(known),
            "unknown": len(unknown),
            "AUC": float(wins),
            "unknown told": _share_told(self.unknown),
            "answerable told": _share_told(self.answerable),
            f"unknown at {FALSE_ALARMS:.0%}": float((unknown < threshold).mean()),
        }


def _share_told(answers: Sequence[tuple[float, bool]]) -> float:
    return sum(not confident for _, confident in answers) / len(answers)


async def unknown(files: Sequence[Path], embedder: str, *, by_persona: bool = False) -> list[Table]:
    """Ask the answerable and the unknown questions of each persona, in a store that holds its facts."""
    table = Table("unknown")
    by_row: dict[str, Answers] = {}
    for persona in read_personas(files):
        clock = StoppedClock()
        async with new_memory(clock, embedder) as memory:
            await store_facts(memory, clock, persona)
            rows = [
                by_row.setdefault(name, Answers())
                for name in (persona.language, *([persona.name] if by_persona else []), ALL)
            ]
            for question in persona.questions:
                answer = await _answer(memory, question.text)
                for row in rows:
                    row.answerable.append(answer[:2])
                if not answer[1]:
                    expected = " / ".join(persona.texts[fact] for fact in question.answers)
                    table.misses.append(described(question.text, expected, answer[2]))
            for text in persona.unknown:
                answer = await _answer(memory, text)
                for row in rows:
                    row.unknown.append(answer[:2])
                if answer[1]:
                    table.misses.append(described(text, f"nothing (relevance {answer[0]:.2f})", answer[2]))
    table.figures = {name: answers.row() for name, answers in by_row.items()}
    return [table]


async def _answer(memory: Memory, question: str) -> tuple[float, bool, list[str]]:
    """Return the relevance of the first hit, whether the result is confident, and the texts of the hits."""
    result = await search(memory, question)
    relevance = result.hits[0].relevance if result.hits else 0.0
    return relevance, result.confident, [hit.text for hit in result.hits]
