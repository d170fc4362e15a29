"""Read personas: facts with dates, questions with the facts that answer them, and questions without an answer.

`everyday.json`, `lives.json` and `cross_language.json` have this form. A file is a list of personas, each with

- `persona` (its name), `about`, and `language` (of the facts);
- `facts`: `id`, `text`, and `at`, the date on which the fact was stored;
- `questions`: `q`, `answers` (ids of facts), `kind`, and `language` where it is not that of the facts;
- `unknown`: questions to which no fact holds the answer;
- `updates`: pairs of an older and a newer fact. Both are stored.

Beside it, `everyday_hints.json` has what an agent says of each fact, having seen the facts alone: `"persona/id"`:
`{asks, words}`; and `everyday_also.json` other wordings of each question, by one who saw the questions alone.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

from measures.hand_written import read_data
from measures.stores import SCOPE, StoppedClock, add, embed_waiting
from palimpsest.core.clock import parse_instant
from palimpsest.core.models import Message
from palimpsest.memory import Memory


@dataclass(frozen=True)
class DatedFact:
    """A fact as an agent stored it, when, and its hints."""

    id: str
    text: str
    at: datetime
    hints: tuple[str, ...] = ()


@dataclass(frozen=True)
class PersonaQuestion:
    """A question, the ids of the facts that answer it, its kind, and its language."""

    text: str
    answers: tuple[str, ...]
    kind: str
    language: str


@dataclass(frozen=True)
class Persona:
    """The facts about one person or project, sorted by date, and what is asked about them.

    `also` has other wordings of questions.
    """

    name: str
    language: str
    facts: tuple[DatedFact, ...]
    questions: tuple[PersonaQuestion, ...]
    unknown: tuple[str, ...]
    updates: tuple[tuple[str, str], ...]
    also: Mapping[str, tuple[str, ...]]

    @cached_property
    def texts(self) -> Mapping[str, str]:
        """Return the texts of the facts by id."""
        return {fact.id: fact.text for fact in self.facts}

    @property
    def asked_at(self) -> datetime:
        """Return when the questions are asked: one day after the last fact."""
        return self.facts[-1].at + timedelta(days=1)

    def wordings(self, question: str) -> list[tuple[str, ...]]:
        """Return with which other wordings a question is asked: with none, and with those that it has."""
        return [(), *([self.also[question]] if self.also.get(question) else [])]

    def outdated_by(self, answers: Sequence[str]) -> list[tuple[str, str]]:
        """Return the pairs of an older and a newer fact whose newer one is among the answers."""
        return [(older, newer) for older, newer in self.updates if newer in answers]


# A question and its other wordings.
Asked: TypeAlias = tuple[str, tuple[str, ...]]


def read_far_off(half: int) -> list[Asked]:
    """Return the far-off questions of the first or the second half, some of them with other wordings."""
    entries = read_data("far_off")
    return [(entry["q"], tuple(entry.get("also", ()))) for entry in entries if entry["half"] == half]


def read_personas(files: Sequence[Path]) -> list[Persona]:
    """Return the personas of files, in order."""
    return [
        _persona(entry, _beside(file, "hints"), _beside(file, "also").get(entry["persona"], {}))
        for file in files
        for entry in json.loads(file.read_text("utf-8"))
    ]


def _beside(file: Path, what: str) -> Mapping[str, Any]:
    other = file.with_stem(f"{file.stem}_{what}")
    return json.loads(other.read_text("utf-8")) if other.exists() else {}


def _persona(entry: Mapping[str, Any], hints: Mapping[str, Any], also: Mapping[str, Sequence[str]]) -> Persona:
    facts: list[DatedFact] = []
    for fact in entry["facts"]:
        given = hints.get(f"{entry['persona']}/{fact['id']}", {"asks": [], "words": []})
        at = parse_instant(fact["at"], "at")
        facts.append(DatedFact(fact["id"], fact["text"], at, (*given["asks"], *given["words"])))
    language: str = entry["language"]
    questions = [
        PersonaQuestion(
            asked["q"],
            tuple(asked["answers"]),
            asked["kind"],
            asked.get("language", language),
        )
        for asked in entry["questions"]
    ]
    updates = tuple((older, newer) for older, newer in entry["updates"])
    facts.sort(key=lambda fact: fact.at)
    others = {question: tuple(wordings) for question, wordings in also.items()}
    return Persona(entry["persona"], language, tuple(facts), tuple(questions), tuple(entry["unknown"]), updates, others)


async def store_facts(
    memory: Memory, clock: StoppedClock, persona: Persona, *, with_hints: bool = False
) -> dict[str, str]:
    """Store each fact on its date, set the clock to when the questions are asked, and return the ids of the memories.

    The keys are the ids of the facts.
    """
    ids: dict[str, str] = {}
    for fact in persona.facts:
        clock.at = fact.at
        ids[fact.id] = await add(memory, fact.text, hints=fact.hints if with_hints else ())
    await embed_waiting(memory)
    clock.at = persona.asked_at
    return ids


async def say_facts(memory: Memory, clock: StoppedClock, persona: Persona) -> dict[str, str]:
    """Do the same with messages of the user, each in a session of its own, and return their ids."""
    ids = {fact.id: str(uuid.uuid4()) for fact in persona.facts}
    for fact in persona.facts:
        clock.at = fact.at
        said = Message(ids[fact.id], SCOPE, "user", fact.text, said_at=fact.at, created_at=fact.at)
        await memory.add_messages([said], infer=False)
    await embed_waiting(memory)
    clock.at = persona.asked_at
    return ids
