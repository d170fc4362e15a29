"""What a search says about questions about something else than all that is stored.

*Told*: the share of the questions whose result is not `confident`. The near misses of the data, about what is known but
without the answer, are the agent's to judge.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from measures.personas import read_far_off, read_personas, store_facts
from measures.stores import StoppedClock, new_memory, search
from measures.tables import Row, Table, described

# How many far-off questions each persona's memory is asked.
ASKED = 40


@dataclass(frozen=True)
class Answers:
    """Whether the results were confident, for answerable questions, far-off ones and near misses."""

    answerable: list[bool] = field(default_factory=list[bool])
    far_off: list[bool] = field(default_factory=list[bool])
    near_misses: list[bool] = field(default_factory=list[bool])

    def row(self) -> Row:
        """Return the figures of these questions."""
        numbers = {"answerable": len(self.answerable), "far-off": len(self.far_off)}
        return numbers | {
            "far-off told": _share_told(self.far_off),
            "answerable told": _share_told(self.answerable),
            "near misses told": _share_told(self.near_misses),
        }


def _share_told(answers: Sequence[bool]) -> float:
    return answers.count(False) / max(len(answers), 1)


async def unknown(files: Sequence[Path], embedder: str) -> list[Table]:
    """Ask each persona's memory its own questions, far-off ones and near misses, in the four ways of help."""
    table, rows = Table("unknown"), dict[str, Answers]()
    far_off = read_far_off(half=2)
    for persona in read_personas(files):
        draw = Random(persona.name)  # noqa: S311 - not for secrets
        for with_hints in (False, True):
            clock = StoppedClock()
            async with new_memory(clock, embedder) as memory:
                await store_facts(memory, clock, persona, with_hints=with_hints)
                for question in persona.questions:
                    for also in persona.wordings(question.text):
                        result = await search(memory, question.text, also=also)
                        _row(rows, with_hints, also).answerable.append(result.confident)
                        if not result.confident:
                            expected = " / ".join(persona.texts[fact] for fact in question.answers)
                            table.misses.append(described(question.text, expected, [hit.text for hit in result.hits]))
                for text, also in draw.sample(far_off, ASKED):
                    for wordings in {(), also}:
                        result = await search(memory, text, also=wordings)
                        _row(rows, with_hints, wordings).far_off.append(result.confident)
                        if result.confident:
                            table.misses.append(described(text, "nothing", [hit.text for hit in result.hits]))
                for text in persona.unknown:
                    for also in persona.wordings(text):
                        _row(rows, with_hints, also).near_misses.append(
                            (await search(memory, text, also=also)).confident
                        )
    table.figures = {name: answers.row() for name, answers in rows.items()}
    return [table]


def _row(rows: dict[str, Answers], with_hints: bool, also: Sequence[str]) -> Answers:  # noqa: FBT001 - two callers
    name = {(False, False): "alone", (True, False): "hints", (False, True): "also", (True, True): "both"}
    return rows.setdefault(name[with_hints, bool(also)], Answers())
