"""What the settings say is to be learned: instructions, and topics to keep or to leave out."""

from __future__ import annotations

from collections.abc import Sequence

from palimpsest.core.models import Fact
from palimpsest.core.settings import Settings
from palimpsest.text.tokenizer import search_tokens


def instructions(settings: Settings) -> str:
    """Return what is added to the instructions of the extraction; "" if the settings say nothing."""
    parts = [settings.custom_instructions or ""]
    if settings.includes:
        parts.append(f"Extract facts about these topics only: {'; '.join(settings.includes)}.")
    if settings.excludes:
        parts.append(
            f"Never extract anything about these topics: {'; '.join(settings.excludes)}. If a fact touches one of them "
            "all the same, add that topic to its tags, in exactly these words; the fact is then left out."
        )
    return "\n\n".join(part for part in parts if part)


def without_excluded(facts: Sequence[Fact], excludes: Sequence[str]) -> tuple[list[Fact], list[str]]:
    """Return the facts without those whose tags and keywords have the words of an excluded topic, and a note on each.

    The tags and keywords are the model's. It may name the topic without leaving out the fact.
    """
    unwanted = [(topic, words) for topic in excludes if (words := set(search_tokens(topic)))]
    kept: list[Fact] = []
    notes: list[str] = []
    for fact in facts:
        labels = {word for label in (*fact.tags, *fact.keywords) for word in search_tokens(label)}
        topic = next((topic for topic, words in unwanted if words <= labels), None)
        if topic is None:
            kept.append(fact)
        else:
            notes.append(f"a fact was not kept, because the settings exclude '{topic}'")
    return kept, notes
