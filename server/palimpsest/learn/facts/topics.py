"""What the settings say is to be learned: instructions, and topics to keep or to leave out."""

from __future__ import annotations

from collections.abc import Sequence

from palimpsest.core.models import Fact
from palimpsest.core.settings import Settings


def instructions(settings: Settings) -> str:
    """Return what is added to the instructions of the extraction; "" if the settings say nothing."""
    parts = [settings.custom_instructions or ""]
    if settings.includes:
        parts.append(f"Extract facts about these topics only: {'; '.join(settings.includes)}.")
    if settings.excludes:
        parts.append(f"Never extract anything about these topics: {'; '.join(settings.excludes)}.")
    return "\n\n".join(part for part in parts if part)


def without_excluded(facts: Sequence[Fact], excludes: Sequence[str]) -> tuple[list[Fact], list[str]]:
    """Return the facts without those that the model itself tagged with an excluded topic, and a note on each."""
    unwanted = {topic.casefold() for topic in excludes}
    kept: list[Fact] = []
    notes: list[str] = []
    for fact in facts:
        topic = next((tag for tag in fact.tags if tag.casefold() in unwanted), None)
        if topic is None:
            kept.append(fact)
        else:
            notes.append(f"a fact was not kept, because the settings exclude '{topic}'")
    return kept, notes
