"""What a search says about questions about something else than all that is stored.

*AUC*: how often the first hit of an answerable question has a higher score than that of a far-off one; half of the ties
count. *Told*: the share of the questions whose result is not `confident`. *Far-off at 2 %*: the share of the far-off
questions that a threshold would tell which also tells 2 % of the answerable ones of the same row. The near misses of
the data, about what is known but without the answer, are the agent's to judge.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import numpy as np

from measures.personas import Asked, read_far_off, read_personas, store_facts
from measures.stores import StoppedClock, new_memory, search
from measures.tables import Row, Table, described
from palimpsest.memory import Memory

FALSE_ALARMS = 0.02

FAR_OFF = Path(__file__).parents[1] / "far_off.json"

ASKED = 40
"""How many far-off questions each persona's memory is asked."""


@dataclass(frozen=True)
class Answers:
    """The score of the first hit and `confident`, for answerable questions, far-off ones and near misses."""

    answerable: list[tuple[float, bool]] = field(default_factory=list[tuple[float, bool]])
    far_off: list[tuple[float, bool]] = field(default_factory=list[tuple[float, bool]])
    near_misses: list[tuple[float, bool]] = field(default_factory=list[tuple[float, bool]])

    def row(self) -> Row:
        """Return the figures of these questions."""
        known = np.array([score for score, _ in self.answerable])
        far = np.array([score for score, _ in self.far_off])
        if not len(known) or not len(far):
            return {"answerable": len(known), "far-off": len(far)}
        threshold = np.sort(known)[int(FALSE_ALARMS * len(known))]
        wins = (known[:, None] > far).mean() + (known[:, None] == far).mean() / 2
        return {
            "answerable": len(known),
            "far-off": len(far),
            "AUC": float(wins),
            "far-off told": _share_told(self.far_off),
            "answerable told": _share_told(self.answerable),
            "near misses told": _share_told(self.near_misses),
            f"far-off at {FALSE_ALARMS:.0%}": float((far < threshold).mean()),
        }


def _share_told(answers: Sequence[tuple[float, bool]]) -> float:
    return sum(not confident for _, confident in answers) / max(len(answers), 1)


async def unknown(files: Sequence[Path], embedder: str) -> list[Table]:
    """Ask each persona's memory its own questions, far-off ones and near misses, in the four ways of help."""
    table, rows = Table("unknown"), dict[str, Answers]()
    far_off = read_far_off(FAR_OFF, half=2)
    for persona in read_personas(files):
        draw = Random(persona.name)  # noqa: S311 - not for secrets
        for with_hints in (False, True):
            clock = StoppedClock()
            async with new_memory(clock, embedder) as memory:
                await store_facts(memory, clock, persona, with_hints=with_hints)
                for question in persona.questions:
                    for also in persona.wordings(question.text):
                        answer = await _answer(memory, (question.text, also))
                        _row(rows, with_hints, also).answerable.append(answer[:2])
                        if not answer[1]:
                            expected = " / ".join(persona.texts[fact] for fact in question.answers)
                            table.misses.append(described(question.text, expected, answer[2]))
                for text, also in draw.sample(far_off, ASKED):
                    for wordings in {(), also}:
                        answer = await _answer(memory, (text, wordings))
                        _row(rows, with_hints, wordings).far_off.append(answer[:2])
                        if answer[1]:
                            table.misses.append(described(text, f"nothing ({answer[0]:.2f})", answer[2]))
                for text in persona.unknown:
                    for also in persona.wordings(text):
                        _row(rows, with_hints, also).near_misses.append((await _answer(memory, (text, also)))[:2])
    table.figures = {name: answers.row() for name, answers in rows.items()}
    return [table]


def _row(rows: dict[str, Answers], with_hints: bool, also: Sequence[str]) -> Answers:  # noqa: FBT001 - two callers
    name = {(False, False): "alone", (True, False): "hints", (False, True): "also", (True, True): "both"}
    return rows.setdefault(name[with_hints, bool(also)], Answers())


async def _answer(memory: Memory, asked: Asked) -> tuple[float, bool, list[str]]:
    """Return the score of the first hit, whether the result is confident, and the texts of the hits."""
    result = await search(memory, asked[0], also=asked[1])
    score = result.hits[0].score if result.hits else 0.0
    return score, result.confident, [hit.text for hit in result.hits]
