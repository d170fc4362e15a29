"""The person of `living.json`: what she tells and when, what changes, what passes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

DATA = Path(__file__).parent.parent / "living.json"


@dataclass(frozen=True)
class Told:
    """Something she told on a day: as a fact, in her own words, and the value by which an answer is recognized."""

    on: date
    text: str
    said: str
    value: str = ""


@dataclass(frozen=True)
class Matter:
    """Something lasting about her, the question about it, and what she told of it over the year, oldest first."""

    name: str
    question: str
    section: str
    told: tuple[Told, ...]

    def current(self, day: date) -> Told | None:
        """Return what holds on a day, or None if she has not told yet."""
        known = self.known(day)
        return known[-1] if known else None

    def known(self, day: date) -> Sequence[Told]:
        """Return what she has told until the end of a day."""
        return [told for told in self.told if told.on <= day]


@dataclass(frozen=True)
class Person:
    """All that happens in her year. `chatter` are exchanges that say nothing about her."""

    matters: tuple[Matter, ...]
    passing: tuple[Told, ...]
    chatter: tuple[tuple[str, str], ...]

    def told_on(self, day: date) -> Sequence[Told]:
        """Return what she tells on a day."""
        lasting = [told for matter in self.matters for told in matter.told if told.on == day]
        return [*lasting, *(told for told in self.passing if told.on == day)]

    @property
    def all_told(self) -> Sequence[Told]:
        """Return everything she tells in the year."""
        return [*(told for matter in self.matters for told in matter.told), *self.passing]

    def matter_of(self, text: str) -> Matter | None:
        """Return what a fact is about, or None if it passes."""
        return next((matter for matter in self.matters if any(told.text == text for told in matter.told)), None)


def read_person() -> Person:
    """Return the person of the data file."""
    data: dict[str, Any] = json.loads(DATA.read_text("utf-8"))
    matters = [
        Matter(name, item["question"], item["section"], tuple(map(_told, item["told"])))
        for name, item in data["slots"].items()
    ]
    return Person(tuple(matters), tuple(map(_told, data["passing"])), tuple((a, b) for a, b in data["chatter"]))


def _told(item: Mapping[str, str]) -> Told:
    return Told(date.fromisoformat(item["on"]), item["text"], item["said"], item.get("value", ""))
