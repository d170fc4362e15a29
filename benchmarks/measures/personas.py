"""Read personas: facts with dates, questions with the facts that answer them, and questions without an answer.

`everyday.json`, `lives.json` and `cross_language.json` have this form. A file is a list of personas, each with

- `persona` (its name), `about`, and `language` (of the facts);
- `facts`: `id`, `text`, and `at`, the date on which the fact was stored;
- `questions`: `q`, `answers` (ids of facts), `kind`, and `language` where it is not that of the facts;
- `unknown`: questions to which no fact holds the answer;
- `updates`: pairs of an older and a newer fact. Both are stored.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any

from measures.stores import SCOPE, StoppedClock, add, embed_waiting
from palimpsest.core.clock import parse_instant
from palimpsest.core.models import Message
from palimpsest.memory import Memory


@dataclass(frozen=True)
class DatedFact:
    """A fact as an agent stored it, and when."""

    id: str
    text: str
    at: datetime


@dataclass(frozen=True)
class PersonaQuestion:
    """A question, the ids of the facts that answer it, its kind, and its language."""

    text: str
    answers: tuple[str, ...]
    kind: str
    language: str


@dataclass(frozen=True)
class Persona:
    """The facts about one person or project, sorted by date, and what is asked about them."""

    name: str
    language: str
    facts: tuple[DatedFact, ...]
    questions: tuple[PersonaQuestion, ...]
    unknown: tuple[str, ...]
    updates: tuple[tuple[str, str], ...]

    @cached_property
    def texts(self) -> Mapping[str, str]:
        """Return the texts of the facts by id."""
        return {fact.id: fact.text for fact in self.facts}

    @property
    def asked_at(self) -> datetime:
        """Return when the questions are asked: one day after the last fact."""
        return self.facts[-1].at + timedelta(days=1)

    def outdated_by(self, answers: Sequence[str]) -> list[tuple[str, str]]:
        """Return the pairs of an older and a newer fact whose newer one is among the answers."""
        return [(older, newer) for older, newer in self.updates if newer in answers]


def read_personas(files: Sequence[Path]) -> list[Persona]:
    """Return the personas of files, in order."""
    return [_persona(entry) for file in files for entry in json.loads(file.read_text("utf-8"))]


def _persona(entry: Mapping[str, Any]) -> Persona:
    facts = [DatedFact(fact["id"], fact["text"], parse_instant(fact["at"], "at")) for fact in entry["facts"]]
    language: str = entry["language"]
    questions = [
        PersonaQuestion(asked["q"], tuple(asked["answers"]), asked["kind"], asked.get("language", language))
        for asked in entry["questions"]
    ]
    updates = tuple((older, newer) for older, newer in entry["updates"])
    facts.sort(key=lambda fact: fact.at)
    return Persona(entry["persona"], language, tuple(facts), tuple(questions), tuple(entry["unknown"]), updates)


async def store_facts(memory: Memory, clock: StoppedClock, persona: Persona) -> dict[str, str]:
    """Store each fact on its date, set the clock to when the questions are asked, and return the ids of the memories.

    The keys are the ids of the facts.
    """
    ids: dict[str, str] = {}
    for fact in persona.facts:
        clock.at = fact.at
        ids[fact.id] = await add(memory, fact.text)
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
